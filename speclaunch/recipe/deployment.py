"""The Deployment as plain records, made of values that are plainly right.

`schema.py` is what a recipe may say: it knows every form of a value and has the words for what is
wrong, and takes a third of a quick answer to load. Values that need none of this (each of its very
type, and within its bounds) become the records below, with the same names and defaults; for
anything else `plain_deployment` gives None. tests/recipe/test_deployment.py holds both to each
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

from speclaunch.facts.declared_gpus import AUTO
from speclaunch.recipe.plain_checks import (
    MOST_REPLICAS,
    PIN,
    ROUTES,
    NotPlainError,
    check_arguments,
    check_arguments_or_none,
    check_flag,
    check_hardware_name,
    check_image,
    check_label,
    check_model_store,
    check_name_text,
    check_overlay,
    check_resource,
    check_sizes,
    check_store,
    check_text,
    check_text_or_none,
    check_variables,
    check_version,
    checked,
    is_role_name,
    made_of,
    number,
    one_of,
    one_of_or_none,
    optional_section,
    section,
    sections_by_name,
    whole,
)
from speclaunch.record import record

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from speclaunch.recipe.schema import Deployment


class RecoveryPolicy(StrEnum):
    """How the next settings are found when a start ran out of memory."""

    OFF = "off"
    """Not at all: a start that fails is reported and not tried again."""
    BUDGET = "budget"
    """The memory budget chooses the first settings that are predicted to fit."""
    ORDER = "order"
    """One setting after the other, in the order that is written."""


class Steppable(StrEnum):
    """A setting that recovery may change."""

    FRACTION = "mem_fraction_static"
    GRAPHS = "cuda_graph_max_bs_decode"
    TREE = "draft_tree"
    """`speculative_num_steps`, `speculative_eagle_topk` and `speculative_num_draft_tokens`, which
    only change together."""
    RUNNING = "max_running_requests"
    CHUNK = "chunked_prefill_size"
    POOL = "max_total_tokens"


def _policy(value: object) -> RecoveryPolicy:
    if value is False:
        return RecoveryPolicy.OFF
    return RecoveryPolicy(one_of(*RecoveryPolicy)(value))


def _order(value: object) -> tuple[Steppable, ...]:
    if type(value) not in (list, tuple):
        raise NotPlainError
    check = one_of(*Steppable)
    found = tuple(Steppable(check(one)) for one in cast("list[object]", value))
    if len(set(found)) != len(found):
        raise NotPlainError
    return found


class _Section:
    """Is copied as a section of the schema is."""

    __slots__ = ()

    def model_copy(self, *, update: Mapping[str, Any]) -> Any:
        """The same with other values."""
        kept = {one.name: getattr(self, one.name) for one in fields(cast("Any", self))}
        return type(self)(**{**kept, **update})


def _specifiers(stated: Iterable[str]) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  slow to import

    clauses = [f"=={one}" if PIN.match(one) else one for one in stated]
    return SpecifierSet(",".join(clauses), prereleases=True)


@record
class PlainEngine(_Section):
    """`schema.Engine`."""

    version: str | None = checked(check_version, None)
    requires: str | None = checked(check_version, None)
    python: str | None = checked(check_text_or_none, None)
    catalogue: str | None = checked(check_text_or_none, None)
    env: dict[str, str | None] = field(default_factory=dict, metadata={"check": check_variables})

    @property
    def specifier(self) -> SpecifierSet:
        """The versions that can serve this, its pin included; empty means any."""
        return _specifiers([*self.needs, self.pinned] if self.pinned else self.needs)

    @property
    def bounds(self) -> SpecifierSet:
        """The versions that can serve this, whatever it is pinned to; empty means any."""
        return _specifiers(self.needs)

    @property
    def needs(self) -> tuple[str, ...]:
        """The bounds as the recipe states them."""
        stated = (None if self.pinned else self.version, self.requires)
        return tuple(one for one in stated if one)

    @property
    def pinned(self) -> str | None:
        """The one version that was asked for, if it was one."""
        return self.version if self.version and PIN.match(self.version) else None


@record
class PlainHardware(_Section):
    """`schema.HardwareSection`."""

    name: str = checked(check_hardware_name, AUTO)


@record
class PlainVerification(_Section):
    """`launch_schema.VerificationSection`."""

    enabled: bool = checked(check_flag, True)
    prompt: str = checked(check_text, "The capital of France is")
    max_new_tokens: int = whole(32, 2, 4096)
    timeout_seconds: float = number(120.0, above=0)


@record
class PlainLog(_Section):
    """`launch_schema.EngineLog`."""

    max_mb: float = number(256.0, above=0)
    keep: int = whole(3, 0, 1000)


@record
class PlainRestart(_Section):
    """`launch_schema.Restart`."""

    policy: str = checked(one_of("auto", "on-failure", "never"), "auto")
    first_delay_seconds: float = number(1.0)
    longest_delay_seconds: float = number(60.0)
    limit: int = whole(5, 1)
    window_seconds: float = number(900.0, above=0)


@record
class PlainWatchdog(_Section):
    """`launch_schema.WatchdogSection`."""

    enabled: bool = checked(check_flag, True)
    interval_seconds: float = number(20.0, above=0)
    timeout_seconds: float = number(20.0, above=0)
    failures: int = whole(3, 1)


@record
class PlainAgreement(_Section):
    """`launch_schema.Agreement`."""

    directory: str | None = checked(check_text_or_none, None)
    job: str | None = checked(check_text_or_none, None)
    part: str | None = checked(check_text_or_none, None)
    parts: dict[str, int] = field(default_factory=dict, metadata={"check": check_sizes})
    lease_seconds: float = number(30.0, low=1.0)
    timeout_seconds: float = number(600.0, above=0)


@record
class PlainLaunch(_Section):
    """`launch_schema.Launch`."""

    ready_timeout_seconds: float = number(3600.0, above=0)
    grace_seconds: float = number(8.0)
    log_dir: str | None = checked(check_text_or_none, None)
    keep_runs: int = whole(100, 0)
    share_gpus: bool = checked(check_flag, False)
    log: PlainLog = section(PlainLog)
    verify: PlainVerification = section(PlainVerification)
    watchdog: PlainWatchdog = section(PlainWatchdog)
    restart: PlainRestart = section(PlainRestart)
    agreement: PlainAgreement = section(PlainAgreement)


@record
class PlainFloors(_Section):
    """`schema.Floors`."""

    mem_fraction_static: float = number(0.2, above=0, below=1)
    cuda_graph_max_bs_decode: int = whole(2, 1)
    speculative_num_steps: int = whole(1, 1)
    max_running_requests: int = whole(4, 1)
    chunked_prefill_size: int = whole(1024, 64)
    max_total_tokens: int = whole(1024, 1)


@record
class PlainLimits(_Section):
    """`schema.RecoveryLimits`."""

    mem_fraction_static: float = number(0.98, above=0, below=1)


@record
class PlainObjective(_Section):
    """`schema.Objective`."""

    tokens_within: float = number(0.2, below=1)


@record
class PlainRecovery(_Section):
    """`schema.Recovery`."""

    policy: RecoveryPolicy = checked(_policy, RecoveryPolicy.OFF)
    max_attempts: int = whole(8, 1, 100)
    order: tuple[Steppable, ...] = checked(
        _order, (Steppable.FRACTION, Steppable.GRAPHS, Steppable.TREE, Steppable.RUNNING)
    )
    floors: PlainFloors = section(PlainFloors)
    limits: PlainLimits = section(PlainLimits)
    objective: PlainObjective = section(PlainObjective)
    fraction_step: float = number(0.1, above=0, below=1)
    minimal: dict[str, Any] = field(default_factory=dict, metadata={"check": check_arguments})


@record
class PlainRole(_Section):
    """`schema.RoleSection`."""

    replicas: int = whole(1, 1, MOST_REPLICAS)
    args: dict[str, Any] | None = checked(check_arguments_or_none, None)
    engine: dict[str, Any] | None = checked(check_overlay, None)
    hardware: dict[str, Any] | None = checked(check_overlay, None)
    launch: dict[str, Any] | None = checked(check_overlay, None)
    recovery: dict[str, Any] | None = checked(check_overlay, None)


@record
class PlainRouter(_Section):
    """`schema.RouterSection`."""

    args: dict[str, Any] = field(default_factory=dict, metadata={"check": check_arguments})
    port: int = whole(8000, 1, 65535)
    replicas: int = whole(1, 1, MOST_REPLICAS)


@record
class PlainDeploy(_Section):
    """`schema.DeploySection`."""

    image: str | None = checked(check_image, None)
    speclaunch: str | None = checked(one_of_or_none(*ROUTES), None)
    speclaunch_source: str | None = checked(check_store, None)
    namespace: str | None = checked(check_label, None)
    rdma: str | None = checked(check_resource, None)
    models: str | None = checked(check_model_store, None)
    model_cache: str | None = checked(check_store, None)
    jit_cache: str | None = checked(check_store, None)
    shared_dir: str | None = checked(check_store, None)
    drain_seconds: int = whole(120, 0, 86400)
    slurm: dict[str, Any] = field(default_factory=dict, metadata={"check": check_arguments})


@record
class PlainDeployment(_Section):
    """`schema.Deployment`."""

    name: str = field(metadata={"check": check_name_text})
    args: dict[str, Any] = field(metadata={"check": check_arguments})
    description: str = checked(check_text, "")
    engine: PlainEngine = section(PlainEngine)
    hardware: PlainHardware = section(PlainHardware)
    launch: PlainLaunch = section(PlainLaunch)
    recovery: PlainRecovery = section(PlainRecovery)
    roles: dict[str, PlainRole] = sections_by_name(PlainRole, is_role_name)
    router: PlainRouter | None = optional_section(PlainRouter)
    deploy: PlainDeploy = section(PlainDeploy)


def plain_deployment(values: object) -> Deployment | None:
    """The deployment of values that are plainly right; None where the schema has to judge."""
    try:
        found: PlainDeployment = made_of(PlainDeployment, values)
    except NotPlainError:
        return None
    recovery = found.recovery
    stuck = recovery.policy is not RecoveryPolicy.OFF and not recovery.order
    if stuck or recovery.floors.mem_fraction_static >= recovery.limits.mem_fraction_static:
        return None
    return cast("Deployment", found)


def key_paths() -> frozenset[str]:
    """Every key that a recipe may have, dotted (`launch.verify.prompt`), sections included."""
    return frozenset(_paths(PlainDeployment, ""))


def role_key_paths() -> frozenset[str]:
    """Every key that a role may have, dotted, as seen from the role (`hardware.name`)."""
    own = {one.name for one in fields(cast("Any", PlainRole))}
    return frozenset(path for path in key_paths() | own if path.partition(".")[0] in own)


def _paths(section: Any, prefix: str) -> Iterator[str]:
    for one in fields(section):
        yield f"{prefix}{one.name}"
        below = one.metadata.get("section")
        if below is not None:
            yield from _paths(below, f"{prefix}{one.name}.")

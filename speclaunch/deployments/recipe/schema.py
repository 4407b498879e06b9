"""Declaration of a recipe: each key with its type, default, bounds and messages.

`tools/section_table.py` writes `section_table.py` from these models. With it, `sections.py` accepts
plain values without importing pydantic; the models here check any other value.

`args:` is deliberately open here: its schema is the engine's own catalogue of server arguments
(`speclaunch.engine.releases.catalogue`), which depends on the engine version.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from speclaunch.core import InputError, Place, Problem
from speclaunch.deployments.recipe.lock import Lock, lock_of
from speclaunch.deployments.recipe.sections import (
    ENV_NAME,
    MOST_REPLICAS,
    MOST_ROLES,
    ROLES,
    EngineVersions,
    RecoveryPolicy,
    group_names,
    is_image,
    is_label,
    is_model_store,
    is_plain_version,
    is_resource,
    is_role_name,
    is_server_argument,
    is_store,
    recovery_conflict,
    specifier,
)
from speclaunch.deployments.recipe.source import Composition, KeyPath, exists
from speclaunch.engine import AUTO, DEFAULT_LIMITS, Steppable, declare, suggest

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

T = TypeVar("T")


class PlainKind(Struct, frozen=True):
    """Kind of plain values that `sections.py` reads for a key whose type does not determine the
    kind."""

    kind: str
    parameter: str | None = None


class TextForm(Struct, frozen=True):
    """Text that a predicate of `sections.py` accepts, and the message for any other text."""

    accepts: Callable[[str], bool]
    refusal: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: str) -> str:
        if not self.accepts(value):
            raise ValueError(f"{value!r} {self.refusal}")
        return value


class Section(BaseModel):
    """Part of a recipe. It is immutable and rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


Scalar = str | int | float | bool | None
ArgValue = Scalar | list[Any] | dict[str, Any]
"""Value of a server argument; null leaves the engine's default."""


def _env_name(name: str) -> str:
    if not ENV_NAME.match(name):
        raise ValueError(f"{name!r} is not the name of an environment variable")
    return name


def _env_value(value: object) -> object:
    """Return a variable as text: `true` becomes "True", as in the engine's documentation."""
    if isinstance(value, bool | int | float):
        return str(value)
    return value


def _env_texts(value: dict[str, str | None]) -> dict[str, str | None]:
    for name, text in value.items():
        if text is not None and "\0" in text:
            raise ValueError(f"the value of {name} contains a NUL character")
    return value


def _version(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f"write the version in quotes: '{value}' (YAML read a number)")
    if isinstance(value, str):
        try:
            specifier(value)
        except InvalidSpecifier:
            raise ValueError(
                f"{value!r} is neither a version (0.5.23) nor a specifier (>=0.5.11,<0.6)"
            ) from None
    return value


EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = Annotated[str | None, BeforeValidator(_env_value)]
Variables = Annotated[dict[EnvName, EnvValue], AfterValidator(_env_texts), PlainKind("variables")]
Version = Annotated[
    str | None, BeforeValidator(_version), PlainKind("form", is_plain_version.__name__)
]
Arguments = Annotated[dict[str, ArgValue], PlainKind("arguments")]


class Engine(EngineVersions, Section):
    """The engine that serves, and its environment."""

    version: Version = None
    """The engine version: `0.5.23` (a pin, which `--engine` overrides) or a specifier (`>=0.5.11`,
    a bound like `requires`)."""
    requires: Version = None
    """The engine versions that can serve the recipe, regardless of the pin: `>=0.5.11,<0.6`."""
    python: str | None = None
    """The interpreter that has sglang: a path, a name on PATH, or `cpu` for the CPU engine."""
    catalogue: str | None = None
    """Source of the arguments of an engine that is not a release: `installed` (from the
    interpreter), or the path of a package, a checkout, a wheel or a catalogue."""
    env: Variables = Field(default_factory=dict)
    """Environment variables of the engine; null removes a variable."""


def _hardware(value: str) -> str:
    if value != AUTO:
        try:
            declare(value)
        except InputError as error:
            (problem,) = error.problems
            raise ValueError(f"{problem.message}; {problem.help}") from None
    return value


class HardwareSection(Section):
    """The hardware that the deployment runs on."""

    name: Annotated[str, AfterValidator(_hardware), PlainKind("hardware")] = AUTO
    """`auto` (this machine's GPUs), `cpu`, or GPUs by name and number: `h100-80gb:8`."""


class VerificationSection(Section):
    """Check that a ready engine generates and speculates."""

    enabled: bool = True
    prompt: str = "The capital of France is"
    max_new_tokens: int = Field(default=32, ge=2, le=4096)
    """Tokens of the test generation; its acceptance length is reported."""
    timeout_seconds: float = Field(default=120, gt=0)


class EngineLog(Section):
    """File for the engine's output. A full file is rotated to `engine-1.log.1`."""

    max_mb: float = Field(default=256, gt=0)
    """Size in MB (10^6 bytes) at which a log file is rotated."""
    keep: int = Field(default=3, ge=0, le=1000)
    """Number of rotated log files to store."""


class Restart(Section):
    """Restarts of an engine that served and crashed, hung or ran out of memory."""

    policy: Literal["auto", "on-failure", "never"] = "auto"
    """`on-failure`: restart the engine; `auto`: restart the engine unless `recovery` is off."""
    first_delay_seconds: float = Field(default=1, ge=0)
    """Delay before the first restart; it doubles with each further restart."""
    longest_delay_seconds: float = Field(default=60, ge=0)
    limit: int = Field(default=5, ge=1)
    """Give up after more exits than this within `window_seconds`."""
    window_seconds: float = Field(default=900, gt=0)


class WatchdogSection(Section):
    """Check that a serving engine still generates, because `/health` answers even while generation
    hangs."""

    enabled: bool = True
    interval_seconds: float = Field(default=20, gt=0)
    """Request one token after this time without progress of the engine."""
    timeout_seconds: float = Field(default=20, gt=0)
    """Maximum time for the requested token."""
    failures: int = Field(default=3, ge=1)
    """Consecutive failures without progress that count as a hang."""


class Agreement(Section):
    """Agreement of the ranks of a deployment on the same settings."""

    directory: str | None = None
    """A directory that all hosts share; null: each rank recovers independently."""
    job: str | None = None
    """Name of this run on all ranks; null: the name that Slurm or a LeaderWorkerSet gives it."""
    part: str | None = None
    """Name of this server in `parts`; null: its role (prefill, decode), or `server` without one."""
    parts: Annotated[dict[str, Annotated[int, Field(ge=1)]], PlainKind("sizes")] = Field(
        default_factory=dict
    )
    """Servers that agree, with the number of ranks (`nnodes`) of each; empty: only this server."""
    lease_seconds: float = Field(default=30, ge=1)
    """A rank that cannot use the directory for this long stops its engine."""
    timeout_seconds: float = Field(default=600, gt=0)
    """Maximum wait for a missing rank."""


class Launch(Section):
    """Settings for starting, supervising and stopping the engine."""

    ready_timeout_seconds: float = Field(default=3600, gt=0)
    """Give up if the engine is not ready after this time (large models load slowly)."""
    grace_seconds: float = Field(default=8, ge=0)
    """Time for the engine to finish its requests after SIGTERM before it is killed."""
    log_dir: str | None = None
    """Directory of engine logs; default: `runs/` in the home directory of speclaunch."""
    keep_runs: int = Field(default=100, ge=0)
    """Number of ended launches whose logs and journals remain in `log_dir`; 0: all."""
    share_gpus: bool = False
    """Start even if another engine started by speclaunch holds one of the GPUs."""
    log: EngineLog = EngineLog()
    verify: VerificationSection = VerificationSection()
    watchdog: WatchdogSection = WatchdogSection()
    restart: Restart = Restart()
    agreement: Agreement = Agreement()


class ServingSection(Section):
    """Reaction to changes of a serving engine."""

    on_degraded: Literal["log", "stop"] = "log"
    """Reaction to a drop in the acceptance length: `log` it, or also `stop` the engine."""


def _off(value: object) -> object:
    """Return `off` for false, because YAML reads a plain `off` as false."""
    return "off" if value is False else value


_FLOORS = DEFAULT_LIMITS.floors


class Floors(Section):
    """Lower bounds of the settings that recovery reduces."""

    mem_fraction_static: float = Field(default=_FLOORS.mem_fraction_static, gt=0, lt=1)
    cuda_graph_max_bs_decode: int = Field(default=_FLOORS.cuda_graph_max_bs_decode, ge=1)
    speculative_num_steps: int = Field(default=_FLOORS.speculative_num_steps, ge=1)
    max_running_requests: int = Field(default=_FLOORS.max_running_requests, ge=1)
    chunked_prefill_size: int = Field(default=_FLOORS.chunked_prefill_size, ge=64)
    max_total_tokens: int = Field(default=_FLOORS.max_total_tokens, ge=1)


class RecoveryLimits(Section):
    """Upper bounds of the settings that recovery changes."""

    mem_fraction_static: float = Field(default=DEFAULT_LIMITS.most_fraction, gt=0, lt=1)
    """Lower this limit if something else needs the GPU, such as training next to the rollout."""


class Objective(Section):
    """Order of losses: running requests first, then KV tokens, then the depth of speculation."""

    tokens_within: float = Field(default=DEFAULT_LIMITS.tokens_within, ge=0, lt=1)
    """Lose up to this share of the KV tokens before reducing the depth of speculation."""


def _once_each(value: tuple[Steppable, ...]) -> tuple[Steppable, ...]:
    twice = sorted({str(item) for item in value if value.count(item) > 1})
    if twice:
        raise ValueError(f"{twice[0]} appears twice")
    return value


Policy = Annotated[RecoveryPolicy, BeforeValidator(_off), PlainKind("policy")]
Order = Annotated[tuple[Steppable, ...], AfterValidator(_once_each), PlainKind("order")]


class Recovery(Section):
    """Recovery when the engine runs out of memory."""

    policy: Policy = RecoveryPolicy.OFF
    max_attempts: int = Field(default=8, ge=1, le=100)
    """Maximum number of start attempts, including the first."""
    order: Order = (Steppable.FRACTION, Steppable.GRAPHS, Steppable.TREE, Steppable.RUNNING)
    """Settings that may be reduced, in this order."""
    floors: Floors = Floors()
    limits: RecoveryLimits = RecoveryLimits()
    objective: Objective = Objective()
    fraction_step: float = Field(default=0.1, gt=0, lt=1)
    """Step of `mem_fraction_static` if no memory budget determines it."""
    minimal: Arguments = Field(default_factory=dict)
    """Server arguments of the last attempt, after all other steps failed."""

    @model_validator(mode="after")
    def _conflict(self) -> Self:
        low, high = self.floors.mem_fraction_static, self.limits.mem_fraction_static
        if (conflict := recovery_conflict(self.policy, self.order, low, high)) is not None:
            raise ValueError(conflict)
        return self


def _overlay(value: Any, _validator: object) -> Any:
    """Return a role's section; its keys are checked after the merge with the shared section."""
    if value is None or isinstance(value, dict):
        return value
    raise PydanticCustomError("dict_type", "expected `key: value` lines below it")


Overlaid = Annotated[T | None, WrapValidator(_overlay), PlainKind("overlay")]


def _role_name(name: str) -> str:
    if name == "router":
        raise ValueError("the router is not a role: write `router:` at the top level")
    if not is_role_name(name):
        raise ValueError(
            f"{name!r} cannot be the name of a role: use at most 40 lower-case letters, digits and "
            "dashes, starting with a letter"
        )
    return name


class RoleSection(Section):
    """Role of a deployment: its additions to the shared settings, and its overrides."""

    replicas: int = Field(default=1, ge=1, le=MOST_REPLICAS)
    """Number of servers. The engine's `nnodes` sets the hosts of each server."""
    args: Arguments | None = None
    """Arguments merged over the shared `args`; null leaves the engine's default."""
    engine: Overlaid[Engine] = None
    hardware: Overlaid[HardwareSection] = None
    launch: Overlaid[Launch] = None
    serving: Overlaid[ServingSection] = None
    recovery: Overlaid[Recovery] = None


class RouterSection(Section):
    """Router in front of prefill and decode servers, or of replicas."""

    args: Arguments = Field(default_factory=dict)
    """Options of sglang_router under their own names, e.g. `policy`."""
    port: int = Field(default=8000, ge=1, le=65535)
    """Port that the router listens on."""
    replicas: int = Field(default=1, ge=1, le=MOST_REPLICAS)


_STORE = "is neither an absolute path nor a volume claim (pvc:NAME)"
_MODEL_STORE = "is neither an absolute path, a volume claim (pvc:NAME) nor emptyDir"
Image = Annotated[str, TextForm(is_image, "is not the name of an image (lmsysorg/sglang:v0.5.23)")]
Namespace = Annotated[str, TextForm(is_label, "is not the name of a namespace")]
Resource = Annotated[
    str, TextForm(is_resource, "is not the name of a resource (rdma/ib, or rdma/ib:8)")
]
ModelStore = Annotated[str, TextForm(is_model_store, _MODEL_STORE)]
Store = Annotated[str, TextForm(is_store, _STORE)]


class DeploySection(Section):
    """Settings of rendered deployments."""

    image: Image | None = None
    """Container image; default: the official image of the rendered version."""
    speclaunch: Literal["image", "wheel", "mounted"] | None = None
    """Source of speclaunch in the deployment; null: plain SGLang."""
    speclaunch_source: Store | None = None
    """Directory of each host, or volume claim (`pvc:NAME`), with the wheels or the virtual
    environment of speclaunch."""
    namespace: Namespace | None = None
    """Namespace of the rendered objects; null: the namespace that they are applied to."""
    rdma: Resource | None = None
    """Resource of the cluster's plugin for RDMA devices and their number per pod (default 1):
    `rdma/ib`, `nvidia.com/mlnxnics:8`."""
    models: ModelStore | None = None
    """Storage of checkpoints: a directory of each host, `pvc:NAME` (an existing volume
    claim), or `emptyDir`. Default: Kubernetes targets render a volume claim."""
    model_cache: Store | None = None
    """The former name of `models`."""
    jit_cache: Store | None = None
    """Storage of compiled kernels: a directory of each host, or `pvc:NAME`."""
    shared_dir: Store | None = None
    """Directory that all hosts share, or `pvc:NAME`, for journals and last known good settings."""
    drain_seconds: int = Field(default=120, ge=0, le=86400)
    """Time for running requests to finish when a server is stopped."""
    monitoring: Literal["operator", "annotations"] | None = None
    """Discovery of pods by Prometheus: objects of the Prometheus Operator, with alerts, or scrape
    annotations; null: none."""
    slurm: Arguments = Field(default_factory=dict)
    """Options that the cluster requires, by the names of sbatch's options (`partition`, `account`,
    `time`); `module`: modules to load first; for srt-slurm also `gpu_type`."""


def _or_empty(value: object) -> object:
    """Return `value`, or an empty mapping for a role without settings."""
    return {} if value is None else value


def _few(value: object) -> object:
    if isinstance(value, dict) and len(value) > MOST_ROLES:
        raise ValueError(f"{len(value)} roles; a recipe can have at most {MOST_ROLES}")
    return value


class _LockForm:
    """Validation of a lock's record, which `lock.py` declares."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(lock_of)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "object"}


RecordedLock = Annotated[Lock, _LockForm(), PlainKind("lock")]
RoleName = Annotated[str, AfterValidator(_role_name)]
NamedRole = Annotated[RoleSection, BeforeValidator(_or_empty)]
Roles = Annotated[
    dict[RoleName, NamedRole], BeforeValidator(_few), PlainKind("sections", RoleSection.__name__)
]


class Deployment(Section):
    """Requested deployment. Every section except `args` rejects unknown keys."""

    name: str = Field(min_length=1)
    description: str = ""
    args: Arguments
    """SGLang server arguments under the engine's own names, e.g. `mem_fraction_static`."""
    engine: Engine = Engine()
    hardware: HardwareSection = HardwareSection()
    launch: Launch = Launch()
    serving: ServingSection = ServingSection()
    recovery: Recovery = Recovery()
    roles: Roles = Field(default_factory=dict)
    """Servers that work together, by name; each is merged over the other sections."""
    router: RouterSection | None = None
    deploy: DeploySection = DeploySection()
    lock: RecordedLock | None = None
    """Record of the server that ran, written by `--lock`. A recipe with this section is a lock."""


# -- problems

_CheckedRole = tuple[Mapping[str, Any], str] | None
"""Values of the complete recipe, and the checked role; None if the recipe itself is checked."""


def refused_paths(error: ValidationError) -> Iterator[KeyPath]:
    """Yield the key path of each rejected value."""
    for detail in error.errors(include_url=False):
        yield tuple(part for part in detail["loc"] if part != "[key]")


def problems(
    error: ValidationError, composition: Composition, role: _CheckedRole = None
) -> list[Problem]:
    """Return the problems of rejected values, with places. `role`: None for the recipe itself."""
    return [_problem(details, composition, role) for details in error.errors(include_url=False)]


def _sets_key(values: Mapping[str, Any], role: str, path: KeyPath) -> bool:
    """True if `role` itself sets key `path`, not only the shared settings."""
    found: Any = values[ROLES][role]
    for part in path:
        if not isinstance(found, dict) or part not in found:
            return False
        found = found[part]
    return True


def _key(path: KeyPath, role: _CheckedRole) -> str:
    """Return the dotted key, with a role's prefix if the role sets it."""
    if role is not None and _sets_key(*role, path):
        path = (ROLES, role[1], *path)
    return ".".join(str(part) for part in path)


def _problem(detail: ErrorDetails, composition: Composition, role: _CheckedRole) -> Problem:
    path: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
    # pydantic appends the member of a union that it tried (`args.x.str`), which is not a key.
    while len(path) > 1 and not exists(composition.values, path) and detail["type"] != "missing":
        path = path[:-1]
    provenance = composition.provenance
    written = provenance.places.get(tuple(map(str, path)))  # a key that YAML reads as a number
    place = written or provenance.find(path) or Place(str(composition.path))
    key = _key(path, role)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path, composition, role)
    if detail["type"] in ("model_type", "dict_type"):
        return Problem(f"{key}: expected `key: value` lines below it", place)
    if detail["type"] == "missing":
        return Problem(f"{key!r} is missing", place)
    message = detail["msg"].removeprefix("Value error, ")
    return Problem(f"{key}: {message[0].lower()}{message[1:]}", place)


def _unknown_key(path: KeyPath, composition: Composition, role: _CheckedRole) -> Problem:
    key = _key(path, role)
    provenance = composition.provenance
    place = provenance.places.get(path) or provenance.first_below(path)
    if place is not None and key in group_names() and Path(place.path).parent.name == key:
        return Problem(
            f"this option sets values under `{key}`, which is not a section of a recipe",
            place,
            "write `# @package args` on the first line of the file",
        )
    place = place or provenance.find(path) or Place(str(composition.path))
    return Problem(f"unknown key {key!r}", place, _known_keys(path))


def _known_keys(path: KeyPath) -> str | None:
    """Return help for an unknown key (a similar key, or the keys of its section), or None."""
    model: Any = Deployment
    for part in path[:-1]:
        model = _below(model, str(part))
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    known = sorted(model.model_fields)
    name = str(path[-1])
    near = suggest(name, [*known, "defaults"] if len(path) == 1 else known)
    if len(path) == 1 and is_server_argument(name):
        return f"set server arguments under `args`: args.{name}"
    if len(path) == 3 and path[0] == "roles" and is_server_argument(name) and not near:
        return f"set server arguments of a role under its `args`: {path[0]}.{path[1]}.args.{name}"
    if near:
        return near
    listed = ", ".join(f"`{name}`" for name in known)
    if len(path) == 1:
        return f"the sections of a recipe are {listed}; set server arguments under `args`"
    return f"`{'.'.join(str(part) for part in path[:-1])}` has the keys {listed}"


def _below(model: Any, part: str) -> Any:
    """Return the type of a section's key, or of a mapping's values; None if unknown."""
    if model is None or not hasattr(model, "model_fields"):
        return (
            _without_none(typing.get_args(model)[1]) if typing.get_origin(model) is dict else None
        )
    field = model.model_fields.get(part)
    return None if field is None else _without_none(field.annotation)


def _without_none(annotation: Any) -> Any:
    """Return a type without `None` and without annotations."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _without_none(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(member for member in typing.get_args(annotation) if member is not type(None))
    return annotation

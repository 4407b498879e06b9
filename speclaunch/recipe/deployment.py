"""The Deployment as plain records, made of values that are plainly right.

`schema.py` is what a recipe may say: it knows every form of a value and has the words for what is
wrong, and takes a third of a quick answer to load. Values that need none of this (each of its very
type, and within its bounds) become the records below, with the same names and defaults; for
anything else `plain_deployment` gives None. tests/recipe/test_deployment.py holds both to each
other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, cast

from speclaunch.errors import InputError
from speclaunch.facts.declared_gpus import AUTO, declare
from speclaunch.patterns import lazy
from speclaunch.record import record

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from speclaunch.recipe.schema import Deployment

Check = Callable[[object], Any]
"""From a value as it is written to the value of the field. Raises _NotPlain."""

_ENV_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RELEASE = r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))+(\.post(0|[1-9][0-9]*))?"
_PIN = lazy(rf"{_RELEASE}\Z", re.ASCII)
_CLAUSES = lazy(rf"(>=|<=|<|>|!=){_RELEASE}(,(>=|<=|<|>|!=){_RELEASE})*\Z", re.ASCII)
"""What else is a specifier is for packaging to say."""
_LARGEST = 1e15


class _NotPlain(Exception):
    """A value that the schema has to take, or to refuse."""


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


def _value(check: Check, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"check": check})


def _whole(default: int, low: int, high: int | None = None) -> Any:
    def check(value: object) -> int:
        if type(value) is not int or value < low or (high is not None and value > high):
            raise _NotPlain
        return value

    return _value(check, default)


def _number(
    default: float, *, above: float | None = None, low: float = 0.0, below: float = math.inf
) -> Any:
    def check(value: object) -> float:
        if type(value) not in (int, float) or abs(cast("float", value)) > _LARGEST:
            raise _NotPlain
        number = float(cast("float", value))
        if not (number > above if above is not None else number >= low) or not number < below:
            raise _NotPlain
        return number

    return _value(check, default)


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise _NotPlain
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise _NotPlain
    return value


def _name(value: object) -> str:
    if not (text := _text(value)):
        raise _NotPlain
    return text


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _version(value: object) -> str | None:
    text = _text_or_none(value)
    if text is not None and not _PIN.match(text) and not _CLAUSES.match(text):
        raise _NotPlain
    return text


def _hardware_name(value: object) -> str:
    text = _text(value)
    if text != AUTO:
        try:
            declare(text)
        except InputError:
            raise _NotPlain from None
    return text


def _one_of(*options: str) -> Check:
    def check(value: object) -> str:
        if type(value) is not str or value not in options:
            raise _NotPlain
        return value

    return check


def _policy(value: object) -> RecoveryPolicy:
    if value is False:
        return RecoveryPolicy.OFF
    return RecoveryPolicy(_one_of(*RecoveryPolicy)(value))


def _order(value: object) -> tuple[Steppable, ...]:
    if type(value) not in (list, tuple):
        raise _NotPlain
    check = _one_of(*Steppable)
    found = tuple(Steppable(check(one)) for one in cast("list[object]", value))
    if len(set(found)) != len(found):
        raise _NotPlain
    return found


def _mapping(value: object) -> dict[str, Any]:
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise _NotPlain
    return value


def _arguments(value: object) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in _mapping(value).items():
        if type(one) is list:
            found[name] = list(one)
        elif type(one) is dict:
            found[name] = dict(_mapping(one))
        elif type(one) in (str, int, float, bool, type(None)):
            found[name] = one
        else:
            raise _NotPlain
    return found


def _variables(value: object) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, one in _mapping(value).items():
        text = str(one) if type(one) in (bool, int, float) else _text_or_none(one)
        if not _ENV_NAME.match(name) or (text is not None and "\0" in text):
            raise _NotPlain
        found[name] = text
    return found


def _section(cls: type) -> Any:
    return field(default_factory=cls, metadata={"check": lambda value: _of(cls, value)})


def _of(cls: Any, value: object) -> Any:
    given = _mapping(value)
    known = {one.name: one for one in fields(cls)}
    if given.keys() - known.keys():
        raise _NotPlain
    missing = [one for one in known.values() if one.default is one.default_factory is MISSING]
    if any(one.name not in given for one in missing):
        raise _NotPlain
    return cls(**{name: known[name].metadata["check"](one) for name, one in given.items()})


class _Section:
    """Is copied as a section of the schema is."""

    __slots__ = ()

    def model_copy(self, *, update: Mapping[str, Any]) -> Any:
        """The same with other values."""
        kept = {one.name: getattr(self, one.name) for one in fields(cast("Any", self))}
        return type(self)(**{**kept, **update})


@record
class PlainEngine(_Section):
    """`schema.Engine`."""

    version: str | None = _value(_version, None)
    python: str | None = _value(_text_or_none, None)
    catalogue: str | None = _value(_text_or_none, None)
    env: dict[str, str | None] = field(default_factory=dict, metadata={"check": _variables})

    @property
    def specifier(self) -> SpecifierSet:
        """The versions that can serve this; empty means any."""
        from packaging.specifiers import SpecifierSet  # noqa: PLC0415  slow to import

        if self.pinned is not None:
            return SpecifierSet(f"=={self.pinned}", prereleases=True)
        return SpecifierSet(self.version or "", prereleases=True)

    @property
    def pinned(self) -> str | None:
        """The one version that was asked for, if it was one."""
        return self.version if self.version and _PIN.match(self.version) else None


@record
class PlainHardware(_Section):
    """`schema.HardwareSection`."""

    name: str = _value(_hardware_name, AUTO)


@record
class PlainVerification(_Section):
    """`schema.VerificationSection`."""

    enabled: bool = _value(_flag, True)
    prompt: str = _value(_text, "The capital of France is")
    max_new_tokens: int = _whole(32, 2, 4096)
    timeout_seconds: float = _number(120.0, above=0)


@record
class PlainLog(_Section):
    """`schema.EngineLog`."""

    max_mb: float = _number(256.0, above=0)
    keep: int = _whole(3, 0, 1000)


@record
class PlainRestart(_Section):
    """`schema.Restart`."""

    policy: str = _value(_one_of("auto", "on-failure", "never"), "auto")
    first_delay_seconds: float = _number(1.0)
    longest_delay_seconds: float = _number(60.0)
    limit: int = _whole(5, 1)
    window_seconds: float = _number(900.0, above=0)


@record
class PlainWatchdog(_Section):
    """`schema.WatchdogSection`."""

    enabled: bool = _value(_flag, True)
    interval_seconds: float = _number(20.0, above=0)
    timeout_seconds: float = _number(20.0, above=0)
    failures: int = _whole(3, 1)


@record
class PlainLaunch(_Section):
    """`schema.Launch`."""

    ready_timeout_seconds: float = _number(3600.0, above=0)
    grace_seconds: float = _number(8.0)
    log_dir: str | None = _value(_text_or_none, None)
    keep_runs: int = _whole(100, 0)
    share_gpus: bool = _value(_flag, False)
    log: PlainLog = _section(PlainLog)
    verify: PlainVerification = _section(PlainVerification)
    watchdog: PlainWatchdog = _section(PlainWatchdog)
    restart: PlainRestart = _section(PlainRestart)


@record
class PlainFloors(_Section):
    """`schema.Floors`."""

    mem_fraction_static: float = _number(0.2, above=0, below=1)
    cuda_graph_max_bs_decode: int = _whole(2, 1)
    speculative_num_steps: int = _whole(1, 1)
    max_running_requests: int = _whole(4, 1)
    chunked_prefill_size: int = _whole(1024, 64)
    max_total_tokens: int = _whole(1024, 1)


@record
class PlainLimits(_Section):
    """`schema.RecoveryLimits`."""

    mem_fraction_static: float = _number(0.98, above=0, below=1)


@record
class PlainObjective(_Section):
    """`schema.Objective`."""

    tokens_within: float = _number(0.2, below=1)


@record
class PlainRecovery(_Section):
    """`schema.Recovery`."""

    policy: RecoveryPolicy = _value(_policy, RecoveryPolicy.OFF)
    max_attempts: int = _whole(8, 1, 100)
    order: tuple[Steppable, ...] = _value(
        _order, (Steppable.FRACTION, Steppable.GRAPHS, Steppable.TREE, Steppable.RUNNING)
    )
    floors: PlainFloors = _section(PlainFloors)
    limits: PlainLimits = _section(PlainLimits)
    objective: PlainObjective = _section(PlainObjective)
    fraction_step: float = _number(0.1, above=0, below=1)
    minimal: dict[str, Any] = field(default_factory=dict, metadata={"check": _arguments})


@record
class PlainDeployment(_Section):
    """`schema.Deployment`."""

    name: str = field(metadata={"check": _name})
    args: dict[str, Any] = field(metadata={"check": _arguments})
    description: str = _value(_text, "")
    engine: PlainEngine = _section(PlainEngine)
    hardware: PlainHardware = _section(PlainHardware)
    launch: PlainLaunch = _section(PlainLaunch)
    recovery: PlainRecovery = _section(PlainRecovery)


def plain_deployment(values: object) -> Deployment | None:
    """The deployment of values that are plainly right; None where the schema has to judge."""
    try:
        found: PlainDeployment = _of(PlainDeployment, values)
    except _NotPlain:
        return None
    recovery = found.recovery
    stuck = recovery.policy is not RecoveryPolicy.OFF and not recovery.order
    if stuck or recovery.floors.mem_fraction_static >= recovery.limits.mem_fraction_static:
        return None
    return cast("Deployment", found)


def key_paths() -> frozenset[str]:
    """Every key that a recipe may have, dotted (`launch.verify.prompt`), sections included."""
    return frozenset(_paths(PlainDeployment, ""))


def _paths(section: Any, prefix: str) -> Iterator[str]:
    for one in fields(section):
        yield f"{prefix}{one.name}"
        below = one.default_factory
        if isinstance(below, type) and issubclass(below, _Section):
            yield from _paths(below, f"{prefix}{one.name}.")

"""The plan of a deployment: effective values, and the changes that the engine makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from speclaunch.core import Place
from speclaunch.engine.facts.facts import UNKNOWN_HARDWARE, Facts
from speclaunch.engine.plan.request import Request, RequestedValue
from speclaunch.engine.plan.settings import NoSuchArgumentError, UnknownValueError
from speclaunch.engine.releases.catalogue import (
    FALSE_TEXTS,
    TRUE_TEXTS,
    Catalogue,
    is_released_variable,
    released_names,
)
from speclaunch.engine.releases.renames import current_name, forwarded_variable, other_names
from speclaunch.engine.releases.versions import within

if TYPE_CHECKING:
    from packaging.version import Version


class ChangeKind(StrEnum):
    """A kind of change that the engine makes. `checks/rules/arguments.py` reports some kinds; the
    others appear only in a plan."""

    CHAIN_TOKENS = "draft tokens corrected for a chain"
    CHOSEN_PARAMETERS = "steps, topk and draft tokens chosen by the engine"
    RUNNING_REQUESTS = "limit of running requests filled in"
    OVERLAP = "overlap schedule switched"
    MIXED_CHUNK_OFF = "mixed chunks switched off"
    TARGET_IS_DRAFT = "the target used as the draft"
    ALGORITHM = "another algorithm"
    PAGE_SIZE = "page size forced"
    DRAFT_QUANTIZATION = "quantization inherited by the draft"
    DP_ATTENTION = "data-parallel attention reset or rewritten"
    ONE_BLOCK = "one block at a time"
    NGRAM_TOPK = "topk of NGRAM"
    ADAPTIVE_OFF = "adaptive speculation switched off"
    MULTI_LAYER_EAGLE = "multi-layer EAGLE switched on"
    TOPK_LOWERED = "topk lowered for pages"
    REJECTION_SAMPLING_ON = "rejection sampling switched on"
    PREFILL_GRAPHS_OFF = "piecewise prefill graphs switched off"
    DRAFT_REVISION = "revision of the draft"
    ATTENTION_BACKEND = "another attention backend"
    RADIX_CACHE_OFF = "radix cache switched off"
    FRACTION_LOWERED = "memory fraction lowered"


class Change(Struct, frozen=True):
    """A change that the engine makes to a value.

    `why` is the reason in one sentence. `source` is the engine's file and line. `logged` is False
    if the engine does not log the change.
    """

    kind: ChangeKind
    name: str
    before: Any
    after: Any
    why: str
    source: str
    logged: bool = True


class Reason(Struct, frozen=True):
    """The reason for a value in one sentence, with the engine's file and line."""

    why: str
    source: str


__all__ = ["NoSuchArgumentError", "Plan", "UnknownValueError"]

T = TypeVar("T")

_OF_OTHERS = frozenset({"CUDA_VISIBLE_DEVICES"})
"""Variables of other libraries that affect the engine."""


class Plan(Struct, frozen=True, dict=True):
    """The request, the facts, and the values after the engine's resolution.

    `resolved` contains only values that resolution changed or filled in, by engine field name.
    `undecided` maps each field whose value depends on a missing fact to the reason.
    """

    request: Request
    facts: Facts
    resolved: Mapping[str, Any] = {}
    undecided: Mapping[str, str] = {}
    changes: tuple[Change, ...] = ()
    reasons: Mapping[str, Reason] = {}

    @cached_property
    def version(self) -> Version:
        from packaging.version import Version  # noqa: PLC0415  script checks do not need it

        return Version(self.request.version)

    @property
    def catalogue(self) -> Catalogue:
        return self.request.catalogue

    def once(self, compute: Callable[[Plan], T]) -> T:
        """Return `compute(self)`, cached after the first call."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        found: T = self._computed[compute]
        return found

    @cached_property
    def _computed(self) -> dict[Callable[[Plan], Any], Any]:
        return {}

    def in_versions(self, specifier: str) -> bool:
        return within(self.request.version, specifier)

    def must_exist(self, name: str) -> None:
        """Raise NoSuchArgumentError if neither a release nor the plan's engine (possibly a fork)
        has the argument."""
        if name not in released_names() and self.catalogue.by_name(name) is None:
            raise NoSuchArgumentError(name)

    def is_set(self, name: str) -> bool:
        """True if the user set the argument, to any value.

        Raises UnknownValueError if an unrecognized flag may mean this argument.
        """
        self._must_be_read(name)
        return name in self.request.values

    def _must_be_read(self, name: str) -> None:
        self.must_exist(name)
        if name in self.request.unread:
            raise UnknownValueError(self.request.unread[name])

    def user_value(self, name: str) -> Any:
        """Return the user's value; None if not set.

        Raises UnknownValueError if it depends on a shell variable that cannot be evaluated, or if
        an unrecognized flag may set it.
        """
        self._must_be_read(name)
        found = self.request.values.get(name)
        if found is None:
            return None
        if not found.known:
            raise UnknownValueError(f"{found.written} is {found.value}")
        return found.value

    def value(self, name: str) -> Any:
        """Return the effective value: the resolved value, else the user's, else the parser's
        default.

        Returns None if this version lacks the argument. Raises UnknownValueError, and
        NoSuchArgumentError for an argument that no version has.
        """
        if name in self.undecided:
            raise UnknownValueError(self.undecided[name])
        if name in self.resolved:
            return self.resolved[name]
        values = self._unresolved
        if name not in values:
            values[name] = self.user_value(name) if self.is_set(name) else self.default(name)
        return values[name]

    def value_or_none(self, name: str) -> Any:
        try:
            return self.value(name)
        except UnknownValueError:
            return None

    @cached_property
    def _unresolved(self) -> dict[str, Any]:
        return {}

    def default(self, name: str) -> Any:
        """Return this version's default for the argument; None if it lacks the argument."""
        self.must_exist(name)
        for known in (name, *other_names(name)):
            argument = self.catalogue.by_name(known)
            if argument is not None:
                return argument.default
        return None

    def has_argument(self, name: str) -> bool:
        """True if this version has the argument, under any of its names."""
        self.must_exist(name)
        return any(self.catalogue.by_name(known) for known in (name, *other_names(name)))

    def written_name(self, name: str) -> str:
        """Return the argument's name as the user wrote it, else its name in this version."""
        self.must_exist(name)
        found = self.request.values.get(name)
        if found is not None:
            return found.written
        return current_name(name, self.catalogue) or name

    def env(self, name: str) -> str | None:
        """Return an environment variable's value; None if not set.

        In the releases that rename it, `SGL_X` is read as `SGLANG_X` (`forwarded_variable`). Raises
        UnknownValueError for an unknown value, and NoSuchArgumentError for an engine variable that
        no release has.
        """
        self._must_be_variable(name)
        older = name.replace("SGLANG_", "SGL_", 1)
        found = self.request.env.get(name)
        if older in self.request.env and forwarded_variable(older, self.request.version) == name:
            found = self.request.env[older]  # the engine overwrites the newer name with it
        if found is None:
            return None
        if not found.known:
            raise UnknownValueError(f"{name} is {found.value}")
        return str(found.value)

    def _must_be_variable(self, name: str) -> None:
        if is_released_variable(name) or name in _OF_OTHERS:
            return
        if name not in self.catalogue.variables:
            raise NoSuchArgumentError(name)

    def env_flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean environment variable as the engine reads it.

        Returns `default` if the variable is unset, or if its value is in neither `TRUE_TEXTS` nor
        `FALSE_TEXTS`.
        """
        text = (self.env(name) or "").lower()
        return text in TRUE_TEXTS or (default and text not in FALSE_TEXTS)

    @property
    def algorithm(self) -> str | None:
        """The effective algorithm in uppercase, with aliases resolved; None without speculation."""
        value = self.value("speculative_algorithm")
        return None if value is None else str(value)

    @property
    def device(self) -> str:
        """The device (cuda, cpu, npu, xpu, …): the user's value without its index, else the
        hardware's device.

        From 0.5.11 on, the engine removes the index (`resolve_device`); earlier releases do not
        support an indexed device. Raises UnknownValueError.
        """
        requested = self.value("device")
        if requested is not None:
            return str(requested).partition(":")[0]
        if self.facts.hardware is None:
            raise UnknownValueError(UNKNOWN_HARDWARE)
        return self.facts.hardware.device

    def place(self, name: str) -> Place:
        """Return the place of an argument or variable; if it is not set, the deployment's place."""
        found: RequestedValue | None = self.request.values.get(name) or self.request.env.get(name)
        found = found or self.request.extras.get(name)
        found = found or next(
            (setting for setting in self.request.ignored if setting.name == name), None
        )
        return found.place if found is not None else self.request.place

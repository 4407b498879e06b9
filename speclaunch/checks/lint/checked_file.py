"""A file while it is checked: how, for which engine versions, and what was found in its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from speclaunch.checks.lint.cache import installed_engine
from speclaunch.checks.lint.collect import LintedFile
from speclaunch.checks.lint.ignores import Ignore
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.finding import Finding, Unjudged
from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.runner import secrets_of
from speclaunch.core import literals
from speclaunch.engine import Plan, UnknownFact

if TYPE_CHECKING:
    from speclaunch.checks.engine_check.query_plans import Asker


class Options(Struct, frozen=True):
    """How to check a file: `configuration.LintSettings` with rules and facts looked up."""

    lookup: Lookup
    rules: tuple[Rule, ...]
    versions: tuple[str, ...] = ()
    """Empty: each file's own, see `parts_of`."""
    selected_codes: frozenset[str] | None = None
    """None for all. Needed to detect unused ignore comments."""
    installed: Callable[[], str | None] = installed_engine
    """Returns the catalogue of the installed engine."""
    asker: Asker | None = None
    """Queries the engines themselves; None: without the engine check."""
    overrides_pins: bool = False
    """True if `versions` were requested on the command line, and override a recipe's pin."""

    def selects(self, code: str) -> bool:
        """True if findings of a code are reported."""
        return self.selected_codes is None or code in self.selected_codes


class EngineChoice(Struct, frozen=True):
    """The version that a part of a file is checked for."""

    version: str
    others: tuple[str, ...] = ()
    """The releases that it may as well be; empty if the version is named."""
    note: str | None = None
    """Why it is another version than the named one."""


class FilePart(Struct):
    """The part of a file that is checked for one engine version, and what was found in it."""

    source: LintedFile
    engine: EngineChoice
    plans: list[Plan] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unjudged: list[Unjudged] = field(default_factory=list)
    unknown: list[UnknownFact] = field(default_factory=list)
    skipped: str | None = None


class CheckedFile(Struct):
    """A file that was checked by itself, and may have to be compared with others."""

    path: str
    parts: list[FilePart]
    ignores: list[Ignore]
    options: Options
    is_compared: bool = False
    """True if its findings depend on other files."""

    @property
    def plans(self) -> list[Plan]:
        """The plans of all its deployments, each version counted."""
        return [plan for part in self.parts for plan in part.plans]

    @property
    def secrets(self) -> list[str]:
        """The secret values in it, as far as they are recognized."""
        found = [secret for plan in self.plans for secret in secrets_of(plan.request)]
        for part in self.parts[:1]:
            for line in part.source.text.splitlines():
                found += literals(line)
        return found

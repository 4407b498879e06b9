"""Files during a check: options, engine versions, and findings of each part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from speclaunch.checks.lint.cache import installed_engine
from speclaunch.checks.lint.collect import LintedFile
from speclaunch.checks.lint.ignores import Ignore
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.finding import Finding, SkippedRule
from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.runner import secrets_of
from speclaunch.core import literals
from speclaunch.engine import Plan, UnknownFact

if TYPE_CHECKING:
    from speclaunch.checks.engine_check.opinions import EngineQuerier


class Options(Struct, frozen=True):
    """Options of a file check: `configuration.LintSettings` with rules and facts resolved."""

    lookup: Lookup
    rules: tuple[Rule, ...]
    versions: tuple[str, ...] = ()
    """Engine versions to check; if empty, each file's own (see `parts_of`)."""
    selected_codes: frozenset[str] | None = None
    """Selected rule codes, or None for all. Needed to detect unused ignore comments."""
    installed: Callable[[], str | None] = installed_engine
    """Function that returns the catalogue of the installed engine."""
    asker: EngineQuerier | None = None
    """Querier of the engines themselves; None disables the engine check."""
    overrides_pins: bool = False
    """True if `versions` come from the command line and override a recipe's pin."""

    def selects(self, code: str) -> bool:
        """True if findings of a code are reported."""
        return self.selected_codes is None or code in self.selected_codes


class EngineChoice(Struct, frozen=True):
    """Version that a part of a file is checked for."""

    version: str
    others: tuple[str, ...] = ()
    """Other releases that the part may be meant for; empty if a version is named."""
    note: str | None = None
    """Reason for a version other than the named one."""


class FilePart(Struct):
    """Part of a file that is checked for one engine version, with its findings."""

    source: LintedFile
    engine: EngineChoice
    plans: list[Plan] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    skipped_rules: list[SkippedRule] = field(default_factory=list)
    unknown: list[UnknownFact] = field(default_factory=list)
    skipped: str | None = None


class CheckedFile(Struct):
    """File that was checked by itself, and may have to be compared with other files."""

    path: str
    parts: list[FilePart]
    ignores: list[Ignore]
    options: Options
    is_compared: bool = False
    """True if its findings depend on other files."""

    @property
    def plans(self) -> list[Plan]:
        """Plans of all deployments in the file, one for each version."""
        return [plan for part in self.parts for plan in part.plans]

    @property
    def secrets(self) -> list[str]:
        """Recognized secret values in the file."""
        found = [secret for plan in self.plans for secret in secrets_of(plan.request)]
        for part in self.parts[:1]:
            for line in part.source.text.splitlines():
                found += literals(line)
        return found

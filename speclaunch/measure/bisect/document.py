"""`speclaunch bisect --output-format json`: the pair of releases, and what differs between them.

`docs/reference/bisect.schema.json` is generated from `BisectDocument`; a test compares them.
Within version 1 keys are never removed or redefined; new keys may be added.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from speclaunch.checks import Lookup, all_rules
from speclaunch.core import InputError, LaunchError
from speclaunch.engine import Packages, read_packages
from speclaunch.measure.bisect.bisect import BisectTask, StoredBisect
from speclaunch.measure.bisect.search import ReleaseProbe, SearchOutcome, SearchStep
from speclaunch.measure.upgrade.deployments import UpgradeSettings, recipe_upgrades
from speclaunch.measure.upgrade.document import ChangesRecord, changes_record


class PairRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """The last good and the first bad release."""

    good: str
    bad: str


class DependencyRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A package whose required or installed version differs.

    Requirements are those of the release's own metadata.
    """

    name: str
    good_requires: str | None
    bad_requires: str | None
    good_installed: str | None
    bad_installed: str | None


class BisectDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of a search. `changes`: from the good to the bad release, as `upgrade` lists them.

    `changes` and `dependencies` are null without a pair, or if they cannot be read.
    """

    version: Literal[1] = 1
    recipe: str
    check: str
    good: str
    bad: str
    outcome: SearchOutcome
    pair: PairRecord | None
    untested: list[str]
    """Releases between the pair that could not be tested."""
    flaky: list[str]
    """Releases with contradicting evaluations."""
    starts: int
    probes: list[ReleaseProbe]
    changes: ChangesRecord | None
    dependencies: list[DependencyRecord] | None


def bisect_document(
    recipe: str, task: BisectTask, end: SearchStep, stored: StoredBisect
) -> BisectDocument:
    """Return the document of a finished search."""
    probes = stored.progress.probes
    pair = None if end.pair is None else PairRecord(*end.pair)
    ends = [] if pair is None else [task.releases.index(each) for each in (pair.good, pair.bad)]
    changes = dependencies = None
    if pair is not None and end.outcome in (SearchOutcome.FOUND, SearchOutcome.SKIPPED):
        with contextlib.suppress(InputError):
            changes = _changes(task, pair)
        with contextlib.suppress(LaunchError, OSError, InputError):
            dependencies = _dependencies(task, pair)
    return BisectDocument(
        recipe=recipe,
        check=task.check.text,
        good=task.releases[0],
        bad=task.releases[-1],
        outcome=end.outcome or SearchOutcome.UNDECIDED,
        pair=pair,
        untested=list(task.releases[ends[0] + 1 : ends[1]]) if ends else [],
        flaky=_flaky(probes),
        starts=len(probes),
        probes=list(probes),
        changes=changes,
        dependencies=dependencies,
    )


def _flaky(probes: tuple[ReleaseProbe, ...]) -> list[str]:
    """Return the releases whose evaluations or starts disagree."""
    verdicts: dict[str, set[str]] = {}
    for probe in probes:
        found = verdicts.setdefault(probe.release, set())
        found |= {probe.verdict.value, *(("good", "bad") if probe.is_flaky else ())}
    return [release for release, found in verdicts.items() if {"good", "bad"} <= found]


def _changes(task: BisectTask, pair: PairRecord) -> ChangesRecord | None:
    settings = UpgradeSettings(pair.bad, pair.good, task.config_dirs, Lookup(), all_rules())
    (upgrade,) = recipe_upgrades(task.words, settings)
    return None if upgrade.comparison is None else changes_record(upgrade.comparison)


def _dependencies(task: BisectTask, pair: PairRecord) -> list[DependencyRecord]:
    pythons = (task.recipe(release).prepared().python for release in (pair.good, pair.bad))
    good, bad = (read_packages(Path(python)) for python in pythons)
    required = _requirements(good), _requirements(bad)
    names = {**required[0], **required[1], **good.installed, **bad.installed}
    records = [
        DependencyRecord(
            name,
            required[0].get(name),
            required[1].get(name),
            good.installed.get(name),
            bad.installed.get(name),
        )
        for name in sorted(names)
        if name != "sglang"
    ]
    return [
        record
        for record in records
        if record.good_requires != record.bad_requires
        or record.good_installed != record.bad_installed
    ]


def _requirements(packages: Packages) -> Mapping[str, str]:
    """Return a release's required versions by package, without extras."""
    found: dict[str, str] = {}
    for line in packages.requires:
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line)
            if "extra" not in str(requirement.marker or ""):
                name = canonicalize_name(requirement.name)
                found[name] = str(requirement.specifier) or "any"
    return found

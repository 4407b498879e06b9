"""Search for the last good and the first bad release, with a JSON document as the result.

Releases are probed one at a time. Repeating the command continues an interrupted search. The
document (`speclaunch bisect --output-format json`) has the two releases and their differences.
`docs/reference/bisect.schema.json` is generated from `BisectDocument`. Within version 1, keys may
be added, but never removed or redefined.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from speclaunch.checks import Lookup, all_rules
from speclaunch.core import COMMAND_LINE, InputError, LaunchError, Place, reads
from speclaunch.engine import Packages, held_versions, read_packages
from speclaunch.measure.prove.contract import served_contract
from speclaunch.measure.releases.launched import (
    EngineSupply,
    LaunchedRelease,
    ReleaseAnswers,
    ReleaseRecipe,
    Say,
    StartFailedError,
    launched,
    recipe_for,
)
from speclaunch.measure.releases.search import (
    FLAKY,
    MOST_EVALUATIONS,
    Check,
    CheckedServer,
    Evaluation,
    ProbeVerdict,
    ReleaseProbe,
    SearchOutcome,
    SearchStep,
    net_evaluations,
    step,
)
from speclaunch.measure.releases.upgrade import UpgradeSettings, recipe_upgrades
from speclaunch.measure.releases.upgrade_run import ChangesRecord, changes_record
from speclaunch.serving import unfinished_work


class BisectTask(Struct, frozen=True):
    """Inputs of a search. `releases`: from good to bad.

    `flaky`: share of starts with a wrong verdict; None: starts are reliable, but evaluations of a
    running server may not be.
    """

    words: tuple[str, ...]
    releases: tuple[str, ...]
    check: Check
    flaky: float | None
    seconds: float
    config_dirs: tuple[Path, ...]
    pythons: dict[str, str]

    def recipe(self, release: str) -> ReleaseRecipe:
        python = self.pythons.get(release)
        return recipe_for(self.words, release, self.config_dirs, python=python)

    @property
    def key(self) -> str:
        """Digest of everything that affects the probes."""
        text = reads.read_text(self.recipe(self.releases[0]).path)
        parts = [self.words, self.releases, self.check.text, self.flaky, self.pythons, text]
        return unfinished_work.digest(parts)


class BisectProgress(unfinished_work.Progress, frozen=True):
    """Finished probes, and the good release's answers if the check needs them."""

    probes: tuple[ReleaseProbe, ...] = ()
    reference: ReleaseAnswers | None = None

    @property
    def saved(self) -> str:
        return f"{len(self.probes)} probes" if self.probes else ""


StoredBisect: TypeAlias = unfinished_work.StoredWork[BisectProgress]
"""A search saved to disk. `key` identifies its releases and its check."""


def releases_between(good: str, bad: str, available: Sequence[str]) -> tuple[str, ...]:
    """Return available releases from `good` to `bad`; either may be newer. Raises InputError."""
    for option, release in (("--good", good), ("--bad", bad)):
        if release not in available:
            raise InputError(
                f"no engine for SGLang {release}",
                Place(COMMAND_LINE, text=f"{option} {release}"),
                f"name its interpreter: --engine-python {release}=PATH; available: "
                f"{', '.join(available)}",
            )
    if good == bad:
        place = Place(COMMAND_LINE, text=f"--bad {bad}")
        help_ = "name two different releases"
        raise InputError("--good and --bad are the same release", place, help_)
    held = held_versions()
    ordered = sorted(set(available), key=held.index)
    first, last = sorted((ordered.index(good), ordered.index(bad)))
    span = tuple(ordered[first : last + 1])
    return span if span[0] == good else span[::-1]


def search(task: BisectTask, stored: StoredBisect, supply: EngineSupply, say: Say) -> SearchStep:
    """Probe releases until the outcome is known, and return the final step.

    Every finished probe is stored. Raises InputError, and LaunchError if a check cannot run.
    """
    while True:
        progress = stored.progress
        due = step(
            task.releases, progress.probes, rate=task.flaky or 0.0, installed=supply.installed()
        )
        if task.check.reference and progress.reference is None and not progress.probes:
            due = SearchStep(task.releases[0], following=(due.probe,) if due.probe else ())
        if due.probe is None:
            return due
        number = len(progress.probes) + 1
        say(f"probe {number}: SGLang {due.probe}")
        found, reference = probe(task, due, progress.reference, stored.directory, supply, say)
        stored.add(BisectProgress((*progress.probes, found), reference))
        say(f"SGLang {found.release}: {found.verdict.value}: {found.reason}")


def probe(
    task: BisectTask,
    due: SearchStep,
    reference: ReleaseAnswers | None,
    folder: Path,
    supply: EngineSupply,
    say: Say,
) -> tuple[ReleaseProbe, ReleaseAnswers | None]:
    """Start and check a release; return the probe and the reference (None if not yet set)."""
    release, began = str(due.probe), time.monotonic()
    fails = ProbeVerdict.BAD if task.check.is_start else ProbeVerdict.SKIP

    def ended(verdict: ProbeVerdict, why: str) -> tuple[ReleaseProbe, ReleaseAnswers | None]:
        return ReleaseProbe(release, verdict, why, seconds=time.monotonic() - began), reference

    try:
        recipe = task.recipe(release)
        if recipe.problems:
            raise InputError(recipe.problems)
        recipe.prepared()
    except InputError as error:
        return ended(fails, str(error))
    try:
        supply.prefetch((release, *due.following), needed=[task.releases[0]])
        supply.require(recipe)
    except LaunchError as error:
        return ended(ProbeVerdict.SKIP, str(error))
    try:
        with ExitStack() as stack:
            served = stack.enter_context(launched(recipe, folder, task.seconds, say))
            server = CheckedServer(release, served.engine.url, served.observed, folder)
            if task.check.is_contract:
                plain = stack.enter_context(
                    launched(recipe, folder, task.seconds, say, speculates=False)
                )
                servers = (served.engine.address, plain.engine.address, served.plan)
                server = replace(server, fields=cache(lambda: served_contract(*servers, say).rows))
            if task.check.reference and reference is None:
                reference = task.check.reference(server)
            found = _evaluated(task, server, served, reference)
    except StartFailedError as error:
        return ended(fails, str(error))
    seconds = time.monotonic() - began
    return ReleaseProbe(release, *found, seconds), reference


def _evaluated(
    task: BisectTask,
    server: CheckedServer,
    served: LaunchedRelease,
    reference: ReleaseAnswers | None,
) -> tuple[ProbeVerdict, str, int, int]:
    """Evaluate until a verdict leads clearly; return it, its reason, and good and bad counts."""
    needed = net_evaluations(FLAKY if task.flaky is None else task.flaky)
    needed = 1 if task.check.is_single else needed
    counts = dict.fromkeys(ProbeVerdict, 0)
    reasons: dict[ProbeVerdict, str] = {}
    while sum(counts.values()) < MOST_EVALUATIONS:
        try:
            result = task.check.evaluate(server, reference)
        except LaunchError as error:
            if not served.engine.is_gone():
                raise
            result = Evaluation(ProbeVerdict.BAD, f"the server ended during the check: {error}")
            counts[ProbeVerdict.BAD] += needed - 1
        counts[result.verdict] += 1
        reasons.setdefault(result.verdict, result.reason)
        good, bad = counts[ProbeVerdict.GOOD], counts[ProbeVerdict.BAD]
        if result.verdict is ProbeVerdict.SKIP:
            return ProbeVerdict.SKIP, result.reason, good, bad
        if abs(good - bad) >= needed:
            verdict = ProbeVerdict.GOOD if good > bad else ProbeVerdict.BAD
            flaky = f" ({good} good, {bad} bad)" if good and bad else ""
            return verdict, f"{reasons[verdict]}{flaky}", good, bad
    return ProbeVerdict.SKIP, f"undecided: {good} good, {bad} bad", good, bad


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
    """Releases with contradictory evaluations or starts."""
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
    found = []
    for name in sorted(names.keys() - {"sglang"}):
        requires = [some.get(name) for some in required]
        installed = [release.installed.get(name) for release in (good, bad)]
        if requires[0] != requires[1] or installed[0] != installed[1]:
            found.append(DependencyRecord(name, *requires, *installed))
    return found


def _requirements(packages: Packages) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for line in packages.requires:
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line)
            if "extra" not in str(requirement.marker or ""):
                name = canonicalize_name(requirement.name)
                found[name] = str(requirement.specifier) or "any"
    return found

"""Upgrades of recipes, commands and directories, with verdicts and reasons."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import (
    Advisory,
    FoundFile,
    Lookup,
    Migration,
    Rule,
    Severity,
    all_advisories,
    file_bytes,
    find_files,
    is_recipe,
    migrate_data,
)
from speclaunch.core import (
    HIDDEN,
    ExitCode,
    InputError,
    Place,
    Problem,
    SpeclaunchError,
    is_secret_flag,
    reads,
    redact,
)
from speclaunch.deployments import (
    YAML_SUFFIXES,
    Invocation,
    from_invocation,
    load,
    read_text,
    recipe_name,
    split_recipe,
)
from speclaunch.engine import (
    AUTO,
    UNKNOWN_HARDWARE,
    ArgumentOutcome,
    Fit,
    NoEngineError,
    UnknownValueError,
    find_runtime,
    is_idle,
)
from speclaunch.engine import load as load_catalogue
from speclaunch.measure.advice.plan_requests import PlanComparison, PlanSide, compared, planned_side
from speclaunch.measure.advice.planned_deployment import (
    PlannedCommand,
    PlannedDeployment,
    planned_request,
)
from speclaunch.measure.releases.launched import ReleaseRecipe, recipe_for

if TYPE_CHECKING:
    from speclaunch.checks import EngineQuerier


_FEWER_TOKENS = 0.99
"""Ratio of the new to the old KV cache capacity below which memory counts as changed."""


class UpgradeVerdict(StrEnum):
    """Verdict on moving a deployment to another release."""

    SAFE = "safe"
    """No difference was found, and nothing is unknown."""
    DIFFERS = "differs"
    """The deployment serves, with the listed differences."""
    NOT_SAFE = "not safe"
    """The deployment does not serve, or serves worse."""
    UNKNOWN = "unknown"
    """A missing fact may hide a difference."""


class Aspect(StrEnum):
    """Subject of a reason against an upgrade."""

    COMMAND = "command"
    REFUSAL = "refusal"
    VALUE = "value"
    MEMORY = "memory"
    ADVISORY = "advisory"
    START = "start"
    OUTPUT = "output"
    ACCEPTANCE = "acceptance"
    CONTRACT = "contract"
    FACTS = "facts"


class UpgradeReason(Struct, frozen=True, forbid_unknown_fields=True):
    """A reason against `safe`. `name`: the argument, rule or advisory concerned."""

    aspect: Aspect
    verdict: UpgradeVerdict
    text: str
    name: str = ""


_ORDER = (UpgradeVerdict.NOT_SAFE, UpgradeVerdict.DIFFERS, UpgradeVerdict.UNKNOWN)


def verdict_of(reasons: Iterable[UpgradeReason]) -> UpgradeVerdict:
    """Return the worst verdict of the reasons; `safe` without reasons."""
    found = {reason.verdict for reason in reasons}
    return next((verdict for verdict in _ORDER if verdict in found), UpgradeVerdict.SAFE)


def blocked(problems: Iterable[Problem]) -> Iterator[UpgradeReason]:
    """Yield a `not safe` reason for each problem of a migration."""
    for problem in problems:
        yield UpgradeReason(Aspect.COMMAND, UpgradeVerdict.NOT_SAFE, problem.message)


def reasons_of(found: PlanComparison) -> Iterator[UpgradeReason]:
    """Yield the reasons against an upgrade between the two plans of `found`."""
    yield from _refusals(found)
    yield from _values(found)
    yield from _memory(found)
    _, introduced, unknown = advisories_across(found)
    for advisory in introduced:
        is_serious = advisory.severity in (Severity.ERROR, Severity.WARNING)
        verdict = UpgradeVerdict.NOT_SAFE if is_serious else UpgradeVerdict.DIFFERS
        text = f"introduces {advisory.id}: {advisory.summary}"
        yield UpgradeReason(Aspect.ADVISORY, verdict, text, advisory.id)
    if found.before.version == found.after.version:
        return  # nothing that is unknown can differ
    for advisory, why in unknown:
        text = f"{advisory.id} may affect it: {why}"
        yield UpgradeReason(Aspect.ADVISORY, UpgradeVerdict.UNKNOWN, text, advisory.id)
    yield from _facts(found)


def _refusals(found: PlanComparison) -> Iterator[UpgradeReason]:
    gained = {id(finding) for finding in found.gained}
    for finding in found.after.findings:
        if finding.is_advisory or finding.severity is Severity.INFO:
            continue
        is_new = id(finding) in gained
        if finding.severity is Severity.ERROR:
            text = finding.message if is_new else f"{finding.message} (as before)"
            yield UpgradeReason(Aspect.REFUSAL, UpgradeVerdict.NOT_SAFE, text, finding.code)
        elif is_new:
            yield UpgradeReason(
                Aspect.REFUSAL, UpgradeVerdict.DIFFERS, finding.message, finding.code
            )
    check = found.after.engine_check
    refused = any(reason.severity is Severity.ERROR for reason in found.after.findings)
    if check is not None and check.accepted is False and not refused:
        yield UpgradeReason(Aspect.REFUSAL, UpgradeVerdict.NOT_SAFE, check.why)


def _values(found: PlanComparison) -> Iterator[UpgradeReason]:
    for difference in found.telling:
        rows = (difference.before, difference.after)
        if any(row is not None and row.outcome is ArgumentOutcome.UNKNOWN for row in rows):
            continue
        before, after = ("absent" if row is None else shown(row.effective) for row in rows)
        why = difference.after.why if difference.after is not None else "no such argument"
        text = f"{difference.name}: {before} → {after}" + (f" ({why})" if why else "")
        yield UpgradeReason(Aspect.VALUE, UpgradeVerdict.DIFFERS, text, difference.name)


def shown(value: object) -> str:
    """Return a value as text of at most 60 characters."""
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _unknown_values(found: PlanComparison) -> Iterator[str]:
    for planned in (found.before, found.after):
        for row in planned.rows:
            if row.outcome is ArgumentOutcome.UNKNOWN and not is_idle(planned.plan, row.name):
                yield row.name


def _memory(found: PlanComparison) -> Iterator[UpgradeReason]:
    before, after = found.before.budget, found.after.budget
    if after.fit is Fit.FAILS:
        as_before = " (as before)" if before.fit is Fit.FAILS else ""
        why = f": {after.why}" if after.why else ""
        yield UpgradeReason(Aspect.MEMORY, UpgradeVerdict.NOT_SAFE, f"does not fit{as_before}{why}")
    elif after.fit is not before.fit and after.fit is Fit.TIGHT:
        yield UpgradeReason(Aspect.MEMORY, UpgradeVerdict.DIFFERS, f"fits → {after.fit.value}")
    elif after.fit is Fit.UNKNOWN and found.before.version != found.after.version:
        yield UpgradeReason(Aspect.MEMORY, UpgradeVerdict.UNKNOWN, f"memory unknown: {after.why}")
    if before.tokens and after.tokens and after.tokens < before.tokens * _FEWER_TOKENS:
        text = f"tokens in the KV cache: {before.tokens:,} → {after.tokens:,}"
        yield UpgradeReason(Aspect.MEMORY, UpgradeVerdict.DIFFERS, text)


def _facts(found: PlanComparison) -> Iterator[UpgradeReason]:
    unknown = (*found.before.plan.facts.unknown, *found.after.plan.facts.unknown)
    if found.after.plan.facts.hardware is None:
        text = "the hardware is unknown: set --hardware, for example h100:8"
        yield UpgradeReason(Aspect.FACTS, UpgradeVerdict.UNKNOWN, text, UNKNOWN_HARDWARE)
    for fact in dict.fromkeys(unknown):
        help_ = f" ({fact.help})" if fact.help else ""
        text = f"{fact.what}: {fact.why}{help_}"
        yield UpgradeReason(Aspect.FACTS, UpgradeVerdict.UNKNOWN, text, fact.what)
    for name in dict.fromkeys(_unknown_values(found)):
        text = f"{name} depends on a missing fact"
        yield UpgradeReason(Aspect.VALUE, UpgradeVerdict.UNKNOWN, text, name)
    before = {rule.code for rule in found.before.skipped}
    new = {rule.code: rule.reason for rule in found.after.skipped if rule.code not in before}
    for code, why in new.items():
        text = f"{code} was not checked: {why}"
        yield UpgradeReason(Aspect.REFUSAL, UpgradeVerdict.UNKNOWN, text, code)


Undecided = tuple[Advisory, str]
"""An advisory that may affect a plan, and the missing fact."""


def _advisories_of(planned: PlannedDeployment) -> tuple[list[Advisory], list[Undecided]]:
    found: list[Advisory] = []
    undecided: list[Undecided] = []
    for advisory in all_advisories():
        try:
            if advisory.applies(planned.plan):
                found.append(advisory)
        except UnknownValueError as error:
            undecided.append((advisory, str(error)))
    return found, undecided


def advisories_across(
    found: PlanComparison,
) -> tuple[list[Advisory], list[Advisory], list[Undecided]]:
    """Return the advisories that a change of release fixes, introduces, and may introduce.

    The third list also names the missing facts.
    """
    before, unsure_before = _advisories_of(found.before)
    after, unsure_after = _advisories_of(found.after)
    old = {advisory.id for advisory in before}
    new = {advisory.id for advisory in after}
    maybe = old | {advisory.id for advisory, _ in unsure_before}
    return (
        [advisory for advisory in before if advisory.id not in new],
        [advisory for advisory in after if advisory.id not in old],
        [entry for entry in unsure_after if entry[0].id not in maybe],
    )


class UpgradeSettings(Struct, frozen=True):
    """Options of an upgrade. `source`: the current release, if set by the user."""

    to: str
    source: str | None
    config_dirs: tuple[Path, ...]
    lookup: Lookup
    rules: tuple[Rule, ...]
    asker: EngineQuerier | None = None
    notes: tuple[str, ...] = ()
    """Notes about unknown releases, which the nearest known releases replace."""


class DeploymentUpgrade(Struct, frozen=True):
    """A deployment at its current and its target release."""

    name: str
    place: Place
    source: str
    """Current release; empty if unknown."""
    to: str
    reasons: tuple[UpgradeReason, ...]
    steps: tuple[str, ...] = ()
    """Changes to the file, as `migrate` reports them."""
    comparison: PlanComparison | None = None
    """Both plans; None if a setting has no counterpart or the file is unreadable."""

    @property
    def verdict(self) -> UpgradeVerdict:
        return verdict_of(self.reasons)


def current_release(pinned: str | None, options: UpgradeSettings, place: Place) -> str:
    """Return a recipe's current release. Raises InputError if it is unknown."""
    if options.source or pinned:
        return options.source or str(pinned)
    try:
        found = find_runtime(None).sglang
    except NoEngineError:
        found = None
    if found is None:
        message = "the current release is unknown, because the recipe pins none"
        raise InputError(message, place, "name the release: --from VERSION")
    return found


def recipe_upgrades(words: Sequence[str], options: UpgradeSettings) -> list[DeploymentUpgrade]:
    """Return one upgrade per role of a recipe. Raises InputError."""
    name, overrides = split_recipe(words)
    recipe = load(name, overrides, options.config_dirs)
    source = current_release(recipe.deployment.engine.pinned, options, recipe.start)
    now = recipe_for(words, source, options.config_dirs)
    then = recipe_for(words, options.to, options.config_dirs)
    before = _sides(now)
    steps = tuple(f"{step.place}: {step.text}" for step in then.migration.steps)
    try:
        after = _sides(then)
        problems = then.problems
    except InputError as error:
        after, problems = [], (*then.problems, *error.problems)
    if problems:
        found = tuple(blocked(problems))
        return [
            DeploymentUpgrade(side.label, recipe.start, source, options.to, found, steps)
            for side in before
        ]
    return [
        _upgrade(_planned(old, options), _planned(new, options), role.start, source, options, steps)
        for old, new, role in zip(before, after, recipe.roles, strict=True)
    ]


def _sides(found: ReleaseRecipe) -> list[PlanSide]:
    return [PlanSide(found.prepared(role), role.deployment.name) for role in found.load().roles]


def _planned(side: PlanSide, options: UpgradeSettings) -> PlannedDeployment:
    found = planned_side(
        side, options.lookup, options.rules, fit=False, requested_load=None, asker=options.asker
    )
    if side.prepared.cpu is None:
        return found
    # the folders and variables of a CPU engine are not part of the user's command
    own = side.prepared.rendered_args.env
    lines = tuple(
        line
        for line in found.command.lines
        if line.startswith("--") or line.partition("=")[0] in own
    )
    return replace(found, command=replace(found.command, lines=lines))


def _upgrade(
    before: PlannedDeployment,
    after: PlannedDeployment,
    place: Place,
    source: str,
    options: UpgradeSettings,
    steps: tuple[str, ...],
) -> DeploymentUpgrade:
    found = compared(before, after)
    unknown = (UpgradeReason(Aspect.FACTS, UpgradeVerdict.UNKNOWN, note) for note in options.notes)
    reasons = (*reasons_of(found), *unknown)
    return DeploymentUpgrade(before.label, place, source, options.to, reasons, steps, found)


def file_upgrades(file: str, options: UpgradeSettings) -> list[DeploymentUpgrade]:
    """Return the upgrades of the deployments in a file. Raises SpeclaunchError."""
    data = file_bytes(file)
    text = data.decode("utf-8-sig", errors="replace")
    if Path(file).suffix.lower() in YAML_SUFFIXES and is_recipe(text):
        return recipe_upgrades([f"recipe={Path(file).absolute()}"], options)
    before, migration = migrate_data(data, file, options.to, options.source, keep_images=True)
    old = read_text(before, file, Path(file).suffix or None).commands(file)
    texts = {os.path.realpath(carried.path): carried.text.encode() for carried in migration.also}
    with reads.overlay(texts):
        new = read_text(migration.text, file, Path(file).suffix or None).commands(file)
    return [
        _command_upgrade(number, pair, migration, options, texts)
        for number, pair in enumerate(zip(old, new, strict=True))
    ]


def _command_upgrade(
    number: int,
    pair: tuple[Invocation, Invocation],
    migration: Migration,
    options: UpgradeSettings,
    texts: dict[str, bytes],
) -> DeploymentUpgrade:
    now, then = pair
    versions = migration.versions
    source = versions[number].version if versions else options.source or options.to
    name = (
        now.name or f"{recipe_name(Path(now.place.path).stem)}{f' {number + 1}' if number else ''}"
    )
    own = _lines(now)
    problems = [
        problem
        for problem in migration.problems
        if problem.place is None
        or problem.place.path != now.place.path
        or problem.place.line in own
    ]
    steps = tuple(
        f"{step.place}: {step.text}" for step in migration.steps if step.place.line in own
    )
    if problems:
        found = tuple(blocked(problems))
        return DeploymentUpgrade(name, now.place, source, options.to, found, steps)
    before = _of_command(now, name, source, options)
    with reads.overlay(texts):
        after = _of_command(then, name, options.to, options)
    if versions and not versions[number].is_named:
        note = f"no SGLang version is set; assuming {source} (set --from)"
        options = replace(options, notes=(*options.notes, note))
    return _upgrade(before, after, now.place, source, options, steps)


def _lines(invocation: Invocation) -> range:
    words = (*invocation.program, *invocation.words)
    places = [word.used_at or word.place for word in words]
    lines = [place.line for place in places if place.path == invocation.place.path]
    return range(min([invocation.place.line, *lines]), max([invocation.place.line, *lines]) + 1)


def _of_command(
    invocation: Invocation, name: str, version: str, options: UpgradeSettings
) -> PlannedDeployment:
    request = from_invocation(invocation, name, load_catalogue(version))
    return planned_request(
        request,
        options.lookup.on(invocation.hardware or AUTO),
        options.rules,
        label=name,
        path=invocation.place.path,
        command=_command(invocation),
        asker=options.asker,
    )


def _command(invocation: Invocation) -> PlannedCommand:
    """Return a file's command, one argument per line, with secrets redacted."""
    lines: list[str] = []
    is_hidden = False
    for word in invocation.words:
        text = HIDDEN if is_hidden else redact(word.text)
        if word.text.startswith("--") or not lines:
            lines.append(text)
        else:
            lines[-1] += f" {text}"
        is_hidden = is_secret_flag(word.text)
    env = dict.fromkeys(invocation.env, HIDDEN)
    return PlannedCommand(" ".join(lines), tuple(lines), env, tuple(lines))


def directory_upgrades(paths: Sequence[str], options: UpgradeSettings) -> list[DeploymentUpgrade]:
    """Return the upgrades of all deployments in files and below directories, in file order.

    An unreadable file yields one entry with the reason.
    """
    return [upgrade for file in find_files(paths) for upgrade in _of_file(file, options)]


def _of_file(file: FoundFile, options: UpgradeSettings) -> Iterator[DeploymentUpgrade]:
    if file.is_unread:
        return
    try:
        yield from file_upgrades(file.path, options)
    except SpeclaunchError as error:
        if not file.is_named and error.exit_code is ExitCode.NOTHING:  # it starts no server
            return
        reasons = tuple(
            UpgradeReason(Aspect.FACTS, UpgradeVerdict.UNKNOWN, problem.message)
            for problem in error.problems
        )
        yield DeploymentUpgrade(file.path, Place(file.path), "", options.to, reasons)

"""Upgrades of recipes, commands in files, and all deployments below a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import (
    FoundFile,
    Lookup,
    Migration,
    Rule,
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
from speclaunch.engine import AUTO, NoEngineError, find_runtime
from speclaunch.engine import load as load_catalogue
from speclaunch.measure.advice.plan_requests import PlanComparison, PlanSide, compared, planned_side
from speclaunch.measure.advice.planned_deployment import (
    PlannedCommand,
    PlannedDeployment,
    planned_request,
)
from speclaunch.measure.upgrade.reasons import (
    Aspect,
    UpgradeReason,
    UpgradeVerdict,
    blocked,
    reasons_of,
    verdict_of,
)
from speclaunch.measure.upgrade.release_recipe import ReleaseRecipe, recipe_for

if TYPE_CHECKING:
    from speclaunch.checks import EngineQuerier


class UpgradeSettings(Struct, frozen=True):
    """Options of an upgrade. `source`: the current release, if set by the user."""

    to: str
    source: str | None
    config_dirs: tuple[Path, ...]
    lookup: Lookup
    rules: tuple[Rule, ...]
    asker: EngineQuerier | None = None
    notes: tuple[str, ...] = ()
    """Notes about unknown releases that the nearest known release replaces."""


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
    """None if the target release has no counterpart, or the deployment cannot be read."""

    @property
    def verdict(self) -> UpgradeVerdict:
        """Verdict that follows from the reasons."""
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
        message = "the current release is unknown: the recipe has no pin"
        raise InputError(Problem(message, place, "name it: --from VERSION"))
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
        note = f"no SGLang version is set, {source} is assumed: set --from"
        options = replace(options, notes=(*options.notes, note))
    return _upgrade(before, after, now.place, source, options, steps)


def _lines(invocation: Invocation) -> range:
    """Return the line numbers of a command in its file."""
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

"""Fixes and name corrections in files, each proven and linted."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.edit.command_edits import CommandWords
from speclaunch.checks.edit.edits import (
    Edit,
    FixTarget,
    NotFixableError,
    SourceLines,
    apply,
    target_of,
)
from speclaunch.checks.edit.key_edits import CallKeywords, ConfigKeys, recipe_ways
from speclaunch.checks.edit.rewrite import touched_lines
from speclaunch.checks.edit.round_trip import (
    composition_differences,
    data_differences,
    fix_differences,
    new_messages,
    role_data_differences,
    text_differences,
)
from speclaunch.checks.lint.cache import installed_engine
from speclaunch.checks.lint.collect import LintedFile, read_buffer, read_commands
from speclaunch.checks.lint.configuration import (
    STDIN_SHOWN,
    Configuration,
    LintSettings,
    Options,
    options,
)
from speclaunch.checks.lint.run import check, compare, parts_of, result_of
from speclaunch.checks.rules.interface import DeploymentPlace, Finding, Fix, Severity
from speclaunch.core import InputError, Place, Problem, reads
from speclaunch.deployments import (
    Composition,
    Document,
    Invocation,
    InvocationKind,
    Reading,
    RecipeProvenance,
    compose,
    followed,
    from_invocation,
    of_role,
    read_text,
    recipe_name,
    role_names,
)
from speclaunch.engine import Catalogue, canonical, name_of, resolve_version


def fixed_commands(
    text: str,
    shown: str,
    file: Path | None,
    deployments: Collection[DeploymentPlace],
    fix: Fix,
    catalogue: Catalogue,
    others: Collection[str] = (),
) -> str:
    """Return the text with a proven fix of the commands that start `deployments`.

    `file`: None for standard input. `others`: further versions in which nothing else may change.
    Raises NotFixableError.
    """
    reading = _read(text, shown, file)
    numbers = numbers_of(reading.invocations, shown, deployments)
    if not numbers:
        raise NotFixableError("its command cannot be located")
    job = _Job(shown, file, tuple(numbers), catalogue, tuple(others))
    try:
        return job.fixed(text, reading, fix)
    except NotFixableError:
        if len(fix.set) + len(fix.env) == 1:
            raise
        found = job.fixed_by_name(text, reading, fix)
        if found is None:
            raise
        return found


class _Job(Struct, frozen=True):
    """A file with commands to fix. `numbers`: the positions of these commands, from 0."""

    shown: str
    file: Path | None
    numbers: tuple[int, ...]
    catalogue: Catalogue
    others: tuple[str, ...]

    def fixed(self, text: str, reading: Reading, fix: Fix) -> str:
        target = target_of(fix, self.catalogue)
        ways = [_ways(reading, number, target, self.catalogue, text) for number in self.numbers]
        return _first_proven(
            text, self.shown, _together(ways), lambda made: self._unproven(reading, made, target)
        )

    def fixed_by_name(self, text: str, reading: Reading, fix: Fix) -> str | None:
        """Return the text after fixing one name at a time; None if a fix or the proof fails."""
        parts = [Fix("", {name: value}) for name, value in fix.set.items()]
        parts += [Fix("", {}, {name: value}) for name, value in fix.env.items()]
        made = text
        for part in parts:
            try:
                made = self.fixed(made, _read(made, self.shown, self.file), part)
            except _NothingToDoError:
                continue
            except NotFixableError:
                return None
        target = target_of(fix, self.catalogue)
        return None if any(self._unproven(reading, made, target)) else made

    def _unproven(self, reading: Reading, made: str, target: FixTarget) -> Iterator[str]:
        after = _read(made, self.shown, self.file)
        changed = dict.fromkeys(self.numbers, target)
        version = self.catalogue.version
        yield from fix_differences(reading, after, changed, version, self.others)


class _NothingToDoError(NotFixableError):
    """The text already has the requested value."""


def numbers_of(
    commands: Sequence[Invocation], shown: str, deployments: Collection[DeploymentPlace]
) -> list[int]:
    """Return the positions, from 0, of the commands that start `deployments`."""
    name = recipe_name(shown)
    named = [DeploymentPlace(command.place, command.name or name) for command in commands]
    return [at for at, deployment in enumerate(named) if deployment in deployments]


def _read(text: str, shown: str, file: Path | None) -> Reading:
    return followed(read_text(text, shown), file)


_OF_KINDS = {
    InvocationKind.CONFIG: ConfigKeys,
    InvocationKind.SRT_SLURM: ConfigKeys,
    InvocationKind.ENGINE: CallKeywords,
}
"""Editor class for each kind of deployment that is not a command line."""


def _ways(
    reading: Reading, number: int, target: FixTarget, catalogue: Catalogue, text: str
) -> list[list[Edit]]:
    invocation = reading.invocations[number]
    kind = _OF_KINDS.get(invocation.kind, CommandWords)
    found = list(kind(invocation, target, catalogue, text).ways(target))
    if not found:
        raise NotFixableError("no edit of its text applies the fix")
    return found


def _together(parts: Sequence[Sequence[list[Edit]]]) -> Iterator[list[Edit]]:
    """Yield the combined edits of all parts; a part with fewer alternatives repeats its last."""
    for at in range(max(map(len, parts))):
        yield [edit for ways in parts for edit in ways[min(at, len(ways) - 1)]]


def _first_proven(
    text: str,
    shown: str,
    ways: Iterable[Sequence[Edit]],
    unproven: Callable[[str], Iterator[str]],
) -> str:
    """Return the text after the first edits that are proven. Raises NotFixableError."""
    why: str | None = None
    seen: set[str] = set()
    for way in ways:
        edits = list(dict.fromkeys(way))
        if not edits:
            raise _NothingToDoError("nothing needs to change")
        try:
            made = apply(text, edits)
            if made in seen:
                continue
            seen.add(made)
            touched = touched_lines(text, edits)
            new = [line for edit in edits for line in edit.new.split("\n")[1:]]
            more = sum(len(edit.new.split()) for edit in edits)
            elsewhere = text_differences(text, made, shown, touched, new, more=more)
            found = next(chain(elsewhere, unproven(made)), None)
        except (ValueError, InputError) as error:
            found = str(error)
        if found is None:
            return made
        why = why or found
    raise NotFixableError(why or "no edit of its text applies the fix")


def fixed_recipe(
    text: str,
    shown: str,
    path: Path,
    fix: Fix,
    catalogue: Catalogue,
    config_dirs: Sequence[Path] = (),
    deployments: Collection[DeploymentPlace] = (),
) -> str:
    """Return a recipe's text with a proven fix, of only the roles in `deployments` if it has roles.

    Raises NotFixableError, and InputError if the recipe cannot be composed.
    """
    target = target_of(fix, catalogue)
    composition = composed(text, shown, path, config_dirs)
    before = composition.values
    document, end = Document(text, shown), SourceLines(text).end
    names = role_names(before)
    roles = [
        name
        for name in names
        if any(deployment.name.endswith(f"/{name}") for deployment in deployments)
    ]

    def ways(role: str | None = None) -> Iterator[list[Edit]]:
        values = before if role is None else of_role(composition, role).values
        args, engine = values.get("args") or {}, values.get("engine") or {}
        env = engine.get("env") or {}
        yield from recipe_ways(target, args, env, catalogue, document, end, role)

    def unproven(made: str) -> Iterator[str]:
        try:
            new = data_of(made)
        except yaml.YAMLError as error:
            yield f"the edited file is not valid YAML: {error}"
            return
        after = composed(made, shown, path, config_dirs)
        if names:
            yield from role_data_differences(data_of(text), new, target)
            yield from _unproven_in_roles(composition, after, roles, target)
            return
        yield from data_differences(data_of(text), new, target)
        yield from composition_differences(before, after.values, target)

    found = ways() if not names else _ways_of_roles(ways, roles, before, target)
    return _first_proven(text, shown, found, unproven)


def _ways_of_roles(
    ways: Callable[[str | None], Iterator[list[Edit]]],
    roles: Sequence[str],
    values: Mapping[str, Any],
    target: FixTarget,
) -> Iterator[list[Edit]]:
    """Yield edits of the shared part, unless a role sets the argument, then of each role."""
    if not roles:
        raise NotFixableError("its role cannot be located")
    own_names = {
        canonical(str(name))
        for role in roles
        for name in (values["roles"][role] or {}).get("args") or {}
    }
    if not own_names & target.arguments.keys():
        with contextlib.suppress(NotFixableError):
            yield from ways(None)
    yield from _together([list(ways(role)) for role in roles])


def _unproven_in_roles(
    before: Composition, after: Composition, roles: Collection[str], target: FixTarget
) -> Iterator[str]:
    """Yield the changes to roles, except those that the fix makes in `roles`."""
    names = role_names(before.values)
    if names != role_names(after.values):
        yield "roles would change, too"
        return
    for name in names:
        old, new = of_role(before, name).values, of_role(after, name).values
        if name in roles:
            yield from composition_differences(old, new, target)
        elif old != new:
            yield f"the role {name} would change, too"


def data_of(text: str) -> Any:
    """Return the values of a YAML text. Raises yaml.YAMLError."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  safe


def composed(text: str, shown: str, path: Path, config_dirs: Sequence[Path] = ()) -> Composition:
    """Return a recipe composed from unsaved text. Raises InputError.

    Hydra reads only files, so the text is written to a temporary directory.
    """
    here = path.resolve()
    with tempfile.TemporaryDirectory(prefix="speclaunch-") as directory:
        file = Path(directory).resolve() / path.name
        file.write_bytes(text.encode())
        try:
            found = compose(str(file), (), (here.parent, *config_dirs))
        except InputError as error:
            raise InputError(
                _back(problem, str(file), shown) for problem in error.problems
            ) from None
    places = {
        key: replace(place, path=shown) if place.path == str(file) else place
        for key, place in found.provenance.places.items()
    }
    return replace(found, path=here, provenance=RecipeProvenance(places))


def _back(problem: Problem, written: str, shown: str) -> Problem:
    place = problem.place
    if place is not None and place.path == written:
        place = replace(place, path=shown)
    return replace(problem, place=place, message=problem.message.replace(written, shown))


class NameCorrection(Struct, frozen=True):
    """Name as written, without leading dashes, and the intended name."""

    wrong: str
    right: str
    place: Place


def renamed_commands(
    text: str, shown: str, file: Path | None, correction: NameCorrection, catalogue: Catalogue
) -> str:
    """Return the text with a proven correction of a name. Raises NotFixableError, InputError.

    The proof reads the new text: every command is unchanged except for the name, the version's
    parser reports no new error, and the argument was not set before.
    """
    made = _replaced(text, shown, correction)
    before, after = (_read(source, shown, file).invocations for source in (text, made))
    if len(before) != len(after):
        raise NotFixableError(f"the fix would turn {len(before)} commands into {len(after)}")
    pairs = zip(before, after, strict=True)
    changed = [_check(old, new, correction, catalogue) for old, new in pairs]
    if not any(changed):
        raise NotFixableError("the name is not a separate token of the command")
    return made


def _check(
    old: Invocation, new: Invocation, correction: NameCorrection, catalogue: Catalogue
) -> bool:
    """True if `old` has the wrong name. Raises NotFixableError if `new` has any other change."""
    expected = [
        word.text.replace(correction.wrong, correction.right, 1)
        if word.place.position == correction.place.position
        else word.text
        for word in old.words
    ]
    if expected != [word.text for word in new.words] or _rest(old) != _rest(new):
        raise NotFixableError(f"the command on line {old.place.line} would change elsewhere, too")
    if expected == [word.text for word in old.words]:
        return False
    parsed_old, parsed_new = (from_invocation(found, "fixed", catalogue) for found in (old, new))
    if canonical(name_of(correction.right)) in parsed_old.values:
        raise NotFixableError(f"{correction.right} is also set")
    more = new_messages(parsed_old.problems, parsed_new.problems)
    if more:
        raise NotFixableError(f"SGLang {catalogue.version} would refuse the fix: {more[0]}")
    return True


def _rest(invocation: Invocation) -> Sequence[Any]:
    return (
        invocation.kind,
        invocation.name,
        invocation.image,
        [word.text for word in invocation.program],
        {name: word.text for name, word in invocation.env.items()},
        {name: word.text for name, word in invocation.extras.items()},
        Counter(word.text for word in invocation.dropped),
    )


def renamed_recipe(
    text: str, shown: str, path: Path, correction: NameCorrection, config_dirs: Sequence[Path] = ()
) -> str:
    """Return the recipe with a proven correction of a key. Raises NotFixableError, InputError."""
    made = _replaced(text, shown, correction)
    old, new = (data_of(source) for source in (text, made))
    args = old.get("args") if isinstance(old, dict) else None
    if not isinstance(args, dict) or correction.wrong not in args:
        raise NotFixableError("the name is not a key of `args`")
    composed_args = composed(text, shown, path, config_dirs).values.get("args") or {}
    if canonical(name_of(correction.right)) in {
        canonical(name_of(str(name))) for name in composed_args
    }:
        raise NotFixableError(f"{correction.right} is also set")
    expected = [
        (correction.right if name == correction.wrong else name, args[name]) for name in args
    ]
    if new != {**old, "args": dict(expected)} or list(new["args"].items()) != expected:
        raise NotFixableError("other values would change, too")
    return made


def _replaced(text: str, shown: str, correction: NameCorrection) -> str:
    place = correction.place
    if place.path != shown:
        raise NotFixableError(f"the name is written in {place.path}")
    line = SourceLines(text).line(place.line)
    at = line.find(correction.wrong, place.column - 1, place.column + place.length + 1)
    if at < 0:
        raise NotFixableError("the name is not at the reported place")
    return apply(text, [Edit(place.line, at + 1, len(correction.wrong), correction.right)])


class CheckedText(Struct, frozen=True):
    """Text with its findings, ordered by place."""

    source: LintedFile
    findings: tuple[Finding, ...] = ()

    def numbers(self, finding: Finding) -> tuple[int, ...]:
        """Return the indices of a finding's deployments in the file; edits preserve them."""
        source = self.source
        if source.recipe is not None:
            names = [role.deployment.name for role in source.recipe.parts]
            about = {deployment.name for deployment in finding.deployments}
            return tuple(at for at, name in enumerate(names) if name in about)
        return tuple(numbers_of(source.invocations, source.path, finding.deployments))

    def keys(self, finding: Finding) -> list[tuple[str, Severity, int]]:
        numbers = self.numbers(finding) or (0,)
        return [(finding.code, finding.severity, number) for number in numbers]


class OutputCheck(Struct, frozen=True):
    """Findings in a text that is about to be written; its errors are reasons not to write it."""

    errors: tuple[Finding, ...] = ()
    """Errors in the text but not in its source."""
    inherited: tuple[Finding, ...] = ()
    """Errors in both the text and its source."""
    warnings: tuple[Finding, ...] = ()
    """Warnings in the text but not in its source."""
    inherited_warnings: tuple[Finding, ...] = ()


def configured(
    path: str,
    versions: Sequence[str],
    hardware: str | None = None,
    models: Sequence[Path] = (),
    config_dirs: Sequence[Path] = (),
) -> Options:
    """Return the options with which `lint` checks the file `path` for these releases.

    `hardware` has the format of `--hardware`; the project's configuration sets the other options.
    Raises InputError.
    """
    held = dict.fromkeys(resolve_version(version).held for version in versions)
    stated = LintSettings(tuple(held), hardware, tuple(models), tuple(config_dirs))
    return options(Configuration(stated).of(path), installed_engine)


def check_text(
    path: str,
    text: str,
    options: Options,
    config_dirs: Sequence[Path] = (),
    versions: Sequence[str] = (),
) -> CheckedText:
    """Check a text as the content of `path`, for the releases of `options`, else those of the text.

    `versions`: one release for each command, used instead of `options.versions`.
    """
    with reads.overlay({} if path == STDIN_SHOWN else {os.path.realpath(path): text.encode()}):
        read = None if path == STDIN_SHOWN else read_buffer(path, text.encode(), config_dirs)
        source = read or read_commands(path, text)
        if not versions or len(versions) != len(source.invocations):
            return check_source(source, options)
        found: list[Finding] = []
        for version in dict.fromkeys(versions):
            some = zip(source.invocations, versions, strict=True)
            own = tuple(invocation for invocation, release in some if release == version)
            part = replace(source, invocations=own)
            found += check_source(part, replace(options, versions=(version,))).findings
        return CheckedText(source, _in_order(found))


def check_source(source: LintedFile, options: Options) -> CheckedText:
    """Check a parsed text for the releases in `options` or, without any, those in the text."""
    if options.versions:
        return CheckedText(source, findings_of(source, options))
    found: list[Finding] = []
    # as if stated: errors count even if another release accepts the text
    for part in parts_of(source, options):
        found += findings_of(part.source, replace(options, versions=(part.engine.version,)))
    return CheckedText(source, _in_order(found))


def findings_of(source: LintedFile, options: Options) -> tuple[Finding, ...]:
    """Return a file's findings, ordered by place; empty if no reader supports the file."""
    if source.not_read:
        return ()
    checked = check(source, options)
    compare([checked])
    return _in_order(finding for file in result_of(checked).reports for finding in file.findings)


def _in_order(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(found, key=lambda finding: finding.place.position))


def against(before: CheckedText | None, after: CheckedText) -> OutputCheck:
    """Return the errors and warnings of `after`; those in its source `before` are inherited."""
    known: Counter[tuple[str, Severity, int]] = Counter()
    if before is not None:
        known.update(key for finding in before.findings for key in before.keys(finding))
    found: dict[tuple[Severity, bool], list[Finding]] = {}
    for finding in after.findings:
        keys = after.keys(finding)
        is_new = any(known[key] <= 0 for key in keys)
        known.subtract(keys)
        found.setdefault((finding.severity, is_new), []).append(finding)
    return OutputCheck(
        tuple(found.get((Severity.ERROR, True), ())),
        tuple(found.get((Severity.ERROR, False), ())),
        tuple(found.get((Severity.WARNING, True), ())),
        tuple(found.get((Severity.WARNING, False), ())),
    )

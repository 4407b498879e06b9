"""Migration of a file of any kind to another engine version: script, manifest, `--config`, recipe.

The file is read for each version, because a `--config` key may be a switch in only one of them. A
switch that is true becomes a flag, any other key a flag and its value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.edit.edits import Change, Edit, Insertion, NotFixableError, apply
from speclaunch.checks.edit.migrate import (
    Carried,
    Migration,
    MigrationStep,
    migrate_commands,
    origin,
    refused,
)
from speclaunch.checks.edit.migrate_recipe import is_recipe, migrate_recipe
from speclaunch.checks.edit.planned_migration import (
    MigratedArgument,
    PlannedMigration,
    plan,
    unannounced,
    would_change,
)
from speclaunch.checks.edit.round_trip import (
    meaning_of,
    require_no_differences,
    secrets_of,
    text_differences,
)
from speclaunch.checks.edit.yaml_edits import Yaml, removed_key, set_value
from speclaunch.core import InputError, Place, Problem, read_regular, reads, reason
from speclaunch.deployments import (
    Document,
    Invocation,
    InvocationKind,
    Reading,
    Word,
    nodes,
    read_sglang_yaml,
    read_text,
    similar_file,
)
from speclaunch.engine import ArgvProblem, Catalogue, ParsedArguments, canonical, parse_argv
from speclaunch.engine import load as load_catalogue

_KEY = re.compile(r"--[^\s:]+")
_Pair = tuple[yaml.ScalarNode, yaml.Node]


class _File(Struct):
    """`--config` file, read separately for each version."""

    text: str
    path: str
    _read: dict[str, Reading] = {}

    def reading(self, version: str) -> Reading:
        if version not in self._read:
            self._read[version] = read_sglang_yaml(self.text, self.path, version)
        return self._read[version]

    def invocation(self, version: str) -> Invocation | None:
        return next(iter(self.reading(version).invocations), None)

    def words(self, version: str) -> tuple[Word, ...]:
        found = self.invocation(version)
        return found.words if found is not None else ()

    def parse(self, catalogue: Catalogue) -> ParsedArguments:
        words = [word.text for word in self.words(catalogue.version)]
        parsed = parse_argv(words, catalogue, with_values=False)
        refused_ = [
            ArgvProblem(0, problem.message, problem.help) for problem in self.refused(catalogue)
        ]
        return replace(parsed, problems=(*parsed.problems, *refused_))

    def refused(self, catalogue: Catalogue) -> tuple[Problem, ...]:
        """Return the problems of keys that a version accepts only on the command line."""
        found = self.invocation(catalogue.version)
        return found.refused if found is not None else ()


def migrate_config(text: str, path: str, to: str, source: str | None = None) -> Migration:
    """Return the migration of a `--config` file to `to`. Raises InputError and RoundTripError."""
    file = _File(text, path)
    migration = Migration(text)
    start = origin(file.parse, to, source, None)
    target = load_catalogue(to)
    if source is not None and not start.accepts_all and not refused(file.parse(target)):
        note = f"SGLang {source} refuses this file, but {to} accepts it; the file is unchanged"
        migration.steps.append(MigrationStep(Place(path), note))
        return migration
    if not start.is_named and start.version != to:
        note = f"read as a file for SGLang {start.version}: {start.why}"
        migration.origins.append(MigrationStep(Place(path), note))
    words = file.words(start.version)
    mixed = source is None and not start.accepts_all
    catalogue = load_catalogue(start.version)
    planned = plan(
        [word.text for word in words], (), catalogue, target, mixed=mixed, is_complete=False
    )
    own = f"SGLang {to} refuses this: "  # the target's refusals: `_check_output` reports them
    refusals = [problem for problem in planned.problems if not problem.message.startswith(own)]
    migration.problems += [
        Problem(
            problem.message,
            words[problem.index].place if problem.index is not None else None,
            problem.help,
        )
        for problem in refusals
    ]
    migration.problems += file.refused(catalogue)
    changes = [] if migration.problems else list(_changes(file, words, planned, migration))
    if migration.problems:
        return migration
    made = apply(text, changes)
    _check_output(file, made, changes, planned, to, migration)
    if not migration.problems:
        migration.text = made
    return migration


def _changes(
    file: _File, words: tuple[Word, ...], planned: PlannedMigration, migration: Migration
) -> Iterator[Change]:
    found = Yaml(Document(file.text, file.path))
    root = found.root()
    pairs: Mapping[Place, _Pair] = {
        nodes.place(key, found.document): (key, value)
        for key, value in (root.value if isinstance(root, yaml.MappingNode) else ())
        if isinstance(key, yaml.ScalarNode)
    }
    for migrated in planned.arguments:
        if migrated.verdict.flag is None and not migrated.verdict.removed:
            continue
        place = words[migrated.item.index].place
        pair = pairs.get(place)
        changes = None
        if pair is not None and isinstance(root, yaml.MappingNode):
            changes = _edit(migrated, pair, found, root)
        written = migrated.token.removeprefix("--")
        new = (migrated.verdict.flag or "").removeprefix("--")
        if changes is None:
            gone = f"{written} was removed: {migrated.verdict.why}"
            why = f"{written} is now {new}" if new else gone
            migration.problems.append(Problem(why, place, "change it by hand"))
            continue
        yield from changes
        text = f"removed {written}: {migrated.verdict.why}"
        if not migrated.verdict.removed:
            value = f": {_value(migrated)}" if migrated.verdict.values is not None else ""
            text = f"{written} is now {new}{value}"
        migration.steps.append(MigrationStep(place, text))


def _value(migrated: MigratedArgument) -> str:
    return (migrated.verdict.values or ("true",))[0]


def _edit(
    migrated: MigratedArgument, pair: _Pair, found: Yaml, mapping: yaml.MappingNode
) -> list[Change] | None:
    """Return the edits of one key; None if it has to be changed by hand."""
    key, value = pair
    at = nodes.place(key, found.document)
    try:
        if migrated.verdict.removed:
            start, _ = nodes.offsets(key, found.document)
            _, end = nodes.offsets(value, found.document)
            if mapping.flow_style or "&" in found.document.text[start:end]:
                return None
            why = f"# removed {migrated.token.removeprefix('--')}: {migrated.verdict.why}"
            return [Insertion(at.line, why), *removed_key(found, mapping, key)]
        written = found.lines[at.line - 1][at.column - 1 : at.column - 1 + at.length]
        if str(key.value) not in written:
            return None
        new = (migrated.verdict.flag or "").removeprefix("--")
        changes: list[Change] = [
            Edit(at.line, at.column, at.length, written.replace(str(key.value), new, 1))
        ]
        if migrated.verdict.values is not None:
            changes += set_value(found, key, value, _value(migrated))
        return changes
    except NotFixableError:
        return None


def _check_output(
    file: _File,
    made: str,
    changes: list[Change],
    planned: PlannedMigration,
    to: str,
    migration: Migration,
) -> None:
    """Verify the new text, or add the target version's errors for it to the migration."""
    after = _File(made, file.path)
    target = load_catalogue(to)
    edits = [change for change in changes if isinstance(change, Edit)]
    touched = {edit.line for edit in edits}
    inserted = {change.text for change in changes if isinstance(change, Insertion)}
    unproven = list(text_differences(file.text, made, file.path, touched, inserted))
    try:
        reading = after.reading(to)
    except InputError as error:
        unproven += [str(error)]
        reading = Reading()
    if not unproven:
        migration.problems += _refusals(file, after, reading, to, planned)
        if migration.problems or planned.before is None:
            return
        words = [word.text for word in after.words(to)]
        meaning = meaning_of(words, target)
        if meaning is None:
            unproven = [f"SGLang {to} refuses it"]
        else:
            changed, note = unannounced(planned.before, meaning, planned.arguments)
            texts = [would_change(difference, to) for difference in changed]
            migration.problems += [Problem(text, Place(file.path)) for text in texts]
            migration.steps += [MigrationStep(Place(file.path), note)] if note else []
    hidden = secrets_of(reading.invocations, to)
    require_no_differences("migrate", unproven, file.text, made, hidden)


def _refusals(
    file: _File, after: _File, reading: Reading, to: str, planned: PlannedMigration
) -> list[Problem]:
    """Return the target version's errors for the new text, at their places in the old text."""
    place = {found.verdict.flag or found.token: found.token for found in planned.arguments}
    version = planned.before.version if planned.before else to
    old = {word.text: word.place for word in file.words(version) if word.text[:2] == "--"}
    found = list(reading.problems)
    words = [word.text for word in after.words(to)]
    target = load_catalogue(to)
    refusals: list[tuple[str, Problem | ArgvProblem]] = [
        ((_KEY.search(refusal.message) or [""])[0], refusal) for refusal in after.refused(target)
    ]
    problems = parse_argv(words, target, with_values=False).problems
    refusals += [(words[p.index], p) for p in problems if p.index is not None]
    for key, refusal in refusals:
        at = old.get(place.get(key, key), Place(file.path))
        found.append(Problem(f"SGLang {to} refuses this: {refusal.message}", at, refusal.help))
    return found


def config_files(invocation: Invocation, planned: PlannedMigration) -> Iterator[tuple[str, Place]]:
    """Yield the name and place of each `--config` file that the command names literally."""
    for migrated in planned.arguments:
        if canonical(migrated.item.dest) != "config":
            continue
        for index in migrated.item.value_indices[:1]:  # `--config=FILE` is ignored by the engine
            word = invocation.words[index]
            if word.evaluated:
                yield word.text, word.place


def carried_config(
    name: str, place: Place, base: Path, to: str, source: str | None = None, *, alone: bool = True
) -> Migration:
    """Return the migration of a file that a command names.

    `base`: directory of the script, to which names are relative. Only files in it are changed, and
    only if `alone` (the script is rewritten in place).
    """
    path, done = base / name, Migration()
    try:
        text = _text(path)
        found = migrate_config(text, str(path), to, source)
    except _UnseenError as error:
        done.steps.append(MigrationStep(place, f"{name} was not read: {error}"))
        return done
    except InputError as error:
        done.problems += error.problems
        return done
    done.problems += found.problems
    if found.problems or found.text == text:
        return done
    if alone and path.resolve().is_relative_to(base.resolve()):
        done.steps += [*found.origins, *found.steps]
        done.also.append(Carried(path, text, found.text))
        return done
    first = next((step.text for step in found.steps), "it is for another version")
    options = ["--from", source] if source else []
    command = shlex.join(["speclaunch", "migrate", str(path), "--to", to, *options])
    done.problems.append(
        Problem(f"{name} must be migrated, too: {first}", place, f"first run `{command}`")
    )
    return done


class _UnseenError(Exception):
    """A file cannot be read; the message is the reason."""


def _text(path: Path) -> str:
    try:
        return reads.read_text(path)
    except FileNotFoundError:
        raise _UnseenError("no such file next to the script") from None
    except OSError as error:
        raise _UnseenError(reason(error)) from error
    except UnicodeDecodeError as error:
        raise _UnseenError(str(error)) from error


def following(
    base: Path, to: str, source: str | None = None, *, alone: bool = True
) -> Callable[[Invocation, PlannedMigration], Migration]:
    """Return a `follow` function for `migrate_commands`; it migrates files named by a command."""

    def follow(invocation: Invocation, planned: PlannedMigration) -> Migration:
        done = Migration()
        for name, place in config_files(invocation, planned):
            if invocation.image is not None:
                note = f"{name} was not read: it is in the container"
                done.steps.append(MigrationStep(place, note))
                continue
            carried = carried_config(name, place, base, to, source, alone=alone)
            done.problems += carried.problems
            done.steps += carried.steps
            done.also += carried.also
        return done

    return follow


def file_bytes(file: str) -> bytes:
    """Return a file's content. Raises InputError if it is too large or cannot be read."""
    try:
        return read_regular(file)
    except OSError as error:
        problem = Problem(f"cannot read {file}: {reason(error)}", help=similar_file(file))
        raise InputError(problem) from error


def migrate_data(
    data: bytes,
    file: str,
    to: str,
    source: str | None,
    *,
    shown: str | None = None,
    keep_images: bool = False,
) -> tuple[str, Migration]:
    """Return the old text and its migration; nothing is written.

    `keep_images`: images without a known counterpart are unchanged. `shown`: name of input without
    a path (`<stdin>`); files that the input names are then not migrated. Raises InputError, and
    NothingFoundError if there is no server command.
    """
    path = Path(file)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text (byte {error.start})") from error
    name = shown or file
    if path.suffix in (".yaml", ".yml") and is_recipe(text):
        return text, migrate_recipe(path, name, to, keep_images=keep_images)
    reading = read_text(text, name, path.suffix or None)
    commands = reading.commands(name)
    if any(found.kind is InvocationKind.CONFIG for found in commands):
        migration = migrate_config(text, name, to, source)
    else:
        base = path.parent if shown is None else Path()
        follow = following(base, to, source, alone=shown is None)
        migration = migrate_commands(
            text, reading, to, source, follow=follow, keep_images=keep_images
        )
    migration.hidden = tuple(secrets_of(commands, to))
    return text, migration

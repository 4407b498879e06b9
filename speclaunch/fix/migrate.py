"""A script or recipe carried to another engine version, everything else of it untouched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from speclaunch.engine.catalogue import Argument, ArgumentKind, Catalogue, held_versions, history
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.renames import REMOVALS, conversion, dead_variable, other_names
from speclaunch.errors import Place, Problem
from speclaunch.fix.edits import Change, Edit, Insertion, apply
from speclaunch.importer.interface import Invocation, InvocationKind, Reading
from speclaunch.recipe.source import KeyPath, read_positions

_SPECULATES_IN_V2 = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was changed, or that the reader should know, with its place."""

    place: Place
    text: str


@dataclass(slots=True)
class Migration:
    """What a migration comes to."""

    text: str
    """The new text of the file."""
    steps: list[Step] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """What cannot be carried over: the feature is gone, or nobody knows the flag."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What becomes of an argument: kept, said otherwise, or removed."""

    flag: str | None = None
    values: tuple[str, ...] | None = None
    """None keeps the values that stand there."""
    why: str | None = None
    removed: bool = False
    unknown: bool = False


_KEEP = _Verdict()


def migrate_commands(text: str, reading: Reading, to: str, source: str | None = None) -> Migration:
    """Carry every server command of a file to version `to`; `source` is where it comes from."""
    catalogue = load_catalogue(to)
    migration = Migration(text)
    changes: list[Change] = []
    for invocation in reading.invocations:
        changes += _command(invocation, text, catalogue, source, migration)
    migration.text = apply(text, dict.fromkeys(changes))
    return migration


def _command(
    invocation: Invocation,
    text: str,
    catalogue: Catalogue,
    source: str | None,
    migration: Migration,
) -> Iterable[Change]:
    words = invocation.words
    flags = [index for index, word in enumerate(words) if word.text.startswith("--")]
    for position, index in enumerate(flags):
        word = words[index]
        verdict = _verdict(word.text, catalogue, source)
        if verdict == _KEEP:
            continue
        written = word.text.partition("=")[0]
        if verdict.unknown:
            migration.problems.append(
                Problem(f"{written}: {verdict.why}", word.place, "it was left as it is")
            )
            continue
        shown = _shown(written, invocation)
        end = flags[position + 1] if position + 1 < len(flags) else len(words)
        if verdict.removed:
            places = [item.place for item in words[index:end]]
            gone = [_whole(text, place) for place in dict.fromkeys(places)]
            if any(edit is None for edit in gone):
                migration.problems.append(
                    Problem(f"{shown} is gone: {verdict.why}", word.place, "remove it by hand")
                )
                continue
            yield from (edit for edit in gone if edit is not None)
            reason = f"removed {shown}: {verdict.why}"
            yield Insertion(_above(text, invocation.place.line), f"# {reason}")
            migration.steps.append(Step(word.place, reason))
            continue
        edit = _respelled(text, word.place, written, verdict)
        if edit is None:
            migration.problems.append(
                Problem(f"{shown} is {verdict.flag} now", word.place, "change it by hand")
            )
            continue
        yield edit
        migration.steps.append(
            Step(word.place, f"{shown} is {_shown_new(verdict, invocation)} now")
        )
    yield from _spec_v2(invocation, text, catalogue, source, migration)


def _verdict(token: str, catalogue: Catalogue, source: str | None) -> _Verdict:
    """What becomes of a flag of an older (or newer) version."""
    found = catalogue.resolve_flag(token)
    if isinstance(found, Argument) and found.kind is not ArgumentKind.REFUSED:
        return (_renamed(found.name, catalogue) if found.deprecated else None) or _KEEP
    name = found.name if isinstance(found, Argument) else _name_before(token, catalogue, source)
    if name is None:
        return _Verdict(unknown=True, why="no SGLang that we know has this argument")
    return _renamed(name, catalogue) or _converted(name, catalogue) or _gone(name, catalogue)


def _converted(name: str, catalogue: Catalogue) -> _Verdict | None:
    became = conversion(name)
    new = catalogue.by_name(became.new) if became else None
    if became is None or new is None or (new.choices and became.value not in new.choices):
        return None
    return _Verdict(flag=new.flag, values=() if became.value is True else (str(became.value),))


def _gone(name: str, catalogue: Catalogue) -> _Verdict:
    past = history(name)
    versions = held_versions()
    if past is not None and versions.index(past.first) > versions.index(catalogue.version):
        return _Verdict(unknown=True, why=f"it exists from SGLang {past.first} on")
    last = f" (last in {past.last})" if past else ""
    why = REMOVALS.get(name) or f"SGLang {catalogue.version} has no such argument{last}"
    return _Verdict(removed=True, why=why)


def _renamed(name: str, catalogue: Catalogue) -> _Verdict | None:
    for other in other_names(name):
        current = catalogue.by_name(other)
        if current is not None and not current.deprecated:
            return _Verdict(flag=current.flag)
    return None


def _name_before(token: str, catalogue: Catalogue, source: str | None) -> str | None:
    """The name of the argument that an older version took this flag for."""
    versions = [source] if source else list(reversed(held_versions()))
    for version in versions:
        if version != catalogue.version:
            found = load_catalogue(version).resolve_flag(token)
            if isinstance(found, Argument):
                return found.name
    return None


def _whole(text: str, place: Place) -> Edit | None:
    """The removal of a word; None where it stands in a list of YAML or JSON on one line."""
    lines = text.splitlines()
    if not 1 <= place.line <= len(lines):
        return None
    line = lines[place.line - 1]
    before = line[: place.column - 1].rstrip()[-1:]
    after = line[place.column - 1 + place.length :].lstrip()[:1]
    listed = before in ("[", ",") or after in ("]", ",")
    return None if listed else Edit(place.line, place.column, place.length, "")


def _above(text: str, line: int) -> int:
    """The first line of a command: a comment inside continued lines would cut it in two."""
    lines = text.splitlines()
    while 1 < line <= len(lines) and lines[line - 2].rstrip().endswith("\\"):
        line -= 1
    return line


def _respelled(text: str, place: Place, written: str, verdict: _Verdict) -> Edit | None:
    """The edit of the flag's own letters, wherever quotes or a prefix stand around them."""
    lines = text.splitlines()
    if not 1 <= place.line <= len(lines) or verdict.flag is None:
        return None
    source = lines[place.line - 1][place.column - 1 : place.column - 1 + place.length]
    old, new = written.lstrip("-"), verdict.flag.lstrip("-")
    if old not in source:
        return None
    changed = source.replace(old, new, 1)
    if verdict.values is not None:  # `=` holds in a shell and in a list of YAML alike
        changed = "=".join([changed.partition("=")[0], *verdict.values])
    return Edit(place.line, place.column, place.length, changed)


def _shown(flag: str, invocation: Invocation) -> str:
    slime = invocation.kind is InvocationKind.SLIME
    return flag.replace("--", "--sglang-", 1) if slime else flag


def _shown_new(verdict: _Verdict, invocation: Invocation) -> str:
    flag = _shown(verdict.flag or "", invocation)
    return " ".join([flag, *(verdict.values or ())])


def _spec_v2(
    invocation: Invocation,
    text: str,
    catalogue: Catalogue,
    source: str | None,
    migration: Migration,
) -> Iterable[Change]:
    """SpecV2 became the default in 0.5.11 and the only one in 0.5.14 (speculative_hook.py)."""
    for name, word in invocation.env.items():
        dead = dead_variable(name, catalogue.version)
        if dead is not None:
            migration.steps.append(Step(word.place, f"{name} has no effect: {dead.afterwards}"))
    algorithm = _value(invocation, "speculative_algorithm", catalogue)
    asked = _SPEC_V2 in invocation.env
    if source is None or asked or algorithm not in _SPECULATES_IN_V2:
        return
    versions = held_versions()
    before = versions.index(load_catalogue(source).version) < versions.index("0.5.11")
    now = versions.index(catalogue.version) if catalogue.version in versions else len(versions)
    if not before or now < versions.index("0.5.11"):
        return
    if now < versions.index("0.5.14"):
        reason = "SpecV2 is on by default from 0.5.11; this keeps it off as it was"
        shell = invocation.kind in (InvocationKind.LAUNCH_SERVER, InvocationKind.SERVE)
        if shell and invocation.name is None:
            yield Insertion(
                _above(text, invocation.place.line), f"export {_SPEC_V2}=False  # {reason}"
            )
        migration.steps.append(Step(invocation.place, f"{_SPEC_V2}=False: {reason}"))
    else:
        migration.steps.append(
            Step(invocation.place, "SpecV2 (the overlap scheduler) is always on from 0.5.14")
        )


def _value(invocation: Invocation, name: str, catalogue: Catalogue) -> str | None:
    for index, word in enumerate(invocation.words):
        found = catalogue.resolve_flag(word.text)
        if isinstance(found, Argument) and found.dest == name:
            _, equals, tail = word.text.partition("=")
            if equals:
                return tail
            following: Sequence[str] = [item.text for item in invocation.words[index + 1 :]]
            return following[0] if following else None
    return None


def is_recipe(text: str) -> bool:
    """Whether a YAML text is a recipe of ours, rather than somebody's manifest."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    return isinstance(data, dict) and ("args" in data or "defaults" in data)


def migrate_recipe(path: Path, shown: str, to: str) -> Migration:
    """Carry the arguments that stand in a recipe itself (its groups are carried by us)."""
    catalogue = load_catalogue(to)
    text = path.read_text(encoding="utf-8")
    migration = Migration(text)
    positions: Mapping[KeyPath, Place] = read_positions(path, shown)
    changes: list[Change] = []
    for key, place in positions.items():
        if len(key) != 2 or key[0] != "args":
            continue
        verdict = _verdict(f"--{str(key[1]).replace('_', '-')}", catalogue, None)
        new = verdict.flag.lstrip("-").replace("-", "_") if verdict.flag else ""
        one_line = all(place.line == at.line for path_, at in positions.items() if path_[:2] == key)
        if verdict == _KEEP:
            continue
        if verdict.unknown or not one_line:
            migration.problems.append(
                Problem(f"{key[1]}: {verdict.why or f'it is {new} now'}", place, "left as it is")
            )
        elif verdict.removed:
            changes.append(Edit(place.line, place.column, 0, "# "))
            changes.append(Insertion(place.line, f"# removed {key[1]}: {verdict.why}"))
            migration.steps.append(Step(place, f"removed {key[1]}: {verdict.why}"))
        elif verdict.values is None:
            changes.append(Edit(place.line, place.column, place.length, new))
            migration.steps.append(Step(place, f"{key[1]} is {new} now"))
        else:
            value = verdict.values[0] if verdict.values else "true"
            line = text.splitlines()[place.line - 1]
            rest = len(line.rstrip()) - place.column + 1
            changes.append(Edit(place.line, place.column, rest, f"{new}: {value}"))
            migration.steps.append(Step(place, f"{key[1]} is {new}: {value} now"))
    migration.text = apply(text, changes)
    return migration

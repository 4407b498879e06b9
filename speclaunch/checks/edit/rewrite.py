"""Edits that replace a command's tokens with the planned tokens (`planned_migration.py`)."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

from msgspec import Struct

from speclaunch.checks.edit.edits import Edit, Insertion, SourceLines, apply, lines_of
from speclaunch.checks.edit.planned_migration import MigratedArgument, PlannedMigration
from speclaunch.checks.edit.round_trip import emptied_definitions
from speclaunch.core import Place, Problem
from speclaunch.deployments import Invocation, InvocationKind, Word, bare, prefixed

_END = r"[ \t]*\\?[ \t]*(?:#.*)?"
"""Text after the last item of a line: a continuation, a comment, or both."""
_NOTHING = re.compile(rf"[ \t]*(?:,[ \t]*)*{_END}")
_CLOSED = re.compile(r"[ \t]*(?:,[ \t]*)*[\])].*")
_LAST_COMMA = re.compile(rf",(?P<blank> ?)(?={_END}\Z)")
_UNIT = re.compile(r"ExecStart=[-@:+!|]*\Z")
"""Text before the program in the `ExecStart` line of a systemd unit."""


def lines_of_a_list(gone: Sequence[Word], lines: Sequence[str]) -> tuple[list[Edit], set[int]]:
    """Return edits that remove the list lines left without items when `gone` is removed.

    The second value has the object ids of the tokens on those lines. If the list's last item is
    removed, so is the preceding comma, which JSON would reject.
    """
    by_line: dict[int, list[Word]] = {}
    for word in gone:
        by_line.setdefault(word.place.line, []).append(word)
    left = {
        number: _without(lines[number - 1].rstrip("\r\n"), words)
        for number, words in by_line.items()
    }
    emptied = {number for number, rest in left.items() if _NOTHING.fullmatch(rest)}
    closing = {number for number, rest in left.items() if _CLOSED.fullmatch(rest)} - emptied
    edits: list[Edit] = []
    done: set[int] = set()
    for number in sorted(emptied | closing):
        line = lines[number - 1].rstrip("\r\n")
        above = number - 1
        while above in emptied:
            above -= 1
        before = _LAST_COMMA.search(lines[above - 1].rstrip("\r\n")) if above else None
        is_last = number in closing or _LAST_COMMA.search(line) is None
        if is_last and before is None:
            continue  # tokens of a shell, or the first item of the list
        if is_last and before is not None and number + 1 not in emptied | closing:
            edits.append(Edit(above, before.start() + 1, len(before[0]), before["blank"]))
        start, end = 0, len(line.rstrip().removesuffix("\\"))  # `apply` detects a continuation
        if number in closing:
            start = len(line) - len(line.lstrip())
            last = max(by_line[number], key=lambda word: word.place.column).place
            end = re.compile(r"[\])]").search(line, last.column - 1 + last.length).start()  # type: ignore[union-attr]
        edits.append(Edit(number, start + 1, end - start, ""))
        done |= {id(word) for word in by_line[number]}
    return edits, done


def _without(line: str, words: Sequence[Word]) -> str:
    """Return `line` without `words` and the quotes around them."""
    for word in sorted(words, key=lambda item: -item.place.column):
        start, end = word.place.column - 1, word.place.column - 1 + word.place.length
        before = line[:start].removesuffix('"').removesuffix("'")
        line = before + re.sub(r"\A[\"']", "", line[end:])
    return line


_ITEM = re.compile(r"\s*(?P<item>-\s+([\"']?)(?P<text>.*?)\2\s*(?:\s#.*)?)")
"""A line of a block list in YAML."""
_BEFORE = re.compile(r"(?:(?P<comma>,)|\[)\s*[\"']?\Z")
_AFTER = re.compile(r"(?P<quote>[\"']?)\s*[],]")
"""Text after an item of a one-line list."""


class Rewriting(Struct):
    """Edits of one command. `steps`: the place and description of each change, in order."""

    edits: list[Edit] = []
    above: list[Insertion] = []
    """Comments to insert above the command, if the syntax allows them there."""
    steps: list[tuple[Place, str]] = []
    problems: list[Problem] = []
    """Changes to make by hand."""


def rewrite(
    invocation: Invocation, planned: PlannedMigration, text: str, *, uses: bool = True
) -> Rewriting:
    """Return the edits for every argument that changes.

    With `uses`, a token from a variable is removed where the variable is used, if the variable
    provides nothing else there. Otherwise it is removed from the variable's definition.
    """
    done = Rewriting()
    lines = SourceLines(text)
    removed = [argument for argument in planned.arguments if argument.verdict.removed]
    leaving = [invocation.words[index] for argument in removed for index in argument.indices]
    for migrated in planned.arguments:
        becomes = migrated.verdict
        word = invocation.words[migrated.item.index]
        written = migrated.token.partition("=")[0]
        name = _shown(written, invocation)
        if invocation.read_only is not None and (becomes.removed or becomes.flag is not None):
            what = f"{name} is now {becomes.flag}" if becomes.flag else f"{name} was removed"
            why = f"{what}: {becomes.why}; nothing is edited here, because {invocation.read_only}"
            done.problems.append(Problem(why, word.place, "change it by hand"))
        elif becomes.removed:
            own = [invocation.words[index] for index in migrated.indices]
            gone = removal(invocation.words, own, leaving, text, uses=uses)
            name = _shown(migrated.name, invocation)
            if gone is None:
                why = f"{name} was removed: {becomes.why}"
                done.problems.append(Problem(why, word.place, "remove it by hand"))
                continue
            done.edits += gone
            reason = f"removed {name}: {becomes.why}"
            done.above.append(Insertion(_first_line(lines, invocation.place.line), f"# {reason}"))
            done.steps.append((word.place, reason))
        elif becomes.flag is not None:
            now = " ".join([_shown(becomes.flag, invocation), *(becomes.values or ())])
            edit = _flag_edit(lines, word.place, written, migrated)
            why = f"{name} is now {now}"
            if edit is None:
                done.problems.append(Problem(why, word.place, "change it by hand"))
                continue
            done.edits.append(edit)
            done.steps.append((word.place, why))
    return done


def with_variable(invocation: Invocation, name: str, value: str, text: str) -> Edit | None:
    """Return the edit that sets a variable in a script or systemd unit; None for other files."""
    if invocation.kind not in (InvocationKind.LAUNCH_SERVER, InvocationKind.SERVE):
        return None
    if invocation.name is not None or not invocation.program:
        return None
    first = invocation.program[0]
    place = invocation.place
    at = next((w.used_at for w in invocation.program if w.place == place and w.used_at), place)
    above = SourceLines(text).line(at.line)[: at.column - 1]
    if above.endswith("Entrypoint="):  # of a Quadlet: one program without arguments
        return None
    env = "" if first.place == place else "env "
    if _UNIT.search(above):
        env = "/usr/bin/env "
    return Edit(at.line, at.column, 0, f"{env}{name}={value} ")


def edited_variables(invocation: Invocation, text: str, edits: Sequence[Edit]) -> dict[str, str]:
    """Return the command's environment variables that `edits` change, with their new values."""
    lines = SourceLines(text)
    found: dict[str, str] = {}
    for name, word in invocation.env.items():
        start, length = word.place.column - 1, word.place.length
        if lines.at(word.place) != word.text:
            continue
        inside = [
            edit
            for edit in edits
            if edit.line == word.place.line
            and start <= edit.column - 1
            and edit.column - 1 + edit.length <= start + length
        ]
        new = word.text
        for edit in sorted(inside, key=lambda item: item.column, reverse=True):
            at = edit.column - 1 - start
            rest = new[at + edit.length :]  # `apply` removes the blank after a removal, too
            new = new[:at] + edit.new + (rest if edit.new else rest.removeprefix(" "))
        if inside:
            found[name] = new
    return found


def touched_lines(text: str, edits: Sequence[Edit]) -> set[int]:
    """Return the numbers of edited lines, and of lines above that may lose their continuation."""
    lines = SourceLines(text)
    found = {edit.line for edit in edits}
    for line in sorted(found):
        above = line - 1
        while above in found:
            above -= 1
        if lines.line(above).rstrip().endswith("\\"):
            found.add(above)
    return found


def removal(
    words: Sequence[Word], gone: Sequence[Word], all_gone: Sequence[Word], text: str, *, uses: bool
) -> list[Edit] | None:
    """Return the edits that remove the tokens `gone`.

    None if that is impossible, or would leave a definition without a value. `all_gone`: all removed
    tokens of the command. With `uses`, a token from a variable is removed at the variable's use, if
    the variable provides nothing else there.
    """
    leaving = {id(word) for word in all_gone}
    edits, done = lines_of_a_list(gone, lines_of(text))
    for word in gone:
        if id(word) in done:
            continue
        together = {id(other) for other in words if other.used_at == word.used_at}
        if uses and word.used_at is not None and leaving.issuperset(together):
            edit = _removal_at(text, word.used_at, None)
        else:
            edit = _removal_at(text, word.place, word)
        if edit is None:
            return None
        edits.append(edit)
    edits = list(dict.fromkeys(edits))
    return None if emptied_definitions(text, apply(text, edits)) else edits


def _removal_at(text: str, place: Place, word: Word | None) -> Edit | None:
    """Return the edit that removes the text at a place; None if it cannot be removed alone."""
    lines = SourceLines(text)
    line, source = lines.line(place.line), lines.at(place)
    if word is not None and not _is_word(source, word):
        return None
    end = place.column - 1 + place.length
    first, last = _BEFORE.search(line[: place.column - 1]), _AFTER.match(line[end:])
    if first is not None or last is not None:  # in a list of YAML or JSON on one line
        if first is None or last is None or first["comma"] is None:
            return None
        end += len(last["quote"])
        return Edit(place.line, first.start() + 1, end - first.start(), "")
    item = _ITEM.fullmatch(line)
    if item is not None and item["text"] == source:  # its quotes and comment are removed, too
        return Edit(place.line, item.start("item") + 1, len(line) - item.start("item"), "")
    quote = line[place.column - 2 : place.column - 1]
    if place.column > 1 and quote in ("'", '"') and line[end : end + 1] == quote:
        return Edit(place.line, place.column - 1, place.length + 2, "")
    return Edit(place.line, place.column, place.length, "") if _balanced(source) else None


def _is_word(source: str, word: Word) -> bool:
    if not word.evaluated:
        return True
    inner = source.strip("\"'")
    unescaped = (inner, bare(inner), source.replace("''", "'"), _of_json(source))
    return word.text in unescaped or _split(source) == [word.text] or "$" in source


def _of_json(source: str) -> str | None:
    try:
        found = json.loads(f'"{source}"')
    except ValueError:
        return None
    return found if isinstance(found, str) else None


def _balanced(source: str) -> bool:
    """True if quotes and brackets are balanced, so the token ends on this line."""
    pairs = all(source.count(left) == source.count(right) for left, right in ("()", "{}"))
    return pairs and _split(source) is not None


def _split(source: str) -> list[str] | None:
    try:
        return shlex.split(source)
    except ValueError:
        return None


def _first_line(lines: SourceLines, line: int) -> int:
    """Return the number of the first line of the command that contains `line`."""
    while lines.line(line - 1).rstrip().endswith("\\"):
        line -= 1
    return line


def _flag_edit(
    lines: SourceLines, place: Place, written: str, migrated: MigratedArgument
) -> Edit | None:
    """Return the edit that replaces the flag `written`; None if there is nothing to replace."""
    becomes = migrated.verdict
    if becomes.flag is None:
        return None
    source = lines.at(place)
    for old in dict.fromkeys((written, prefixed(written))):
        at = source.find(old)
        if at >= 0:
            flag = becomes.flag if old == written else prefixed(becomes.flag)
            # `=` is valid in a shell and in a list of YAML
            new = "=".join([flag, *(becomes.values or ())])
            return Edit(place.line, place.column + at, len(old), new)
    return None


def _shown(flag: str, invocation: Invocation) -> str:
    return prefixed(flag) if invocation.kind is InvocationKind.SLIME else flag


def conflicts(rewritings: Sequence[Rewriting]) -> Iterator[Problem]:
    """Yield a problem for each text shared by commands that need different edits of it."""
    seen: dict[tuple[int, int], Edit] = {}
    for done in rewritings:
        for edit in done.edits:
            other = seen.setdefault((edit.line, edit.column), edit)
            if other != edit:
                yield Problem(
                    f"commands that share line {edit.line} need different changes",
                    help="give each command its own definition",
                )

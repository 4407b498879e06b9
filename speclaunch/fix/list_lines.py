"""Items of a list in brackets over several lines (YAML, JSON, Python, Docker) taken away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from speclaunch.fix.edits import Edit
from speclaunch.importer.interface import Word

_END = r"[ \t]*\\?[ \t]*(?:#.*)?"
"""What may stand behind the last item of a line: a continuation, a comment."""
_NOTHING = re.compile(rf"[ \t]*(?:,[ \t]*)*{_END}")
_CLOSED = re.compile(r"[ \t]*(?:,[ \t]*)*[\])].*")
_LAST_COMMA = re.compile(rf",(?P<blank> ?)(?={_END}\Z)")


def lines_of_a_list(gone: Sequence[Word], lines: Sequence[str]) -> tuple[list[Edit], set[int]]:
    """The edits of lines of which all items go, and the identities of these words.

    Where the last item of the list goes, so does the comma before it, which JSON does not take.
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
            continue  # words of a shell, or the first of the list
        if is_last and before is not None and number + 1 not in emptied | closing:
            edits.append(Edit(above, before.start() + 1, len(before[0]), before["blank"]))
        start, end = 0, len(line.rstrip().removesuffix("\\"))  # `apply` sees a continuation
        if number in closing:
            start = len(line) - len(line.lstrip())
            last = max(by_line[number], key=lambda word: word.place.column).place
            end = re.compile(r"[\])]").search(line, last.column - 1 + last.length).start()  # type: ignore[union-attr]
        edits.append(Edit(number, start + 1, end - start, ""))
        done |= {id(word) for word in by_line[number]}
    return edits, done


def _without(line: str, words: Sequence[Word]) -> str:
    """A line without some words and the quotes around them."""
    for word in sorted(words, key=lambda one: -one.place.column):
        start, end = word.place.column - 1, word.place.column - 1 + word.place.length
        before = line[:start].removesuffix('"').removesuffix("'")
        line = before + re.sub(r"\A[\"']", "", line[end:])
    return line

"""The words of a command replaced, added and taken away: the ways to edit them, the best first.

A way is a guess from what stands around the words (a shell, a block list, a list on one line);
the round-trip check (`round_trip.py`) decides whether the text then says what it should, so a
wrong guess costs a try and no file.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence

from speclaunch.errors import Place
from speclaunch.fix.edits import Edit
from speclaunch.fix.rewrite import removal
from speclaunch.fix.yaml_edits import dumped
from speclaunch.importer.interface import Word
from speclaunch.patterns import lazy

PLAIN = lazy(r"[\w@%+=:,./-]+\Z", re.ASCII)
"""What is one word in a shell, in YAML and in JSON, quoted or not."""
_USE = lazy(r"[\"']?\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<bare>[A-Za-z_]\w*))[\"']?\Z")
_BLOCK = lazy(r"(?P<indent>[ \t]*)-(?P<gap>[ \t]+)(?P<quote>[\"']?)")
_CLOSING = lazy(r"(?P<quote>[\"']?)(?P<blank>[ \t]*)[],]")
_ALONE = lazy(r"(?P<indent>[ \t]*)(?:[\"']?--[\w-]+[\"']?,[ \t]*)?\Z")
"""What stands before the last item where each line has one, or a flag and its value."""
_CLOSING_LAST = lazy(r"(?P<quote>[\"']?)(?P<blank>[ \t]*)\Z")


class Text:
    """The text of a file; `end` is its line end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = [line.rstrip("\r") for line in text.split("\n")]
        self.end = "\r\n" if text.count("\r\n") > text.count("\n") // 2 else "\n"

    def line(self, number: int) -> str:
        """A line by its number, from 1; empty outside of the text."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    def at(self, place: Place) -> str:
        """What stands at a place."""
        return self.line(place.line)[place.column - 1 : place.column - 1 + place.length]


def replaced(text: Text, words: Sequence[Word], word: Word, old: str, new: str) -> Iterator[Edit]:
    """The ways to write `new` instead of `old`, which is the end of a word or all of it."""
    prefix = word.text.removesuffix(old) if old else word.text
    use = word.used_at
    if use is not None:
        together = [one for one in words if one.used_at == use]
        matched = _USE.match(text.at(use))
        name = matched and (matched["braced"] or matched["bare"])
        if name and _uses(text, name) > 1:  # others would change with the definition
            if len(together) == 1 and not prefix:
                yield Edit(use.line, use.column, use.length, shlex.quote(new))
                return
            yield from _at(text, word.place, prefix, old, new)
            return
        yield from _at(text, word.place, prefix, old, new)
        if len(together) == 1 and not prefix:
            yield Edit(use.line, use.column, use.length, shlex.quote(new))
        return
    yield from _at(text, word.place, prefix, old, new)


def _uses(text: Text, name: str) -> int:
    return len(re.findall(rf"\$\{{?{name}\b", text.text))


def _at(text: Text, place: Place, prefix: str, old: str, new: str) -> Iterator[Edit]:
    """The ways to edit what stands at a place."""
    source = text.at(place)

    def edit(start: int, end: int, with_: str) -> Edit:
        return Edit(place.line, place.column + start, end - start, with_)

    begin = source.find("=") + 1 if prefix.endswith("=") else 0
    tail = source[begin:]
    if PLAIN.match(new) is not None and old:
        # the default of a variable, then the text wherever quotes stand around it
        for found in (
            re.search(rf"(?<=:[-=?])({re.escape(old)})(?=\}})", tail),
            re.fullmatch(rf"[\"']?({re.escape(old)})[\"']?", tail),
        ):
            if found is not None:
                yield edit(begin + found.start(1), begin + found.end(1), new)
    yield edit(begin, len(source), shlex.quote(new))
    line = text.line(place.line)
    around = line[place.column - 2 : place.column - 1] if place.column > 1 else ""
    if around == '"':  # in a list of YAML or JSON, in quotes that the place leaves out
        yield edit(begin, len(source), json.dumps(new, ensure_ascii=False)[1:-1])
    elif around == "'":
        yield edit(begin, len(source), new.replace("'", "''"))
    elif tail == old:
        yield edit(begin, len(source), dumped(new, text=True))
        yield edit(begin, len(source), new)


def without(
    words: Sequence[Word], gone: Sequence[Word], all_gone: Sequence[Word], text: str
) -> Iterator[list[Edit]]:
    """The ways to take words away."""
    for uses in (True, False):
        edits = removal(words, gone, all_gone, text, uses=uses)
        if edits is not None:
            yield edits


def added(
    text: Text, words: Sequence[Word], program: Sequence[Word], groups: Sequence[Sequence[str]]
) -> Iterator[Edit]:
    """The ways to write more words behind a command's others; a group is a flag and its values.

    `words` are those that stay, in the order of the command.
    """
    ends = [
        word
        for word, behind in zip(words, (*words[1:], None), strict=False)
        if behind is None or behind.text.startswith("--")
    ]
    anchors = [*reversed(ends), *reversed(program)]
    seen: set[tuple[int, int]] = set()
    for word in anchors:
        for place in (word.place, *((word.used_at,) if word.used_at is not None else ())):
            if (place.line, place.column) in seen:
                continue
            seen.add((place.line, place.column))
            yield from _behind(text, words, place, groups)
        if len(seen) >= _MOST_ANCHORS:
            return


_MOST_ANCHORS = 4


def _behind(
    text: Text, words: Sequence[Word], place: Place, groups: Sequence[Sequence[str]]
) -> Iterator[Edit]:
    line = text.line(place.line)
    start, end = place.column - 1, place.column - 1 + place.length
    if end > len(line):
        return
    block = _BLOCK.match(line)
    if block is not None and block.end() == start:
        rest = line[end:].removeprefix(block["quote"]).strip()
        if not rest or rest.startswith("#"):
            items = [_item(one, text, words) for group in _joined(groups, words) for one in group]
            lead = f"{block['indent']}-{block['gap']}"
            new = "".join(f"{text.end}{lead}{item}" for item in items)
            yield Edit(place.line, len(line) + 1, 0, new)
    before = line[:start]
    opening = before[-1:] if before[-1:] in ("'", '"') else ""
    flow = _CLOSING.match(line, end) or (_CLOSING_LAST.match(line, end) if opening else None)
    if flow is not None and (flow["quote"] == opening):
        quote = opening or '"'
        listed = [
            _quoted(one, opening or _needed(one, quote))
            for group in _joined(groups, words)
            for one in group
        ]
        ahead = before.removesuffix(opening)
        alone = _ALONE.match(ahead)
        at = end + len(flow["quote"])
        if alone is not None:
            gap = f",{text.end}{alone['indent']}"
            yield Edit(place.line, at + 1, 0, f"{gap}{', '.join(listed)}")
        yield Edit(place.line, at + 1, 0, f", {', '.join(listed)}")
    if opening and line[end : end + 1] == opening:
        end += 1
    quoted = [" ".join(map(shlex.quote, group)) for group in groups]
    continued = line.rstrip().endswith("\\") or text.line(place.line - 1).rstrip().endswith("\\")
    if continued:
        indent = _indent(text, place)
        new = "".join(f" \\{text.end}{indent}{one}" for one in quoted)
        yield Edit(place.line, end + 1, 0, new)
    elif not line[: _first(line)].strip() and _begins_with_flag(line):
        indent = line[: _first(line)]
        new = "".join(f"{text.end}{indent}{one}" for one in quoted)
        yield Edit(place.line, end + 1, 0, new)
    yield Edit(place.line, end + 1, 0, "".join(f" {one}" for one in quoted))


def _begins_with_flag(line: str) -> bool:
    return line.strip().startswith(("--", '"--', "'--"))


def _first(line: str) -> int:
    return len(line) - len(line.lstrip())


def _indent(text: Text, place: Place) -> str:
    """The indentation of a continued line: that of this one, or of the next."""
    line = text.line(place.line)
    if text.line(place.line - 1).rstrip().endswith("\\"):
        return line[: _first(line)]
    following = text.line(place.line + 1)
    if line.rstrip().endswith("\\") and following.strip():
        return following[: _first(following)]
    return line[: _first(line)] + "  "


def _joined(groups: Sequence[Sequence[str]], words: Sequence[Word]) -> list[list[str]]:
    """`--flag=value` in one item where the others are written so."""
    flags = [word.text for word in words if word.text.startswith("--")]
    together = sum("=" in flag for flag in flags)
    if together * 2 <= len(flags):
        return [list(group) for group in groups]
    return [["=".join(group)] if len(group) == 2 else list(group) for group in groups]


def _item(token: str, text: Text, words: Sequence[Word]) -> str:
    """A word as an item of a block list, quoted as the others are."""
    quotes = {
        match["quote"]
        for word in words
        if (match := _BLOCK.match(text.line(word.place.line))) is not None
        and match.end() == word.place.column - 1
    }
    if "" not in quotes and quotes:
        return _quoted(token, sorted(quotes)[0])
    return _quoted(token, _needed(token, next((one for one in sorted(quotes) if one), '"')))


def _needed(token: str, quote: str) -> str:
    """The quote that a word needs to be read as text, if it needs one."""
    return "" if dumped(token, text=True) == token else quote


def _quoted(token: str, quote: str) -> str:
    if quote == "'":
        return "'" + token.replace("'", "''") + "'"
    return json.dumps(token, ensure_ascii=False) if quote else token

"""Fixes as edits of a server command in a script, manifest or document.

The syntax around the arguments (shell, block list, flow list) determines the alternative edits,
best first. The round-trip check (`round_trip.py`) rejects incorrect edits before a file is written.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import product

import yaml

from speclaunch.checks.edit.edits import (
    Edit,
    EditablePlaces,
    FixTarget,
    NotFixableError,
    SourceLines,
    TargetArgument,
    Ways,
)
from speclaunch.checks.edit.rewrite import removal, with_variable
from speclaunch.checks.edit.yaml_edits import (
    Yaml,
    added_item,
    added_key,
    dumped,
    quoted_text,
    removed_item,
    removed_key,
)
from speclaunch.core import InputError, Place, lazy
from speclaunch.deployments import (
    OWN,
    Document,
    Invocation,
    InvocationKind,
    Word,
    effective,
    looks_like_yaml,
    nodes,
    prefixed,
)
from speclaunch.engine import ArgumentKind, Catalogue, ParsedArgument, canonical, parse_argv

PLAIN = lazy(r"[\w@%+=:,./-]+\Z", re.ASCII)
"""Text that is a single token in a shell, in YAML and in JSON, quoted or not."""
_USE = lazy(r"[\"']?\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<bare>[A-Za-z_]\w*))[\"']?\Z")
_BLOCK = lazy(r"(?P<indent>[ \t]*)-(?P<gap>[ \t]+)(?P<quote>[\"']?)")
_CLOSING = lazy(r"(?P<quote>[\"']?)(?P<blank>[ \t]*)[],]")
_ALONE = lazy(r"(?P<indent>[ \t]*)(?:[\"']?--[\w-]+[\"']?,[ \t]*)?\Z")
"""Text before the last item on a line that has only this item, or a flag and its value."""
_CLOSING_LAST = lazy(r"(?P<quote>[\"']?)(?P<blank>[ \t]*)\Z")


def replaced(
    text: SourceLines, words: Sequence[Word], word: Word, old: str, new: str
) -> Iterator[Edit]:
    """Yield alternative edits that replace `old` (the text of `word`, or its end) with `new`."""
    prefix = word.text.removesuffix(old) if old else word.text
    use = word.used_at
    at_use: list[Edit] = []
    is_used_elsewhere = False
    if use is not None:
        matched = _USE.match(text.at(use))
        name = matched and (matched["braced"] or matched["bare"])
        is_used_elsewhere = bool(name) and len(re.findall(rf"\$\{{?{name}\b", text.text)) > 1
        if not prefix and sum(other.used_at == use for other in words) == 1:
            at_use = [Edit(use.line, use.column, use.length, shlex.quote(new))]
    if not (is_used_elsewhere and at_use):
        yield from _at(text, word.place, prefix, old, new)
    yield from at_use


def _at(text: SourceLines, place: Place, prefix: str, old: str, new: str) -> Iterator[Edit]:
    source = text.at(place)

    def edit(start: int, end: int, with_: str) -> Edit:
        return Edit(place.line, place.column + start, end - start, with_)

    begin = source.find("=") + 1 if prefix.endswith("=") else 0
    tail = source[begin:]
    if PLAIN.match(new) is not None and old:
        # the default of a variable, then the text with optional quotes
        for found in (
            re.search(rf"(?<=:[-=?])({re.escape(old)})(?=\}})", tail),
            re.fullmatch(rf"[\"']?({re.escape(old)})[\"']?", tail),
        ):
            if found is not None:
                yield edit(begin + found.start(1), begin + found.end(1), new)
    yield edit(begin, len(source), shlex.quote(new))
    line = text.line(place.line)
    quote = line[place.column - 2 : place.column - 1] if place.column > 1 else ""
    if quote == '"':  # in a list of YAML or JSON, in quotes outside of the place
        yield edit(begin, len(source), json.dumps(new, ensure_ascii=False)[1:-1])
    elif quote == "'":
        yield edit(begin, len(source), new.replace("'", "''"))
    elif tail == old:
        yield edit(begin, len(source), dumped(new, text=True))
        yield edit(begin, len(source), new)


def added(
    text: SourceLines,
    words: Sequence[Word],
    program: Sequence[Word],
    groups: Sequence[Sequence[str]],
) -> Iterator[Edit]:
    """Yield alternatives that append `groups` (a flag and its values) to the remaining `words`."""
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
    text: SourceLines, words: Sequence[Word], place: Place, groups: Sequence[Sequence[str]]
) -> Iterator[Edit]:
    line = text.line(place.line)
    start, end = place.column - 1, place.column - 1 + place.length
    if end > len(line):
        return
    block = _BLOCK.match(line)
    if block is not None and block.end() == start:
        rest = line[end:].removeprefix(block["quote"]).strip()
        if not rest or rest.startswith("#"):
            items = [
                _item(token, text, words) for group in _joined(groups, words) for token in group
            ]
            lead = f"{block['indent']}-{block['gap']}"
            new = "".join(f"{text.end}{lead}{item}" for item in items)
            yield Edit(place.line, len(line) + 1, 0, new)
    before = line[:start]
    opening = before[-1:] if before[-1:] in ("'", '"') else ""
    flow = _CLOSING.match(line, end) or (_CLOSING_LAST.match(line, end) if opening else None)
    if flow is not None and (flow["quote"] == opening):
        quote = opening or '"'
        listed = [
            _quoted(token, opening or _needed(token, quote))
            for group in _joined(groups, words)
            for token in group
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
        new = "".join(f" \\{text.end}{indent}{group}" for group in quoted)
        yield Edit(place.line, end + 1, 0, new)
    elif not line[: _first(line)].strip() and line.strip().startswith(("--", '"--', "'--")):
        indent = line[: _first(line)]
        new = "".join(f"{text.end}{indent}{group}" for group in quoted)
        yield Edit(place.line, end + 1, 0, new)
    yield Edit(place.line, end + 1, 0, "".join(f" {group}" for group in quoted))


def _first(line: str) -> int:
    return len(line) - len(line.lstrip())


def _indent(text: SourceLines, place: Place) -> str:
    """Return an adjacent continuation line's indentation, else two spaces more than the line's."""
    line = text.line(place.line)
    if text.line(place.line - 1).rstrip().endswith("\\"):
        return line[: _first(line)]
    following = text.line(place.line + 1)
    if line.rstrip().endswith("\\") and following.strip():
        return following[: _first(following)]
    return line[: _first(line)] + "  "


def _joined(groups: Sequence[Sequence[str]], words: Sequence[Word]) -> list[list[str]]:
    """Return the groups, joined as `--flag=value` if most other arguments use this form."""
    flags = [word.text for word in words if word.text.startswith("--")]
    together = sum("=" in flag for flag in flags)
    if together * 2 <= len(flags):
        return [list(group) for group in groups]
    return [["=".join(group)] if len(group) == 2 else list(group) for group in groups]


def _item(token: str, text: SourceLines, words: Sequence[Word]) -> str:
    """Return a token as an item of a block list, quoted like the other items."""
    quotes = {
        match["quote"]
        for word in words
        if (match := _BLOCK.match(text.line(word.place.line))) is not None
        and match.end() == word.place.column - 1
    }
    if "" not in quotes and quotes:
        return _quoted(token, sorted(quotes)[0])
    return _quoted(token, _needed(token, next((mark for mark in sorted(quotes) if mark), '"')))


def _needed(token: str, quote: str) -> str:
    """Return `quote` if YAML reads the token as text only in quotes, else an empty string."""
    return "" if dumped(token, text=True) == token else quote


def _quoted(token: str, quote: str) -> str:
    if quote == "'":
        return "'" + token.replace("'", "''") + "'"
    return json.dumps(token, ensure_ascii=False) if quote else token


_OPTION = r"(?:-e|--env)(?:\s+|=)"
"""Option of Docker and similar programs that precedes `NAME=value`."""


def env_ways(invocation: Invocation, name: str, value: str | None, text: str) -> list[list[Edit]]:
    """Return alternative edits that set a variable or remove it (None), best first."""
    word = invocation.env.get(name)
    if word is not None and word.place.path != invocation.place.path:
        raise NotFixableError(f"{name} is set in {word.place.path}")
    if value is None:
        return [[]] if word is None else list(_removed_variable(word, name, text))
    if word is None:
        return list(_set(invocation, name, value, text))
    own = replaced(SourceLines(text), [word], word, word.text, value)
    return [[edit] for edit in own]


def _removed_variable(word: Word, name: str, text: str) -> Iterator[list[Edit]]:
    if re.search(rf"\$\{{?{name}\b|\$\({name}\)", text):
        raise NotFixableError(f"{name} is used elsewhere in the file")
    document = Document(text, word.place.path)
    if looks_like_yaml(text, _suffix(word.place.path)):
        with contextlib.suppress(NotFixableError, InputError):  # it may be in a nested script
            yield from _out_of_yaml(document, word.place, name)
    yield from _out_of_shell(SourceLines(text), word.place, name)


def _suffix(path: str) -> str:
    return "." + path.rpartition(".")[2].lower()


def _out_of_shell(text: SourceLines, place: Place, name: str) -> Iterator[list[Edit]]:
    line, start = text.line(place.line), place.column - 1
    end = start + place.length
    head = line[:start]
    quote = ""
    if head.endswith(f"{name}="):
        begin = start - len(name) - 1
    elif head.endswith((f'{name}="', f"{name}='")):
        begin, quote = start - len(name) - 2, head[-1]
        end += len(quote)
    else:
        return
    if begin and line[begin - 1] in "\"'" and line[end : end + 1] == line[begin - 1]:
        begin, end = begin - 1, end + 1  # "NAME=value"
    before, behind = line[:begin], line[end:]
    alone = re.match(r"\s*(?:export|declare\s+-x|typeset\s+-x|ENV)\s+\Z", before)
    begins_line = alone is not None or not before.strip()
    if begins_line and re.match(r"\s*(?:[;#].*)?\Z", behind):
        yield [Edit(place.line, 1, len(line), "")]
    stated = re.search(r"(?:\bexport|\bdeclare\s+-x)\s+\Z", before)
    if stated is not None:
        ended = re.match(r"\s*(?:;|&&)\s*", behind)
        if ended is not None:
            length = end + ended.end() - stated.start()
            yield [Edit(place.line, stated.start() + 1, length, "")]
    option = re.search(rf"[\"']?{_OPTION}[\"']?\Z", before)
    if option is not None:
        yield [Edit(place.line, option.start() + 1, end - option.start(), "")]
    if alone is None or behind.strip():
        yield [Edit(place.line, begin + 1, end - begin, "")]


def _out_of_yaml(document: Document, place: Place, name: str) -> Iterator[list[Edit]]:
    """Yield edits that remove the variable at `place`, which is a key or an item."""
    found = Yaml(document)
    for root in nodes.load(document):
        for node in nodes.walk(root):
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == name and _is_at(value, place, document):
                        yield removed_key(found, node, key)
            elif isinstance(node, yaml.SequenceNode):
                for item in node.value:
                    if _is_item(item, name, place, document):
                        yield removed_item(found, node, item)


def _is_item(item: yaml.Node, name: str, place: Place, document: Document) -> bool:
    if isinstance(item, yaml.ScalarNode):
        return str(item.value).startswith(f"{name}=") and _is_at(item, place, document)
    entries = nodes.entries(item)
    value = entries.get("value")
    return nodes.text(entries.get("name")) == name and _is_at(value, place, document)


def _is_at(node: yaml.Node | None, place: Place, document: Document) -> bool:
    if node is None:
        return False
    start, end = nodes.offsets(node, document)
    at = document.offset(place.line - 1, place.column - 1)
    return start <= at <= end


def _set(invocation: Invocation, name: str, value: str, text: str) -> Iterator[list[Edit]]:
    if invocation.kind in (InvocationKind.SLIME, InvocationKind.CONFIG):
        raise NotFixableError(f"set {name}={value} in the server's environment")
    own = with_variable(invocation, name, shlex.quote(value), text)
    if own is not None:
        yield [own]
    if looks_like_yaml(text, _suffix(invocation.place.path)):
        yield from _into_yaml(invocation, name, value, text)


def _into_yaml(invocation: Invocation, name: str, value: str, text: str) -> Iterator[list[Edit]]:
    """Yield alternative edits that add a variable to the container of the invocation."""
    document = Document(text, invocation.place.path)
    found = Yaml(document, SourceLines(text).end)
    for root in nodes.load(document):
        for node in nodes.walk(root):
            if not isinstance(node, yaml.MappingNode):
                continue
            for key, value_node in node.value:
                if key.value not in ("command", "args", "entrypoint"):
                    continue
                if not _is_at(value_node, invocation.place, document):
                    continue
                entries = nodes.entries(node)
                for section in ("environment", "env"):
                    if section in entries:
                        yield from _into_section(found, entries[section], name, value)
                column = key.start_mark.column
                lead = found.lines[key.start_mark.line][:column]
                if not lead.strip():
                    last = found.last_line(key, value_node)
                    yield [_section(found, last, lead, name, value, kubernetes=False)]
                    yield [_section(found, last, lead, name, value, kubernetes=True)]


def _section(found: Yaml, last: int, lead: str, name: str, value: str, *, kubernetes: bool) -> Edit:
    text = quoted_text(value)
    if kubernetes:
        lines = [f"{lead}env:", f"{lead}- name: {name}", f"{lead}  value: {text}"]
    else:
        lines = [f"{lead}environment:", f"{lead}  {name}: {text}"]
    return found.after(last, lines)


def _into_section(found: Yaml, node: yaml.Node, name: str, value: str) -> Iterator[list[Edit]]:
    if isinstance(node, yaml.MappingNode) and node.value:
        yield added_key(found, node, {name: quoted_text(value)})
    elif isinstance(node, yaml.SequenceNode) and node.value:
        if isinstance(node.value[0], yaml.ScalarNode):
            yield added_item(found, node, [dumped(f"{name}={value}", text=True)])
        elif node.flow_style or node.value[0].flow_style:
            yield added_item(found, node, [f'{{name: {name}, value: "{value}"}}'])
        else:
            yield added_item(found, node, [f'name: {name}\nvalue: "{value}"'])


SLIMES = ("model_path", "tp_size")
"""Arguments that slime sets with its own options."""


class CommandWords(EditablePlaces):
    """Tokens of a command, as parsed by its engine version."""

    most_ways = 60

    def __init__(
        self, invocation: Invocation, _target: FixTarget, catalogue: Catalogue, text: str
    ) -> None:
        found = effective(invocation, catalogue)
        texts = [word.text for word in found.words]
        opaque = {index for index, word in enumerate(found.words) if not word.evaluated}
        self._items = parse_argv(texts, catalogue, opaque=opaque, with_values=False).parsed
        self._invocation, self._words, self._catalogue = invocation, found.words, catalogue
        self._is_slime = invocation.kind is InvocationKind.SLIME
        self._text = SourceLines(text)
        self._gone: list[Word] = []

    def change(self, argument: TargetArgument) -> Ways | None:
        name = argument.name
        if self._is_slime and name in SLIMES:
            raise NotFixableError(f"slime sets {name} with {OWN[name].option}")
        items = [item for item in self._items if canonical(item.dest) == name]
        ways = None
        if not argument.is_removed:
            ways = self._another_value(items[-1], len(items), argument) if items else []
        if ways is None:
            for item in items:
                words = self._own_words(item)
                if not all(map(self._is_here, words)):
                    raise NotFixableError(f"{item.written} is not written as a flag")
                self._gone += words
        return [[]] if argument.is_removed else ways or None

    def finish(self, new: Sequence[TargetArgument]) -> Iterator[Ways]:
        words, gone, text = self._invocation.words, self._gone, self._text.text
        if gone:
            found = (removal(words, gone, gone, text, uses=uses) for uses in (True, False))
            yield [edits for edits in found if edits is not None]
        if new:
            left = {id(word) for word in gone}
            stays = [w for w in self._words if id(w) not in left and self._is_here(w)]
            path = self._invocation.place.path
            program = [word for word in self._invocation.program if word.place.path == path]
            groups = [[self._flag(argument.words[0]), *argument.words[1:]] for argument in new]
            yield [[edit] for edit in added(self._text, stays, program, groups)]

    def set_variable(self, name: str, value: str | None) -> Ways:
        return env_ways(self._invocation, name, value, self._text.text)

    def _is_here(self, word: Word) -> bool:
        return word.place.path == self._invocation.place.path and any(
            word is own for own in self._invocation.words
        )

    def _own_words(self, item: ParsedArgument) -> list[Word]:
        """Return an argument's tokens. Raises NotFixableError if one is in another file."""
        words = [self._words[index] for index in (item.index, *item.value_indices)]
        for word in words:
            if word.place.path != self._invocation.place.path:
                raise NotFixableError(f"{item.written} is set in {word.place.path}")
        return words

    def _flag(self, written: str) -> str:
        return prefixed(written) if self._is_slime else written

    def _another_value(
        self, last: ParsedArgument, count: int, argument: TargetArgument
    ) -> Ways | None:
        """Return alternative edits of the last value; None if the argument must be replaced."""
        words = self._own_words(last)
        if last.argument.kind is ArgumentKind.LIST and last.argument.nargs is None and count > 1:
            raise NotFixableError(f"{last.written} is set several times")
        flag, operands, values = words[0], words[1:], argument.values
        if last.stored == argument.stored and not values:
            return [[]]
        _, equals, tail = flag.text.partition("=")
        if equals and not operands and len(values) == 1:
            steps = [self._replacements(flag, tail, values[0])] if tail != values[0] else []
        elif not equals and operands and len(operands) == len(values):
            steps = [
                self._replacements(word, word.text, new)
                for word, new in zip(operands, values, strict=True)
                if word.text != new
            ]
        elif not operands and not values and not equals:  # `--no-x` and `--x`
            steps = [self._replacements(flag, self._flag(flag.text), self._flag(argument.words[0]))]
        else:
            return None
        if self._catalogue.by_name(argument.own) is None:
            return None
        return [[edit for edits in chosen for edit in edits] for chosen in product(*steps)]

    def _replacements(self, word: Word, old: str, new: str) -> Ways:
        found = replaced(self._text, self._invocation.words, word, old, new)
        return [[edit] for edit in found]

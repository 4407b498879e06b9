"""Templates of a Helm chart, rendered with the chart's own values. Nothing is executed.

A placeholder stands for a mark that depends on the cluster, on the release, or on values without a
default. If such a value decides a branch, all its arms are rendered.
Source: Go's text/template, helm 3 `pkg/engine`, https://helm.sh/docs/chart_template_guide/.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.core import lazy, reads
from speclaunch.deployments.sources.effective_words import read_below
from speclaunch.deployments.sources.go_templates import (
    MOST_CHARS,
    UNKNOWN,
    GoChunk,
    GoExpression,
    GoObject,
    GoOutput,
    Undecided,
    shown,
)
from speclaunch.deployments.sources.source_text import Document
from speclaunch.deployments.sources.yaml_files import plain_data

_MARK = lazy(
    r"\{\{(?P<left>-(?=\s))?\s*(?P<code>/\*.{0,5000}?\*/|.{0,2000}?)\s*(?P<right>(?<=\s)-)?\}\}",
    re.DOTALL,
)
_ASSIGNMENT = lazy(r"(?:(\$\w+)\s*,\s*)?(\$\w+)\s*(:?=)\s*(.*)", re.DOTALL)
_SERVER = lazy(r"launch_server|sglang[\"',\s]+serve\b")
"""Pattern of a server command in a script or a YAML list."""
_BLOCKS = frozenset({"if", "with", "range", "define", "block"})
_MOST_DEPTH = 30
_MOST_HELPERS = 20
"""Maximum number of `_*.tpl` files of a chart that are read."""


class _Unreadable(Exception):
    """A text that is not a template, or one beyond the limits."""


class _Node(Struct):
    """Literal text (`code` is None), a mark, or a block with its arms."""

    start: int
    end: int
    text: str = ""
    code: str | None = None
    keyword: str = ""
    arms: list[_Arm] = []
    is_alone: bool = False


class _Arm(Struct):
    """Arm of a block: `if CONDITION`, or `else` with the condition None."""

    condition: str | None
    start: int
    end: int = 0
    body: list[_Node] = []


class RenderedTemplate:
    """Rendered template; offsets are those of `text`."""

    def __init__(self, chunks: Sequence[GoChunk]) -> None:
        self.text = "".join(chunk.text for chunk in chunks)
        self._chunks = chunks
        self._starts: list[int] = []
        at = 0
        for chunk in chunks:
            self._starts.append(at)
            at += len(chunk.text)

    def _at(self, offset: int) -> tuple[GoChunk, int]:
        """Return the chunk of a character, and the character's offset in it."""
        index = max(bisect_right(self._starts, offset) - 1, 0)
        return self._chunks[index], offset - self._starts[index]

    def path(self, offset: int) -> tuple[int, ...]:
        return self._at(offset)[0].path

    def origin(self, offset: int, length: int) -> tuple[int, int]:
        """Return the range of the template from which a range comes."""
        first, at = self._at(offset)
        last, end = self._at(offset + max(length, 1) - 1)
        start = first.start + at if first.is_literal else first.start
        return start, max(last.start + end + 1 if last.is_literal else last.end, start + 1)

    def has_values(self, offset: int, length: int) -> bool:
        """True if the chart's values determine a part of a range."""
        first = max(bisect_right(self._starts, offset) - 1, 0)
        last = bisect_right(self._starts, offset + max(length, 1) - 1)
        return any(chunk.is_value for chunk in self._chunks[first:last])


def rendered(
    document: Document, chart: Path, mask: Callable[[str], str]
) -> RenderedTemplate | None:
    """Return a file of a chart as Helm renders it; None without readable values.

    `mask` returns the placeholder of an unknown mark.
    """
    values = _values(chart)
    if not isinstance(values, dict):
        return None
    about = plain_data(read_below("Chart.yaml", [chart]).text or "")
    known = about if isinstance(about, dict) else {}
    names = {"Name": "name", "Version": "version", "AppVersion": "appVersion"}
    shown = {name: known[key] for name, key in names.items() if known.get(key)}
    renderer = _Renderer(document, {"Values": values, "Chart": GoObject(shown)}, mask)
    try:
        for name in _helpers(chart, Path(document.shown)):
            renderer.define(_parsed(read_below(f"templates/{name}", [chart]).text or ""))
        nodes = _parsed(document.text)
        renderer.define(nodes)
        renderer.run(nodes, renderer.root)
    except (_Unreadable, RecursionError):
        return None
    return RenderedTemplate(renderer.chunks)


def _values(chart: Path) -> Any:
    """Return a chart's values with those that its parent chart sets; None if unreadable."""
    own = plain_data(read_below("values.yaml", [chart]).text or "")
    parent = chart.parent.parent
    is_below = chart.parent.name == "charts" and reads.is_file(parent / "Chart.yaml")
    above = _values(parent) if is_below else None
    if not isinstance(above, dict):
        return own
    shared = {key: value for key, value in above.items() if key == "global"}
    return _merged(_merged(own or {}, above.get(chart.name, {})), shared)


def _merged(own: Any, above: Any) -> Any:
    """Return a parent's value `above` merged into the chart's; a null removes a key."""
    if not isinstance(own, dict) or not isinstance(above, dict):
        return above
    rest = {key: _merged(own.get(key), value) for key, value in above.items() if value is not None}
    return {key: value for key, value in own.items() if key not in above} | rest


def _helpers(chart: Path, path: Path) -> list[str]:
    try:
        names = reads.names(chart / "templates")
    except OSError:
        return []
    found = [name for name in names if name[:1] == "_" and name.endswith(".tpl")]
    return [name for name in sorted(found) if chart / "templates" / name != path][:_MOST_HELPERS]


def _parsed(text: str) -> list[_Node]:
    root: list[_Node] = []
    blocks: list[_Node] = []
    at, is_trimmed = 0, False

    def body() -> list[_Node]:
        return blocks[-1].arms[-1].body if blocks else root

    def add_literal(end: int, *, trims: bool) -> None:
        literal = text[at:end]
        start = at + (len(literal) - len(literal.lstrip())) * is_trimmed
        literal = text[start:end].rstrip() if trims else text[start:end]
        if literal:
            body().append(_Node(start, start + len(literal), literal))

    for mark in _MARK.finditer(text):
        add_literal(mark.start(), trims=mark["left"] is not None)
        at, is_trimmed = mark.end(), mark["right"] is not None
        code = mark["code"]
        word = re.match(r"\w*", code)
        keyword = word[0] if word is not None else ""
        rest = code[len(keyword) :].strip()
        if code.startswith("/*"):
            continue
        if keyword in _BLOCKS:
            node = _Node(mark.start(), mark.end(), mark[0], rest, keyword)
            node.arms = [_Arm(rest, mark.end())]
            body().append(node)
            blocks.append(node)
        elif keyword in ("else", "end"):
            if not blocks:
                raise _Unreadable
            blocks[-1].arms[-1].end = mark.start()
            if keyword == "end":
                blocks.pop().end = mark.end()
            else:
                condition = re.sub(r"^(?:if|with)\b", "", rest).strip() or None
                blocks[-1].arms.append(_Arm(condition, mark.end()))
        elif keyword in ("break", "continue"):
            raise _Unreadable
        else:
            before = text[text.rfind("\n", 0, mark.start()) + 1 : mark.start()]
            after = text[mark.end() : (text + "\n").find("\n", mark.end())]
            is_alone = not before.strip() and not after.strip()
            body().append(_Node(mark.start(), mark.end(), mark[0], code, is_alone=is_alone))
    if blocks:
        raise _Unreadable
    add_literal(len(text), trims=False)
    return root


class _Renderer:
    """Renderer of one template; `chunks` is the output so far."""

    def __init__(
        self, document: Document, root: Mapping[str, Any], mask: Callable[[str], str]
    ) -> None:
        self.chunks: list[GoChunk] = []
        self._document = document
        self.root = GoObject(root)
        self._mask = mask
        self._templates: dict[str, list[_Node]] = {}
        self._scopes: list[dict[str, Any]] = [{"$": self.root}]
        self._guard = 0
        """Number of scopes outside the innermost undecided branch."""
        self._path: tuple[int, ...] = ()
        self._numbers = count()
        self._span: tuple[int, int] | None = None
        """Range of the mark that includes the named template being rendered."""
        self._depth = 0
        self._size = 0

    def define(self, nodes: Iterable[_Node]) -> None:
        for node in nodes:
            if node.keyword in ("define", "block") and node.code:
                self._templates[node.code.split()[0].strip('"`')] = node.arms[0].body

    # -- nodes --------------------------------------------------------------------------

    def run(self, nodes: Iterable[_Node], dot: Any) -> None:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _Unreadable
        self._scopes.append({})
        for node in nodes:
            self._document.spend()
            match node.keyword:
                case "" if node.code is None:
                    self._add(node.text, node, is_literal=True)
                case "":
                    self._print(node, node.code or "", dot)
                case "if" | "with":
                    self._branch(node, dot)
                case "range":
                    self._range(node, dot)
                case "block":
                    self.run(node.arms[0].body, dot)
                case _ if self._starts_server(node.arms[0]):  # defined here, included elsewhere
                    self._undecided(node.arms[0].body, self.root)
        self._scopes.pop()
        self._depth -= 1

    def _add(
        self, text: str, node: _Node, *, is_literal: bool = False, is_value: bool = False
    ) -> None:
        start, end = self._span or (node.start, node.end)
        is_literal = is_literal and self._span is None
        self._put(GoChunk(text, start, end, self._path, is_literal, is_value))

    def _put(self, chunk: GoChunk) -> None:
        self._size += len(chunk.text)
        if self._size > MOST_CHARS:
            raise _Unreadable
        self.chunks.append(chunk)

    def _print(self, node: _Node, code: str, dot: Any) -> None:
        assigned = _ASSIGNMENT.fullmatch(code)
        if assigned is not None:
            value = self._value(assigned[4], dot, node)
            self._assign(assigned[2], value, is_new=assigned[3] == ":=")
            return
        if code.startswith("template"):
            code = f"include{code.removeprefix('template')}"
        value = self._value(code, dot, node)
        if isinstance(value, GoOutput):
            for chunk in value.inside(self._path):
                self._put(chunk)
            return
        try:
            text = shown(value)
        except Undecided:
            text = ""
        if text:
            self._add(text, node, is_value=True)
        elif node.is_alone and (self._span is None or "indent" in code):
            self._unknown_lines(node)
        else:
            self._add(self._mask(node.text), node)

    def _unknown_lines(self, node: _Node) -> None:
        """Add a placeholder for unknown lines inside a command; elsewhere they are omitted."""
        before = "".join(chunk.text for chunk in self.chunks[-3:]).rstrip(" ")
        if before.endswith("\\"):
            self._add(f"\n{self._mask(node.text)}", node)
        elif before.endswith("\\\n"):
            self._add(self._mask(node.text), node)

    def _assign(self, name: str, value: Any, *, is_new: bool) -> None:
        if is_new:
            self._scopes[-1][name] = value
            return
        at = next((i for i in range(len(self._scopes))[::-1] if name in self._scopes[i]), -1)
        self._scopes[at][name] = UNKNOWN if at < self._guard else value

    def _branch(self, node: _Node, dot: Any) -> None:
        is_open = is_rendered = False
        for arm in node.arms:
            name = ""
            value: Any = True
            if arm.condition is not None:
                assigned = _ASSIGNMENT.fullmatch(arm.condition)
                name, code = (assigned[2], assigned[4]) if assigned else ("", arm.condition)
                value = self._plain(self._value(code, dot, node))
            inner = dot if node.keyword == "if" or arm.condition is None else value
            result = None if value is UNKNOWN else bool(value)
            self._scopes.append({name: value} if name else {})
            if is_rendered or result is False:
                if self._starts_server(arm):  # a server that is off by default is checked
                    self._undecided(arm.body, inner)
            elif is_open or result is None:
                self._undecided(arm.body, inner)
            else:
                self.run(arm.body, inner)
            self._scopes.pop()
            is_open = is_open or result is None
            is_rendered = is_rendered or (result is True and not is_open)

    def _range(self, node: _Node, dot: Any) -> None:
        head = node.arms[0]
        assigned = _ASSIGNMENT.fullmatch(head.condition or "")
        first, second = (assigned[1], assigned[2]) if assigned else (None, None)
        value = self._value(assigned[4] if assigned else head.condition or "", dot, node)
        rows: Sequence[tuple[Any, Any]] = ()
        if isinstance(value, dict) and not isinstance(value, GoObject):
            rows = sorted(value.items(), key=lambda row: str(row[0]))
        elif isinstance(value, list):
            rows = list(enumerate(value))
        elif value is not None:
            value = UNKNOWN
        for key, item in rows:
            self._scopes.append(
                {name: held for name, held in ((first, key), (second, item)) if name}
            )
            self.run(head.body, item if item is not None else UNKNOWN)
            self._scopes.pop()
        if value is UNKNOWN or (not rows and self._starts_server(head)):
            self._scopes.append({name: UNKNOWN for name in (first, second) if name})
            self._undecided(head.body, UNKNOWN)
            self._scopes.pop()
        for arm in node.arms[1:] if not rows else ():
            if value is UNKNOWN:
                self._undecided(arm.body, dot)
            else:
                self.run(arm.body, dot)

    def _undecided(self, body: Sequence[_Node], dot: Any) -> None:
        before = self._path, self._guard
        self._path, self._guard = (*self._path, next(self._numbers)), len(self._scopes)
        self.run(body, dot)
        self._path, self._guard = before

    def _starts_server(self, arm: _Arm) -> bool:
        text = self._document.text[arm.start : arm.end]
        return self._span is None and _SERVER.search(text) is not None

    # -- values -------------------------------------------------------------------------

    def _value(self, code: str, dot: Any, node: _Node) -> Any:
        self._document.spend()
        try:
            return GoExpression(code, dot, self._lookup, lambda *a: self._include(node, *a)).value()
        except (Undecided, ValueError):
            return UNKNOWN

    def _plain(self, value: Any) -> Any:
        try:
            return value.plain() if isinstance(value, GoOutput) else value
        except Undecided:
            return UNKNOWN

    def _lookup(self, name: str) -> Any:
        return next((scope[name] for scope in self._scopes[::-1] if name in scope), UNKNOWN)

    def _include(self, node: _Node, function: str, name: str, dot: Any) -> GoOutput:
        """Return the output of `include NAME`, or of the template `name` for `tpl`."""
        self._document.spend(len(name) // 20)
        try:
            body = _parsed(name) if function == "tpl" else self._templates[name]
        except (KeyError, _Unreadable) as error:
            raise Undecided from error
        before = self.chunks, self._scopes, self._span, self._guard, self._path
        self.chunks, self._scopes, self._guard, self._path = [], [{"$": dot}], 0, ()
        self._span = self._span or (node.start, node.end)
        self.run(body, dot)
        found = GoOutput(self.chunks)
        self.chunks, self._scopes, self._span, self._guard, self._path = before
        return found

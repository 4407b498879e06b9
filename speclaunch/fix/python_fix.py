"""A fix as edits of `sglang.Engine(…)` in a Python program: the keywords of one call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from speclaunch.engine.argv import parse_argv
from speclaunch.engine.canonical import canonical
from speclaunch.engine.catalogue import Catalogue
from speclaunch.errors import Place
from speclaunch.fix.command_words import Text
from speclaunch.fix.edits import Edit, Ways, combinations
from speclaunch.fix.wanted import Wanted
from speclaunch.fix.yaml_edits import NotFixableError
from speclaunch.importer.interface import Invocation

_MOST_WAYS = 20


def engine_ways(
    invocation: Invocation, wanted: Wanted, catalogue: Catalogue, source: str
) -> Iterator[list[Edit]]:
    """The ways to make a call what is wanted. Raises NotFixableError."""
    if any(value is not None or name in invocation.env for name, value in wanted.env.items()):
        raise NotFixableError("set the variable where the program is started")
    text = Text(source)
    call = _call(text, invocation.place)
    texts = [word.text for word in invocation.words]
    opaque = {at for at, word in enumerate(invocation.words) if not word.evaluated}
    parsed = parse_argv(texts, catalogue, opaque=opaque, whole=False)
    places = {canonical(i.dest): invocation.words[i.index].place for i in parsed.parsed}
    steps: list[Ways] = []
    new: list[str] = []
    for name, argument in wanted.arguments.items():
        place = places.get(name)
        keyword = _keyword(text, call, place, name, argument.own)
        if place is not None and keyword is None:
            raise NotFixableError(f"{argument.own} is not a keyword of the call")
        if keyword is None:
            if argument.value is not None and not argument.is_removed:
                new.append(f"{argument.own}={argument.value!r}")
        elif argument.value is None:
            steps.append([[_removed(text, keyword)]])
        else:
            steps.append([[_edit(text, keyword.value, repr(argument.value))]])
    if new:
        steps.append([[edit] for edit in _added(text, call, new)])
    yield from combinations(steps, _MOST_WAYS)


def _call(text: Text, place: Place) -> ast.Call:
    try:
        tree = ast.parse("\n".join(text.lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotFixableError("it is not a Python program") from error
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or node.lineno != place.line:
            continue
        if _column(text, node.lineno, node.col_offset) == place.column:
            return node
    raise NotFixableError("its call was not found again")


def _column(text: Text, line: int, offset: int) -> int:
    """A column from 1 in characters; Python counts the bytes of UTF-8."""
    return len(text.line(line).encode()[:offset].decode(errors="replace")) + 1


def _keyword(
    text: Text, call: ast.Call, place: Place | None, name: str, own: str
) -> ast.keyword | None:
    for one in call.keywords:
        if place is not None:
            at = (one.lineno, _column(text, one.lineno, one.col_offset))
            if at == (place.line, place.column):
                return one
        elif one.arg is not None and (one.arg == own or canonical(one.arg) == name):
            return one  # a switch that is off
    return None


def _edit(text: Text, node: ast.expr | ast.keyword, new: str) -> Edit:
    if node.end_lineno != node.lineno or node.end_col_offset is None:
        raise NotFixableError("its value stands on several lines")
    start = _column(text, node.lineno, node.col_offset)
    end = _column(text, node.lineno, node.end_col_offset)
    return Edit(node.lineno, start, end - start, new)


def _removed(text: Text, keyword: ast.keyword) -> Edit:
    edit = _edit(text, keyword, "")
    line = text.line(edit.line)
    start, end = edit.column - 1, edit.column - 1 + edit.length
    behind = line[end:].lstrip()
    if behind.startswith(","):
        end = len(line) - len(behind) + 1
        rest = line[end:].lstrip()
        if not line[:start].strip() and (not rest or rest.startswith("#")):
            return Edit(edit.line, 1, len(line), "")
    elif (before := line[:start].rstrip()).endswith(","):
        start = len(before) - 1
    elif not line[:start].strip() and not behind:
        return Edit(edit.line, 1, len(line), "")
    return Edit(edit.line, start + 1, end - start, "")


def _added(text: Text, call: ast.Call, new: list[str]) -> Iterator[Edit]:
    """Behind the last argument, in a line of its own where that has one."""
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if not given:
        raise NotFixableError("its call has no arguments")
    last = max(given, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0))
    number = last.end_lineno or last.lineno
    end = _column(text, number, last.end_col_offset or 0)
    line = text.line(last.lineno)
    start = _column(text, last.lineno, last.col_offset) - 1
    if not line[:start].strip():
        yield Edit(number, end, 0, "".join(f",{text.end}{line[:start]}{one}" for one in new))
    yield Edit(number, end, 0, "".join(f", {one}" for one in new))

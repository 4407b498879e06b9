"""Loops and branches of a Python program: elements of iterables, comprehensions, tested names."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from speclaunch.deployments.sources.python_definitions import NESTED
from speclaunch.deployments.sources.python_evaluator import PythonEvaluator
from speclaunch.deployments.sources.python_values import (
    PythonList,
    PythonTable,
    PythonText,
    PythonValue,
    dotted,
    last_name,
    note_of,
)

MAX_ELEMENTS = 200
READERS = frozenset({"update", "isinstance", "get", "items", "int", "lower", "upper"})
"""Further functions that start nothing."""
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

LoopElement = PythonText | PythonList | PythonTable | tuple["LoopElement", ...]


def loop_elements(evaluator: PythonEvaluator, node: ast.expr) -> tuple[list[LoopElement], bool]:
    """Return the known elements of an iterable; False if there may be others."""
    match node:
        case ast.Call(func=ast.Attribute(value=held, attr="items"), args=[]):
            table = evaluator.value(held)
            if isinstance(table, PythonTable):
                return list(table.entries.values()), not table.rest
        case ast.Call(func=ast.Name(id="range"), args=args):
            return _numbers(evaluator, node, [evaluator.value(argument) for argument in args])
        case ast.Call(func=ast.Name(id="enumerate"), args=[held], keywords=[]):
            inner, complete = loop_elements(evaluator, held)
            numbered = (_number(evaluator, node, index) for index in range(len(inner)))
            return list(zip(numbered, inner, strict=True)), complete
        case ast.Call(func=ast.Name(id="zip"), args=args, keywords=[]) if args:
            columns = [loop_elements(evaluator, argument) for argument in args]
            rows = list(zip(*(inner for inner, _ in columns), strict=False))
            return list(rows), all(complete for _, complete in columns)
        case _:
            return _of_value(evaluator.value(node))
    return [], False


def _of_value(found: PythonValue) -> tuple[list[LoopElement], bool]:
    if isinstance(found, PythonTable):
        return [key for key, _ in found.entries.values()], not found.rest
    if not isinstance(found, PythonList):
        return [], False
    elements = found.elements()
    return [*(elements or [])], elements is not None


def _numbers(
    evaluator: PythonEvaluator, node: ast.AST, limits: Sequence[PythonValue]
) -> tuple[list[LoopElement], bool]:
    numbers = [found.constant for found in limits if isinstance(found, PythonText)]
    known = [number for number in numbers if type(number) is int]
    if len(known) != len(limits) or len(known) not in (1, 2, 3) or 0 in known[2:]:
        return [], False
    found = range(*known)[: MAX_ELEMENTS + 1]
    return [_number(evaluator, node, number) for number in found], True


def _number(evaluator: PythonEvaluator, node: ast.AST, number: int) -> PythonText:
    return replace(evaluator.label(node, str(number)), constant=number, is_text=False)


def assigned(target: ast.expr, value: LoopElement) -> dict[str, PythonValue | None]:
    """Return the names that assigning `value` to `target` sets; None for unknown values."""
    if isinstance(target, (ast.Tuple, ast.List)):
        parts = value if isinstance(value, tuple) else _of_value(value)[0]
        parts = () if isinstance(value, PythonTable) else parts
        found: dict[str, PythonValue | None] = {}
        if len(parts) == len(target.elts):
            for element, part in zip(target.elts, parts, strict=True):
                found |= assigned(element, part)
        return dict.fromkeys(filter(None, map(dotted, ast.walk(target)))) | found
    name = dotted(target)
    return {} if name is None else {name: None if isinstance(value, tuple) else value}


def comprehension(
    node: ast.ListComp | ast.GeneratorExp,
    names: Mapping[str, PythonValue | None],
    evaluator: Callable[[Mapping[str, PythonValue | None]], PythonEvaluator],
) -> PythonList | None:
    """Return the list that a comprehension over known elements makes; None if unknown."""
    found = PythonList()

    def add(names: Mapping[str, PythonValue | None], clauses: Sequence[ast.comprehension]) -> bool:
        own = evaluator(names)
        if not clauses:
            found.values.append(value := own.value(node.elt))
            found.items.append(value if isinstance(value, PythonText) else own.unknown(node))
            return len(found.items) <= MAX_ELEMENTS
        elements, complete = loop_elements(own, clauses[0].iter)
        for element in elements if complete else ():
            values = assigned(clauses[0].target, element)
            seen = {**names, **values}
            tests = evaluator(seen)
            results = [tests.decided(test) for test in clauses[0].ifs]
            if None in results or (all(results) and not add(seen, clauses[1:])):
                return False
        return complete

    return found if add(names, node.generators) else None


def may_leave(body: Sequence[ast.stmt]) -> bool:
    """True if a loop's body may end the loop early, or defines a function or class."""
    waiting: list[tuple[ast.AST, bool]] = [(node, False) for node in body]
    while waiting:
        node, is_inner = waiting.pop()
        if isinstance(node, (*NESTED, ast.Return)) or (
            isinstance(node, ast.Break) and not is_inner
        ):
            return True
        inside = is_inner or isinstance(node, _LOOPS)
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return False


def called_names(body: Sequence[ast.stmt]) -> set[str]:
    """Return the last names of the functions that a body calls."""
    calls = (call for part in body for call in ast.walk(part) if isinstance(call, ast.Call))
    return {last_name(call.func) for call in calls}


def carried(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the targets of the assignments in a loop's body, which change from pass to pass."""
    for node in (inner for part in body for inner in ast.walk(part)):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node


@contextmanager
def without_defaults(
    names: dict[str, PythonValue | None], evaluator: PythonEvaluator, test: ast.expr | None
) -> Iterator[None]:
    """Inside the context, mark as unknown the defaults that a test excludes."""
    values = {
        name: evaluator.value(part)
        for part in (ast.walk(test) if test is not None else ())
        if isinstance(part, (ast.Name, ast.Attribute)) and (name := dotted(part))
    }
    before = {name: names.get(name) for name, value in values.items() if note_of(value)}
    added = before.keys() - names.keys()
    names |= dict.fromkeys(before)
    yield
    names |= {name: old for name, old in before.items() if names.get(name) is None}
    for name in added:
        if names[name] is None:
            del names[name]

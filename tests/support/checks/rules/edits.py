"""The changes of a rule's module that its cases are asked about: see mutating.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from packaging.version import Version

from speclaunch.engine.releases.catalogue import held_versions

_TURNED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_VERSION = r"\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc)\d+)?"
_BOUND = re.compile(rf"(>=|<=|==|!=|<|>)({_VERSION})")
_SPECIFIER = re.compile(rf"(?:>=|<=|==|!=|<|>){_VERSION}(?:,(?:>=|<=|==|!=|<|>){_VERSION})*")

Edit = tuple[Any, str, tuple[Any, str, Any]]


def _is_for_types(test: ast.expr) -> bool:
    """`if TYPE_CHECKING:`, which decides nothing that runs."""
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def edits(tree: ast.Module) -> Iterator[Edit]:
    """Each change: the node that it is told at, what it is, and how it is made."""
    apart = _left_alone(tree)
    rows = _tables(tree)
    for node in ast.walk(tree):
        if id(node) in apart:
            continue
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            if not _is_turned_itself(node.test) and not _is_for_types(node.test):
                negated = ast.UnaryOp(ast.Not(), node.test)
                yield node.test, "condition negated", (node, "test", negated)
        elif isinstance(node, ast.comprehension):
            for number, test in enumerate(node.ifs):
                if _is_turned_itself(test):
                    continue
                others = list(node.ifs)
                others[number] = ast.UnaryOp(ast.Not(), test)
                yield test, "condition negated", (node, "ifs", others)
        elif isinstance(node, ast.Compare):
            yield from _turned(node)
        elif isinstance(node, ast.BoolOp):
            yield from _other_operands(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "not dropped", (node, "operand", ast.UnaryOp(ast.Not(), node.operand))
        elif isinstance(node, ast.Constant):
            for value in _other_values(node.value):
                said = f"{node.value!r} → {value!r}"
                yield node, said, (node, "value", value)
        if id(node) in rows:
            yield from _fewer_rows(node)


def _is_turned_itself(test: ast.expr) -> bool:
    """Whether the negation is the same as another mutant: that of the `not`, or of `is`."""
    single = isinstance(test, ast.Compare) and len(test.ops) == 1
    return single or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _turned(node: ast.Compare) -> Iterator[Edit]:
    for number, operator in enumerate(node.ops):
        for other in _TURNED[type(operator)]:
            operators = list(node.ops)
            operators[number] = other()
            said = f"{type(operator).__name__} → {other.__name__}"
            yield node, said, (node, "ops", operators)


def _other_operands(node: ast.BoolOp) -> Iterator[Edit]:
    turned = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield node, f"{type(node.op).__name__} → {type(turned).__name__}", (node, "op", turned)
    for number, operand in enumerate(node.values):
        left = [value for value in node.values if value is not operand]
        said = f"operand {number + 1} dropped"
        # one operand alone is no boolean operation: `a and a` is the same
        yield operand, said, (node, "values", left * 2 if len(left) == 1 else left)


def _fewer_rows(node: Any) -> Iterator[Edit]:
    if isinstance(node, ast.Dict):
        for number, key in enumerate(node.keys):
            keys = node.keys[:number] + node.keys[number + 1 :]
            values = node.values[:number] + node.values[number + 1 :]
            mutant = ast.Dict(keys, values)
            yield key, f"row {number + 1} dropped", (node, "__dict__", mutant.__dict__)
        return
    for number, row in enumerate(node.elts):
        left = node.elts[:number] + node.elts[number + 1 :]
        if isinstance(node, ast.Set) and not left:
            continue
        yield row, f"row {number + 1} dropped", (node, "elts", left)


def _other_values(value: Any) -> Iterator[Any]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from (value + 1, value - 1)
    elif isinstance(value, str) and _SPECIFIER.fullmatch(value):
        yield from _other_bounds(value)
    elif isinstance(value, str) and re.fullmatch(_VERSION, value):
        yield from _moved(value)


def _other_bounds(specifier: str) -> Iterator[str]:
    bounds = specifier.split(",")
    for number, bound in enumerate(bounds):
        before, after = bounds[:number], bounds[number + 1 :]
        yield ",".join(before + after)
        found = _BOUND.fullmatch(bound)
        assert found is not None
        for version in _moved(found[2]):
            yield ",".join([*before, found[1] + version, *after])


def _moved(version: str) -> Iterator[str]:
    """The bounds that leave out the first held release from `version` on, or take one more in."""
    held = [Version(name) for name in held_versions()]
    later = [one for one in held if one >= Version(version)]
    earlier = [one for one in held if one < Version(version)]
    if len(later) > 1:
        yield str(later[1])
    if earlier:
        yield str(earlier[-1])


def _left_alone(tree: ast.Module) -> set[int]:
    """Docstrings, annotations, text that is formatted."""
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.JoinedStr | ast.FormattedValue):
            parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
        elif isinstance(node, ast.AnnAssign | ast.arg):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.Subscript):
            parts = [node.slice] if _is_type(node.value) else []
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts = [node.value]
        for part in parts:
            if part is not None:
                found |= {id(inner) for inner in ast.walk(part)}
    return found


def _is_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"tuple", "list", "dict", "Callable"}


def _tables(tree: ast.Module) -> set[int]:
    """Displays whose elements are rows of one kind: what a module holds, and what a test or a loop
    goes through."""
    roots: list[ast.AST] = []
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            roots.append(statement.value)
    within: list[ast.AST] = [part for root in roots for part in ast.walk(root)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            within += [
                right
                for operator, right in zip(node.ops, node.comparators, strict=True)
                if isinstance(operator, ast.In | ast.NotIn)
            ]
        elif isinstance(node, ast.For | ast.comprehension):
            within.append(node.iter)
    return {
        id(node)
        for node in within
        if (isinstance(node, ast.Tuple | ast.List | ast.Set) and _alike(node.elts))
        or (isinstance(node, ast.Dict) and None not in node.keys)
    }


def _alike(rows: Sequence[ast.expr]) -> bool:
    """Whether all are of one kind: those of a record (`("0.5.3", "fa3")`) are not."""
    kinds = {type(row) for row in rows}
    texts = [row.value for row in rows if isinstance(row, ast.Constant)]
    versions = [text for text in texts if isinstance(text, str) and _is_bound(text)]
    return len(kinds) == 1 and len(versions) in (0, len(rows))


def _is_bound(text: str) -> bool:
    return bool(_SPECIFIER.fullmatch(text) or re.fullmatch(_VERSION, text))

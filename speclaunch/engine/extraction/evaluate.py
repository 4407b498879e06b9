"""A small evaluator for the constant part of Python: enough for choices, defaults and types.

It follows names through the imports of the package, applies module-level ``+=``, ``.extend``
and ``.add``, walks enumerations and runs small functions.  Whatever it can't know becomes an
:class:`~speclaunch.engine.extraction.values.Opaque`, which counts as false.  It sees an empty
environment and no accelerator, which is what ``--help`` shows on a plain machine.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from speclaunch.engine.extraction.names import mentions
from speclaunch.engine.extraction.objects import Objects
from speclaunch.engine.extraction.values import (
    ClassValue,
    ExpressionScope,
    FunctionValue,
    OpaqueValue,
)

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.BitOr: operator.or_,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_DEPTH = 60


class SourceEvaluator(Objects):
    """Evaluates expressions and statements of one package."""

    def block(self, body: list[ast.stmt], scope: ExpressionScope) -> tuple[Any] | None:
        """Run statements; the wrapped value of the first ``return`` reached, or None."""
        for node in body:
            done = self.statement(node, scope)
            if done is not None:
                return done
        return None

    def statement(  # noqa: PLR0912
        self, node: ast.stmt, scope: ExpressionScope, only: str | None = None
    ) -> tuple[Any] | None:
        """Run one statement; the wrapped value when it returns.  ``only``: bind just this name."""
        match node:
            case ast.Return():
                return (None if node.value is None else self.value(node.value, scope),)
            case ast.Assign():
                self._assign(node.targets, node.value, scope, only)
            case ast.AnnAssign(value=ast.expr() as value):
                self._assign([node.target], value, scope, only)
            case ast.AugAssign(target=ast.Name(id=name)):
                before = scope.names.get(name, OpaqueValue(name))
                after = self.value(node.value, scope)
                scope.names[name] = self._binary(node.op, before, after, node)
            case ast.FunctionDef():
                scope.names[node.name] = FunctionValue(scope.file, node)
            case ast.ClassDef():
                scope.names[node.name] = ClassValue(scope.file, node)
            case ast.ImportFrom():
                self._import(node, scope, only)
            case ast.Import():
                for alias in node.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    scope.names[local] = OpaqueValue(alias.name if alias.asname else local)
            case ast.Expr():
                self.value(node.value, scope)
            case ast.If():
                return self._some(
                    node.body if self.value(node.test, scope) else node.orelse, scope, only
                )
            case ast.Try() | ast.With():
                return self._some(node.body, scope, only)
            case ast.For():
                return self._loop(node, scope)
            case _:
                pass
        return None

    def _some(
        self, body: list[ast.stmt], scope: ExpressionScope, only: str | None
    ) -> tuple[Any] | None:
        for node in body:
            if only is None or mentions(node, only):
                done = self.statement(node, scope, only)
                if done is not None:
                    return done
        return None

    def _loop(self, node: ast.For, scope: ExpressionScope) -> tuple[Any] | None:
        for item in self.items(self.value(node.iter, scope)):
            self._bind(node.target, item, scope)
            done = self.block(node.body, scope)
            if done is not None:
                return done
        return None

    def _assign(
        self, targets: list[ast.expr], value: ast.expr, scope: ExpressionScope, only: str | None
    ) -> None:
        result = self.value(value, scope)
        for target in targets:
            if only is None or not isinstance(target, ast.Name) or target.id == only:
                self._bind(target, result, scope)

    def _bind(self, target: ast.expr, value: Any, scope: ExpressionScope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = self.items(value)
            for part, item in zip(target.elts, [*items, *[OpaqueValue("?")] * 9], strict=False):
                self._bind(part, item, scope)

    # Expressions -------------------------------------------------------------------------

    def value(self, node: ast.expr, scope: ExpressionScope) -> Any:
        """The value of an expression; an Opaque with its spelling when it can't be known."""
        if self._depth > _DEPTH:
            return OpaqueValue(ast.unparse(node))
        self._depth += 1
        try:
            return self._value(node, scope)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
            return OpaqueValue(ast.unparse(node))
        finally:
            self._depth -= 1

    def _value(self, node: ast.expr, scope: ExpressionScope) -> Any:  # noqa: PLR0911, PLR0912
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.lookup(node.id, scope)
            case ast.List():
                return self.elements(node.elts, scope)
            case ast.Tuple():
                return tuple(self.elements(node.elts, scope))
            case ast.Set():
                return set(self.elements(node.elts, scope))
            case ast.Dict():
                made: dict[Any, Any] = {}
                for key, item in zip(node.keys, node.values, strict=True):
                    if key is None:
                        made.update(self.value(item, scope))
                    else:
                        made[self.value(key, scope)] = self.value(item, scope)
                return made
            case ast.Attribute():
                return self.attribute(self.value(node.value, scope), node.attr)
            case ast.Call():
                return self._call(node, scope)
            case ast.BinOp():
                left, right = self.value(node.left, scope), self.value(node.right, scope)
                return self._binary(node.op, left, right, node)
            case ast.UnaryOp(op=ast.Not()):
                return not self.value(node.operand, scope)
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand, scope)
            case ast.BoolOp():
                wanted = isinstance(node.op, ast.Or)
                result: Any = None
                for part in node.values:
                    result = self.value(part, scope)
                    if bool(result) is wanted:
                        break
                return result
            case ast.Compare():
                return self._compare(node, scope)
            case ast.IfExp():
                return self.value(node.body if self.value(node.test, scope) else node.orelse, scope)
            case ast.Subscript():
                return self.value(node.value, scope)[self.value(node.slice, scope)]
            case ast.JoinedStr():
                return "".join(str(self.value(part, scope)) for part in node.values)
            case ast.FormattedValue():
                return self.value(node.value, scope)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node, scope)
            case _:
                return OpaqueValue(ast.unparse(node))

    def elements(self, nodes: list[ast.expr], scope: ExpressionScope) -> list[Any]:
        """The values of the parts of a display or of a call, starred ones spread out."""
        made: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                made.extend(self.items(self.value(node.value, scope)))
            else:
                made.append(self.value(node, scope))
        return made

    def _binary(self, kind: ast.operator, left: Any, right: Any, node: ast.AST) -> Any:
        if (
            isinstance(left, OpaqueValue)
            or isinstance(right, OpaqueValue)
            or type(kind) not in _OPERATORS
        ):
            return OpaqueValue(ast.unparse(node))
        return _OPERATORS[type(kind)](left, right)

    def _compare(self, node: ast.Compare, scope: ExpressionScope) -> Any:
        left = self.value(node.left, scope)
        for kind, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part, scope)
            if isinstance(left, OpaqueValue) or isinstance(right, OpaqueValue):
                return OpaqueValue(ast.unparse(node))
            if not _COMPARISONS[type(kind)](left, right):
                return False
            left = right
        return True

    def _comprehension(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, scope: ExpressionScope
    ) -> Any:
        inner = ExpressionScope(scope.file, dict(scope.names), scope.owner)
        made: list[Any] = []

        def nest(level: int) -> None:
            if level == len(node.generators):
                made.append(self.value(node.elt, inner))
                return
            clause = node.generators[level]
            for item in self.items(self.value(clause.iter, inner)):
                self._bind(clause.target, item, inner)
                if all(self.value(test, inner) for test in clause.ifs):
                    nest(level + 1)

        nest(0)
        return set(made) if isinstance(node, ast.SetComp) else made

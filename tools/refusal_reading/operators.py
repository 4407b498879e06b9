"""Reads what is made of other expressions: operators, displays, texts, comprehensions."""

from __future__ import annotations

import ast
from typing import Any

from refusal_reading.expressions import Expressions
from refusal_reading.sources import FunctionRef, ModuleRef
from refusal_reading.values import (
    Environ,
    Items,
    Mapped,
    Member,
    Method,
    Several,
    State,
)

_COMPARE = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Div: "/",
    ast.Mod: "%",
}


class Operators(Expressions):
    """What an expression with operands stands for."""

    def _on_boolop(self, one: ast.BoolOp, state: State) -> Any:
        found = []
        pushed = 0
        for value in one.values:
            node = self.evaluate(value, state)
            if not isinstance(node, int):
                node = self.truth_of(node)
            found.append(node)
            self.path.append(node if isinstance(one.op, ast.And) else self.store.make("not", node))
            pushed += 1
        del self.path[len(self.path) - pushed :]
        return self.store.make("and" if isinstance(one.op, ast.And) else "or", *found)

    def _on_unaryop(self, one: ast.UnaryOp, state: State) -> Any:
        if isinstance(one.op, ast.Not):
            return self.store.make("not", self.truth(one.operand, state))
        if isinstance(one.op, ast.USub):
            return self.store.make("neg", self.node(self.evaluate(one.operand, state)))
        return self.unknown("an operator")

    def _on_binop(self, one: ast.BinOp, state: State) -> Any:
        return self.binary(one.op, self.evaluate(one.left, state), self.evaluate(one.right, state))

    def binary(self, op: ast.operator, one: Any, other: Any) -> Any:
        """An operation of arithmetic, or two lists after each other."""
        if isinstance(op, ast.Add) and (
            isinstance(one, Items | Several) or isinstance(other, Items | Several)
        ):
            first, second = self.several(one), self.several(other)
            if first is not None and second is not None:
                return Items((*first, *second))
        if isinstance(op, ast.BitOr | ast.Sub):
            first, second = self.several(one), self.several(other)
            if first is not None and second is not None:
                taken = {value for _, value in second}
                if isinstance(op, ast.Sub):
                    return Items(tuple(x for x in first if x[1] not in taken))
                return Items((*first, *second))
        name = _BINARY.get(type(op))
        if name is None:
            return self.unknown("an operator")
        return self.store.make(name, self.node(one), self.node(other))

    def _on_compare(self, one: ast.Compare, state: State) -> Any:
        left = self.evaluate(one.left, state)
        parts = []
        for op, right in zip(one.ops, one.comparators, strict=True):
            other = self.evaluate(right, state)
            parts.append(self._comparison(op, left, other))
            left = other
        return self.store.make("and", *parts)

    def _comparison(self, op: ast.cmpop, left: Any, right: Any) -> int:
        make = self.store.make
        if isinstance(op, ast.Is | ast.IsNot):
            found = self._identity(left, right)
            return make("not", found) if isinstance(op, ast.IsNot) else found
        if isinstance(op, ast.In | ast.NotIn):
            found = self._membership(left, right)
            return make("not", found) if isinstance(op, ast.NotIn) else found
        return int(make(_COMPARE[type(op)], self.node(left), self.node(right)))

    def _identity(self, left: Any, right: Any) -> int:
        if right == self.store.none:
            if isinstance(left, int | Member):
                return int(self.store.make("none", self.node(left)))
            if isinstance(left, Method | ModuleRef):
                return int(self.unknown("an object that may be None"))
            return int(self.store.false)
        return int(self.store.make("is", self.node(left), self.node(right)))

    def _membership(self, left: Any, right: Any) -> int:
        if isinstance(right, Environ) and isinstance(left, int) and self.store.is_const(left):
            name = self.store.value(left)
            return int(
                self.store.make("not", self.store.make("none", self.variable(name, "raw", None)))
            )
        if isinstance(right, Mapped):
            right = Several(tuple(self.store.const(key) for key, _ in right.entries))
        parts = self.several(right)
        if parts is not None and not isinstance(right, int):
            if all(c == self.store.true for c, _ in parts):
                nodes = [self.node(value) for _, value in parts]
                if all(self.store.is_const(n) for n in nodes):
                    held = self.store.const([self.store.value(n) for n in nodes])
                    return int(self.store.make("in", self.node(left), held))
            options = [
                self.store.conjunction([c, self.store.make("==", self.node(left), self.node(v))])
                for c, v in parts
            ]
            return int(self.store.disjunction(options))
        return int(self.store.make("in", self.node(left), self.node(right)))

    def _on_ifexp(self, one: ast.IfExp, state: State) -> Any:
        from refusal_reading.values import joined  # noqa: PLC0415

        condition = self.truth(one.test, state)
        if self.store.is_const(condition):
            return self.evaluate(one.body if self.store.value(condition) else one.orelse, state)
        self.path.append(condition)
        then = self.evaluate(one.body, state)
        self.path[-1] = self.store.make("not", condition)
        other = self.evaluate(one.orelse, state)
        self.path.pop()
        return joined(self.store, condition, then, other)

    def _on_tuple(self, one: ast.Tuple | ast.List | ast.Set, state: State) -> Any:
        entries = []
        for element in one.elts:
            if isinstance(element, ast.Starred):
                inner = self.several(self.evaluate(element.value, state))
                if inner is None:
                    return self.unknown("a starred item")
                entries += [value for _, value in inner]
            else:
                entries.append(self.evaluate(element, state))
        if isinstance(one, ast.List):
            return Items(tuple((self.store.true, value) for value in entries))
        return Several(tuple(entries))

    _on_list = _on_set = _on_tuple

    def _on_dict(self, one: ast.Dict, state: State) -> Any:
        found = Mapped()
        for key, value in zip(one.keys, one.values, strict=True):
            node = self.evaluate(key, state) if key is not None else None
            if not isinstance(node, int) or not self.store.is_const(node):
                return self.unknown("a dict")
            name = self.store.value(node)
            if isinstance(name, list):
                return self.unknown("a dict")
            found = found.put(name, self.evaluate(value, state))
        return found

    def _on_subscript(self, one: ast.Subscript, state: State) -> Any:
        owner = self.evaluate(one.value, state)
        if isinstance(one.slice, ast.Slice):
            return self.unknown("a slice")
        key = self.evaluate(one.slice, state)
        literal = self.store.is_const(key) if isinstance(key, int) else False
        if isinstance(owner, Environ):
            return (
                self.variable(self.store.value(key), "str", None) if literal else self.unknown("")
            )
        if isinstance(owner, Mapped) and literal:
            found = owner.get(self.store.value(key))
            return self.unknown("a key") if found is None or self._maybe(found) else found
        parts = self.several(owner) if isinstance(owner, Items | Several) else None
        if parts is not None and literal and all(c == self.store.true for c, _ in parts):
            index = self.store.value(key)
            if isinstance(index, int) and -len(parts) <= index < len(parts):
                return parts[index][1]
        return self.store.make("[]", self.node(owner), self.node(key))

    def _on_joinedstr(self, one: ast.JoinedStr, state: State) -> Any:
        parts = []
        for value in one.values:
            if isinstance(value, ast.FormattedValue):
                found = self.evaluate(value.value, state)
                node = found if isinstance(found, int) else self.node(found)
                parts.append(self.store.make("repr", node) if value.conversion == 114 else node)
            else:
                parts.append(self.evaluate(value, state))
        return self.store.make("fmt", *parts)

    def _on_generatorexp(self, one: Any, state: State) -> Any:
        """Its items, where there are few and what is gone over is known."""
        if len(one.generators) != 1 or one.generators[0].is_async:
            return self.unknown("a comprehension")
        generator = one.generators[0]
        over = self.evaluate(generator.iter, state)
        items = self.several(over)
        if items is None and isinstance(over, int) and not generator.ifs:
            return self._meeting(over, one, generator, state)
        if items is None or len(items) > 40:
            return self.unknown("a comprehension")
        entries = []
        for present, item in items:
            inner = state.copy()
            self.assign(generator.target, item, inner)
            conditions = [present, *(self.truth(test, inner) for test in generator.ifs)]
            when = self.store.conjunction(conditions)
            if when != self.store.false:
                entries.append((when, self.evaluate(one.elt, inner)))
        return Items(tuple(entries))

    def _meeting(self, over: int, one: Any, generator: ast.comprehension, state: State) -> Any:
        """`x in (…) for x in xs`, for any(): whether two lists have something in common."""
        test = one.elt
        if (
            isinstance(test, ast.Compare)
            and isinstance(test.ops[0], ast.In)
            and ast.unparse(test.left) == ast.unparse(generator.target)
        ):
            return self.store.make(
                "meets", over, self.node(self.evaluate(test.comparators[0], state))
            )
        return self.unknown("a comprehension")

    _on_listcomp = _on_setcomp = _on_generatorexp

    def _on_lambda(self, one: ast.Lambda, state: State) -> Any:
        return FunctionRef(self.modules[-1], one)

    def _on_namedexpr(self, one: ast.NamedExpr, state: State) -> Any:
        found = self.evaluate(one.value, state)
        state.names[one.target.id] = found
        return found

    # variables -------------------------------------------------------------------------------

"""Reads assignments: what a name, a field of the arguments or a part of either becomes."""

from __future__ import annotations

import ast
from typing import Any

from refusal_reading.calls import Calls
from refusal_reading.values import (
    Args,
    Environ,
    Items,
    Mapped,
    Method,
    Overrides,
    State,
)

STASH = "_resolved_overrides"
"""Where the releases from 0.5.14 on keep what resolution declares."""


class Assignments(Calls):
    """What a statement leaves behind."""

    def forget_after(self, body: list[ast.stmt], state: State) -> None:
        """Read statements that may run, or not, or often: what they write is unknown then."""
        before = state.copy()
        self.block(body, state)
        for key, value in state.fields.items():
            if before.fields.get(key) != value:
                state.fields[key] = self.store.unknown("")
        for name, value in state.names.items():
            if name not in before.names or before.names[name] != value:
                state.names[name] = self.store.unknown("")

    def forget(self, one: ast.AST, state: State, why: str) -> None:
        """What a statement writes is unknown."""
        self.unread[why] += 1
        for node in ast.walk(one):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                self.write_field(node.attr, self.store.unknown(""), state)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                state.names[node.id] = self.store.unknown("")

    # assignments -----------------------------------------------------------------------------

    def _assign(self, one: ast.Assign, state: State) -> None:
        found = self.evaluate(one.value, state)
        for target in one.targets:
            self.assign(target, found, state)

    def _annassign(self, one: ast.AnnAssign, state: State) -> None:
        if one.value is not None:
            self.assign(one.target, self.evaluate(one.value, state), state)

    def _augassign(self, one: ast.AugAssign, state: State) -> None:
        loaded: Any = ast.parse(ast.unparse(one.target), mode="eval").body
        before, value = self.evaluate(loaded, state), self.evaluate(one.value, state)
        found: Any
        if isinstance(before, Items) and (more := self.several(value)) is not None:
            found = Items((*before.entries, *more))
        else:
            found = self.binary(one.op, before, value)
        self.assign(one.target, found, state)

    def assign(self, target: ast.expr, value: Any, state: State) -> None:
        """Give a name, a field, or parts of a tuple a value."""
        if isinstance(target, ast.Name):
            state.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = self.several(value)
            known = parts is not None and len(parts) == len(target.elts)
            for index, inner in enumerate(target.elts):
                part = parts[index][1] if parts is not None and known else self.unknown("a tuple")
                self.assign(inner, part, state)
        elif isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value, state)
            if target.attr == STASH:
                if isinstance(value, Overrides):
                    self.declare_overrides(value, state)
                elif isinstance(value, Items) and not value.entries:
                    pass
                else:
                    self.unread["the stash is written"] += 1
            elif isinstance(owner, Args):
                self.write_field(target.attr, self.node(value), state)
            elif isinstance(owner, Method) and isinstance(owner.of, Args):
                self.write_field(owner.name, self.store.unknown(""), state)
        elif isinstance(target, ast.Subscript):
            self._assign_part(target, value, state)
        else:
            self.unread["a target"] += 1

    def _assign_part(self, target: ast.Subscript, value: Any, state: State) -> None:
        owner = self.evaluate(target.value, state)
        key = self.evaluate(target.slice, state)
        literal = (
            self.store.value(key) if isinstance(key, int) and self.store.is_const(key) else None
        )
        if isinstance(owner, Environ):
            if literal is not None:
                state.fields[f"E:{literal}"] = self.store.unknown("")
        elif (
            isinstance(owner, Mapped) and isinstance(target.value, ast.Name) and literal is not None
        ):
            state.names[target.value.id] = owner.put(literal, value)
        elif isinstance(target.value, ast.Name):
            state.names[target.value.id] = self.unknown("an item that is assigned")
        elif isinstance(target.value, ast.Attribute):
            self.assign(target.value, self.unknown("an item that is assigned"), state)

    def write_field(self, name: str, value: int, state: State) -> None:
        """A field of the record gets a value."""
        state.fields[f"F:{name}"] = value

    def declare(self, fields: dict[str, Any], state: State) -> None:
        """Resolution decides on values of fields: later views show them."""
        for name, value in fields.items():
            node = self.node(value)
            older = state.fields.get(f"O:{name}", self.store.missing)
            state.fields[f"O:{name}"] = self.store.filled(node, older)

    def materialize(self, state: State) -> None:
        """What was decided becomes the record's own."""
        for key in [key for key in state.fields if key.startswith("O:")]:
            name = key[2:]
            state.fields[f"F:{name}"] = self.field_of_view(name, state)
            del state.fields[key]

    def field(self, name: str, state: State) -> int:
        """The value of a field of the record."""
        found = state.fields.get(f"F:{name}")
        return self.raw(name) if found is None else found

    def field_of_view(self, name: str, state: State, snapshot: Any = None) -> int:
        """The value of a field as a view shows it."""
        declared = (snapshot if snapshot is not None else state.fields).get(f"O:{name}")
        if declared is None:
            return self.field(name, state)
        if not self.store.has_missing(declared):
            return int(declared)
        return self.store.filled(declared, self.field(name, state))

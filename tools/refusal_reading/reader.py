"""Reads statements: what a release's validation does to its arguments, and when it raises."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from typing import Any

from refusal_reading.assignments import STASH, Assignments
from refusal_reading.calls import RAISED
from refusal_reading.sources import ClassRef, FunctionRef, Module, Release, imported
from refusal_reading.store import Store
from refusal_reading.values import (
    Args,
    Items,
    Mapped,
    State,
    join,
)

CHANGES = frozenset(
    {"append", "add", "extend", "update", "insert", "remove", "pop", "clear", "sort", "setdefault"}
)
OURS = ("sglang.srt.server_args", "sglang.srt.arg_groups")
"""The modules whose refusals are read; helpers of others are read for what they answer."""


@dataclass(frozen=True)
class Row:
    """One `raise` or `assert`, with the condition under which it is reached."""

    place: str
    line: int
    end: int
    exception: str
    message: int
    condition: int
    function: str


class Reader(Assignments):
    """One release, read from its entry point on."""

    def __init__(self, release: Release, store: Store, raw: Any) -> None:
        self.release = release
        self.store = store
        self.raw = raw
        """Gives the node of a field as it was asked for."""
        self.rows: list[Row] = []
        self.unread: Counter[str] = Counter()
        """Reasons why something became unknown, and how often."""
        self.path: list[int] = []
        self.stack: list[Any] = []
        self.modules: list[Module] = []
        self.steps = 0
        self.raises = False
        server_args = release.module("sglang.srt.server_args")
        assert server_args is not None
        self.server_args = server_args
        self.record = ClassRef(server_args, server_args.names["ServerArgs"])

    def read(self) -> None:
        """Read the whole validation, in its order."""
        state = State()
        entry = self.record.member("resolve_once") or self.record.member("__post_init__")
        check = self.record.member("check_server_args") or self.server_args.names.get(
            "check_server_args"
        )
        for node in (entry, check):
            if node is not None:
                self.inline(FunctionRef(self.server_args, node, self.record), [Args()], {}, state)
        self.final = state

    def is_field(self, name: str) -> bool:
        """Whether the record declares a field."""
        return name in self.field_names()

    def field_names(self) -> dict[str, ast.AnnAssign]:
        """The fields that the record declares, in its body or in those of its namespaces."""
        if not hasattr(self, "_fields"):
            self._fields = {}
            package = self.release.package / "srt" / "arg_groups" / "fields"
            bodies = [self.record.node.body]
            for path in sorted(package.glob("*.py")):
                found = self.release.module(f"sglang.srt.arg_groups.fields.{path.stem}")
                for one in found.tree.body if found else ():
                    if isinstance(one, ast.ClassDef):
                        bodies.append(one.body)
            for body in bodies:
                for one in body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        self._fields[one.target.id] = one
        return self._fields

    def unknown(self, why: str) -> int:
        self.unread[why] += 1
        return self.store.unknown(why)

    # statements ------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], state: State) -> int:
        """Read statements; return the condition under which control passes their end."""
        live = self.store.true
        for statement in body:
            if live == self.store.false:
                break
            self.steps += 1
            if live == self.store.true:
                after = self.statement(statement, state)
                if after == RAISED:
                    return RAISED
            else:
                before = state.copy()
                self.path.append(live)
                after = self.statement(statement, state)
                self.path.pop()
                state.become(join(self.store, live, state, before, self.raw))
                if after == RAISED:
                    return self.store.false
            live = self.store.conjunction([live, after])
        return live

    def statement(self, one: ast.stmt, state: State) -> int:
        """Read one statement; the same answer as that of a block."""
        handler = getattr(self, f"_{type(one).__name__.lower()}", None)
        if handler is None:
            self.forget(one, state, f"statement {type(one).__name__}")
            return self.store.true
        found = handler(one, state)
        return self.store.true if found is None else int(found)

    def _pass(self, one: ast.Pass, state: State) -> None:
        pass

    _global = _nonlocal = _pass

    def _functiondef(self, one: ast.FunctionDef, state: State) -> None:
        state.names[one.name] = FunctionRef(self.modules[-1], one)

    def _import(self, one: ast.Import, state: State) -> None:
        for alias in one.names:
            name = alias.asname or alias.name.partition(".")[0]
            state.names[name] = imported(self.modules[-1], one, alias)

    def _importfrom(self, one: ast.ImportFrom, state: State) -> None:
        for alias in one.names:
            found = imported(self.modules[-1], one, alias)
            if isinstance(found, tuple):
                found = self.constant(*found)
            state.names[alias.asname or alias.name] = found

    def _expr(self, one: ast.Expr, state: State) -> int:
        if self._fills(one.value, state):
            return self.store.true
        self.raises = False
        self.evaluate(one.value, state)
        raised, self.raises = self.raises, False
        return RAISED if raised else self.store.true

    def _fills(self, call: ast.expr, state: State) -> bool:
        """Whether it only adds to a list or a dict that has a name, or writes to the log."""
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return False
        owner, method = call.func.value, call.func.attr
        if isinstance(owner, ast.Attribute) and owner.attr == STASH:
            return False
        if isinstance(owner, ast.Attribute) and method in CHANGES:
            self.assign(owner, self.unknown("a field that is changed in its place"), state)
            return True
        if not isinstance(owner, ast.Name):
            return False
        if owner.id in ("logger", "warnings", "logging"):
            return True
        held = state.names.get(owner.id)
        found = [self.evaluate(arg, state) for arg in call.args] if held is not None else []
        if isinstance(held, Items) and method in ("append", "add") and len(found) == 1:
            state.names[owner.id] = Items((*held.entries, (self.store.true, found[0])))
        elif isinstance(held, Items) and method in ("extend", "update") and len(found) == 1:
            more = self.several(found[0])
            state.names[owner.id] = (
                Items((*held.entries, *more)) if more is not None else self.unknown("a list")
            )
        elif isinstance(held, Mapped) and method == "update" and not call.keywords:
            if not found or not isinstance(found[0], Mapped):
                state.names[owner.id] = self.unknown("a dict")
                return True
            merged = held
            for key, value in found[0].entries:
                older = held.get(key)
                if isinstance(value, int) and older is not None:
                    value = self.store.filled(value, older)  # noqa: PLW2901
                merged = merged.put(key, value)
            state.names[owner.id] = merged
        elif isinstance(held, Items | Mapped) and method not in ("get", "items", "keys", "values"):
            state.names[owner.id] = self.unknown("a list or dict that is changed")
        else:
            return False
        return True

    def _return(self, one: ast.Return, state: State) -> int:
        found = self.evaluate(one.value, state) if one.value else self.store.none
        state.names["return"] = found
        return self.store.false

    def _raise(self, one: ast.Raise, state: State) -> int:
        self.refuse(one, one.exc, state, self.store.true)
        return RAISED

    def _assert(self, one: ast.Assert, state: State) -> int:
        fails = self.store.make("not", self.truth(one.test, state))
        if fails == self.store.false:
            return self.store.true
        self.refuse(one, one.msg, state, fails)
        return RAISED if fails == self.store.true else self.store.true

    def refuse(self, one: ast.stmt, said: ast.expr | None, state: State, when: int) -> None:
        """Note a row."""
        exception, message = "AssertionError", self.store.const("")
        if isinstance(one, ast.Raise):
            if said is None:
                return
            exception = ast.unparse(said.func if isinstance(said, ast.Call) else said)
            said = said.args[0] if isinstance(said, ast.Call) and said.args else None
        rows, self.rows = self.rows, []
        if said is not None:
            found = self.evaluate(said, state)
            message = found if isinstance(found, int) else self.unknown("a message")
        self.rows = rows
        if not self.modules[-1].name.startswith(OURS):
            self.unread["a refusal of another module"] += 1
            return
        function = getattr(self.stack[-1], "name", "") if self.stack else ""
        self.rows.append(
            Row(
                self.modules[-1].place,
                one.lineno,
                one.end_lineno or one.lineno,
                exception,
                message,
                self.store.conjunction([*self.path, when]),
                function,
            )
        )

    def _if(self, one: ast.If, state: State) -> int:
        condition = self.truth(one.test, state)
        if self.store.is_const(condition):
            return self.block(one.body if self.store.value(condition) else one.orelse, state)
        then, other = state.copy(), state.copy()
        negated = self.store.make("not", condition)
        self.path.append(condition)
        live_then = self.block(one.body, then)
        self.path[-1] = negated
        live_other = self.block(one.orelse, other)
        self.path.pop()
        if live_then == RAISED and live_other == RAISED:
            return RAISED
        if live_then == RAISED:
            state.become(other)
            return live_other
        if live_other == RAISED:
            state.become(then)
            return live_then
        state.become(join(self.store, condition, then, other, self.raw))
        return self.store.make("?", condition, live_then, live_other)

    def _with(self, one: ast.With, state: State) -> int:
        for item in one.items:
            self.evaluate(item.context_expr, state)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, self.unknown("a context manager"), state)
        return self.block(one.body, state)

    def _try(self, one: ast.Try, state: State) -> int:
        if not one.handlers:
            live = self.block(one.body, state)
            after = self.block(one.finalbody, state)
            return RAISED if RAISED in (live, after) else self.store.conjunction([live, after])
        if all(isinstance(s, ast.Import | ast.ImportFrom) for s in one.body):
            self.block(one.body, state)
            return self.store.true
        if all(isinstance(handler.body[-1], ast.Raise) for handler in one.handlers):
            live = self.block([*one.body, *one.orelse], state)  # what is caught is raised again
            after = self.block(one.finalbody, state)
            return RAISED if RAISED in (live, after) else self.store.conjunction([live, after])
        guess = self.unknown("inside of try")
        self.path.append(guess)
        for body in (one.body, one.orelse, *(handler.body for handler in one.handlers)):
            self.forget_after(body, state)
        self.path.pop()
        bodies = [*one.body, *one.orelse, *(s for handler in one.handlers for s in handler.body)]
        live = self.leaving(bodies)
        after = self.block(one.finalbody, state)
        return RAISED if after == RAISED else self.store.conjunction([live, after])

    def _for(self, one: ast.For, state: State) -> int:
        items = self.several(self.evaluate(one.iter, state))
        inside = {type(x) for s in one.body for x in ast.walk(s)}
        plain = ast.Break not in inside and not {ast.Continue, ast.Return} <= inside
        if items is None or len(items) > 16 or not plain or one.orelse:
            self.path.append(self.unknown("a loop"))
            self.assign(one.target, self.store.unknown(""), state)
            self.forget_after(one.body, state)
            self.path.pop()
            return self.leaving(one.body)
        live = self.store.true
        for present, item in items:
            before = state.copy()
            self.path.append(self.store.conjunction([live, present]))
            self.assign(one.target, item, state)
            inner = self.block(one.body, state)
            self.path.pop()
            whole = self.store.conjunction([live, present])
            if inner == RAISED:
                state.become(before)
                live = self.store.conjunction([live, self.store.make("not", present)])
                continue
            state.become(join(self.store, whole, state, before, self.raw))
            if ast.Return in inside:
                left = self.store.make("?", present, inner, self.store.true)
                live = self.store.conjunction([live, left])
        return live

    def _continue(self, one: ast.Continue, state: State) -> int:
        return self.store.false

    def _while(self, one: ast.While, state: State) -> int:
        self.path.append(self.unknown("a loop"))
        self.forget_after(one.body, state)
        self.path.pop()
        return self.leaving(one.body)

    def leaving(self, body: list[ast.stmt]) -> int:
        """The condition under which statements are passed that may run: unknown, if one returns."""
        returns = any(isinstance(x, ast.Return) for one in body for x in ast.walk(one))
        return self.unknown("a return that may be") if returns else self.store.true

"""Walk through a Python program's statements in order, tracking names and growing lists.

Nothing is executed. An item added under an `if` that known values do not decide gets its condition.
Values that differ between branches, or that loops over unknown elements add, are unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from speclaunch.deployments.sources.python_data import Imports, loaded
from speclaunch.deployments.sources.python_definitions import (
    SET_UPS,
    Definitions,
    WaitingScope,
    called_name,
    stated_gpus,
)
from speclaunch.deployments.sources.python_evaluator import PythonEvaluator
from speclaunch.deployments.sources.python_loops import (
    FUNCTIONS,
    AnyFunction,
    assigned,
    assigned_once,
    carried,
    comprehension,
    ends,
    extends,
    global_names,
    is_long,
    loads_file,
    loop_elements,
    own_nodes,
    returns_at_end,
    without_defaults,
)
from speclaunch.deployments.sources.python_strings import ProgramPositions
from speclaunch.deployments.sources.python_values import (
    CHANGES,
    FROM_OUTSIDE,
    MAX_PIECES,
    PythonCall,
    PythonList,
    PythonMaker,
    PythonTable,
    PythonText,
    PythonValue,
    ScopeContents,
    copied,
    dotted,
    last_name,
    noted,
    set_entries,
    set_item,
    snapshot,
    spoil,
    under,
)
from speclaunch.deployments.sources.source_text import Document

_MAX_SCOPES, _MAX_NESTING, _MAX_DELAYS, _MAX_RUNNING, _MAX_RESULTS = 5000, 30, 3, 3, 300
"""Limits; delays: how often a function waits for its callers; running: depth of calls."""

_Arguments = Mapping[str, PythonValue]
_Names = dict[str, PythonValue | None]


class PythonProgram:
    """Module with its definitions; `seen` lists its scopes, the module first.

    Calls of the functions in `ignored` (such as `print`) are not recorded.
    """

    def __init__(self, tree: ast.Module, document: Document, ignored: frozenset[str]) -> None:
        self.document = document
        self.ignored = ignored
        self.positions = ProgramPositions(document)
        self.seen: list[ScopeContents] = []
        self._once = assigned_once(tree)
        self.global_names = global_names(tree)
        self._used = {last_name(c.func) for c in ast.walk(tree) if isinstance(c, ast.Call)}
        self._waiting: list[WaitingScope] = []
        self._running = self._results = 0
        nearby = Imports(tree, document, self.positions)
        self._constants: _Names = {**nearby.names}
        self._module: _Names = dict(self._constants)
        self.definitions = Definitions(tree, lambda n: self.evaluator(self._seen({}) | n), nearby)
        self._constants |= self.definitions.shared_objects(nearby.objects)
        self._module |= self._constants
        module = _Scope(self, self._module, ScopeContents())
        module.run(tree.body)
        self._add(module.seen)
        self._constants |= self._globals()
        for name, options in self.definitions.parsed(tree):
            self._constants.setdefault(name, options)
        self._queue(module, self._constants)
        while self._waiting and len(self.seen) < _MAX_SCOPES:
            waiting = self._waiting.pop(0)
            is_last = waiting.delays >= _MAX_DELAYS
            known = self.definitions.known_arguments(waiting, self._constants, is_last=is_last)
            if known is None:
                self._waiting.append(waiting._replace(delays=waiting.delays + 1))
            for arguments in known or ():
                self._nested(waiting, arguments)

    def _globals(self) -> dict[str, PythonValue | None]:
        """Return the module's values that do not change."""
        self.document.spend(1 + len(self._module) // 20)
        return {n: v for n, v in self._module.items() if n in self._once or "." in n}

    def _add(self, seen: ScopeContents) -> None:
        self.seen.append(seen)
        for call, known in seen.passed.items():
            self.definitions.passed.setdefault(call, []).extend(known)

    def evaluator(self, names: Mapping[str, PythonValue | None]) -> PythonEvaluator:
        def made_by(call: PythonMaker, depth: int) -> PythonValue | None:
            if (applied := f"@{id(call)}") in names:
                return names[applied]
            if not isinstance(call, ast.Call):
                return comprehension(call, names, self.evaluator)
            result = self._result(call, names, found) or loaded(call, found)
            return result or self.definitions.made_by(call, depth, found)

        return (found := PythonEvaluator(self.document, self.positions, names, made_by))

    def _result(
        self, call: ast.Call, names: Mapping[str, PythonValue | None], evaluator: PythonEvaluator
    ) -> PythonValue | None:
        """Return what a function or method of the program returns to `call`; None if unknown."""
        function = self.definitions.called(call) or self.definitions.method(call)
        if function is None or not self._is_evaluated(function) or not returns_at_end(function):
            return None
        known = self.definitions.bound(function, call, evaluator)
        arguments = {name: copied(value) for name, value in known.items()}
        returned = self._trial(self._seen(names), function, arguments).seen.returned
        return returned[0] if len(returned) == 1 else None

    def _is_evaluated(self, function: AnyFunction) -> bool:
        is_bounded = self._running < _MAX_RUNNING and self._results < _MAX_RESULTS
        return is_bounded and not self.definitions.is_inner(function)

    def _seen(self, names: Mapping[str, PythonValue | None]) -> dict[str, PythonValue | None]:
        own = {name: value for name, value in names.items() if name[:5] == "self."}
        return self._globals() | self._constants | own

    def apply(self, call: ast.Call, caller: _Scope, evaluator: PythonEvaluator) -> None:
        """Let a function of the program change the values of its caller."""
        function = self.definitions.called(call) or self.definitions.method(call)
        if function is None or not self.definitions.may_change(function):
            return
        known, names = self.definitions.bound(function, call, evaluator), caller.names
        shared = {name: names.get(name) for name, _ in self.definitions.changed_globals}
        names[f"@{id(call)}"] = None
        if self._is_evaluated(function):
            trial = self._trial(self._seen(names) | shared, function, known, caller)
            names |= {name: value for name, value in trial.names.items() if name[:5] == "self."}
            if len(trial.seen.returned) == 1 and returns_at_end(function) and not caller._loose:
                names[f"@{id(call)}"] = trial.seen.returned[0]
        else:
            used = (names.get(p.id) for p in ast.walk(function) if isinstance(p, ast.Name))
            for value in (*known.values(), *shared.values(), *used):
                spoil(value, None, evaluator.several(call))

    def _queue(self, scope: _Scope, names: Mapping[str, PythonValue | None]) -> None:
        hidden = self.definitions.hidden_attributes(scope.nested)
        for node in scope.nested:
            late = [n for n, v in scope.seen_by.get(id(node), {}).items() if names.get(n) is not v]
            seen = {**names, **dict.fromkeys([*hidden.get(node, ()), *late])}
            self._waiting.append(WaitingScope(node, seen, scope.seen))

    def _nested(self, waiting: WaitingScope, arguments: _Arguments) -> None:
        node, outer, names = waiting.node, waiting.outer, dict(waiting.names)
        inside = ScopeContents(env=dict(outer.env))
        scope = _Scope(self, names, inside)
        inside.gpus = stated_gpus(node, self.evaluator(names)) or outer.gpus
        if isinstance(node, FUNCTIONS):
            known = self.definitions.annotated(node) | dict(arguments)
            names |= {name: value and copied(value) for name, value in known.items()}
            for name, key in self.definitions.changed_by_others(node, names):
                if (value := names[name]) and value is waiting.names.get(name):
                    names[name] = copied(value)
                spoil(names[name], key, self.evaluator(names).several(node))
            scope.run(node.body)
        else:
            outside = set(names)
            for part in self.definitions.lineage(node):
                scope.inherit(part)
            own = [name for name in scope.names if name not in outside and "." not in name]
            scope.names |= {f"self.{name}": scope.names[name] for name in own}
            scope.names |= self.definitions.attributes(node)
            self._methods(scope, arguments)
        self._add(inside)
        self._queue(scope, scope.names)

    def _methods(self, scope: _Scope, arguments: _Arguments) -> None:
        """Set what set-up methods set, and results: `self.f()`, or `super.f()` if overridden."""
        methods = {method: method.name for method in scope.nested if isinstance(method, FUNCTIONS)}
        last = {name: method for method, name in methods.items()}
        hidden = self.definitions.hidden_attributes(scope.nested)
        set_ups = [method for method, name in methods.items() if name.lower() in SET_UPS]
        found = [m for m in methods if isinstance(m.body[-1], ast.Return) and m.name in self._used]
        for method in (*found, *set_ups, *found):
            known = arguments if method is last.get("__init__") else {}
            names = scope.names | dict.fromkeys(() if method in set_ups else hidden[method])
            trial = self._trial(names, method, known or self.definitions.arguments(method))
            if method in set_ups:
                scope.names |= {n: v for n, v in trial.names.items() if n.startswith("self.")}
            else:
                owner = "self" if last[method.name] is method else "super"
                result = trial.seen.returned[0] if len(trial.seen.returned) == 1 else None
                scope.names[f"{owner}.{method.name}()"] = result

    def _trial(
        self, names: _Names, method: AnyFunction, known: _Arguments, caller: _Scope | None = None
    ) -> _Scope:
        """Run a function on the values of its caller, or else on copies of what it sees."""
        self.document.spend(1 + len(names) // 20)
        copies = {n: v and copied(v) for n, v in names.items()} if caller is None else names
        own = self.definitions.annotated(method) | dict(known)
        trial = _Scope(self, {**copies, **own}, ScopeContents(), caller)
        self._results += 1
        self._running += 1
        trial.run(method.body)
        self._running -= 1
        return trial


class _Scope:
    """Reader of a function, a class body or the module."""

    def __init__(
        self,
        program: PythonProgram,
        names: _Names,
        seen: ScopeContents,
        caller: _Scope | None = None,
    ) -> None:
        self.names, self.seen = names, seen
        self.nested: list[AnyFunction | ast.ClassDef] = []
        self.seen_by: dict[int, _Names] = {}
        """Variables at the definition of each nested function, by its `id`."""
        self._definitions, self._global_names = program.definitions, program.global_names
        self._evaluator = program.evaluator(names)
        self._depth, self._caller = 0, caller
        self._if: int | None = caller._if if caller else None
        """Line of the outermost current condition; None outside conditions."""
        self._loose: int = caller._loose if caller else 0
        """Number of enclosing bodies that may run any number of times."""
        self._note: str | None = None
        """Assumption behind the current branch; None if it depends on no default."""
        self._repeated = 1
        """Number of times that the enclosing loops run the current statement."""
        self._program, self._document, self._ignored = program, program.document, program.ignored
        self._outer = frozenset(map(id, names.values()))  # other functions may use them, too

    def run(self, body: Sequence[ast.stmt]) -> None:
        self._depth += 1
        if self._depth <= _MAX_NESTING:
            for node in body:
                self._document.spend()
                self._statement(node)
        self._depth -= 1

    def inherit(self, node: ast.ClassDef) -> None:
        """Run a class body after those of its bases, whose methods it overrides."""
        inherited, self.nested = self.nested, []
        self.run(node.body)
        own = {part.name for part in self.nested if not extends(part)}
        self.nested[:0] = [part for part in inherited if part.name not in own]

    @property
    def _where(self) -> tuple[int | None, int]:
        """Line of the current condition, and number of enclosing loops and branches."""
        return self._if, self._loose

    def _add(self, listing: PythonList, added: PythonValue, node: ast.expr) -> None:
        """Add words to a list: always, under a condition, or as an unknown number of items."""
        words = self._evaluator.words(noted(added, self._note), node)
        if self._loose > listing.made_in[1]:
            words = [self._evaluator.several(node)]
        elif self._if is not None and self._if != listing.made_in[0]:
            words = [under(word, self._if) for word in words]
        listing.items += words

    def _statement(self, node: ast.stmt) -> None:  # noqa: PLR0912
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.nested.append(node)
                self._document.spend(len(self.names) // 20)
                self.seen_by[id(node)] = dict(self.names)
            case ast.If():
                self._calls(node.test)
                self._branches(node)
            case ast.For() | ast.AsyncFor() | ast.While():
                self._loop(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self._calls(item.context_expr)
                    if item.optional_vars is not None:
                        self._assign([item.optional_vars], item.context_expr)
                self.run(node.body)
            case ast.Try():
                self._try(node)
            case ast.Assign() | ast.AnnAssign() if node.value is not None:
                self._calls(node.value)
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                self._assign(targets, node.value)
            case ast.AugAssign():
                self._calls(node.value)
                made = ast.BinOp(node.target, node.op, node.value)
                self._grow(node.target, ast.copy_location(made, node))
            case ast.Return() if node.value is not None:
                self._calls(node.value)
                self.seen.returned.append(self._evaluator.value(node.value))
                self.seen.values.append(self.seen.returned[-1])
            case ast.Expr(value=ast.Constant()) | ast.Assert() | ast.Raise():
                pass
            case ast.Expr():
                self._expression(node.value)
            case ast.Match():
                for case_ in node.cases:
                    self._branch(case_.body, node.subject)
            case ast.Delete():
                for target in node.targets:
                    if isinstance(target, ast.Subscript):
                        self._remove(target.value, target.slice, target, sure=True)
            case _:
                self._calls(node)

    # -- branches -----------------------------------------------------------------------

    def _try(self, node: ast.Try) -> None:
        """Run the body and perhaps a handler, unless the body only reads a file that exists."""
        self.run(node.body)
        before, returned = dict(self.names), [*self.seen.returned]
        for handler in node.handlers:
            self._branch(handler.body, handler)
        if loads_file(node.body, [*returned[-1:], *map(before.get, carried(node.body))]):
            self.names |= before
            self.seen.returned[:] = returned
        self.run(node.orelse)
        self.run(node.finalbody)

    def _branches(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Compare) and dotted(node.test.left) == "__name__":
            self.run(node.body)
            return
        result, note = self._evaluator.test(node.test)
        taken, other = (node.body, node.orelse) if result else (node.orelse, node.body)
        is_open = result is None or FROM_OUTSIDE in (note or "")
        if not is_open and not (taken and ends(taken[-1])):
            self._excluded([] if note else other, node)
            self._decided(taken, other if note else [], note, node)
            return
        body = without_defaults(self.names, self._evaluator, node.test if result is False else None)
        if node.orelse:
            with body:
                self._branch(node.body, node.test)
            with without_defaults(self.names, self._evaluator, node.test if result else None):
                self._branch(node.orelse, node.test)
            return
        before, outer = dict(self.names), self._if
        self._if = line = outer or node.lineno
        with body:
            self.run(node.body)
        last = node.body[-1]
        name = dotted(last.value) if isinstance(last, ast.Return) and last.value else None
        is_listed = isinstance(self.names.get(name or ""), PythonList)
        is_early = is_listed or (self._caller and isinstance(last, ast.Return))
        self._if = line if is_early else outer  # what follows is not in the list returned early
        self._forget(before, node.test)
        if isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not) and ends(last):
            name = dotted(node.test.operand) or ""
            value = self.names.get(name)
            if isinstance(value, PythonText) and not value.text:
                self.names[name] = None  # the program requires a value

    def _excluded(self, body: Sequence[ast.stmt], node: ast.If) -> None:
        """Record the calls in a branch that the module's literals exclude."""
        tested = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
        if body and tested <= (literals := self._definitions.literals):
            self._document.spend(1 + len(self.names) // 20)
            names = {name: copied(v) for name, v in self.names.items() if v and name in literals}
            seen = ScopeContents(calls=self.seen.calls, passed=self.seen.passed)
            trial = _Scope(self._program, names | dict.fromkeys(tested), seen, self)
            trial.nested, trial._if = self.nested, self._if or node.lineno
            trial.run(body)

    def _decided(
        self, taken: Sequence[ast.stmt], other: Sequence[ast.stmt], note: str | None, node: ast.If
    ) -> None:
        """Run the branch that a test selects under an assumption; the other is conditional."""
        before, outer_line, outer_note = dict(self.names), self._if, self._note
        self._if = self._if or node.lineno
        undo = snapshot(before.values() if other else (), self._document.spend)
        with without_defaults(self.names, self._evaluator, node.test):
            self.run(other)
        undo(note)
        for name in [name for name, value in self.names.items() if before.get(name) is not value]:
            self.names[name] = (value := before.get(name)) and noted(value, note)
        self._if, self._note = outer_line, self._note or note
        self.run(taken)
        self._note = outer_note

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        if isinstance(node, (ast.For, ast.AsyncFor)):
            self._calls(node.iter)
            if isinstance(node, ast.For) and self._each_element(node):
                self.run(node.orelse)
                return
            self.names |= dict.fromkeys(filter(None, map(dotted, ast.walk(node.target))))
        for name in carried(node.body):
            if isinstance(self.names.get(name), PythonText):
                self.names[name] = None  # it changes from pass to pass
        self._branch(node.body, node.target if not isinstance(node, ast.While) else node.test)
        self.run(node.orelse)

    def _each_element(self, node: ast.For) -> bool:
        """Run a loop's body for each known element. Return False if others may exist."""
        elements, complete = loop_elements(self._evaluator, node.iter)
        count = self._repeated * max(len(elements), 1)
        if not elements or is_long(node, len(elements), count, self._ignored):
            return False
        outer = self._if, self._repeated
        for element in elements:
            self.names |= assigned(node.target, element)
            self._repeated = count
            self._steps(node.body)
            self._if = outer[0]
        self._repeated = outer[1]
        return complete

    def _steps(self, body: Sequence[ast.stmt]) -> bool:
        """Run the body for one element. Return True if it ends early."""
        for node in body:
            if isinstance(node, ast.Continue):
                return True
            decided = self._evaluator.decided(node.test) if isinstance(node, ast.If) else None
            if not isinstance(node, ast.If) or decided is None:
                self.run([node])
                if any(isinstance(inner, ast.Continue) for inner in ast.walk(node)):
                    self._if = self._if or node.lineno  # the rest may be skipped
            elif self._steps(node.body if decided else node.orelse):
                return True
        return False

    def _branch(self, body: Sequence[ast.stmt], decides: ast.AST) -> None:
        """Process a body that may run any number of times."""
        before = dict(self.names)
        self._loose += 1
        self.run(body)
        self._loose -= 1
        self._forget(before, decides)

    def _forget(self, before: Mapping[str, PythonValue | None], decides: ast.AST) -> None:
        """Mark as unknown the values that a branch assigned, and the items of its lists."""
        for name, value in list(self.names.items()):
            if name in before and before[name] is value:
                continue
            self.names[name] = None
            if isinstance(value, PythonList):
                items = [self._evaluator.several(decides)]
                self.names[name] = PythonList(items, made_in=self._where)

    # -- values -------------------------------------------------------------------------

    def _assign(self, targets: Sequence[ast.expr], node: ast.expr) -> None:
        value = noted(self._evaluator.value(node), self._note)
        self.seen.values.append(value)
        if isinstance(value, PythonList):
            value.made_in = self._where
        for target in targets:
            name, unknown = dotted(target), self._evaluator.unknown(target)
            part = target if isinstance(target, ast.Attribute) else None
            held = part and self._evaluator.value(part.value)
            if part and isinstance(held, PythonTable):
                key = self._evaluator.label(part, part.attr)
                set_entries(held, {key.text: (key, value)}, unknown, self._where)
            elif name is not None:
                may_change = isinstance(value, PythonText) and name in self._global_names
                self.names[name] = None if may_change else value
            elif isinstance(target, ast.Subscript):
                self._item(target, value)
            else:
                self.names |= assigned(target, value)

    def _item(self, target: ast.Subscript, value: PythonValue) -> None:
        key, name = self._evaluator.value(target.slice), dotted(target.value)
        table = self._evaluator.value(target.value)
        if isinstance(table, PythonList):
            is_item = isinstance(key, PythonText) and key.constant is not None
            unknown = (self._evaluator.unknown if is_item else self._evaluator.several)(target)
            set_item(table, key, value if self._where == table.made_in else unknown, unknown)
            return
        if not isinstance(key, PythonText) or not (key.is_text and key.is_known):
            if isinstance(table, PythonTable):
                table.rest.append(self._evaluator.several(target))
            return
        if name in ("os.environ", "environ"):
            self.names[f"environ.{key.text}"] = value
            if isinstance(value, PythonText) and not self._if and not self._loose:
                self.seen.env[key.text] = value.field().word()
            return
        if isinstance(table, PythonTable):
            unknown = self._evaluator.unknown(target)
            set_entries(table, {key.text: (key, value)}, unknown, self._where)

    def _remove(self, held: ast.expr, key: ast.expr | None, node: ast.AST, *, sure: bool) -> None:
        """Remove a key of a dictionary; mark as unknown what else a change may affect."""
        value, name = self._evaluator.value(held), key and self._evaluator.value(key)
        known = name.text if isinstance(name, PythonText) and name.is_known else None
        entries = value.entries if isinstance(value, PythonTable) else {}
        keys = [None] if key is None or not entries else [*entries] if known is None else [known]
        self._document.spend(len(keys))
        for part in keys:
            if part in entries or part is None:
                spoil(value, part, self._evaluator.several(node))
        if sure and not self._if and not self._loose and id(value) not in self._outer:
            entries.pop(known or "", None)

    def _grow(self, target: ast.Name | ast.Attribute | ast.Subscript, made: ast.BinOp) -> None:
        """Apply `target += …`, which changes a list and sets others to what `made` evaluates to."""
        node, name = made.right, dotted(target) or ""
        old = self.names.get(name) if name in self.names else self._evaluator.value(target)
        value, is_sum = self._evaluator.value(node), isinstance(made.op, ast.Add)
        is_text = isinstance(old, PythonText) and old.is_text and name in self.names
        if isinstance(old, PythonList) and is_sum:
            self._add(old, value, node)
        elif isinstance(old, PythonText) and isinstance(value, PythonText) and is_text and is_sum:
            pieces = value.pieces
            if self._if or self._loose:
                pieces = self._evaluator.several(node).pieces
            self._document.spend(1 + len(pieces) + len(old.pieces) // 10)
            self.names[name] = grown = PythonText((*old.pieces, *pieces)[:MAX_PIECES])
            self.seen.values.append(grown)
        else:
            self._assign([target], made)

    # -- calls --------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> None:
        self._calls(node)
        call = node.value if isinstance(node, ast.Await) else node
        is_open = f"@{id(call)}" not in self.names
        if is_open and self._definitions.may_alter(call, self._ignored):
            for passed in filter(None, map(dotted, call.args)):
                if isinstance(table := self.names.get(passed), PythonTable):
                    table.rest.append(self._evaluator.several(call))  # `call` may change it
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return
        name, what, is_sure = dotted(call.func.value), call.func.attr, self._where == (None, 0)
        held = self._evaluator.value(call.func.value)
        if isinstance(held, PythonList) and len(call.args) == 1 and what in ("append", "extend"):
            value = self._evaluator.value(call.args[0])
            if what == "append":
                known = value if isinstance(value, PythonText) else self._evaluator.unknown(call)
                value = PythonList([known])
            self._add(held, value, call.args[0])
        elif isinstance(held, PythonTable) and what == "update":
            added = self._evaluator.dictionary(call)
            self._document.spend(len(added.entries))
            entries = {} if self._loose else added.entries
            set_entries(held, entries, self._evaluator.unknown(call), self._where)
            held.rest += [self._evaluator.several(call)] if self._loose else added.rest
        elif is_sure and name in ("os.environ", "environ") and what in ("update", "setdefault"):
            self.seen.set_environment(map(self._evaluator.value, call.args))

    def _calls(self, node: ast.AST) -> None:
        """Record every call in an expression, except inside nested functions."""
        for call in own_nodes(node):
            self._document.spend()
            match call:
                case ast.NamedExpr(target=ast.Name(id=name)):
                    self.names[name] = self._evaluator.value(call.value) if call is node else None
                case ast.Call(func=ast.Attribute(value=held, attr=what)) if what in CHANGES:
                    key = call.args[0] if call.args and what in ("pop", "setdefault") else None
                    if what == "pop" and key is not None:  # its value before the removal
                        self.names[f"@{id(call)}"] = self._evaluator.looked_up(call, held)
                    if call is not node or what not in ("append", "extend", "update"):
                        self._remove(held, key, call, sure=call is node and what == "pop")
            if not isinstance(call, ast.Call) or last_name(call.func) in self._ignored:
                continue
            if (function := self._definitions.callee(called_name(call))) is not None:
                known = self._definitions.bound(function, call, self._evaluator)
                copies = {name: copied(value) for name, value in known.items()}
                self.seen.passed.setdefault(id(call), []).append(copies)
            self._program.apply(call, self, self._evaluator)
            args: list[PythonValue] = []
            for argument in call.args[:50]:
                if isinstance(argument, ast.Starred):
                    value = self._evaluator.value(argument.value)
                    if isinstance(value, PythonList):
                        args += self._evaluator.words(value, argument)
                else:
                    args.append(self._evaluator.value(argument))
            table = self._evaluator.keywords(call)
            self.seen.calls.append(PythonCall(call, args, table.entries, table.rest))

"""Functions, classes and `argparse` options that a Python program defines, with their defaults."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from speclaunch.deployments.sources.python_evaluator import PythonEvaluator
from speclaunch.deployments.sources.python_values import (
    CHANGES,
    PythonTable,
    PythonText,
    PythonValue,
    ScopeContents,
    changed,
    dotted,
    last_name,
    noted,
    plain,
)

_PASSES_ON = frozenset({"bind", "remote", "spawn", "starmap"})
"""Methods that call the preceding function or class with their arguments (Ray, Modal)."""
_COMMANDS = frozenset({"fire.Fire", "Fire", "typer.run"})
"""Functions that call others with a user's arguments."""
_DECLARE = frozenset({"field", "ib", "attrib", "option", "argument"})
_PARSERS = frozenset({"cli", "CLI", "parse", "entrypoint"})
"""Functions that make an object of a class from a user's arguments (tyro, jsonargparse, chz)."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAX_BASES = 5
SET_UPS = frozenset({"__init__", "setup", "setupclass", "setup_class", "setup_method"})
"""Methods that set attributes before other methods run."""
MAX_STARTS = 16
"""Maximum number of times that a loop's body is read if it may start a server."""
NESTED = (*FUNCTIONS, ast.ClassDef, ast.Lambda)

Change = tuple[str, str | None]
"""Variable with a value that a function changes, and the changed key: see `spoil`."""
_Classes = Mapping[str, ast.ClassDef]
AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


class WaitingScope(NamedTuple):
    """Function or class to read, with the names that it sees."""

    node: AnyFunction | ast.ClassDef
    names: dict[str, PythonValue | None]
    outer: ScopeContents
    delays: int = 0


class Definitions:
    """Top-level definitions of a program and imported classes, with the module's evaluator."""

    def __init__(self, tree: ast.Module, evaluator: PythonEvaluator, imported: _Classes) -> None:
        self._evaluator = evaluator
        own = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._classes = {**imported, **own}
        self._lineages = [self.lineage(node) for node in self._classes.values()]
        parts = ((node, part) for node in self._classes.values() for part in ast.walk(node))
        self._inside = {id(part): node for node, part in parts if isinstance(part, ast.Call)}
        self._imported = {id(part) for node in imported.values() for part in node.body}
        once = assigned_once(tree)
        self.literals = once & set(_literals(tree))
        """Names that the module sets once, to a value that depends on no other."""
        self.functions: dict[str, AnyFunction] = {}
        self._fields: dict[str, dict[str, ast.expr | None]] = {}
        self._stored: dict[str, set[str]] = {}
        """Fields of each class that its methods set."""
        attributes = (part for part in ast.walk(tree) if isinstance(part, ast.Attribute))
        outside = [part for part in attributes if dotted(part) != f"self.{part.attr}"]
        self._used_outside = {part.attr for part in outside}
        self._set_attributes = {a.attr for a in outside if isinstance(a.ctx, ast.Store)}
        """Attributes that the program sets for objects other than `self`."""
        self._options: dict[str, ast.expr | None] = _options(tree)
        self._set_ups: dict[str, AnyFunction] = {}
        self._names: dict[int, str] = {}
        """Name that callers of each function use, by its `id`; for `__init__`, the class's name."""
        for node in tree.body:
            if isinstance(node, FUNCTIONS):
                self._names[id(node)] = node.name
                if node.name in once:
                    self.functions[node.name] = node
        for name, node in self._classes.items():
            methods = (part for part in node.body if isinstance(part, FUNCTIONS))
            first = next((part for part in methods if part.name == "__init__"), None)
            if first is not None:
                self._names[id(first)], self._set_ups[name] = name, first
            elif not any("Enum" in (dotted(base) or "") for base in node.bases):
                self._fields[name] = self._inherited(name, node) | dict(_fields(node))
        self._changing: dict[int, bool] = {}
        self.changed_globals: dict[Change, set[int]] = {}
        """Changes of globals, with the functions that make them."""
        for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
            evaluator.document.spend(1 + sum(1 for _ in ast.walk(function)) // 5)
            for change in changes(function):
                if change[0] not in parameters(function):
                    self.changed_globals.setdefault(change, set()).add(id(function))
        self.passed: dict[int, list[dict[str, PythonValue]]] = {}
        """Known values of the parameters in each call that was read, by the call's `id`."""
        self._sites: dict[str, list[ast.Call]] = {}
        self._uses = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        names = set(self._names.values()) | self._fields.keys()
        commands: list[str] = []
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and (name := _called(call)) in names:
                self._sites.setdefault(name, []).append(call)
            elif isinstance(call, ast.Call) and dotted(call.func) in _COMMANDS:
                commands += [part.id for part in ast.walk(call) if isinstance(part, ast.Name)]
        self._uses -= Counter(name for name in commands if name not in self._sites)

    def changed_by_others(
        self, node: AnyFunction, names: Mapping[str, PythonValue | None]
    ) -> Iterator[Change]:
        """Yield the changes of a function's global variables that other functions make."""
        self._evaluator.document.spend(len(self.changed_globals))
        for change, functions in self.changed_globals.items():
            if functions - {id(node)} and names.get(change[0]) is not None:
                yield change

    def made_by(self, node: ast.Call, depth: int, evaluator: PythonEvaluator) -> PythonTable | None:
        """Return the fields of a new object or the parsed options; None for other calls."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        parsed = [kind for part in node.args if (kind := dotted(part) or "") in self._fields]
        if is_parsing(node):
            table = self.parsed(node, depth)
        elif last_name(node.func) in _PARSERS and len(parsed) == 1:
            return self._usual(parsed[0], node)
        elif last_name(node.func) == "parse_argv" and not node.args:
            return PythonTable()  # every option may be left out
        elif name in self._fields:
            table = self._defaults(node, self._fields[name], f"{name}.", depth)
        else:
            return None
        keywords, args = evaluator.keywords(node, depth), node.args
        is_open = any(isinstance(argument, ast.Starred) for argument in args)
        pairs = [] if is_open else zip(self._fields.get(name, ()), args, strict=False)
        for field, argument in pairs:
            label = evaluator.label(argument, field)
            table.entries[field] = (label, evaluator.value(argument, depth + 1))
        table.entries |= keywords.entries
        at = 0 if is_open else len(self._fields.get(name, ()))
        table.rest += keywords.rest + [evaluator.several(argument) for argument in args[at:]]
        for field in self._stored.get(name, set()) & table.entries.keys():
            table.entries[field] = (table.entries[field][0], evaluator.unknown(node))
        return table

    def _inherited(self, name: str, node: ast.ClassDef) -> dict[str, ast.expr | None]:
        """Return the fields of a class's bases; record those that its methods set."""
        bases = [dotted(base) or "" for base in node.bases]
        methods = (part for part in node.body if isinstance(part, FUNCTIONS))
        set_by = chain.from_iterable(changes(method) for method in methods)
        own = {key for root, key in set_by if root == "self" and key}
        self._stored[name] = own.union(*(self._stored.get(base, ()) for base in bases))
        fields = (self._fields.get(base, {}).items() for base in reversed(bases))
        return dict(chain.from_iterable(fields))

    def _objects(self, name: str) -> dict[str, PythonValue | None]:
        """Return the fields that the objects of a class share, or None; without calls, defaults."""
        calls = self._sites.get(name) or [ast.Call(ast.Name(name), [], [])]
        made = [self.made_by(call, 0, self._evaluator) for call in calls]
        found: dict[str, PythonValue | None] = {}
        for field in self._fields.get(name, ()):
            values = [table and table.item(field) for table in made]
            is_same = all(plain(value) == plain(values[0]) for value in values)
            found[field] = values[0] if is_same else None
        return found

    def attributes(self, node: ast.ClassDef) -> dict[str, PythonValue | None]:
        """Return the attributes that the calls of a class without `__init__` set."""
        found = self._objects(node.name) if node.name in self._sites else {}
        return {f"self.{field}": value for field, value in found.items()}

    def annotated(self, node: AnyFunction) -> dict[str, PythonValue | None]:
        """Return a function's parameters: objects of annotated classes; None for others."""
        found: dict[str, PythonValue | None] = dict.fromkeys(parameters(node))
        for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            kind = part.annotation
            name = kind.value if isinstance(kind, ast.Constant) else kind and dotted(kind)
            if isinstance(name, str) and self._fields.get(name):
                found[part.arg] = self._usual(name, part)
        return found

    def _usual(self, name: str, node: ast.AST) -> PythonTable:
        """Return an object of a class that may come from elsewhere: its values are assumptions."""
        evaluator, table = self._evaluator, PythonTable()
        for field, value in self._objects(name).items():
            found = value and noted(value, f"the value of `{name}.{field}` in this file")
            is_open = found is None or getattr(found, "unknown", False)
            if found is None or is_open or field in self._set_attributes:
                (piece,) = evaluator.unknown(node).pieces
                found = PythonText((changed(piece, f"{name}.{field}"),), is_text=False)
            table.entries[field] = (evaluator.label(node, field), found)
        return table

    def hidden_attributes(self, nodes: Sequence[ast.stmt]) -> dict[ast.stmt, set[str]]:
        """Return the attributes that each method does not know, because others may set them."""
        methods = [node for node in nodes if isinstance(node, FUNCTIONS)]
        uses = {method: {dotted(part) for part in ast.walk(method)} for method in methods}
        early = [method for method in methods if method.name.lower() in SET_UPS]
        later = [method for method in methods if method not in early]
        for method in early:  # it grows
            early += [m for m in later if f"self.{m.name}" in uses[method] and m not in early]
        outside = {f"self.{name}" for name in self._used_outside}
        late = outside.union(*(uses[method] for method in later))
        hidden = {f"self.{name}" for name in self._set_attributes}
        found: dict[ast.stmt, set[str]] = {method: {*hidden} for method in methods}
        for method in later:
            own = {f"self.{key}" for root, key in changes(method) if root == "self"}
            is_late = f"self.{method.name}" in late or method not in early
            for other in found:
                if method in early if other is method else is_late:
                    found[other] |= own
        return found

    def parsed(self, node: ast.AST, depth: int = 0) -> PythonTable:
        """Return the defaults of the options that the program declares with `argparse`."""
        return self._defaults(node, self._options, "the option ", depth)

    def _defaults(
        self, node: ast.AST, fields: Mapping[str, ast.expr | None], owner: str, depth: int
    ) -> PythonTable:
        evaluator, table = self._evaluator, PythonTable()
        for attribute, default in fields.items():
            value = evaluator.value(default, depth + 1) if default is not None else None
            if value is not None:
                value = noted(value, f"the default of {owner}{attribute}")
                table.entries[attribute] = (evaluator.label(node, attribute), value)
        return table

    def arguments(self, node: AnyFunction) -> dict[str, PythonValue]:
        """Return a function's known parameter values: of its only call, or defaults without one.

        They are empty if the function has other uses.
        """
        name = self._names.get(id(node), "")
        sites = self._sites.get(name, [])
        if not sites and name and not self._uses[name]:
            call = ast.copy_location(ast.Call(ast.Name(name), [], []), node)
            found = bound_arguments(node, call, self._evaluator)
            found.pop(node.args.kwarg.arg if node.args.kwarg else "", None)  # any caller's
            return {key: noted(value, f"the default of {key}") for key, value in found.items()}
        if len(sites) != 1 or self._uses[node.name] > 1:
            return {}
        return bound_arguments(node, sites[0], self._evaluator)

    def known_arguments(
        self, node: AnyFunction | ast.ClassDef, constants: Container[str | None], *, is_last: bool
    ) -> Sequence[Mapping[str, PythonValue]] | None:
        """Return the arguments of each call of a function; None before its callers are read."""
        if id(node) in self._imported:
            return []
        sites = self.sites(node, constants)
        passed = [known for call in sites for known in self.passed.get(id(call), ())]
        is_read = all(id(call) in self.passed for call in sites)
        if not is_read and not is_last:
            return None
        if passed and is_read and len(passed) <= MAX_STARTS:
            return passed
        return [self.arguments(node) if isinstance(node, FUNCTIONS) else {}]

    def sites(
        self, node: AnyFunction | ast.ClassDef, constants: Container[str | None]
    ) -> list[ast.Call]:
        """Return the calls that decide how a top-level function or class is read.

        The result is empty for a function that has other uses or no parameters. It is also empty
        for one that changes a part of one of the `constants`, because others see the change.
        """
        if not isinstance(node, FUNCTIONS):
            return [] if node.name in self._fields else self._sites.get(node.name, [])
        sites = self._sites.get(node.name, []) if node is self.functions.get(node.name) else []
        if self._uses[node.name] != len(sites) or not any(ast.iter_child_nodes(node.args)):
            return []
        shared = {name for name, _ in changes(node)} - parameters(node)
        return [] if sites and any(name in constants for name in shared) else sites

    def may_change(self, node: AnyFunction) -> bool:
        """True if a call of a function may change values of its caller."""
        if id(node) not in self._changing:
            self._changing[id(node)] = False
            calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
            inner = [self.called(call) or self.method(call) for call in calls]
            is_changing = any(self.may_change(function) for function in inner if function)
            self._changing[id(node)] = is_changing or bool(changes(node))
        return self._changing[id(node)]

    def lineage(self, node: ast.ClassDef, depth: int = 0) -> Sequence[ast.ClassDef]:
        """Return a class after its base classes in this program, nearest last."""
        self._evaluator.document.spend()
        bases = (self._classes.get(dotted(base) or "") for base in reversed(node.bases))
        parts = [self.lineage(base, depth + 1) for base in bases if base and depth < _MAX_BASES]
        return list(dict.fromkeys([*chain.from_iterable(parts), node]))

    def called(self, call: ast.Call) -> AnyFunction | None:
        """Return the top-level function that a call names; None for others."""
        return self.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None

    def set_up(self, call: ast.Call) -> AnyFunction | None:
        """Return the `__init__` of the class that a call makes an object of; None for others."""
        return self._set_ups.get(_called(call))

    def method(self, call: ast.Call) -> AnyFunction | None:
        """Return the method that `self.f(…)` or `super().f(…)` calls; None if it is ambiguous."""
        owner, _, name = (dotted(call.func) or "").partition(".")
        if (node := self._inside.get(id(call))) is None or owner not in ("self", "super"):
            return None
        self._evaluator.document.spend(1 + len(self._lineages) // 50)
        lines = [line for line in self._lineages if node in line]
        kin = self.lineage(node)[-2::-1] if owner == "super" else chain.from_iterable(lines)
        parts = (part for kind in dict.fromkeys(kin) for part in kind.body)
        found = [part for part in parts if isinstance(part, FUNCTIONS) and part.name == name]
        return found[0] if len(found) == 1 or (found and owner == "super") else None


def changes(node: AnyFunction) -> set[Change]:
    """Return the changes that a function makes to values that others see."""
    found, hidden = set[Change](), set[str]()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Store()):
                hidden.add(name)
            case (
                ast.AugAssign(target=held) | ast.Call(func=ast.Name(id="setattr"), args=[held, *_])
            ):
                found.add(_rooted(held))
            case ast.Subscript() | ast.Attribute() if not isinstance(part.ctx, ast.Load):
                found.add(_rooted(part))
            case ast.Call(func=ast.Attribute(value=held, attr="pop"), args=[key, *_]):
                found.add(_rooted(ast.Subscript(held, key)))
            case ast.Call(func=ast.Attribute(value=held, attr=what)) if what in CHANGES:
                found.add(_rooted(held))
    hidden -= parameters(node) | global_names(node)
    return {change for change in found if change[0] not in hidden}


def _rooted(node: ast.expr) -> Change:
    """Return the variable that contains a part of a value, and the part's first key."""
    key: object = None
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        key = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        node = node.value
    return dotted(node) or "", key if isinstance(key, str) else None


def parameters(node: AnyFunction) -> set[str]:
    """Return the names of a function's parameters."""
    return {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}


def bound_arguments(
    node: AnyFunction, call: ast.Call, evaluator: PythonEvaluator
) -> dict[str, PythonValue]:
    """Return the known parameter values of a function in one call."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return {}
    declared = node.args
    named = [*declared.posonlyargs, *declared.args]
    is_method = bool(named) and named[0].arg in ("self", "cls")
    named = named[1:] if is_method else named
    defaults = [*map(_default, declared.defaults)]
    pairs = (
        *zip(named[len(named) - len(defaults) :], defaults, strict=False),
        *zip(declared.kwonlyargs, map(_default, declared.kw_defaults), strict=True),
        *zip(named, call.args, strict=False),
    )
    found = {parameter.arg: value for parameter, value in pairs if value is not None}
    shared = [value for value in defaults if isinstance(value, (ast.List, ast.Dict))]
    changed = {name for name, _ in changes(node)} if shared else ()
    evaluator.document.spend(1 + len(shared) * sum(1 for _ in ast.walk(node)) // 5)
    for name in [name for name in changed if found.get(name) in shared]:
        del found[name]  # calls share this default, and each may change it
    names = {parameter.arg for parameter in (*named, *declared.kwonlyargs)}
    table = evaluator.keywords(call)
    values = {name: evaluator.value(value) for name, value in found.items()}
    values |= {name: value for name, (_, value) in table.entries.items() if name in names}
    if declared.kwarg is not None:
        entries = {key: entry for key, entry in table.entries.items() if key not in names}
        values[declared.kwarg.arg] = PythonTable(entries, table.rest)
    elif table.rest:
        return {}
    return {
        name: value
        for name, value in values.items()
        if not (isinstance(value, PythonText) and value.unknown)
    }


def _called(call: ast.Call) -> str:
    """Return the name of the called function or class: `f(…)`, `F.options(…).bind(…)`."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in _PASSES_ON:
        function = function.value
        if isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
            function = function.func.value
    return function.id if isinstance(function, ast.Name) else ""


def is_parsing(node: ast.AST | None) -> bool:
    """True if an expression is a call of `parse_args`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "parse_args"
    )


def _options(tree: ast.Module) -> dict[str, ast.expr | None]:
    """Return the options of `add_argument` calls with their defaults; None for unknown defaults."""
    found: dict[str, ast.expr | None] = {}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and last_name(call.func) == "set_defaults":
            found |= {keyword.arg: None for keyword in call.keywords if keyword.arg}
        if not isinstance(call, ast.Call) or last_name(call.func) != "add_argument":
            continue
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        names = [part.value for part in call.args if isinstance(part, ast.Constant)]
        flags = [text for text in names if isinstance(text, str) and text[:1] != "-"]
        kind = keywords.get("type")
        is_optional = not flags or getattr(keywords.get("nargs"), "value", None) == "?"
        flags += [text for text in names if isinstance(text, str) and text[:2] == "--"]
        name = keywords.get("dest") or next(map(ast.Constant, flags), None)
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            continue
        key = name.value.lstrip("-").replace("-", "_")
        unset = None if "required" in keywords else ast.copy_location(ast.Constant(None), call)
        default = keywords.get("default", unset) if is_optional else None
        if isinstance(default, ast.Constant) and isinstance(default.value, str) and kind:
            default = ast.copy_location(ast.Call(kind, [default], []), default)
        before = found.get(key)
        is_same = key not in found or (
            before is not None and default is not None and ast.dump(before) == ast.dump(default)
        )
        found[key] = default if is_same and "action" not in keywords else None
    return found


def _literals(tree: ast.Module) -> Iterator[str]:
    """Yield the names that the module sets to literals."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            parts = ast.walk(node.value or ast.Name(""))
            if not any(isinstance(part, (ast.Name, ast.Call)) for part in parts):
                yield last_name(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield a class's fields, each with its default, or None if missing or computed."""
    for statement in sorted(node.body, key=lambda part: isinstance(part, ast.Assign)):
        if not isinstance(statement, (ast.AnnAssign, ast.Assign)):
            continue
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        if isinstance(target, ast.Name):
            yield target.id, _default(statement.value)


def _default(node: ast.expr | None) -> ast.expr | None:
    """Return the default in `field(default=…)`, `Field(…)` or `Option(…)`; others unchanged."""
    if not isinstance(node, ast.Call):
        return node
    values = {keyword.arg: keyword.value for keyword in node.keywords}
    made = values.get("default_factory", values.get("factory"))
    if isinstance(made, ast.Lambda):
        return made.body
    if made is not None:
        new = ast.List([]) if dotted(made) == "list" else ast.Call(made, [], [])
        return ast.copy_location(new, node)
    if last_name(node.func).lower() not in _DECLARE:
        return values.get("default", node)
    found = values.get("default") or next(iter(node.args), None)
    return None if getattr(found, "value", None) is ... else found


def stated_gpus(node: AnyFunction | ast.ClassDef, evaluator: PythonEvaluator) -> str | None:
    """Return the GPUs in a decorator like `@app.function(gpu="H100:8")`; None if not stated."""
    calls = (call for call in node.decorator_list if isinstance(call, ast.Call))
    keywords = chain.from_iterable(call.keywords for call in calls)
    found = [evaluator.value(keyword.value) for keyword in keywords if keyword.arg == "gpu"]
    texts = [value.text for value in found if isinstance(value, PythonText) and value.is_known]
    return texts[-1] if texts else None


def extends(method: AnyFunction | ast.ClassDef) -> bool:
    """True if a method calls the method of its base class that it overrides."""
    calls = (dotted(call.func) for call in ast.walk(method) if isinstance(call, ast.Call))
    return f"super.{method.name}" in calls


def returns_at_end(node: AnyFunction) -> bool:
    """True if a function without decorators ends with a `return`, perhaps inside a `with`."""
    last = node.body[-1]
    while isinstance(last, (ast.With, ast.AsyncWith)):
        last = last.body[-1]
    return isinstance(last, ast.Return) and not node.decorator_list


def ends(node: ast.stmt) -> bool:
    """True if a statement ends its function or the program."""
    call = node.value if isinstance(node, ast.Expr) else None
    is_exit = isinstance(call, ast.Call) and last_name(call.func) in ("exit", "_exit")
    return is_exit or isinstance(node, (ast.Return, ast.Raise))


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression, except those of nested functions."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        if isinstance(found, NESTED):
            continue
        yield found
        waiting.extend(reversed(list(ast.iter_child_nodes(found))))


def global_names(tree: ast.AST) -> set[str]:
    """Return the names that functions declare as global, so that any call may change them."""
    found = (node.names for node in ast.walk(tree) if isinstance(node, (ast.Global, ast.Nonlocal)))
    return set(chain.from_iterable(found))


def assigned_once(tree: ast.Module) -> set[str]:
    """Return the names that the module assigns or defines once and no function assigns."""
    counts = dict.fromkeys(global_names(tree), 2)
    waiting: list[tuple[ast.AST, int]] = [(node, 1) for node in tree.body]
    while waiting:
        node, times = waiting.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            counts[node.name] = counts.get(node.name, 0) + times
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] = counts.get(node.id, 0) + times
        if isinstance(node, (ast.Name, *NESTED)):
            continue
        times = 2 if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) else times
        waiting.extend((child, times) for child in ast.iter_child_nodes(node))
    return {name for name, count in counts.items() if count == 1}

"""Functions, classes and `argparse` options that a Python program defines, with their defaults."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeGuard

from speclaunch.deployments.sources.python_data import Imports
from speclaunch.deployments.sources.python_evaluator import PythonEvaluator
from speclaunch.deployments.sources.python_loops import (
    COPIES,
    FUNCTIONS,
    MAX_STARTS,
    AnyFunction,
    Change,
    altered,
    assigned_once,
    changes,
    declared_options,
    is_parsing,
    only_reads,
    outside_name,
    parameters,
    set_attributes,
)
from speclaunch.deployments.sources.python_values import (
    UNKNOWN,
    PythonList,
    PythonTable,
    PythonText,
    PythonValue,
    ScopeContents,
    changed,
    copied,
    dotted,
    last_name,
    noted,
    plain,
)

_PASSES_ON = frozenset({"bind", "remote", "spawn"})
"""Methods that call the preceding function or class with their arguments (Ray, Modal)."""
_COMMANDS = frozenset({"Fire", "cli", "CLI", "auto_cli", "add_command", "typer.run"})
"""Functions that call others with a user's arguments."""
_DECLARE = frozenset({"field", "ib", "attrib", "option", "argument"})
_PARSERS = frozenset({"cli", "CLI", "parse", "entrypoint"})
"""Functions that make an object of a class from a user's arguments (tyro, jsonargparse, chz)."""
_SHOWS = frozenset({"print", "show", "display", "log", "save", "dump", "write"})
"""First words of functions that are taken to change none of their arguments."""
_MAX_BASES = 5
SET_UPS = frozenset({"__init__", "setup", "setupclass", "setup_class", "setup_method"})
"""Methods that set attributes before other methods run."""


class WaitingScope(NamedTuple):
    """Function or class to read, with the names that it sees."""

    node: AnyFunction | ast.ClassDef
    names: dict[str, PythonValue | None]
    outer: ScopeContents
    delays: int = 0


class Definitions:
    """Definitions of a program and its imports; `evaluator` hides names from the module's."""

    def __init__(
        self,
        tree: ast.Module,
        evaluator: Callable[[dict[str, None]], PythonEvaluator],
        nearby: Imports,
    ) -> None:
        self._evaluator, self._document = evaluator, evaluator({}).document
        blocks = (part.body for part in tree.body if isinstance(part, ast.With))
        body = [*tree.body, *chain.from_iterable(blocks)]
        own = {node.name: node for node in body if isinstance(node, ast.ClassDef)}
        self._classes = {**nearby.classes, **own}
        self._lineages = [self.lineage(node) for node in self._classes.values()]
        parts = ((node, part) for node in self._classes.values() for part in ast.walk(node))
        self._inside = {id(part): node for node, part in parts if isinstance(part, ast.Call)}
        self._imported = {id(part) for node in nearby.classes.values() for part in node.body}
        once = assigned_once(tree)
        self.literals = once & set(_literals(tree))
        """Names that the module sets once, to a value that depends on no other."""
        self.functions, self._constructors = dict[str, AnyFunction](), dict[str, AnyFunction]()
        self._fields: dict[str, dict[str, ast.expr | None]] = {}
        self._stored: dict[str, set[str]] = {}
        """Fields of each class that its methods set."""
        attributes = [part for part in ast.walk(tree) if isinstance(part, ast.Attribute)]
        self._mentioned = Counter(part.attr for part in attributes)
        self._used_outside = {f"self.{outside_name(part)}" for part in attributes}
        self._set_attributes = nearby.changed.union(set_attributes(tree))
        """Attributes that the program sets or changes for objects other than `self`."""
        self._options = declared_options(ast.walk(tree), {"add_argument"})
        self._names: dict[int, str] = {}
        """Name that callers of each function use, by its `id`; for `__init__`, the class's name."""
        for node in body:
            if isinstance(node, FUNCTIONS):
                self._names[id(node)] = node.name
                if node.name in once:
                    self.functions[node.name] = node
        for name, node in self._classes.items():
            methods = (part for part in node.body if isinstance(part, FUNCTIONS))
            first = next((part for part in methods if part.name == "__init__"), None)
            if first is not None:
                self._names[id(first)], self._constructors[name] = name, first
            elif not any("Enum" in (dotted(base) or "") for base in node.bases):
                self._fields[name] = self._inherited(name, node) | dict(_fields(node))
        self._inner = self._inner_functions(tree, body)
        """Functions that other functions define, and methods, by the name that callers use."""
        self._changing: dict[int, bool] = {}
        self._harmless: set[int] = set()
        self.changed_globals: dict[Change, set[int]] = {}
        """Changes of globals, with the functions that make them."""
        self._parameters = {part.arg for part in ast.walk(tree) if isinstance(part, ast.arg)}
        for function in (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)):
            self._document.spend(1 + sum(1 for _ in ast.walk(function)) // 5)
            self._harmless |= {id(function)} if only_reads(function) else set()
            for change in changes(function):
                if change[0] not in parameters(function):
                    self.changed_globals.setdefault(change, set()).add(id(function))
        self.passed: dict[int, list[dict[str, PythonValue]]] = {}
        """Known values of the parameters in each call that was read, by the call's `id`."""
        self._sites: dict[str, list[ast.Call]] = {}
        self._uses = Counter(map(_used_name, ast.walk(tree)))
        self._find_calls(tree, nearby)

    def _find_calls(self, tree: ast.Module, nearby: Imports) -> None:
        nodes = [tree, *nearby.classes.values(), *nearby.functions.values()]
        parts = [part for node in dict.fromkeys(nodes) for part in ast.walk(node)]
        inner = [p for part in parts if isinstance(part, FUNCTIONS) for p in ast.walk(part)]
        self._document.spend(1 + len(inner) // 5)
        local = (p for p in inner if isinstance(getattr(p, "ctx", p), (ast.Store, ast.arg)))
        self._local = dict.fromkeys({*map(_used_name, local)}.difference(dict(_parsed(parts))))
        """Variables of any function, except those that hold parsed options."""
        self._makers = {name: _made(function, "") for name, function in nearby.functions.items()}
        """Calls whose results imported functions and class methods return, or None."""
        for name, node in self._classes.items():
            methods = (part for part in node.body if isinstance(part, FUNCTIONS))
            self._makers |= {f"{name}.{part.name}": _made(part, name) for part in methods}
        names = {"HfArgumentParser", *self._names.values(), *self._fields}
        commands: list[str] = []
        calls = [part for part in parts if isinstance(part, ast.Call)]
        for call in (*calls, *nearby.objects.values()):
            if (name := called_name(call)) in names:
                self._sites.setdefault(name, []).append(call)
            elif {last_name(call.func), dotted(call.func)} & _COMMANDS:
                commands += [part.id for part in ast.walk(call) if isinstance(part, ast.Name)]
        self._uses -= Counter(name for name in commands if name not in self._sites)

    def _inner_functions(
        self, tree: ast.Module, body: Sequence[ast.stmt]
    ) -> dict[str, AnyFunction]:
        """Return methods that one class defines, and functions with unique names inside others."""
        named = [part for part in ast.walk(tree) if isinstance(part, (*FUNCTIONS, ast.ClassDef))]
        counts = Counter(part.name for part in named)
        owners = (part.body for part in named if isinstance(part, ast.ClassDef))
        direct = set(map(id, chain(body, *owners)))
        functions = (part for part in named if isinstance(part, FUNCTIONS))
        found = {f.name: f for f in functions if counts[f.name] == 1 and id(f) not in direct}
        parts = chain.from_iterable(node.body for node in self._classes.values())
        methods = [part for part in parts if isinstance(part, FUNCTIONS)]
        counts = Counter(method.name for method in methods)
        counts["__init__"] = 0
        found |= {f"self.{m.name}": m for m in methods if counts[m.name] == 1}
        self._names |= {id(function): name for name, function in found.items()}
        return found

    def changed_by_others(
        self, node: AnyFunction, names: Mapping[str, PythonValue | None]
    ) -> Iterator[Change]:
        """Yield the changes of a function's global variables that other functions make."""
        self._document.spend(len(self.changed_globals))
        for change, functions in self.changed_globals.items():
            if functions - {id(node)} and names.get(change[0]) is not None:
                yield change

    def made_by(self, node: ast.Call, depth: int, evaluator: PythonEvaluator) -> PythonValue | None:
        """Return the fields of a new object or the parsed options; None for other calls."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if last_name(node.func) in COPIES and node.keywords:
            return altered(node, evaluator, set().union(*self._stored.values()))
        parsed = [kind for part in node.args if (kind := dotted(part) or "") in self._fields]
        if is_parsing(node):
            return self._parsed_from(node, depth, evaluator)
        if last_name(node.func) == "parse_args_into_dataclasses":
            return self._parsed_objects(node, evaluator)
        if last_name(node.func) in _PARSERS and len(parsed) == 1:
            return self._usual(parsed[0], node)
        if name not in self._fields:
            return self._made_elsewhere(node, depth)
        table = self._defaults(node, self._fields[name], f"{name.rpartition('.')[2]}.", depth)
        keywords, args = evaluator.keywords(node, depth), node.args
        is_open = any(isinstance(argument, ast.Starred) for argument in args)
        at = 0 if is_open else len(self._fields[name])
        for field, argument in zip(self._fields[name], args[:at], strict=False):
            label = evaluator.label(argument, field)
            table.entries[field] = (label, evaluator.value(argument, depth + 1))
        table.entries |= keywords.entries
        table.rest += keywords.rest + [evaluator.several(argument) for argument in args[at:]]
        for field in self._stored.get(name, set()) & table.entries.keys():
            table.entries[field] = (table.entries[field][0], evaluator.unknown(node))
        return table

    def _parsed_objects(self, node: ast.Call, evaluator: PythonEvaluator) -> PythonValue:
        """Return the objects of `HfArgumentParser((Model, Data)).parse_args_into_dataclasses()`."""
        parsers = self._sites.get("HfArgumentParser", [])
        if node.args or len(parsers) != 1:
            return evaluator.unknown(node)
        parts = chain.from_iterable(getattr(part, "elts", [part]) for part in parsers[0].args)
        values: list[PythonValue] = [self._usual(dotted(part) or "", node) for part in parts]
        return PythonList([evaluator.unknown(node)] * len(values), values=values)

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
        names = [n for n, node in self._classes.items() if node is self._classes.get(name)]
        calls = [call for other in names for call in self._sites.get(other, ())]
        self._document.spend(1 + len(self._classes) // 20)
        evaluator, default = self._evaluator(self._local), ast.Call(ast.Name(name), [], [])
        made = [self.made_by(call, 0, evaluator) for call in calls or [default]]
        found: dict[str, PythonValue | None] = {}
        for field in self._fields.get(name, ()):
            values = [t.item(field) if isinstance(t, PythonTable) else None for t in made]
            is_same = all(plain(value) == plain(values[0]) for value in values)
            found[field] = values[0] if is_same else None
        return found

    def shared_objects(self, calls: Mapping[str, ast.Call]) -> dict[str, PythonValue]:
        """Return the objects in variables of imported modules, unless others set a field."""
        found: dict[str, PythonValue] = {}
        for name, call in calls.items():
            table = self.made_by(call, 0, self._evaluator({}))
            if isinstance(table, PythonTable) and not self._set_attributes & table.entries.keys():
                found[name] = noted(table, f"the value of `{name.rpartition('.')[2]}`")
        return found

    def attributes(self, node: ast.ClassDef) -> dict[str, PythonValue | None]:
        """Return the attributes that the calls of a class without `__init__` set."""
        found = self._objects(node.name) if node.name in self._sites else {}
        return {f"self.{field}": value for field, value in found.items()}

    def annotated(self, node: AnyFunction) -> dict[str, PythonValue | None]:
        """Return a function's parameters: objects of annotated classes; None for others."""
        found: dict[str, PythonValue | None] = dict.fromkeys(parameters(node))
        for part in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if self._fields.get(name := _kind_name(part.annotation)):
                found[part.arg] = self._usual(name, part)
        return found

    def _made_elsewhere(self, node: ast.Call, depth: int) -> PythonValue | None:
        """Return the result of an imported function or class method; `parse_argv` may set none."""
        maker = dotted(node.func) or ""
        made = self._makers.get(maker) if depth < _MAX_BASES else None
        known = made and self.made_by(made, depth + 1, self._evaluator(self._local))
        if known:
            return noted(known, f"the result of `{maker}`")
        return PythonTable() if last_name(node.func) == "parse_argv" and not node.args else None

    def _usual(self, name: str, node: ast.AST) -> PythonTable:
        """Return an object of a class that may come from elsewhere: its values are assumptions."""
        evaluator, table = self._evaluator({}), PythonTable()
        short = name.rpartition(".")[2]
        for field, value in self._objects(name).items():
            note = f"the value of `{short}.{field}` in the program"
            found = value and self._assumed(value, note, node)
            is_open = found is None or getattr(found, "unknown", False)
            if found is None or is_open or field in self._set_attributes:
                (piece,) = evaluator.unknown(node).pieces
                found = PythonText((changed(piece, f"{short}.{field}"),), is_text=False)
            table.entries[field] = (evaluator.label(node, field), found)
        return table

    def _assumed(self, value: PythonValue, note: str, node: ast.AST) -> PythonValue:
        """Return a value under an assumption; a dictionary that is empty by default is open."""
        if isinstance(value, PythonTable) and not value.entries:
            return PythonTable(rest=[self._evaluator({}).several(node)])
        return noted(value, note)

    def hidden_attributes(self, nodes: Sequence[ast.stmt]) -> dict[ast.stmt, set[str]]:
        """Return the attributes that each method does not know, because others may set them."""
        methods = [node for node in nodes if isinstance(node, FUNCTIONS)]
        uses = {method: {dotted(part) for part in ast.walk(method)} for method in methods}
        early = [method for method in methods if method.name.lower() in SET_UPS]
        later = [method for method in methods if method not in early]
        for method in early:  # it grows
            early += [m for m in later if f"self.{m.name}" in uses[method] and m not in early]
        late = self._used_outside.union(*(uses[method] for method in later))
        hidden = {f"self.{name}" for name in self._set_attributes}
        found: dict[ast.stmt, set[str]] = {method: {*hidden} for method in methods}
        for method in later:
            own = {f"self.{key}" for root, key in changes(method) if root == "self"}
            is_late = f"self.{method.name}" in late or method not in early
            for other in found:
                is_repeated = method in early or self._mentioned[method.name] > 1
                if is_repeated if other is method else is_late:
                    found[other] |= own
        return found

    def parsed(self, tree: ast.Module) -> Iterator[tuple[str, PythonTable]]:
        """Yield the variables that hold parsed options, in any function, with the defaults."""
        for name, node in _parsed(ast.walk(tree)):
            yield name, self._options_table(node)

    def _options_table(self, node: ast.AST, depth: int = 0) -> PythonTable:
        """Return the defaults of the options that the program declares with `argparse`."""
        return self._defaults(node, self._options, "the option ", depth)

    def _parsed_from(self, node: ast.Call, depth: int, evaluator: PythonEvaluator) -> PythonTable:
        """Return the options of `parse_args(…)`: defaults if it reads the command's arguments."""
        table = self._options_table(node, depth)
        sources = [*zip(("args", "namespace"), node.args, strict=False)]
        for name, source in sources + [(key.arg, key.value) for key in node.keywords]:
            is_open = getattr(evaluator.value(source), "unknown", False)
            is_own = dotted(getattr(source, "value", source)) == "sys.argv"
            is_own = is_own or (is_open and getattr(source, "id", "") in self._parameters)
            if evaluator.test(source)[0] is not False and (name == "namespace" or not is_own):
                table.rest.append(evaluator.several(source))
        return table

    def _defaults(
        self, node: ast.AST, fields: Mapping[str, ast.expr | None], owner: str, depth: int
    ) -> PythonTable:
        evaluator, table = self._evaluator({}), PythonTable()
        for attribute, default in fields.items():
            value = evaluator.value(default, depth + 1) if default is not None else None
            if value is not None:
                value = noted(value, f"the default of {owner}{attribute}")
                table.entries[attribute] = (evaluator.label(node, attribute), value)
        return table

    def arguments(self, node: AnyFunction) -> dict[str, PythonValue]:
        """Return a function's known parameter values: those of all calls, or defaults without one.

        They are empty if the function has other uses.
        """
        name = self._names.get(id(node), "")
        sites = self._sites.get(name, [])
        if not sites and name and not self._uses[name] and not self.is_inner(node):
            call = ast.copy_location(ast.Call(ast.Name(name), [], []), node)
            found = self.bound(node, call, self._evaluator({}))
            found.pop(node.args.kwarg.arg if node.args.kwarg else "", None)  # any caller's
            pairs = ((key, value, f"the default of {key}") for key, value in found.items())
            return {key: self._assumed(value, note, node) for key, value, note in pairs}
        if not sites or self._uses[node.name] > 1 or name in self._inner:
            return {}
        first, *others = _passed(sites, self.passed) or [{}]
        found = {key: copied(value) for key, value in first.items()}
        for other in others:
            texts = {key: plain(v) for key, v in other.items() if isinstance(v, PythonText)}
            known = {key: texts.get(key, UNKNOWN) for key in found}
            found = {k: v for k, v in found.items() if UNKNOWN is not known[k] == plain(v)}
        return found

    def bound(
        self, node: AnyFunction, call: ast.Call, evaluator: PythonEvaluator
    ) -> dict[str, PythonValue]:
        """Return the known parameter values of a function in one call."""
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return {}
        declared, module = node.args, self._evaluator({})
        options = declared_options(node.decorator_list, _DECLARE)
        if options:  # `click` passes a user's arguments
            if call.args or any(keyword.arg == "args" for keyword in call.keywords):
                return {}
            call = ast.copy_location(ast.Call(call.func, [], []), call)
        named = [*declared.posonlyargs, *declared.args]
        named = named[1:] if named and named[0].arg in ("self", "cls") else named
        pairs = (
            *zip(reversed(named), reversed(declared.defaults), strict=False),
            *zip(declared.kwonlyargs, declared.kw_defaults, strict=True),
        )
        defaults = {part.arg: value for part, node_ in pairs if (value := _default(node_))}
        if self.is_inner(node):  # a variable may have changed since then
            defaults = {n: v for n, v in defaults.items() if isinstance(v, ast.Constant)}
        shared = [value for value in defaults.values() if isinstance(value, (ast.List, ast.Dict))]
        altered = {name for name, _ in changes(node)} if shared else ()
        walks = len(shared) + self.is_inner(node)
        evaluator.document.spend(1 + walks * sum(1 for _ in ast.walk(node)) // 5)
        for name in [name for name in altered if defaults.get(name) in shared]:
            del defaults[name]  # calls share this default, and each may change it
        names = {parameter.arg for parameter in (*named, *declared.kwonlyargs)}
        values = {name: module.value(value) for name, value in defaults.items()}
        table = evaluator.keywords(call)
        table = self._defaults(node, options, "the option ", 0) if options else table
        values |= {name: value for name, (_, value) in table.entries.items() if name in names}
        keywords = [(keyword.arg, keyword.value) for keyword in call.keywords]
        for key, value in (*zip((p.arg for p in named), call.args, strict=False), *keywords):
            if key is not None and key in names:
                values[key] = evaluator.operand(value)
        if declared.kwarg is not None and not options:
            entries = {key: entry for key, entry in table.entries.items() if key not in names}
            values[declared.kwarg.arg] = PythonTable(entries, table.rest)
        elif table.rest:
            return {}
        return {
            name: value
            for name, value in values.items()
            if not (isinstance(value, PythonText) and value.unknown)
        }

    def known_arguments(
        self, waiting: WaitingScope, constants: Container[str | None], *, is_last: bool
    ) -> Sequence[Mapping[str, PythonValue]] | None:
        """Return the arguments of each call of a function; None before its callers are read."""
        node = waiting.node
        if id(node) in self._imported:
            return []
        is_inner = isinstance(node, FUNCTIONS) and self.is_inner(node)
        read = waiting.outer.passed if is_inner else self.passed  # variables belong to one call
        passed = _passed(self.sites(node, constants), read)
        if passed is None and not is_last:
            return None
        if passed and len(passed) <= MAX_STARTS:
            return passed
        return [self.arguments(node) if isinstance(node, FUNCTIONS) else {}]

    def sites(
        self, node: AnyFunction | ast.ClassDef, constants: Container[str | None]
    ) -> list[ast.Call]:
        """Return the calls that decide how a function or class is read.

        The result is empty for a function that has other uses or no parameters. It is also empty
        for one that changes a part of one of the `constants`, because others see the change.
        """
        if not isinstance(node, FUNCTIONS):
            return [] if node.name in self._fields else self._sites.get(node.name, [])
        name = self._names.get(id(node), "")
        sites = self._sites.get(name, []) if node is self.callee(name) else []
        if self._uses[name] != len(sites) or not any(ast.iter_child_nodes(node.args)):
            return []
        shared = {name for name, _ in changes(node)} - parameters(node)
        return [] if sites and any(name in constants for name in shared) else sites

    def is_inner(self, node: AnyFunction) -> bool:
        """True if another function defines a function."""
        return self._inner.get(node.name) is node

    def callee(self, name: str) -> AnyFunction | None:
        """Return the function or method that a call with this `called_name` runs."""
        found = self.functions.get(name) or self._inner.get(name)
        return found or self._constructors.get(name)

    def may_change(self, node: AnyFunction) -> bool:
        """True if a call of a function may change values of its caller."""
        if id(node) not in self._changing:
            self._changing[id(node)] = False
            calls = (part for part in ast.walk(node) if isinstance(part, ast.Call))
            inner = [self.called(call) or self.method(call) for call in calls]
            is_changing = any(self.may_change(function) for function in inner if function)
            self._changing[id(node)] = is_changing or bool(changes(node))
        return self._changing[id(node)]

    def may_alter(self, call: ast.expr, ignored: Container[str]) -> TypeGuard[ast.Call]:
        """True if a call of a function by its name may change the arguments."""
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return False
        name, is_harmless = call.func.id, id(self.called(call)) in self._harmless
        return not (is_harmless or name in ignored or name.partition("_")[0] in _SHOWS)

    def lineage(self, node: ast.ClassDef, depth: int = 0) -> Sequence[ast.ClassDef]:
        """Return a class after its base classes in this program, nearest last."""
        self._document.spend()
        bases = (self._classes.get(dotted(base) or "") for base in reversed(node.bases))
        parts = [self.lineage(base, depth + 1) for base in bases if base and depth < _MAX_BASES]
        return list(dict.fromkeys([*chain.from_iterable(parts), node]))

    def called(self, call: ast.Call) -> AnyFunction | None:
        """Return the top-level function that a call names; None for others."""
        return self.functions.get(call.func.id) if isinstance(call.func, ast.Name) else None

    def method(self, call: ast.Call) -> AnyFunction | None:
        """Return the inner function or method that `f(…)`, `self.f(…)` or `super().f(…)` calls."""
        inner = self._inner.get(called_name(call))
        if inner is not None and self.is_inner(inner):
            return inner
        owner, _, name = (dotted(call.func) or "").partition(".")
        if (node := self._inside.get(id(call))) is None or owner not in ("self", "super"):
            return None
        self._document.spend(1 + len(self._lineages) // 50)
        lines = [line for line in self._lineages if node in line]
        kin = self.lineage(node)[-2::-1] if owner == "super" else chain.from_iterable(lines)
        parts = (part for kind in dict.fromkeys(kin) for part in kind.body)
        found = [part for part in parts if isinstance(part, FUNCTIONS) and part.name == name]
        return found[0] if len(found) == 1 or (found and owner == "super") else None


def _kind_name(node: ast.expr | None) -> str:
    """Return the class in an annotation: `Config`, `"Config"`, `Optional[Config]`; "" for none."""
    match node:
        case ast.Constant(str(name)):
            return name
        case ast.BinOp(left=kind, right=ast.Constant(None)):
            return _kind_name(kind)
        case ast.Subscript(value=held, slice=kind) if last_name(held) in ("Annotated", "Optional"):
            return _kind_name(kind.elts[0] if isinstance(kind, ast.Tuple) else kind)
    return dotted(node) or "" if node else ""


def _parsed(parts: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables that hold parsed options, and the calls that parse them."""
    for node in parts:
        if isinstance(node, ast.Assign) and is_parsing(node.value):
            for target in node.targets:
                first = target.elts[0] if isinstance(target, ast.Tuple) else target
                if isinstance(first, ast.Name):
                    yield first.id, node.value


def _made(node: AnyFunction, owner: str) -> ast.Call | None:
    """Return the only call whose result a function returns, with `cls` as `owner`; else None."""
    results = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
    made = results[0] if len(results) == 1 and isinstance(node.body[-1], ast.Return) else None
    if isinstance(made, ast.Call) and called_name(made) == "self":
        return ast.copy_location(ast.Call(ast.Name(owner), made.args, made.keywords), made)
    return made if isinstance(made, ast.Call) else None


def called_name(call: ast.Call) -> str:
    """Return the name of the called function or class: `f(…)`, `F.options(…).bind(…)`, `self.f`."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in _PASSES_ON:
        function = function.value
        if isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
            function = function.func.value
    is_own = isinstance(function, ast.Attribute) and dotted(function.value) == "self"
    return dotted(function) or "" if is_own or isinstance(function, ast.Name) else ""


def _used_name(node: ast.AST) -> str:
    """Return the name that a part of the program mentions; `self.f` for an attribute `f`."""
    if isinstance(node, ast.arg):
        return node.arg
    return f"self.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _passed(
    sites: Sequence[ast.Call], read: Mapping[int, list[dict[str, PythonValue]]]
) -> list[dict[str, PythonValue]] | None:
    """Return the known arguments of all calls at `sites`; None if one has not been read."""
    if any(id(call) not in read for call in sites):
        return None
    return [known for call in sites for known in read[id(call)]]


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

"""What a Python program defines for others to use: defaults of classes, dictionaries that functions
return, and the arguments of functions that it calls once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from speclaunch.importer.python_values import PythonEvaluator, PythonTable, PythonText, PythonValue

_PASSES_ON = frozenset({"bind", "remote", "spawn", "starmap"})
"""Methods that call the function or class in front of them with their arguments (Ray, Modal)."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


class Definitions:
    """The definitions at the top of a program; `lookup` gives the module's own values."""

    def __init__(self, tree: ast.Module, evaluator: Callable[[], PythonEvaluator]) -> None:
        self._evaluator = evaluator
        self._returned: dict[str, ast.expr] = {}
        self._fields: dict[str, dict[str, ast.expr | None]] = {}
        self._names: dict[int, str] = {}
        """The name that calls each function: its own, or that of its class."""
        for node in tree.body:
            if isinstance(node, _FUNCTIONS):
                self._names[id(node)] = node.name
                returned = _returned(node)
                if returned is not None:
                    self._returned[node.name] = returned
            elif isinstance(node, ast.ClassDef):
                first = _method(node, "__init__")
                if first is not None:
                    self._names[id(first)] = node.name
                else:
                    self._fields[node.name] = dict(_fields(node))
        self._sites: dict[str, list[ast.Call]] = {}
        wanted = set(self._names.values())
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and (name := _called(call)) in wanted:
                self._sites.setdefault(name, []).append(call)

    def made_by(self, node: ast.Call, depth: int) -> PythonValue | None:
        """What a call of a function or class of the program gives; None if it is not known."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self._returned and not node.args and not node.keywords:
            return self._evaluator().value(self._returned[name], depth + 1)
        if name not in self._fields:
            return None
        evaluator, table = self._evaluator(), PythonTable()
        for field, default in self._fields[name].items():
            value = evaluator.value(default, depth + 1) if default is not None else None
            if isinstance(value, PythonText):
                note = f"the default of {name}.{field}"
                value = replace(
                    value, pieces=tuple(replace(one, note=note) for one in value.pieces)
                )
            if value is not None:
                table.entries[field] = (evaluator.label(node, field), value)
        return table

    def arguments(self, node: AnyFunction) -> dict[str, PythonValue]:
        """The values of a function's parameters, if the program calls it once."""
        sites = self._sites.get(self._names.get(id(node), ""), [])
        if len(sites) != 1:
            return {}
        (call,) = sites
        if any(isinstance(one, ast.Starred) for one in call.args):
            return {}
        found: dict[str, ast.expr] = {}
        given = node.args
        named = [*given.posonlyargs, *given.args]
        named = named[1:] if node.name == "__init__" else named
        defaults = given.defaults
        found |= {
            one.arg: value
            for one, value in zip(named[len(named) - len(defaults) :], defaults, strict=False)
        }
        found |= {
            one.arg: value
            for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
            if value is not None
        }
        found |= {one.arg: value for one, value in zip(named, call.args, strict=False)}
        names = {one.arg for one in (*named, *given.kwonlyargs)}
        evaluator = self._evaluator()
        table = evaluator.keywords(call)
        values = {name: evaluator.value(value) for name, value in found.items()}
        values |= {name: value for name, (_, value) in table.entries.items() if name in names}
        if given.kwarg is not None:
            entries = {key: one for key, one in table.entries.items() if key not in names}
            values[given.kwarg.arg] = PythonTable(entries, table.rest)
        elif table.rest:
            return {}
        return {
            name: value
            for name, value in values.items()
            if not (
                isinstance(value, PythonText)
                and (value.unknown or (value.constant is None and not value.is_text))
            )
        }


def _called(call: ast.Call) -> str:
    """The name of the function or class that a call is of: `f(…)`, `F.options(…).bind(…)`."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in _PASSES_ON:
        function = function.value
        if isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
            function = function.func.value
    return function.id if isinstance(function, ast.Name) else ""


def _returned(node: AnyFunction) -> ast.expr | None:
    """What a function without parameters returns, if it does nothing else."""
    body = [one for one in node.body if not _is_text(one)]
    arguments = node.args
    takes = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    if takes or arguments.vararg or arguments.kwarg or len(body) != 1:
        return None
    return body[0].value if isinstance(body[0], ast.Return) else None


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _method(node: ast.ClassDef, name: str) -> AnyFunction | None:
    methods = (one for one in node.body if isinstance(one, _FUNCTIONS))
    return next((one for one in methods if one.name == name), None)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr | None]]:
    """The fields of a class with their defaults; None for what is made by a call."""
    for one in node.body:
        if not isinstance(one, (ast.AnnAssign, ast.Assign)):
            continue
        target = one.target if isinstance(one, ast.AnnAssign) else one.targets[0]
        if isinstance(target, ast.Name):
            value = one.value
            if isinstance(value, ast.Call):
                value = next((k.value for k in value.keywords if k.arg == "default"), None)
            yield target.id, value

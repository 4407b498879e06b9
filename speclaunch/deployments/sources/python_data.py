"""Files next to a Python program: modules that it imports, and data files that it loads."""

from __future__ import annotations

import ast
import json
import os
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.effective_words import read_below
from speclaunch.deployments.sources.interface import SERVER
from speclaunch.deployments.sources.python_evaluator import PythonEvaluator
from speclaunch.deployments.sources.python_loops import (
    FUNCTIONS,
    AnyFunction,
    assigned_once,
    set_attributes,
)
from speclaunch.deployments.sources.python_strings import ProgramPositions
from speclaunch.deployments.sources.python_values import (
    CHANGES,
    FROM_OUTSIDE,
    PythonList,
    PythonTable,
    PythonText,
    PythonValue,
    dotted,
    last_name,
    note_of,
    noted,
)
from speclaunch.deployments.sources.source_text import Document

_YAML = frozenset({"yaml.safe_load", "yaml.load", "yaml.full_load"})
_JSON = frozenset({"json.load", "json.loads"})
_FILE = "\0file"
"""Key of an open file's name in its value, which no program can contain."""
_MAX_DEPTH = 10
_MAX_MODULES, _MAX_MODULE_BYTES, _MAX_PARENTS = 8, 100_000, 8
"""Limits: number and size of modules, and of parent folders that may be packages."""
_MAKES_OPTIONS = lazy(r"(?i:config|settings|options|args|env)|^[A-Z]")
"""Pattern of a function that may make a program's options; others' modules are not read."""
_UNCHANGED = frozenset({"Path", "str", "resolve", "absolute", "abspath", "realpath", "expanduser"})


def loaded(call: ast.Call, evaluator: PythonEvaluator) -> PythonValue | None:
    """Return an open file, or the data that a call loads from one; None for other calls."""
    match call:
        case ast.Call(func=ast.Name(id="open"), args=[path, *_]):
            return _opened(path, call, evaluator)
        case ast.Call(func=ast.Attribute(value=path, attr="open" | "read_text")):
            return _opened(path, call, evaluator)
        case ast.Call(func=ast.Attribute(value=held, attr="read"), args=[]):
            found = evaluator.value(held)
            return found if isinstance(found, PythonTable) and _FILE in found.entries else None
    loader = dotted(call.func)
    if loader not in _YAML | _JSON or not call.args:
        return None
    found = evaluator.value(call.args[0])
    name = found.item(_FILE) if isinstance(found, PythonTable) else None
    if not isinstance(name, PythonText):
        return None
    text = read_below(name.text, [Path(evaluator.document.shown).parent]).text
    data = _data(text, is_json=loader in _JSON) if text is not None else None
    return None if data is None else _value(data, call, evaluator, f"the value in {name.text}")


def _opened(path: ast.expr, call: ast.Call, evaluator: PythonEvaluator) -> PythonTable | None:
    name = _path(path, evaluator)
    if name is None:
        return None
    label = evaluator.label(call, name)
    return PythonTable({_FILE: (label, label)})


def _path(node: ast.expr, evaluator: PythonEvaluator, depth: int = 0) -> str | None:
    """Return a path relative to the program's directory; None if it is unknown."""
    parts: list[ast.expr] = []
    match node:
        case ast.Attribute(value=own, attr="parent") if _is_program(own):
            return "."
        case ast.Call(args=[own]) if last_name(node.func) == "dirname" and _is_program(own):
            return "."
        case ast.BinOp(op=ast.Div()):
            parts = [node.left, node.right]
        case ast.Call(args=args) if dotted(node.func) == "os.path.join":
            parts = args
        case ast.Call(args=[inner]) | ast.Call(func=ast.Attribute(value=inner), args=[]):
            parts = [inner] if last_name(node.func) in _UNCHANGED else []
    if parts and depth < _MAX_DEPTH:
        found = [_path(part, evaluator, depth + 1) for part in parts]
        known = [part for part in found if part is not None]
        return str(Path(*known)) if len(known) == len(parts) else None
    value = evaluator.value(node)
    if not isinstance(value, PythonText):
        return None
    if value.unknown and isinstance(node, ast.Name) and depth < _MAX_DEPTH:
        with suppress(SyntaxError, ValueError):  # a variable with a path that is not a literal
            return _path(ast.parse(value.text, mode="eval").body, evaluator, depth + 3)
    is_outside = FROM_OUTSIDE in (note_of(value) or "") or any(p.default_of for p in value.pieces)
    is_sure = not is_outside and not any(p.unknown or p.condition for p in value.pieces)
    return value.text if is_sure and value.is_text else None


def _is_program(node: ast.expr) -> bool:
    """True if an expression is the path of the program: `Path(__file__).resolve()`."""
    while isinstance(node, ast.Call) and last_name(node.func) in _UNCHANGED:
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        node = node.args[0] if node.args else inner or node.func
    return isinstance(node, ast.Name) and node.id == "__file__"


def _data(text: str, *, is_json: bool) -> Any:
    """Return the data of a YAML or JSON text; None if it is empty or invalid."""
    if not is_json:
        from speclaunch.deployments.sources.yaml_files import plain_data  # noqa: PLC0415  YAML

        return plain_data(text)
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _value(
    data: Any, call: ast.Call, evaluator: PythonEvaluator, note: str, depth: int = 0
) -> PythonValue:
    evaluator.document.spend()
    if depth > _MAX_DEPTH:
        return evaluator.unknown(call)
    match data:
        case dict():
            table = PythonTable()
            for key, inner in data.items():
                if isinstance(key, str):
                    value = _value(inner, call, evaluator, note, depth + 1)
                    table.entries[key] = (evaluator.label(call, key), value)
                else:
                    table.rest.append(evaluator.several(call))
            return table
        case list():
            values = [_value(inner, call, evaluator, note, depth + 1) for inner in data]
            unknown = evaluator.unknown(call)
            items = [value if isinstance(value, PythonText) else unknown for value in values]
            return PythonList(items, values=values)
        case str() | int() | float() | None:
            (piece,) = evaluator.label(call, str(data)).pieces
            is_text = isinstance(data, str)
            constant = None if is_text else data
            return PythonText((replace(piece, note=note),), constant, is_text=is_text)
    return evaluator.unknown(call)


class Imports:
    """Constants and classes of imported modules next to a program; full names begin with a file."""

    def __init__(self, tree: ast.Module, document: Document, positions: ProgramPositions) -> None:
        self.names: dict[str, PythonValue] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, AnyFunction] = {}
        self.changed: set[str] = set()
        """Attributes that the modules set or change for objects other than `self`."""
        self.objects: dict[str, ast.Call] = {}
        """Calls that make the objects in variables, such as `settings = Settings()`."""
        self._evaluator = PythonEvaluator(document, positions, self.names, lambda *_: None)
        self._modules: dict[str, bool] = {}
        parts = list(ast.walk(tree))
        stored = (part for part in parts if isinstance(getattr(part, "ctx", None), ast.Store))
        self._add(parts, Path(document.shown), _uses(parts) - {*map(dotted, stored)}, "")

    def _add(
        self, parts: Sequence[ast.AST], file: Path, uses: Container[object], start: str
    ) -> list[str]:
        """Add what a module imports under names that begin with `start`; return its own names."""
        found: list[str] = []
        statements = (part for part in parts if isinstance(part, ast.Import | ast.ImportFrom))
        for node, alias in ((part, alias) for part in statements for alias in part.names):
            local = alias.asname or alias.name
            if local.partition(".")[0] in uses and (full := self._module(node, file, alias.name)):
                for held in (self.names, self.classes, self.functions, self.objects):
                    held.update(_renamed(held, full, start + local))
                found.append(local)
        return found

    def _module(self, node: ast.Import | ast.ImportFrom, file: Path, name: str) -> str | None:
        """Read a module; return the full name of what is imported from it, None if unknown."""
        above, level, held = list(file.parents)[:_MAX_PARENTS], 0, ""
        if isinstance(node, ast.ImportFrom):
            level, held = node.level, (node.module or "").replace(".", "/")
        path = f"{held}/{name.replace('.', '/')}".strip("/")
        roots = above[level - 1 : level] if level else above[:1]
        roots += [p.parent for p in above if not level and p.name == path.partition("/")[0]]
        options = [(path, ""), (held, f".{name}")][: 1 + isinstance(node, ast.ImportFrom)]
        for (start, rest), root, end in product(options, roots, (".py", "/__init__.py")):
            shown = os.path.normpath(root / (start + end).strip("/"))
            if shown not in self._modules and sum(self._modules.values()) < _MAX_MODULES:
                text = read_below((start + end).strip("/"), [root]).text or ""
                self._modules[shown] = 0 < len(text) <= _MAX_MODULE_BYTES
                with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    self._read(ast.parse(text if self._modules[shown] else ""), Path(shown), node)
            if self._modules.get(shown):
                return shown + rest
        return None

    def _read(self, tree: ast.Module, file: Path, at: ast.Import | ast.ImportFrom) -> None:
        """Add a module's constants and classes by full name, at the place of the import."""
        parts = [ast.copy_location(part, at) for part in ast.walk(tree)]
        self._evaluator.document.spend(1 + len(parts) // 20)
        self.changed |= set(set_attributes(tree))
        body = [n for n in tree.body if isinstance(n, ast.ClassDef | ast.Assign | ast.AnnAssign)]
        uses = _uses([part for node in body for part in ast.walk(node)])
        imported = self._add(parts, file, uses | {alias.name for alias in at.names}, f"{file}.")
        full = {name: f"{file}.{name}" for name in (*imported, *assigned_once(tree))}
        full |= {part.arg: part.arg for part in parts if isinstance(part, ast.arg)}
        for part in (part for part in parts if isinstance(part, ast.Name)):
            part.id = full.get(part.id, part.id)
        held = (part for part in parts if isinstance(part, ast.Attribute | ast.Subscript))
        changed = {dotted(p.value) for p in held if getattr(p, "attr", "pop") in CHANGES}
        folder = Path(self._evaluator.document.shown).parent
        note = f"the value in {os.path.relpath(file, folder)}"
        self.functions |= {f"{file}.{n.name}": n for n in tree.body if isinstance(n, FUNCTIONS)}
        for node in body:
            if isinstance(node, ast.ClassDef):
                self.classes[f"{file}.{node.name}"] = node
                continue
            name = last_name(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
            text = " ".join(str(getattr(part, "value", "")) for part in ast.walk(node))
            if name in {*full.values()} - changed and node.value and not SERVER.search(text):
                value = noted(self._evaluator.value(node.value), note)
                self.names |= {} if getattr(value, "unknown", False) else {name: value}
                self.objects |= {name: node.value} if isinstance(node.value, ast.Call) else {}


def _renamed(found: Mapping[str, Any], full: str, local: str) -> dict[str, Any]:
    """Return the values of a name and of its attributes under another name."""
    rests = {name: name.removeprefix(full) for name in found if name.startswith(full)}
    return {local + rest: found[name] for name, rest in rests.items() if rest[:1] in ("", ".")}


def _uses(parts: Sequence[ast.AST]) -> set[object]:
    """Return the names that a module uses, except functions and what only contains functions."""
    names = Counter(part.id for part in parts if isinstance(part, ast.Name))
    calls = (part.func for part in parts if isinstance(part, ast.Call))
    functions = (dotted(node) or "" for node in calls if last_name(node)[:1].islower())
    names -= Counter(f.partition(".")[0] for f in functions if not _MAKES_OPTIONS.search(f))
    kinds = (part.annotation for part in parts if isinstance(part, ast.arg))
    return {*names, *(kind.value for kind in kinds if isinstance(kind, ast.Constant))}

"""Data files next to a Python program that it loads: `yaml.safe_load(open("config.yaml"))`."""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.deployments.sources.effective_words import read_below
from speclaunch.deployments.sources.python_evaluator import PythonEvaluator
from speclaunch.deployments.sources.python_values import (
    PythonList,
    PythonTable,
    PythonText,
    PythonValue,
    dotted,
    last_name,
)

_YAML = frozenset({"yaml.safe_load", "yaml.load", "yaml.full_load"})
_JSON = frozenset({"json.load", "json.loads"})
_FILE = "\0file"
"""Key of an open file's name in its value, which no program can contain."""
_MAX_DEPTH = 10
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
    is_sure = not any(p.unknown or p.condition or p.note or p.default_of for p in value.pieces)
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

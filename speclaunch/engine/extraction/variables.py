"""The environment variables of one release: their types, defaults and replacements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from speclaunch.engine.extraction.evaluate import SourceEvaluator
from speclaunch.engine.extraction.names import assignments
from speclaunch.engine.extraction.values import (
    ClassValue,
    EnumMember,
    ExpressionScope,
    Instance,
    OpaqueValue,
)
from speclaunch.patterns import lazy
from speclaunch.record import record

#: Where the descriptors are declared, from 0.5.3 on.
ENVIRON = "sglang/srt/environ.py"

_OURS = lazy(r"^(SGLANG|SGL)_[A-Z0-9_]+$")
_SPECULATIVE = lazy(r"SPEC(_|$|ULATIVE)|NGRAM|EAGLE|DFLASH|DSPARK|DRAFT|MTP|VERIFY|ACC_LEN")
_SPECULATIVE_FILE = lazy(r"/speculative/|speculative|eagle|ngram|dflash|dspark")
_SCALARS: dict[str, type] = {"int": int, "float": float, "bool": bool}


@record
class DeclaredVariable:
    """One environment variable, as it is declared or as the code first reads it.

    ``dynamic``: the default depends on the machine, so ``default`` is None.
    """

    name: str
    type: str
    default: Any
    src: str
    deprecated: bool = False
    replacement: str | None = None
    dynamic: bool = False


def is_ours(name: str) -> bool:
    """Whether a name is one of the engine's variables."""
    return bool(_OURS.match(name)) or (name.isupper() and bool(_SPECULATIVE.search(name)))


def names_speculation(name: str) -> bool:
    """Whether the name alone says that the variable steers speculation."""
    return bool(_SPECULATIVE.search(name))


def is_speculative_file(file: str) -> bool:
    """Whether a file implements speculation."""
    return bool(_SPECULATIVE_FILE.search(file))


def declared_variables(evaluator: SourceEvaluator) -> Iterator[DeclaredVariable]:
    """The descriptors of ``class Envs`` and the registry of deprecated names."""
    tree = evaluator.source.tree(ENVIRON)
    for node in [] if tree is None else tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Envs":
            yield from _descriptors(evaluator, ClassValue(ENVIRON, node))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            yield from _retired(evaluator, node.value)


def _descriptors(evaluator: SourceEvaluator, owner: ClassValue) -> Iterator[DeclaredVariable]:
    scope = ExpressionScope(ENVIRON, owner=owner)
    for name, node in assignments(owner).items():
        made = evaluator.value(node, scope)
        if not (isinstance(made, Instance) and made.of.name.startswith("Env") and is_ours(name)):
            continue
        keywords = dict(made.keywords)
        given = made.arguments[0] if made.arguments else keywords.get("default")
        given = given.value if isinstance(given, EnumMember) else given
        dynamic = not _is_plain(given)
        src = f"{ENVIRON}:{node.lineno}"
        kind = made.of.name.removeprefix("Env").removesuffix("WithAlias").lower()
        yield DeclaredVariable(name, kind, None if dynamic else given, src, dynamic=dynamic)
        old = keywords.get("deprecated_name") or (
            made.arguments[1] if "Alias" in made.of.name and len(made.arguments) > 1 else None
        )
        if isinstance(old, str):
            yield DeclaredVariable(old, kind, None, src, deprecated=True, replacement=name)


def _retired(evaluator: SourceEvaluator, node: ast.Dict) -> Iterator[DeclaredVariable]:
    for key, value in zip(node.keys, node.values, strict=True):
        made = evaluator.value(value, ExpressionScope(ENVIRON))
        if (
            isinstance(key, ast.Constant)
            and isinstance(made, Instance)
            and made.of.name == "_DeprecatedEnv"
        ):
            keywords = dict(made.keywords)
            new = made.arguments[0] if made.arguments else keywords.get("replacement")
            flag = re.search(r"--[a-z0-9-]+", str(keywords.get("note") or ""))
            new = new if isinstance(new, str) else (flag[0] if flag else None)
            src = f"{ENVIRON}:{key.lineno}"
            yield DeclaredVariable(str(key.value), "str", None, src, True, new)


def read_variables(
    evaluator: SourceEvaluator, file: str, nodes: Iterable[ast.AST]
) -> Iterator[tuple[DeclaredVariable, ast.Call]]:
    """Variables that a file reads by name, with the default that stands at the place."""
    scope = ExpressionScope(file)
    wrapped: dict[ast.AST, str] = {}
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func).rpartition(".")[2] if _short(node.func) else ""
        if function in _SCALARS and node.args:
            wrapped[node.args[0]] = function
        if function in ("_print_deprecated_env", "_warn_deprecated_env_to_cli_flag"):
            yield from _old_style(evaluator, node, function, file)
        kind = _getter(node, function)
        if kind is None or not node.args:
            continue
        name = evaluator.value(node.args[0], scope)
        if not isinstance(name, str) or not is_ours(name):
            continue
        default = _default_argument(evaluator, node, scope)
        kind = wrapped.get(node, kind)
        plain, dynamic = _parsed(kind, default)
        yield DeclaredVariable(name, kind, plain, f"{file}:{node.lineno}", dynamic=dynamic), node


def _old_style(
    evaluator: SourceEvaluator, node: ast.Call, function: str, file: str
) -> Iterator[tuple[DeclaredVariable, ast.Call]]:
    words = [evaluator.value(part, ExpressionScope(file)) for part in node.args]
    if function == "_print_deprecated_env" and len(words) > 1:
        old, new = words[1], words[0]
    else:
        flag = re.search(r"--[a-z0-9-]+", str(words[-1]))
        old, new = words[0], flag[0] if flag else None
    if isinstance(old, str):
        yield DeclaredVariable(old, "str", None, f"{file}:{node.lineno}", True, new), node


def _short(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _getter(node: ast.Call, function: str) -> str | None:
    if function in ("get_bool_env_var", "get_int_env_var"):
        return function.split("_")[1]
    if function == "getenv":
        return "str"
    if function == "get" and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if isinstance(owner, ast.Attribute | ast.Name) and ast.unparse(owner).endswith("environ"):
            return "str"
    return None


def _default_argument(evaluator: SourceEvaluator, node: ast.Call, scope: ExpressionScope) -> Any:
    given = [word.value for word in node.keywords if word.arg == "default"] or node.args[1:2]
    if given:
        return evaluator.value(given[0], scope)
    return {"get_bool_env_var": "false", "get_int_env_var": 0}.get(
        ast.unparse(node.func).rpartition(".")[2]
    )


def _parsed(kind: str, default: Any) -> tuple[Any, bool]:
    """The default as the value it stands for; (None, True) when it can't be known."""
    if not _is_plain(default):
        return None, True
    if isinstance(default, str) and kind in _SCALARS:
        if kind == "bool":
            return default.lower() in ("true", "1"), False
        try:
            return _SCALARS[kind](default), False
        except ValueError:
            return default, False
    return default, False


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or (
        isinstance(value, str | int | float) and not isinstance(value, OpaqueValue)
    )

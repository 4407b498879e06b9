"""One ``add_argument`` call as argparse would register it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from speclaunch.engine.extraction.evaluate import SourceEvaluator
from speclaunch.engine.extraction.objects import bind_parameters
from speclaunch.engine.extraction.values import SUPPRESS, ClassValue, ExpressionScope, OpaqueValue
from speclaunch.patterns import lazy
from speclaunch.record import record

_FLAG_IN_TEXT = lazy(
    r"--[a-z](?:[a-z0-9-]*[a-z0-9])?(?:=[{\w][\w,{}]*)?|SGLANG_[A-Z0-9_]+(?:=\w+)?"
)
_DEPRECATED_HELP = lazy(
    r"^\s*(note:\s*)?[\[(]?\s*(deprecated|removed)\b|^[^.]*\bis deprecated\b", re.IGNORECASE
)
_BUILT_IN_ACTIONS = ("store", "store_true", "store_false", "store_const", "append", "extend")


@record
class Declared:
    """One argument of the engine's parser.

    ``action`` is argparse's name of a built-in action or the name of the engine's own class;
    ``refused``: the action stops the engine instead of storing anything; ``stores``: it writes
    to ``dest`` at all; ``src`` is ``file:line`` inside the wheel.
    """

    flag: str
    dest: str
    type: str
    action: str
    nargs: str | int | None
    const: Any
    default: Any
    choices: tuple[Any, ...] | None
    aliases: tuple[str, ...]
    deprecated: bool
    replacement: str | None
    required: bool
    help: str
    src: str
    refused: bool = False
    stores: bool = True


def declare(
    evaluator: SourceEvaluator, names: list[str], keywords: Mapping[str, Any], src: str
) -> Declared:
    """What ``parser.add_argument(*names, **keywords)`` registers."""
    settled = dict(keywords)
    action = settled.pop("action", "store")
    refused, stores = False, True
    if isinstance(action, ClassValue):
        refused, stores = _behaviour(evaluator, action, settled)
        settled = _constructed(evaluator, action, settled)
        kind = action.name
    else:
        kind = action.name if isinstance(action, OpaqueValue) else str(action)
        if kind not in _BUILT_IN_ACTIONS:
            kind = kind.rpartition(".")[2]
    if kind in ("store_true", "store_false"):
        settled.setdefault("default", kind == "store_false")
        settled.update(nargs=0, const=kind == "store_true")
    elif kind == "store_const":
        settled["nargs"] = 0
    options = [name for name in names if name.startswith("-")]
    primary = next((name for name in options if name.startswith("--")), names[0])
    aliases = [name for name in options if name != primary]
    if kind == "BooleanOptionalAction":
        settled["nargs"] = 0
        for name in options:
            if name.startswith("--"):
                aliases.append("--no-" + name[2:])
    text = settled.get("help")
    words = text if isinstance(text, str) else ""
    new_flag = keywords.get("new_flag")
    deprecated = "deprecat" in kind.lower() or bool(_DEPRECATED_HELP.search(words))
    const = settled.get("const_value", settled.get("const"))
    return Declared(
        flag=primary,
        dest=str(settled.get("dest") or primary.lstrip("-").replace("-", "_")),
        type=_type_name(settled.get("type"), kind, settled.get("nargs")),
        action=kind,
        nargs=settled.get("nargs"),
        const=const,
        default=settled.get("default"),
        choices=_choices(evaluator, settled.get("choices")),
        aliases=tuple(dict.fromkeys(aliases)),
        deprecated=deprecated,
        replacement=_replacement(new_flag, words, primary) if deprecated else None,
        required=settled.get("required") is True,
        help=words,
        src=src,
        refused=refused,
        stores=stores,
    )


def _type_name(given: Any, action: str, nargs: Any) -> str:
    if action == "BooleanOptionalAction" or (given is None and nargs == 0):
        return "bool"
    if given is None:
        return "str"
    name = str(getattr(given, "name", given))
    return {"loads": "json"}.get(name, name)


def _choices(evaluator: SourceEvaluator, given: Any) -> tuple[Any, ...] | None:
    if given is None or isinstance(given, OpaqueValue):
        return None
    members = evaluator.items(given)
    if isinstance(given, set | frozenset):
        members = sorted(members)
    return tuple(members)


def _replacement(new_flag: Any, words: str, primary: str) -> str | None:
    """What to write instead: the action says it, else the help names a flag or a variable."""
    if isinstance(new_flag, str):
        return new_flag
    if words == SUPPRESS:
        return None
    after = re.split(r"\b(?:use|set|alias for)\b", words, maxsplit=1, flags=re.IGNORECASE)[-1]
    for found in _FLAG_IN_TEXT.findall(after):
        if found.partition("=")[0] != primary:
            return str(found)
    return None


def _constructed(
    evaluator: SourceEvaluator, action: ClassValue, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """What an action class of the engine hands to ``argparse.Action`` for these keywords."""
    init = evaluator.method(action, "__init__")
    if init is None:
        return dict(keywords)
    bound = bind_parameters(evaluator, init, [None, [], None], dict(keywords))
    passed = {name: bound[name] for name in ("const_value",) if name in bound}
    scope = ExpressionScope(init.file, bound)
    for node in ast.walk(init.node):
        if isinstance(node, ast.Call) and _is_super_init(node.func):
            for word in node.keywords:
                if word.arg is None:
                    passed.update(bound["**"])
                else:
                    passed[word.arg] = evaluator.value(word.value, scope)
            if "dest" in keywords:
                passed["dest"] = keywords["dest"]
            return passed
    return dict(keywords)


def _is_super_init(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "__init__"
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id == "super"
    )


def _behaviour(
    evaluator: SourceEvaluator, action: ClassValue, keywords: Mapping[str, Any]
) -> tuple[bool, bool]:
    """Whether using the action stops the engine, and whether it stores anything."""
    call = evaluator.method(action, "__call__")
    if call is None:
        return False, True
    stores = any(
        isinstance(node, ast.Name) and node.id == "setattr" for node in ast.walk(call.node)
    )
    refused = any(isinstance(node, ast.Raise) for node in call.node.body)
    if keywords.get("error_message") is not None:
        refused = refused or any(
            isinstance(node, ast.Attribute) and node.attr == "error" for node in ast.walk(call.node)
        )
    return refused, stores

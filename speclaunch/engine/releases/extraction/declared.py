"""The arguments that a release declares, as argparse would register them.

Sources are annotated fields and calls of ``add_argument``. Calls are followed from
``ServerArgs.add_cli_args`` through every function that receives its parser. Fields have the form
``name: A[T, Arg(help=…)] = default`` (from 0.5.14) and are processed as in the engine's own
``add_cli_args_from_dataclass``; a field without an ``Arg`` or a help text has no flag.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from speclaunch.core import lazy
from speclaunch.engine.releases.extraction.evaluate import (
    SourceEvaluator,
    bind_parameters,
    default_of,
)
from speclaunch.engine.releases.extraction.source import (
    SUPPRESS,
    BoundMethod,
    ClassValue,
    ExpressionScope,
    ExtractError,
    FunctionValue,
    Instance,
    OpaqueValue,
    PackageSource,
)

_FLAG_IN_TEXT = lazy(
    r"--[a-z](?:[a-z0-9-]*[a-z0-9])?(?:=[{\w][\w,{}]*)?|SGLANG_[A-Z0-9_]+(?:=\w+)?"
)
_DEPRECATED_HELP = lazy(
    r"^\s*(note:\s*)?[\[(]?\s*(deprecated|removed)\b|^[^.]*\bis deprecated\b", re.IGNORECASE
)
_BUILT_IN_ACTIONS = ("store", "store_true", "store_false", "store_const", "append", "extend")


class Declared(Struct, frozen=True):
    """One argument of the engine's parser.

    - ``action``: argparse's name for a built-in action, or the name of the engine's own class.
    - ``refused``: the action stops the engine instead of storing anything.
    - ``stores``: the action writes to ``dest``.
    - ``src``: ``file:line`` inside the wheel.
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
    """Return the argument that ``parser.add_argument(*names, **keywords)`` registers."""
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
    help_text = text if isinstance(text, str) else ""
    new_flag = keywords.get("new_flag")
    deprecated = "deprecat" in kind.lower() or bool(_DEPRECATED_HELP.search(help_text))
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
        replacement=_replacement(new_flag, help_text, primary) if deprecated else None,
        required=settled.get("required") is True,
        help=help_text,
        src=src,
        refused=refused,
        stores=stores,
    )


def _type_name(converter: Any, action: str, nargs: Any) -> str:
    if action == "BooleanOptionalAction" or (converter is None and nargs == 0):
        return "bool"
    if converter is None:
        return "str"
    name = str(getattr(converter, "name", converter))
    return {"loads": "json"}.get(name, name)


def _choices(evaluator: SourceEvaluator, choices: Any) -> tuple[Any, ...] | None:
    if choices is None or isinstance(choices, OpaqueValue):
        return None
    members = evaluator.items(choices)
    if isinstance(choices, set | frozenset):
        members = sorted(members)
    return tuple(members)


def _replacement(new_flag: Any, help_text: str, primary: str) -> str | None:
    if isinstance(new_flag, str):
        return new_flag
    if help_text == SUPPRESS:
        return None
    after = re.split(r"\b(?:use|set|alias for)\b", help_text, maxsplit=1, flags=re.IGNORECASE)[-1]
    for found in _FLAG_IN_TEXT.findall(after):
        if found.partition("=")[0] != primary:
            return str(found)
    return None


def _constructed(
    evaluator: SourceEvaluator, action: ClassValue, keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keywords that one of the engine's action classes passes to ``argparse.Action``."""
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
    """Return `Declared`'s `refused` and `stores` for one of the engine's action classes."""
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


_MISSING = OpaqueValue("no default")
_SCALARS = ("str", "int", "float")


class FieldNode(Struct, frozen=True):
    """An annotated assignment in a class body."""

    file: str
    node: ast.AnnAssign
    name: str


def record_fields(evaluator: SourceEvaluator, owner: ClassValue) -> list[FieldNode]:
    """Return a record class's fields, including those of its bases and namespace classes."""
    found: dict[str, FieldNode] = {}
    for part in [*_namespaces(evaluator, owner), *evaluator.bases(owner)]:
        if isinstance(part, ClassValue):
            found.update({field.name: field for field in record_fields(evaluator, part)})
    for node in owner.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = FieldNode(owner.file, node, node.target.id)
    return list(found.values())


def _namespaces(evaluator: SourceEvaluator, owner: ClassValue) -> Iterator[Any]:
    """Yield the classes that ``collect_input_fields`` combines with this class."""
    tree = evaluator.source.tree(owner.file)
    for node in [] if tree is None else tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Name) and function.id == "collect_input_fields":
                yield from evaluator.items(
                    evaluator.value(node.value.args[0], ExpressionScope(owner.file))
                )


def field_default(evaluator: SourceEvaluator, owner: ClassValue, name: str) -> Any:
    """Return the default of the field `name`; an OpaqueValue if unknown."""
    for field in record_fields(evaluator, owner):
        if field.name == name:
            return _default(evaluator, field)
    return OpaqueValue(f"{owner.name}.{name}")


def _default(evaluator: SourceEvaluator, field: FieldNode) -> Any:
    if field.node.value is None:
        return _MISSING
    scope = ExpressionScope(field.file)
    return default_of(evaluator, evaluator.value(field.node.value, scope), scope)


def declared_fields(evaluator: SourceEvaluator, owner: ClassValue) -> Iterator[Declared]:
    """Yield every argument that the fields of class ``owner`` declare."""
    for field in record_fields(evaluator, owner):
        made = _declared_field(evaluator, field)
        if made is not None:
            yield made


def _declared_field(evaluator: SourceEvaluator, field: FieldNode) -> Declared | None:
    unwrapped = _unwrap_annotated(evaluator, field)
    if unwrapped is None:
        return None
    inner, meta = unwrapped
    if meta.get("no_cli"):
        return None
    flag = meta.get("cli_name") or "--" + field.name.replace("_", "-")
    names = [flag, *(meta.get("aliases") or [])]
    keywords: dict[str, Any] = {"help": meta.get("help", "")}
    if field.name != flag.lstrip("-").replace("-", "_"):
        keywords["dest"] = field.name
    default = _default(evaluator, field)
    if default is not _MISSING:
        keywords["default"] = default
    if meta.get("action") is not None:
        keywords["action"] = meta["action"]
        keywords.update(meta.get("action_kwargs") or {})
    else:
        keywords.update(_typed(evaluator, field, inner, meta, default is _MISSING))
    return declare(evaluator, names, keywords, f"{field.file}:{field.node.lineno}")


def _typed(
    evaluator: SourceEvaluator,
    field: FieldNode,
    inner: ast.expr,
    meta: dict[str, Any],
    missing: bool,
) -> dict[str, Any]:
    """Return the ``add_argument`` keywords that type ``inner`` implies."""
    parser, choices, const = meta.get("type_parser"), meta.get("choices"), meta.get("const")

    def scalar(name: str) -> Any:
        return OpaqueValue(name if name in _SCALARS else "str") if parser is None else parser

    made: dict[str, Any] = {} if const is None else {"const": const}
    head = inner.value if isinstance(inner, ast.Subscript) else inner
    name = _last_name(head)
    if name == "Literal" and isinstance(inner, ast.Subscript):
        literals = evaluator.value(inner.slice, ExpressionScope(field.file))
        literals = list(literals) if isinstance(literals, tuple) else [literals]
        kind = type(literals[0]).__name__
        return {
            **made,
            "type": scalar(kind),
            "choices": choices or literals,
        }
    if name in ("List", "list") and isinstance(inner, ast.Subscript) and parser is None:
        element = _last_name(inner.slice)
        made.update(type=scalar(element), nargs=meta.get("nargs") or "+")
        return {**made, "choices": choices} if choices else made
    if name == "bool":
        return {"action": "store_true"}
    made["type"] = scalar(name)
    if choices:
        made["choices"] = choices
    if meta.get("nargs"):
        made["nargs"] = meta["nargs"]
    required = meta.get("required")
    if required is True or (required is None and missing):
        made["required"] = True
    return made


def _unwrap_annotated(
    evaluator: SourceEvaluator, field: FieldNode
) -> tuple[ast.expr, dict[str, Any]] | None:
    """Return the type inside ``A[T, …]`` and its ``Arg`` keywords or help; None without them."""
    node = field.node.annotation
    if not (isinstance(node, ast.Subscript) and _last_name(node.value) in ("A", "Annotated")):
        return None
    if not isinstance(node.slice, ast.Tuple):
        return None
    inner = _unwrap_optional(_alias(evaluator, field.file, node.slice.elts[0]))
    inner = _unwrap_optional(_alias(evaluator, field.file, inner))
    for part in node.slice.elts[1:]:
        meta = evaluator.value(part, ExpressionScope(field.file))
        if isinstance(meta, str):
            return inner, {"help": meta}
        if isinstance(meta, Instance) and meta.of.name == "Arg":
            return inner, dict(meta.keywords)
    return None


def _alias(evaluator: SourceEvaluator, file: str, node: ast.expr) -> ast.expr:
    """Return the type behind an alias (``Mode = Literal["a", "b"]``), else ``node``."""
    if isinstance(node, ast.Name) and node.id not in (*_SCALARS, "bool"):
        found = evaluator.module_expression(file, node.id)
        if found is not None:
            return found[1]
    return node


def _unwrap_optional(node: ast.expr) -> ast.expr:
    parts: list[ast.expr] = []
    if isinstance(node, ast.Subscript) and _last_name(node.value) == "Optional":
        return node.slice
    if isinstance(node, ast.Subscript) and _last_name(node.value) == "Union":
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [node.left, node.right]
    types = [part for part in parts if not (isinstance(part, ast.Constant) and part.value is None)]
    return types[0] if len(types) == 1 else node


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


#: File that declares the server's arguments, and the method that does.
SERVER_ARGS = "sglang/srt/server_args.py"
_METHOD = "add_cli_args"


class _Parser:
    """A placeholder for the argument parser and for its argument groups."""


class ArgumentReader(SourceEvaluator):
    """An evaluator that records calls to a parser."""

    def __init__(self, source: PackageSource) -> None:
        super().__init__(source)
        self.declared: dict[str, Declared] = {}
        self._parser = _Parser()

    def read(self) -> list[Declared]:
        """Return all server arguments, in registration order."""
        if self.source.tree(SERVER_ARGS) is None:
            raise ExtractError(f"{self.source.path}: no {SERVER_ARGS} in the package")
        found = self.global_name(SERVER_ARGS, "ServerArgs")
        # A later `ServerArgs = defstruct(…)` rebinds the name; use the class statement.
        owner = self._class_statement("ServerArgs") if found else None
        function = None if owner is None else self.method(owner, _METHOD)
        if owner is None or function is None:
            raise ExtractError(f"{self.source.path}: {SERVER_ARGS}: no ServerArgs.{_METHOD}")
        self._globals[(SERVER_ARGS, "ServerArgs")] = (owner,)
        self.run(function, [self._parser], {})
        if not self.declared:
            raise ExtractError(f"{self.source.path}: {SERVER_ARGS}: no arguments found")
        return list(self.declared.values())

    def _class_statement(self, name: str) -> ClassValue | None:
        tree = self.source.tree(SERVER_ARGS)
        for node in [] if tree is None else tree.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return ClassValue(SERVER_ARGS, node)
        return None

    def attribute(self, value: Any, name: str) -> Any:
        """Return ``value.name``; for a field of ``ServerArgs``, its default."""
        if isinstance(value, _Parser):
            return BoundMethod(value, name)
        made = super().attribute(value, name)
        if (
            isinstance(value, ClassValue)
            and value.name == "ServerArgs"
            and isinstance(made, OpaqueValue)
        ):
            return field_default(self, value, name)
        return made

    def call(
        self, function: Any, positional: list[Any], keywords: dict[str, Any], src: str = ""
    ) -> Any:
        """Record a call to the parser, or return the result of any other call."""
        if isinstance(function, BoundMethod) and isinstance(function.receiver, _Parser):
            if function.name == "add_argument":
                return self._add(positional, keywords, src)
            if function.name in ("add_argument_group", "add_mutually_exclusive_group"):
                return function.receiver
        if isinstance(function, FunctionValue):
            if function.name == "add_cli_args_from_dataclass":
                return self._add_fields(positional, keywords)
            if function.name == "_declared_default" and positional:
                owner = self._class_statement("ServerArgs")
                return field_default(self, owner, positional[0]) if owner else OpaqueValue("?")
        return super().call(function, positional, keywords, src)

    def _add(self, names: list[Any], keywords: dict[str, Any], src: str) -> None:
        if names and all(isinstance(name, str) for name in names):
            made = declare(self, names, keywords, src)
            self.declared[made.flag] = made

    def _add_fields(self, positional: list[Any], keywords: dict[str, Any]) -> None:
        selected = keywords.get("fields", positional[2] if len(positional) > 2 else None)
        owner = next((item for item in positional if isinstance(item, ClassValue)), None)
        if owner is None:
            return
        for made in declared_fields(self, owner):
            if selected is None or made.dest in selected:
                self.declared[made.flag] = made

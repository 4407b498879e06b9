"""Arguments declared as annotated fields: ``name: A[T, Arg(help=…)] = default`` (0.5.14 on).

The rules are those of the engine's own ``add_cli_args_from_dataclass``; a field without an
``Arg`` or a help text has no flag.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from speclaunch.engine.extraction.declared import Declared, declare
from speclaunch.engine.extraction.evaluate import SourceEvaluator
from speclaunch.engine.extraction.objects import default_of
from speclaunch.engine.extraction.values import ClassValue, ExpressionScope, Instance, OpaqueValue
from speclaunch.record import record

_MISSING = OpaqueValue("no default")
_SCALARS = ("str", "int", "float")


@record
class FieldNode:
    """One annotated assignment in a class body."""

    file: str
    node: ast.AnnAssign
    name: str


def record_fields(evaluator: SourceEvaluator, owner: ClassValue) -> list[FieldNode]:
    """The fields of a record: inherited, collected from namespace classes, and its own."""
    found: dict[str, FieldNode] = {}
    for part in [*_namespaces(evaluator, owner), *evaluator.bases(owner)]:
        if isinstance(part, ClassValue):
            found.update({field.name: field for field in record_fields(evaluator, part)})
    for node in owner.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = FieldNode(owner.file, node, node.target.id)
    return list(found.values())


def _namespaces(evaluator: SourceEvaluator, owner: ClassValue) -> Iterator[Any]:
    """The classes handed to ``collect_input_fields`` beside the class that they make up."""
    tree = evaluator.source.tree(owner.file)
    for node in [] if tree is None else tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Name) and function.id == "collect_input_fields":
                yield from evaluator.items(
                    evaluator.value(node.value.args[0], ExpressionScope(owner.file))
                )


def field_default(evaluator: SourceEvaluator, owner: ClassValue, name: str) -> Any:
    """The default of a field by its name."""
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
    """Every argument that the fields of ``owner`` declare."""
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
    """The keywords that follow from the annotated type."""
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
    """The type inside ``A[T, …]`` and what its ``Arg`` or help text says; None without one."""
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
    """The type that a module-level alias (``Mode = Literal["a", "b"]``) stands for."""
    if isinstance(node, ast.Name) and node.id not in (*_SCALARS, "bool"):
        found = evaluator.module_expression(file, node.id)
        if found is not None:
            return found[1]
    return node


def _unwrap_optional(node: ast.expr) -> ast.expr:
    """``X`` of ``Optional[X]``, ``X | None`` and ``Union[X, None]``; else the type itself."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Subscript) and _last_name(node.value) == "Optional":
        return node.slice
    if isinstance(node, ast.Subscript) and _last_name(node.value) == "Union":
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts = [node.left, node.right]
    kept = [part for part in parts if not (isinstance(part, ast.Constant) and part.value is None)]
    return kept[0] if len(kept) == 1 else node


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""

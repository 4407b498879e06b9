"""Writes speclaunch/deployments/recipe/section_table.py, the keys of a recipe, from `schema.py`
next to it.

So that a recipe with plain values is read without pydantic.

python tools/section_table.py            writes
python tools/section_table.py --check    exits 1 when it is old
"""

from __future__ import annotations

import sys
import types
import typing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from speclaunch.deployments.recipe import schema

TABLE = (
    Path(__file__).resolve().parent.parent
    / "speclaunch"
    / "deployments"
    / "recipe"
    / "section_table.py"
)
HEAD = '''\
"""The keys of a recipe by section: made by `tools/section_table.py` from `schema.py`.

A row a key: the kind of its values, its default (null: it may be null, `...`: it is required), and
the bounds, options, predicate or section of its kind. `sections.py` reads them.
"""

from __future__ import annotations

from typing import Any

# ruff: noqa: E501
# fmt: off
SECTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
'''
_BOUNDS = ("gt", "ge", "lt", "le", "min_length")
_KINDS = {bool: "flag", str: "text", int: "integer", float: "number"}


def text() -> str:
    """The module as it has to be."""
    lines = [HEAD.rstrip("\n")]
    for model in vars(schema).values():
        if not _is_section(model) or model is schema.Section:
            continue
        lines.append(f"    {model.__name__!r}: {{")
        # required keys come first, as in a signature: completion offers keys in this order
        fields = sorted(model.model_fields.items(), key=lambda item: not item[1].is_required())
        for name, field in fields:
            written = repr(row(field)).replace("Ellipsis", "...")
            lines.append(f"        {name!r}: {written},")
        lines.append("    },")
    return "\n".join([*lines, "}", ""])


def row(field: FieldInfo) -> tuple[Any, ...]:
    """The kind, the default and the parameter of a key."""
    kind, parameter = _kind(*_plain_type(field.annotation, list(field.metadata)))
    if field.is_required():
        default: Any = ...
    else:
        default = _written(field.get_default(call_default_factory=True))
    return (kind, default) if parameter is None else (kind, default, parameter)


def _kind(made: Any, metadata: list[Any]) -> tuple[str, Any]:
    for one in metadata:
        if isinstance(one, schema.PlainKind):
            return one.kind, one.parameter
        if isinstance(one, schema.TextForm):
            return "form", one.accepts.__name__
    if _is_section(made):
        return "section", made.__name__
    if get_origin(made) is Literal:
        return "option", get_args(made)
    bounds = {
        name: bound
        for name in _BOUNDS
        for one in metadata
        if (bound := getattr(one, name, None)) is not None
    }
    return _KINDS[made], bounds or None


def _plain_type(made: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """A type without `None` and without its metadata, and the metadata."""
    if get_origin(made) is Annotated:
        made, *more = get_args(made)
        return _plain_type(made, [*metadata, *more])
    if get_origin(made) in (Union, types.UnionType):
        (made,) = [one for one in get_args(made) if one is not type(None)]
        return _plain_type(made, metadata)
    return made, metadata


def _written(default: Any) -> Any:
    """A default as a recipe would write it."""
    if isinstance(default, schema.Section):
        return {}
    if isinstance(default, tuple):
        return tuple(map(_written, default))
    return str(default) if isinstance(default, StrEnum) else default


def _is_section(one: object) -> typing.TypeGuard[type[schema.Section]]:
    return isinstance(one, type) and issubclass(one, schema.Section)


def main() -> int:
    """Write the table, or compare it."""
    made = text()
    if sys.argv[1:] != ["--check"]:
        TABLE.write_text(made)
        return 0
    if TABLE.read_text() != made:
        print(f"{TABLE} is old: python tools/section_table.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The keys of a recipe beside `args`: what they mean, and what they can be."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from speclaunch.engine.catalogue import held_versions, load
from speclaunch.facts.hardware import AUTO, hardware_names
from speclaunch.recipe.json_schema import recipe_schema

Path = tuple[str, ...]


@cache
def _schema() -> dict[str, Any]:
    return recipe_schema(load(held_versions()[-1]))


def _forms(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    reference = schema.get("$ref")
    if reference is not None:
        yield from _forms(_schema()["definitions"][reference.rpartition("/")[2]])
        return
    yield schema
    for one in schema.get("anyOf", ()):
        yield from _forms(one)


def _at(path: Path) -> dict[str, Any] | None:
    found = _schema()
    for part in path:
        below = [one["properties"] for one in _forms(found) if part in one.get("properties", ())]
        if not below:
            return None
        found = below[0][part]
    return found


def keys_below(path: Path) -> list[str]:
    """The keys of a section, `args` aside; none where there is no such section."""
    found = _at(path)
    return [name for one in _forms(found or {}) for name in one.get("properties", ())]


def is_section(path: Path) -> bool:
    """Whether there are keys below a key."""
    return any(
        "properties" in one or "additionalProperties" in one for one in _forms(_at(path) or {})
    )


def about_key(path: Path) -> str:
    """What a key means, as Markdown; empty for one that there is not."""
    found = _at(path)
    if found is None or path[:1] == ("defaults",):
        return ""
    told = [one["description"] for one in _forms(found) if one.get("description")]
    default = f"Default: {found['default']!r}." if "default" in found else ""
    return "\n\n".join(part for part in (f"**{'.'.join(path)}**", *told[:1], default) if part)


def values_of(path: Path) -> list[str]:
    """The values that a key can have, where they can be listed."""
    if path == ("engine", "version"):
        return [f'"{version}"' for version in reversed(held_versions())]
    if path == ("hardware", "name"):
        return [AUTO, *hardware_names()]
    found: list[str] = []
    for one in _forms(_at(path) or {}):
        found += [_written(value) for value in one.get("enum", ()) if value is not False]
        if one.get("type") == "boolean":
            found += ["true", "false"]
        for item in _forms(one.get("items", {})):
            found += [_written(value) for value in item.get("enum", ())]
    return list(dict.fromkeys(found))


def _written(value: object) -> str:
    return '"off"' if value == "off" else str(value)

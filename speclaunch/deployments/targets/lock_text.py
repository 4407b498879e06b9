"""Write a lock: a recipe without groups and variables, then the record of the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from speclaunch.core import is_secret_variable
from speclaunch.deployments.recipe.lock import Lock
from speclaunch.deployments.recipe.sections import plain_class
from speclaunch.deployments.sources.recipe_text import Interpolation, scalar
from speclaunch.deployments.targets.prepare import Prepared
from speclaunch.engine import FromEnvironment, is_secret_argument, is_secret_text

_HEAD = """\
# Lock of {recipe}: exactly what served. Written by speclaunch; do not edit.
# Start it:  speclaunch recipe={path}
# Compare:   speclaunch recipe={recipe} --locked
"""
_SECTIONS = ("hardware", "launch", "recovery", "deploy")


def lock_text(prepared: Prepared, lock: Lock, path: Path) -> str:
    """Return the text of a deployment's lock at `path`, with the arguments that served.

    A variable (`${oc.env:API_KEY}`) replaces each secret.
    """
    deployment = prepared.recipe.deployment
    engine = {
        "version": prepared.version,
        "python": deployment.engine.python,
        "catalogue": deployment.engine.catalogue,
        "env": {n: _exact(n, v, is_secret_variable(n)) for n, v in deployment.engine.env.items()},
    }
    document: dict[str, Any] = {
        "name": deployment.name,
        "description": deployment.description,
        "args": {
            name: _home_free(prepared, _exact(name.upper(), value, is_secret_argument(name)))
            for name, value in deployment.args.items()
        },
        "engine": {key: value for key, value in engine.items() if value},
    }
    for name in _SECTIONS:
        section = str(plain_class("Deployment").model_fields[name].section)
        if changed := _without_defaults(getattr(deployment, name), section):
            document[name] = changed
    document["lock"] = _home_free(prepared, {"format": lock.format, **to_builtins(lock)})
    head = _HEAD.format(recipe=lock.recipe, path=f"./{path.name}")
    return head + "\n".join(_lines(document, "")) + "\n"


def _exact(variable: str, value: Any, is_secret: bool) -> Any:
    """Return the value that served, or a variable reference for a secret."""
    if value is None or not (is_secret or is_secret_text(value)):
        return str(value) if isinstance(value, FromEnvironment) else value
    if isinstance(value, FromEnvironment) and len(value.template) == 1:
        variable = value.variables[0] if value.variables else variable
    return Interpolation(f"${{oc.env:{variable}}}")


def _home_free(prepared: Prepared, value: Any) -> Any:
    """Return a value with tiny models by name, because their folders differ between users."""
    if isinstance(value, dict):
        return {key: _home_free(prepared, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_home_free(prepared, item) for item in value]
    if isinstance(value, str) and prepared.cpu and Path(value).parent == prepared.cpu.models:
        return Interpolation(f"${{cpu_model:{Path(value).name}}}")
    return value


def _without_defaults(section: Any, name: str) -> dict[str, Any]:
    """Return the values of a section that differ from their defaults."""
    found: dict[str, Any] = {}
    for key, row in plain_class(name).model_fields.items():
        value = getattr(section, key)
        if row.section is not None and value is not None:
            value = _without_defaults(value, row.section)
            if not value:
                continue
        elif value == row.default:
            continue
        found[key] = to_builtins(value)
    return found


def _lines(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield YAML: a line for each value and for each item of a list of mappings."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield ("" if indent else "\n") + f"{indent}{scalar(key)}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield f"{indent}{scalar(key)}:"
            for item in value:
                yield from _item(item, f"{indent}  ")
        else:
            yield f"{indent}{scalar(key)}: {scalar(value)}"


def _item(item: dict[str, Any], indent: str) -> Iterator[str]:
    """Yield a list item: one line, unless it contains lists."""
    if not any(isinstance(value, list) for value in item.values()):
        yield f"{indent}- {scalar(item)}"
        return
    first, *others = _lines(item, f"{indent}  ")
    yield f"{indent}- {first.strip()}"
    yield from others

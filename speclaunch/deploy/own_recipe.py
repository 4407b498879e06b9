"""The whole recipe as one text that needs no other file, for where speclaunch itself is started.

Secrets are references to the environment, where the platform puts them. What decides on an engine
of this machine (its interpreter, the directory of its logs) is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from speclaunch.engine.command import is_secret_argument, is_written_secret
from speclaunch.engine.environment import FromEnvironment, Template, from_environment
from speclaunch.launch.prepare import Prepared
from speclaunch.recipe.load import Recipe
from speclaunch.redaction import is_secret_variable


def own_recipe(recipe: Recipe, prepared: Sequence[Prepared]) -> str:
    """The text: what all roles share is written with each of them, so that nothing is inherited."""
    deployment = recipe.deployment
    whole: dict[str, Any] = {"name": deployment.name, "description": deployment.description}
    if recipe.parts:
        whole["args"] = {}
        whole["roles"] = {}
        for one in prepared:
            around = one.recipe.surroundings
            role = _sections(one)
            if around is not None and around.replicas is not None:
                role = {"replicas": around.replicas.value, **role}
            whole["roles"][str(one.recipe.role)] = role
    else:
        whole |= _sections(prepared[0])
    text: str = yaml.safe_dump(_written(whole), sort_keys=False, allow_unicode=True, width=1 << 30)
    return text


def _sections(prepared: Prepared) -> dict[str, Any]:
    deployment = prepared.recipe.deployment
    engine: dict[str, Any] = {"version": prepared.version}
    if prepared.cpu is not None:
        engine["python"] = "cpu"
    env = {name: _secret_or(name, value) for name, value in deployment.engine.env.items()}
    if env:
        engine["env"] = env
    return {
        "args": {
            name: _Reference((name.upper(),)) if _is_hidden(name, value) else value
            for name, value in deployment.args.items()
        },
        "engine": engine,
        **settings_of(prepared),
    }


def settings_of(prepared: Prepared) -> dict[str, Any]:
    """What a deployment says of hardware, launch and recovery, but for this machine's folders."""
    deployment = prepared.recipe.deployment
    return {
        "hardware": {"name": deployment.hardware.name},
        "launch": _plain(deployment.launch, without=("log_dir",)),
        "recovery": _plain(deployment.recovery),
    }


class _Reference:
    """A value that stands in a variable."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names


def _is_hidden(name: str, value: Any) -> bool:
    if is_written_secret(value):
        return True
    return is_secret_argument(name) and value is not None and not from_environment(value)


def _secret_or(name: str, value: str | None) -> Any:
    named = is_secret_variable(name) and not from_environment(value)
    if value is not None and (named or is_written_secret(value)):
        return _Reference((name,))
    return value


def _written(value: Any) -> Any:
    """As OmegaConf reads it back: literal dollars are literal, references are its own."""
    if isinstance(value, _Reference):
        return "".join(f"${{oc.env:{name}}}" for name in value.names)
    if isinstance(value, FromEnvironment):
        return _template(value.template)
    if isinstance(value, str):
        return str(value).replace("${", "\\${")
    if isinstance(value, Mapping):
        return {str(key): _written(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_written(one) for one in value]
    return value


def _template(template: Template) -> str:
    parts = []
    for part in template:
        if isinstance(part, str):
            parts.append(part.replace("${", "\\${"))
        elif part.default is None:
            parts.append(f"${{oc.env:{part.name}}}")
        else:
            parts.append(f"${{oc.env:{part.name},{_template(part.default)}}}")
    return "".join(parts)


def _plain(section: Any, without: Sequence[str] = ()) -> dict[str, Any]:
    """The values of a section."""
    found: dict[str, Any] = {}
    for name in type(section).model_fields:
        if name in without:
            continue
        value = getattr(section, name)
        nested = hasattr(type(value), "model_fields")
        found[name] = _plain(value) if nested else _enumless(value)
    return found


def _enumless(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_enumless(one) for one in value]
    return str(value) if isinstance(value, str) and type(value) is not str else value

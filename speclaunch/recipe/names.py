"""The keys a recipe may have, and the near misses."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from speclaunch.engine.catalogue import held_versions
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.nearest import nearest
from speclaunch.recipe.sections import key_paths, role_key_paths
from speclaunch.resources import conf_dir

RECIPE = "recipe"
"""The key in front of a recipe's name: `recipe=NAME`."""


def meant_as_recipe(words: Iterable[str]) -> str | None:
    """`did you mean …?` where a word was meant to name the recipe: `recipes=NAME`."""
    known = schema_paths() | set(group_names())
    for word in words:
        key, equals, value = word.partition("=")
        if equals and value and key not in known and nearest(key, [RECIPE]):
            return f"did you mean `{RECIPE}={value}`?"
    return None


@cache
def schema_paths() -> frozenset[str]:
    """Every key that a recipe may have, dotted (`launch.verify.prompt`), sections included."""
    return key_paths()


@cache
def role_paths() -> frozenset[str]:
    """Every key that a role may have, dotted, as seen from the role (`hardware.name`)."""
    return role_key_paths()


@cache
def group_names() -> tuple[str, ...]:
    """The groups that come with speclaunch: model, speculation, …"""
    return tuple(sorted(path.name for path in conf_dir().iterdir() if path.is_dir()))


def is_server_argument(name: str) -> bool:
    """Whether the newest engine that we know has a server argument of this name."""
    return load_catalogue(held_versions()[-1]).by_name(name) is not None

"""The words of a command line that name recipes, and those that change them."""

from __future__ import annotations

from collections.abc import Sequence

from speclaunch.engine.command import is_secret_key
from speclaunch.errors import InputError, Problem
from speclaunch.recipe.find_recipe import no_recipe
from speclaunch.redaction import HIDDEN, holds_secret


def split_recipe(words: Sequence[str]) -> tuple[str, list[str]]:
    """The recipe (`recipe=NAME`, or its name or path alone) and the overrides.

    Raises InputError where there is none, or more than one.
    """
    named = [word for word in words if _names_a_recipe(word)]
    rest = [word for word in words if not _names_a_recipe(word)]
    names = [word.removeprefix("recipe=") for word in named]
    if len(names) > 1:
        raise InputError(
            Problem(
                f"several recipes given: {', '.join(names)}",
                help="name one; `speclaunch plan` compares two",
            )
        )
    if not names or not names[0]:
        raise InputError(no_recipe(words, "speclaunch recipe=NAME"))
    return names[0], rest


def recipes(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The recipes with their overrides: those in front of the first recipe are everyone's.

    Raises InputError where there is none.
    """
    common: list[str] = []
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if _names_a_recipe(word):
            found.append((word.removeprefix("recipe="), []))
        elif found:
            found[-1][1].append(word)
        else:
            common.append(word)
    if not found or not all(name for name, _ in found):
        raise InputError(no_recipe(words, "speclaunch plan recipe=NAME"))
    return [(name, [*_without(common, own), *own]) for name, own in found]


def _without(common: list[str], own: list[str]) -> list[str]:
    """What counts for all, but for what a recipe says for itself."""
    keys = {word.lstrip("+~").partition("=")[0] for word in own}
    return [word for word in common if word.lstrip("+~").partition("=")[0] not in keys]


def shown_overrides(overrides: Sequence[str]) -> list[str]:
    """Overrides as they were given, their secrets blotted out."""
    return [
        f"{key}={HIDDEN}" if equals and (is_secret_key(key) or holds_secret(value)) else word
        for word in overrides
        for key, equals, value in [word.partition("=")]
    ]


def _names_a_recipe(word: str) -> bool:
    return word.startswith("recipe=") or ("=" not in word and not word.startswith("~"))

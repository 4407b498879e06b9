"""What a word of a launch can become: a recipe, an option of a group, a key and its value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

from speclaunch.engine.about import about
from speclaunch.engine.catalogue import Catalogue, UnknownVersion, held_versions, load
from speclaunch.errors import SpeclaunchError
from speclaunch.facts.declared_gpus import names as hardware_names
from speclaunch.plan.suggestions import argument_names, argument_values
from speclaunch.recipe.deployment import PlainDeployment
from speclaunch.recipe.find_recipe import SUFFIX, recipe_names
from speclaunch.recipe.group_options import group_options

Told = tuple[str, str]
"""A word, and what it is."""
_RECIPE = "recipe="


def overrides(before: Sequence[str], current: str, *, needs_key: bool) -> Iterator[Told]:
    """What `current` can become behind the words `before` of a verb that takes a recipe.

    `needs_key`: a recipe is `recipe=NAME` here, and never its name alone.
    """
    dirs = config_dirs(before)
    named = any(word.startswith(_RECIPE) for word in before)
    if current.startswith(_RECIPE):
        yield from _recipes(current.removeprefix(_RECIPE), dirs, _RECIPE)
        return
    mark = next((mark for mark in ("++", "+", "~") if current.startswith(mark)), "")
    key, equals, value = current.removeprefix(mark).partition("=")
    if equals:
        for one in _values(key, value, before, dirs):
            yield f"{mark}{key}={one}", ""
        return
    if not mark and not named:
        yield _RECIPE, "the recipe, by name or path"
        if not needs_key:
            yield from _recipes(key, dirs, "")
    for group in group_options(dirs):
        yield f"{mark}{group}=", "an option of this group"
    yield from ((f"{mark}{word}", text) for word, text in _keys(key, before, dirs))


def config_dirs(words: Sequence[str]) -> list[Path]:
    """Those of `--config-dir` in a command line, as far as they are there."""
    found = [after for word, after in pairwise(words) if word == "--config-dir"]
    found += [word.partition("=")[2] for word in words if word.startswith("--config-dir=")]
    return [path for one in found if (path := Path(one).expanduser()).is_dir()]


def _recipes(begun: str, dirs: Sequence[Path], prefix: str) -> Iterator[Told]:
    if "/" not in begun and not begun.startswith((".", "~")):
        for name in sorted(recipe_names(dirs)):
            yield f"{prefix}{name}", ""
    head, slash, _ = begun.rpartition("/")
    with contextlib.suppress(OSError):
        for path in sorted(Path(head + slash).expanduser().iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield f"{prefix}{head}{slash}{path.name}/", ""
            elif path.suffix == SUFFIX:
                yield f"{prefix}{head}{slash}{path.name}", ""


def _keys(begun: str, before: Sequence[str], dirs: Sequence[Path]) -> Iterator[Told]:
    """The keys of a recipe below what was begun, sections with the dot behind them."""
    role, own = _role(begun)
    if role is not None:
        yield from _keys_of_roles(role, own, before, dirs)
        return
    if begun.startswith("args."):
        catalogue = _catalogue(before, dirs)
        for name in argument_names(catalogue, begun.removeprefix("args.")):
            told = about(name, catalogue)
            yield f"args.{name}=", told.lines[0].partition(": ")[2] if told else ""
        return
    if begun.startswith("engine.env."):
        for name in _catalogue(before, dirs).variables:
            yield f"engine.env.{name}=", ""
        return
    section, dot, _ = begun.rpartition(".")
    for name, one in _fields(PlainDeployment, section):
        below = one.default_factory is not MISSING or "section" in one.metadata
        yield f"{section}{dot}{name}{'.' if below or name == 'args' else '='}", ""


def _keys_of_roles(
    role: str, begun: str, before: Sequence[str], dirs: Sequence[Path]
) -> Iterator[Told]:
    """The keys of a role; the roles, where none is named yet."""
    if not role:
        yield from ((f"roles.{name}.", "") for name in _roles_of(before, dirs))
        return
    yield f"roles.{role}.replicas=", "how many such servers"
    for key, text in _keys(begun, before, dirs):
        if key.partition(".")[0] in _OF_A_ROLE:
            yield f"roles.{role}.{key}", text


_OF_A_ROLE = ("args", "engine", "hardware", "launch", "recovery")


def _role(begun: str) -> tuple[str | None, str]:
    """The role whose key was begun, and the key in it; an empty role: its name is not complete."""
    if not begun.startswith("roles."):
        return None, begun
    role, dot, own = begun.removeprefix("roles.").partition(".")
    return (role, own) if dot else ("", "")


def _roles_of(before: Sequence[str], dirs: Sequence[Path]) -> list[str]:
    """The roles of the recipe of a command line."""
    from speclaunch.recipe.load import load as load_recipe

    for named in _named(before)[:1]:
        with contextlib.suppress(SpeclaunchError):
            return [str(one.role) for one in load_recipe(named, (), dirs).parts]
    return []


def _named(before: Sequence[str]) -> list[str]:
    """The recipes of a command line."""
    named = [word.removeprefix(_RECIPE) for word in before if word.startswith(_RECIPE)]
    return named + [word for word in before if "=" not in word and not word.startswith("-")]


def _values(key: str, begun: str, before: Sequence[str], dirs: Sequence[Path]) -> Iterable[str]:
    options = group_options(dirs)
    role, own = _role(key)
    if role:
        key = own
    if key in options:
        return options[key]
    if key.startswith("args."):
        catalogue = _catalogue(before, dirs)
        found = about(key.removeprefix("args."), catalogue)
        known = found.argument if found is not None else None
        return argument_values(known, catalogue.version) if known is not None else ()
    listed: dict[str, Iterable[str]] = {
        "engine.version": reversed(held_versions()),
        "engine.python": () if begun else ("cpu",),
        "hardware.name": ("auto", *hardware_names()),
    }
    return listed.get(key) or _values_of_type(key)


def _values_of_type(key: str) -> Iterable[str]:
    section, _, name = key.rpartition(".")
    known = {own: one.default for own, one in _fields(PlainDeployment, section)}
    default = known.get(name)
    if isinstance(default, bool):
        return ("true", "false")
    return [str(one) for one in type(default)] if isinstance(default, StrEnum) else ()


def _fields(section: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The keys of a section by its dotted path."""
    for part in filter(None, path.split(".")):
        found = next((one for one in fields(section) if one.name == part), None)
        section = None if found is None else found.metadata.get("section")
        if section is None:
            return
    for one in fields(section):
        yield one.name, one


def _catalogue(before: Sequence[str], dirs: Sequence[Path]) -> Catalogue:
    """Of the version that a command line asks for, else of the recipe's, else the newest."""
    for asked in (_option("--engine", before), _version_of_recipe(before, dirs)):
        if asked:
            with contextlib.suppress(UnknownVersion, SpeclaunchError):
                return load(asked.partition(",")[0])
    return load(held_versions()[-1])


def _option(name: str, words: Sequence[str]) -> str | None:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return after
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _version_of_recipe(before: Sequence[str], dirs: Sequence[Path]) -> str | None:
    """The newest version that the recipe can be served by, where it says which."""
    written = [word.partition("=")[2] for word in before if word.startswith("engine.version=")]
    if written:
        return written[-1].strip("'\"")
    named = _named(before)
    if not named:
        return None
    from speclaunch.recipe.load import load as load_recipe

    try:
        wanted = load_recipe(named[0], (), dirs).deployment.engine
    except SpeclaunchError:
        return None
    if wanted.pinned is not None or not wanted.needs:
        return wanted.pinned
    return next((v for v in reversed(held_versions()) if wanted.specifier.contains(v)), None)

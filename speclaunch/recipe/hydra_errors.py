"""What Hydra refuses, in our words: with a place, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from speclaunch.engine.nearest import suggest
from speclaunch.errors import COMMAND_LINE, Place, Problem
from speclaunch.patterns import lazy
from speclaunch.recipe.find_recipe import SUFFIX
from speclaunch.recipe.names import (
    RECIPE,
    group_names,
    is_server_argument,
    role_paths,
    schema_paths,
)
from speclaunch.recipe.source import read_positions, read_source
from speclaunch.record import record
from speclaunch.resources import conf_dir, recipes_dir

_NAMED = lazy(r"Multiple values for (\w+)|(\w+) appears more than|'(?:override )?([\w/]+)[@:\w]*'")


def refused(text: str, overrides: Sequence[str], path: Path, shown: str) -> Problem:
    """What Hydra refused, `text` being its message."""
    for override in overrides:
        key = override.lstrip("+~").split("=")[0].split("@")[0]
        if f"'{key}'" in text or override.lstrip("+~") in text:
            return _bad_override(text, override, key)
    named = re.search(
        r"Multiple values for (\w+)|(\w+) appears more than|'(?:override )?([\w/]+)[@:\w]*'", text
    )
    where = (
        _place_of_default(path.stem, next(filter(None, named.groups())), path, shown)
        if named
        else None
    )
    if "Cannot merge DictConfig with" in text:
        return _not_a_mapping(text, path, shown)
    return Problem(first_line(text), where or Place(shown))


def _not_a_mapping(text: str, path: Path, shown: str) -> Problem:
    """A section that is a list or a text where others have `key: value` lines."""
    positions = read_positions(path, shown)
    sections = {key[0] for key in positions if len(key) > 1 and isinstance(key[1], str)}
    for name in ("args", "engine", "hardware", "launch", "recovery", "roles", "router", "deploy"):
        if (name,) in positions and name not in sections:
            place = positions[(name,)]
            return Problem(f"{name}: expected `key: value` lines below it", place)
    return Problem(first_line(text), Place(shown))


def _bad_override(text: str, override: str, key: str) -> Problem:
    place = Place(COMMAND_LINE, text=override)
    if text.startswith("Could not append"):
        return Problem(f"{key} already exists", place, f"replace it: {override.lstrip('+')}")
    if not text.startswith("Could not override"):
        return Problem(first_line(text), place)
    if key in group_names():
        return Problem(f"this recipe has no `{key}` to replace", place, f"add it: +{override}")
    role, own, known = _in_a_role(key)
    name = key.rpartition(".")[2]
    if is_server_argument(name) and own not in known:
        line = override[override.index(name) :]
        hint: str | None = f"server arguments of the engine go under `args`: {role}args.{line}"
    elif role:
        hint = suggest(key, [f"{role}{one}" for one in sorted(known)])
    else:
        hint = suggest(key, [*known, *group_names(), RECIPE])
    return Problem(f"unknown key {key!r}", place, hint)


def _in_a_role(key: str) -> tuple[str, str, frozenset[str]]:
    """`roles.NAME.` before a key, what comes behind it, and what may stand there."""
    parts = key.split(".", 2)
    if len(parts) < 3 or parts[0] != "roles":
        return "", key, schema_paths()
    return f"{parts[0]}.{parts[1]}.", parts[2], role_paths()


@record
class WrittenOverride:
    """An override as it was written; `value` is None where it takes its key away."""

    key: str
    line: str
    value: object
    replaces: bool
    """Whether it says that it replaces what was there: `++key=value`, `~key`."""


def repeated(overrides: Iterable[WrittenOverride]) -> list[Problem]:
    """Keys that are given twice with different values: Hydra would take the last without a word."""
    before: dict[str, WrittenOverride] = {}
    problems: list[Problem] = []
    for said in overrides:
        first = before.get(said.key)
        before[said.key] = said
        if first is None or said.replaces or first.line.startswith("~"):
            continue
        if said.value == first.value:
            continue
        help_ = f"keep one, or replace the first: ++{said.line.lstrip('+')}"
        problems.append(
            Problem(
                f"{said.key} is given twice: {first.line} and {said.line}",
                Place(COMMAND_LINE, text=said.line),
                help_ if "." in said.key else "keep one",
            )
        )
    return problems


def odd_choice(error: Exception, overrides: Sequence[str], shown: str) -> Problem:
    """What made Hydra fail with an error of Python's own."""
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in group_names() or not key:
            return Problem(
                f"{value!r} is not an option of `{key}`", Place(COMMAND_LINE, text=override)
            )
    return Problem(f"Hydra cannot compose it: {first_line(error)}", Place(shown))


def missing_option(
    text: str,
    missing: str,
    options: Sequence[str],
    overrides: Sequence[str],
    path: Path,
    shown: str,
) -> Problem:
    """A configuration that was named and is not there: `missing` is its path below a group."""
    group, _, option = missing.rpartition("/")
    where = Place(shown)
    for override in overrides:
        if override.lstrip("+").split("=")[0].split("@")[0] == group:
            where = Place(COMMAND_LINE, text=override)
    named = re.match(r"In '([^']+)'", text)
    if where.path != COMMAND_LINE and named:
        where = _place_of_default(named[1], group, path, shown) or where
    if not group:
        return Problem(f"unknown configuration {option!r}", where, suggest(option, _own_names()))
    return _no_option(group, option, options, where)


def _no_option(group: str, option: str, options: Sequence[str], where: Place) -> Problem:
    if not options:
        return Problem(f"unknown group {group!r}", where, suggest(group, group_names()))
    near = suggest(option, options)
    listing = f"`{group}` can be: {', '.join(options)}"
    return Problem(
        f"{group!r} has no option {option!r}", where, f"{near} {listing}" if near else listing
    )


def missing_options(path: Path, shown: str, folders: Sequence[Path]) -> list[Problem]:
    """All options of groups that a recipe's own `defaults` choose and that are in none of the
    directories of groups; Hydra tells the first one."""
    source = read_source(path, shown)
    items = source.values.get("defaults")
    problems: list[Problem] = []
    for number, item in enumerate(items if isinstance(items, list) else ()):
        if not isinstance(item, dict) or len(item) != 1:
            continue
        ((key, option),) = item.items()
        group = _group(str(key))
        if not isinstance(option, str) or str(key).startswith("optional ") or "$" in option:
            continue
        held = sorted({one.stem for folder in folders for one in (folder / group).glob("*.yaml")})
        place = source.positions.get(("defaults", number, key), Place(shown))
        if option.removesuffix(SUFFIX) not in held and "/" not in option:
            problems.append(_no_option(group, option, held, place))
    return problems


def _group(key: str) -> str:
    """The group that an item of `defaults` chooses from."""
    return key.removeprefix("override ").strip("/ ").split("@")[0]


def _place_of_default(config: str, group: str, recipe: Path, shown: str) -> Place | None:
    """Where the defaults list of `config` names an option of `group`."""
    candidates = [recipe] if config == recipe.stem else []
    candidates += [recipe.parent / f"{config}{SUFFIX}", conf_dir() / f"{config}{SUFFIX}"]
    for path in filter(Path.is_file, candidates):
        for key, place in read_positions(path, shown if path == recipe else None).items():
            if key[0] == "defaults" and _group(str(key[-1])) == group:
                return place
    return None


def first_line(error: BaseException | str) -> str:
    """The first line that says something, without OmegaConf's preambles."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line for line in lines if not line.endswith(":")), "") or type(error).__name__
    wrapped = re.fullmatch(r'\w+ raised while resolving interpolation: "?(.*?)"?', text)
    return wrapped[1] if wrapped else text


def _own_names() -> list[str]:
    return [path.stem for path in recipes_dir().glob(f"*{SUFFIX}")]

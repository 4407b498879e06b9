"""Completions of the word at the cursor, for shells.

This module loads neither typer nor Hydra nor pydantic, because the user waits for completions.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.app.verbs.options import Option, flag
from speclaunch.app.verbs.verbs import DEFAULT, DEFAULT_BELOW, VERBS, verb_named
from speclaunch.core import SpeclaunchError, expand_user, lazy
from speclaunch.deployments import SUFFIX, Key, group_options, plain_class, recipe_names
from speclaunch.engine import (
    Catalogue,
    UnknownVersion,
    about,
    argument_names,
    argument_values,
    hardware_names,
    held_versions,
    load,
)

TAKE_RECIPES = frozenset(
    {DEFAULT, "plan", "doctor", "render", "models check", "bench", "bench run", "prove", "tune"}
)
"""Verbs whose arguments are recipes and overrides."""

_PLAIN = lazy(r"[\w@%+=:,./~-]*\Z")
"""Text that a shell leaves unchanged. bash inserts a candidate unquoted, so a file name such
as `$(…).yaml` would run a command."""


class CompletionCandidate(Struct, frozen=True):
    """Completion with a description. The word continues after a final `=`, `.` or `/`."""

    value: str
    help: str = ""


def answer(words: Sequence[str]) -> None:
    """Print the completions of the last word; `words` follow `speclaunch`.

    Each line is a value, a tab and a description. Prints nothing for files, which the shell lists
    itself.
    """
    lines = [f"{candidate.value}\t{candidate.help}" for candidate in candidates(words)]
    sys.stdout.write("".join(f"{line}\n" for line in dict.fromkeys(lines)))


def candidates(words: Sequence[str]) -> list[CompletionCandidate]:
    """Return the completions of the last of `words`."""
    *before, current = words or ("",)
    quote = current[:1] if current[:1] in ("'", '"') else ""
    verb, rest = _verb([word.strip("'\"") for word in before])
    current = current.removeprefix(quote)
    found = _candidates(verb, rest, current)
    return [
        candidate
        for candidate in found
        if candidate.value.startswith(current) and _PLAIN.match(candidate.value)
    ]


def options_of(verb: str) -> dict[str, Option[Any]]:
    """Return the options of a verb by spelling; for `""`, the options of the program."""
    declared = verb_named(verb).declared.declared().values() if verb else (_VERSION,)
    return {way: option for option in (*declared, _HELP) for way in option.spellings}


_VERSION = flag("--version", help="Show the version.")
_HELP = flag("--help", "-h", help="Show this message and exit.")


def _sentence(text: str) -> str:
    return " ".join(text.partition(". ")[0].rstrip(".").split())


def _verb(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the verb (`""` if none yet) and the words after it."""
    for at, word in enumerate(words):
        group = next((verb for verb in VERBS if verb.name == word), None)
        if group is not None:
            below = words[at + 1] if at + 1 < len(words) else ""
            if below in (subverb.name for subverb in group.below):
                return f"{word} {below}", list(words[at + 2 :])
            return word, list(words[at + 1 :])
        if "=" in word and not word.startswith("-"):
            return DEFAULT, list(words)
    return "", list(words)


def _candidates(verb: str, before: list[str], current: str) -> Iterable[CompletionCandidate]:
    options = options_of(f"{verb} {DEFAULT_BELOW[verb]}" if verb in DEFAULT_BELOW else verb)
    if verb == "" and "=" in current and not current.startswith("-"):
        verb = DEFAULT
    option, equals, _ = current.partition("=")
    if current.startswith("-"):
        if not equals:
            return _options(options)
        named = options.get(option)
        return (
            [CompletionCandidate(f"{option}={v}") for v in _values(named, option)] if named else ()
        )
    if before and (named := options.get(before[-1])) is not None and not named.is_flag:
        return map(CompletionCandidate, _listed(_values(named, before[-1]), current))
    if verb == "":
        return _verbs()
    found: list[CompletionCandidate] = []
    if verb not in DEFAULT_BELOW or not before:
        found += [
            CompletionCandidate(subverb.name, _sentence(subverb.summary))
            for subverb in verb_named(verb).below
        ]
    if verb in TAKE_RECIPES:
        found += [
            CompletionCandidate(*override)
            for override in overrides(before, current, needs_key=verb == DEFAULT)
        ]
    elif verb == "explain":
        found += _rules()
    elif verb == "recipes cp" and not [word for word in before if not word.startswith("-")]:
        found += [CompletionCandidate(name) for name in sorted(recipe_names(config_dirs(before)))]
    elif verb in ("bench show", "bench compare"):
        from speclaunch.measure import LAST, stored_names

        found += map(CompletionCandidate, (*stored_names(), LAST))
    elif verb == "completion":
        from speclaunch.app.verbs.integrations import SCRIPTS

        found += map(CompletionCandidate, SCRIPTS)
    return found


def _verbs() -> Iterator[CompletionCandidate]:
    yield CompletionCandidate("recipe=", "launch a recipe")
    for verb in VERBS:
        yield CompletionCandidate(verb.name, verb.summary)


def _options(options: Mapping[str, Option[Any]]) -> Iterator[CompletionCandidate]:
    for way, option in options.items():
        if way.startswith("--"):
            yield CompletionCandidate(
                way, option.help if option is _HELP else _sentence(option.help)
            )


def _listed(values: Iterable[str], current: str) -> Iterator[str]:
    """Yield completions of the last value in a comma-separated list."""
    done, comma, _ = current.rpartition(",")
    for value in values:
        yield f"{done}{comma}{value}"


def _values(option: Option[Any], name: str) -> Iterable[str]:
    """Return the possible values of an option; empty if they are not listed, as for files."""
    if issubclass(option.kind, StrEnum):
        return map(str, option.kind)
    if name in ("--engine", "--to", "--from"):
        if "version" in _sentence(option.help).lower():
            return reversed(held_versions())
        from speclaunch.deployments import RENDERERS

        return RENDERERS
    if name == "--hardware":
        return hardware_names()
    if name in ("--select", "--ignore"):
        return [candidate.value for candidate in _rules()]
    return ()


def _rules() -> Iterator[CompletionCandidate]:
    from speclaunch.checks import all_rules

    for rule in all_rules():
        yield CompletionCandidate(rule.code, rule.name)


Described = tuple[str, str]
"""A completion and its description."""
_RECIPE = "recipe="


def overrides(before: Sequence[str], current: str, *, needs_key: bool) -> Iterator[Described]:
    """Yield completions of `current` after the words `before` of a verb that accepts a recipe.

    `needs_key`: a recipe must be written `recipe=NAME`, not `NAME`.
    """
    dirs = config_dirs(before)
    named = any(word.startswith(_RECIPE) for word in before)
    if current.startswith(_RECIPE):
        yield from _recipes(current.removeprefix(_RECIPE), dirs, _RECIPE)
        return
    mark = next((mark for mark in ("++", "+", "~") if current.startswith(mark)), "")
    key, equals, value = current.removeprefix(mark).partition("=")
    if equals:
        for choice in _key_values(key, value, before, dirs):
            yield f"{mark}{key}={choice}", ""
        return
    if not mark and not named:
        yield _RECIPE, "recipe by name or path"
        if not needs_key:
            yield from _recipes(key, dirs, "")
    for group in group_options(dirs):
        yield f"{mark}{group}=", "option of this group"
    yield from ((f"{mark}{word}", text) for word, text in _keys(key, before, dirs))


def config_dirs(words: Sequence[str]) -> list[Path]:
    """Return the existing directories that `--config-dir` names."""
    found = [after for word, after in pairwise(words) if word == "--config-dir"]
    found += [word.partition("=")[2] for word in words if word.startswith("--config-dir=")]
    return [path for folder in found if (path := expand_user(folder)).is_dir()]


def _recipes(begun: str, dirs: Sequence[Path], prefix: str) -> Iterator[Described]:
    if "/" not in begun and not begun.startswith((".", "~")):
        for name in sorted(recipe_names(dirs)):
            yield f"{prefix}{name}", ""
    head, slash, _ = begun.rpartition("/")
    with contextlib.suppress(OSError):
        for path in sorted(expand_user(head + slash).iterdir()):
            if path.is_dir() and not path.name.startswith("."):
                yield f"{prefix}{head}{slash}{path.name}/", ""
            elif path.suffix == SUFFIX:
                yield f"{prefix}{head}{slash}{path.name}", ""


def _keys(begun: str, before: Sequence[str], dirs: Sequence[Path]) -> Iterator[Described]:
    """Yield the recipe keys that continue `begun`; sections end in a dot."""
    role, own = _role(begun)
    if role is not None:
        yield from _keys_of_roles(role, own, before, dirs)
        return
    if begun.startswith("args."):
        catalogue = _catalogue(before, dirs)
        for name in argument_names(catalogue, begun.removeprefix("args.")):
            described = about(name, catalogue)
            yield f"args.{name}=", described.lines[0].partition(": ")[2] if described else ""
        return
    if begun.startswith("engine.env."):
        for name in _catalogue(before, dirs).variables:
            yield f"engine.env.{name}=", ""
        return
    section, dot, _ = begun.rpartition(".")
    for name, key in _recipe_keys(section):
        below = isinstance(key.written_default, dict) or key.section is not None
        yield f"{section}{dot}{name}{'.' if below or name == 'args' else '='}", ""


def _keys_of_roles(
    role: str, begun: str, before: Sequence[str], dirs: Sequence[Path]
) -> Iterator[Described]:
    """Yield the keys of a role, or the roles if none is named yet."""
    if not role:
        yield from ((f"roles.{name}.", "") for name in _roles_of(before, dirs))
        return
    yield f"roles.{role}.replicas=", "number of servers in this role"
    for key, text in _keys(begun, before, dirs):
        if key.partition(".")[0] in _OF_A_ROLE:
            yield f"roles.{role}.{key}", text


_OF_A_ROLE = ("args", "engine", "hardware", "launch", "serving", "recovery")


def _role(begun: str) -> tuple[str | None, str]:
    """Return the role of a partial key, and the key within the role.

    The role is None outside of `roles`, and empty while its name is incomplete.
    """
    if not begun.startswith("roles."):
        return None, begun
    role, dot, own = begun.removeprefix("roles.").partition(".")
    return (role, own) if dot else ("", "")


def _roles_of(before: Sequence[str], dirs: Sequence[Path]) -> list[str]:
    from speclaunch.deployments import load as load_recipe

    for named in _named(before)[:1]:
        with contextlib.suppress(SpeclaunchError):
            return [str(recipe.role) for recipe in load_recipe(named, (), dirs).parts]
    return []


def _named(before: Sequence[str]) -> list[str]:
    named = [word.removeprefix(_RECIPE) for word in before if word.startswith(_RECIPE)]
    return named + [word for word in before if "=" not in word and not word.startswith("-")]


def _key_values(key: str, begun: str, before: Sequence[str], dirs: Sequence[Path]) -> Iterable[str]:
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
    known = dict(_recipe_keys(section)).get(name)
    if known is None or known.is_required:
        return ()
    if isinstance(known.default, bool):
        return ("true", "false")
    return (
        [str(member) for member in type(known.default)]
        if isinstance(known.default, StrEnum)
        else ()
    )


def _recipe_keys(path: str) -> Iterable[tuple[str, Key]]:
    keys = plain_class("Deployment").model_fields
    for part in filter(None, path.split(".")):
        key = keys.get(part)
        if key is None or key.section is None:
            return ()
        keys = plain_class(key.section).model_fields
    return keys.items()


def _catalogue(before: Sequence[str], dirs: Sequence[Path]) -> Catalogue:
    """Return the catalogue of `--engine` or, without it, the recipe's version, or the newest."""
    for version in (_option("--engine", before), _version_of_recipe(before, dirs)):
        if version:
            with contextlib.suppress(UnknownVersion, SpeclaunchError):
                return load(version.partition(",")[0])
    return load(held_versions()[-1])


def _option(name: str, words: Sequence[str]) -> str | None:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return after
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def _version_of_recipe(before: Sequence[str], dirs: Sequence[Path]) -> str | None:
    """Return the newest version the recipe allows; None if it sets none or is invalid."""
    written = [word.partition("=")[2] for word in before if word.startswith("engine.version=")]
    if written:
        return written[-1].strip("'\"")
    named = _named(before)
    if not named:
        return None
    from speclaunch.deployments import load as load_recipe

    try:
        engine = load_recipe(named[0], (), dirs).deployment.engine
    except SpeclaunchError:
        return None
    if engine.pinned is not None or not engine.needs:
        return engine.pinned
    return next((v for v in reversed(held_versions()) if engine.specifier.contains(v)), None)

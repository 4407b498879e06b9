"""What the word under the cursor can become: the answers to a shell's completion.

Read without the framework, Hydra or pydantic: a key waits for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from speclaunch.cli.options import Option, flag
from speclaunch.cli.override_words import config_dirs, overrides
from speclaunch.cli.verbs import DEFAULT, DEFAULT_BELOW, VERBS, verb_named
from speclaunch.patterns import lazy
from speclaunch.record import record

TAKE_RECIPES = frozenset(
    {DEFAULT, "plan", "doctor", "render", "models check", "bench", "bench run", "prove", "tune"}
)
"""The verbs whose words are recipes and overrides."""

_PLAIN = lazy(r"[\w@%+=:,./~-]*\Z")
"""Text that a shell leaves unchanged. bash inserts a candidate unquoted: a file in the working
directory named `$(…).yaml` would be executed with the line."""


@record
class Candidate:
    """What a word can become, and what that is. One that ends in `=`, `.` or `/` goes on."""

    value: str
    help: str = ""


def answer(words: Sequence[str]) -> None:
    """Print what the last of the words behind `speclaunch` can become: a line each, with a tab
    before what it is. Nothing where files are wanted: a shell lists them itself."""
    lines = [f"{one.value}\t{one.help}" for one in candidates(words)]
    sys.stdout.write("".join(f"{line}\n" for line in dict.fromkeys(lines)))


def candidates(words: Sequence[str]) -> list[Candidate]:
    """What the last of `words` can become; none of it where nothing is known."""
    *before, current = words or ("",)
    quote = current[:1] if current[:1] in ("'", '"') else ""
    verb, rest = _verb([word.strip("'\"") for word in before])
    current = current.removeprefix(quote)
    found = _candidates(verb, rest, current)
    return [one for one in found if one.value.startswith(current) and _PLAIN.match(one.value)]


def options_of(verb: str) -> dict[str, Option[Any]]:
    """The options of a verb by each of their spellings; those of the program itself for `""`."""
    declared = verb_named(verb).declared.declared().values() if verb else (_VERSION,)
    return {way: one for one in (*declared, _HELP) for way in one.spellings}


_VERSION = flag("--version", help="Show the version.")
_HELP = flag("--help", "-h", help="Show this message and exit.")


def _sentence(text: str) -> str:
    """The first sentence."""
    return " ".join(text.partition(". ")[0].rstrip(".").split())


def _verb(words: Sequence[str]) -> tuple[str, list[str]]:
    """The verb that was named (`""`: none so far), and the words behind it."""
    for at, word in enumerate(words):
        group = next((verb for verb in VERBS if verb.name == word), None)
        if group is not None:
            below = words[at + 1] if at + 1 < len(words) else ""
            if below in (one.name for one in group.below):
                return f"{word} {below}", list(words[at + 2 :])
            return word, list(words[at + 1 :])
        if "=" in word and not word.startswith("-"):
            return DEFAULT, list(words)
    return "", list(words)


def _candidates(verb: str, before: list[str], current: str) -> Iterable[Candidate]:
    options = options_of(f"{verb} {DEFAULT_BELOW[verb]}" if verb in DEFAULT_BELOW else verb)
    if verb == "" and "=" in current and not current.startswith("-"):
        verb = DEFAULT
    option, equals, _ = current.partition("=")
    if current.startswith("-"):
        if not equals:
            return _options(options)
        named = options.get(option)
        return [Candidate(f"{option}={v}") for v in _values(named, option)] if named else ()
    if before and (named := options.get(before[-1])) is not None and not named.is_flag:
        return map(Candidate, _listed(_values(named, before[-1]), current))
    if verb == "":
        return _verbs()
    found: list[Candidate] = []
    if verb not in DEFAULT_BELOW or not before:
        found += [Candidate(one.name, _sentence(one.summary)) for one in verb_named(verb).below]
    if verb in TAKE_RECIPES:
        found += [Candidate(*one) for one in overrides(before, current, needs_key=verb == DEFAULT)]
    elif verb == "explain":
        found += _rules()
    elif verb == "recipes cp" and not [word for word in before if not word.startswith("-")]:
        from speclaunch.recipe.find_recipe import recipe_names

        found += [Candidate(name) for name in sorted(recipe_names(config_dirs(before)))]
    elif verb in ("bench show", "bench compare"):
        from speclaunch.bench.kept_names import LAST, kept_names

        found += map(Candidate, (*kept_names(), LAST))
    elif verb == "completion":
        from speclaunch.cli.completion_scripts import SCRIPTS

        found += map(Candidate, SCRIPTS)
    return found


def _verbs() -> Iterator[Candidate]:
    yield Candidate("recipe=", "launch a recipe")
    for verb in VERBS:
        yield Candidate(verb.name, verb.summary)


def _options(options: Mapping[str, Option[Any]]) -> Iterator[Candidate]:
    for way, option in options.items():
        if way.startswith("--"):
            yield Candidate(way, option.help if option is _HELP else _sentence(option.help))


def _listed(values: Iterable[str], current: str) -> Iterator[str]:
    """Values that may be several, with commas between."""
    done, comma, _ = current.rpartition(",")
    for value in values:
        yield f"{done}{comma}{value}"


def _values(option: Option[Any], name: str) -> Iterable[str]:
    """What may follow an option; nothing for files and directories."""
    if issubclass(option.kind, StrEnum):
        return map(str, option.kind)
    if name in ("--engine", "--to", "--from"):
        from speclaunch.engine.catalogue import held_versions

        if "version" in _sentence(option.help).lower():
            return reversed(held_versions())
        from speclaunch.deploy import RENDERERS

        return RENDERERS
    if name == "--hardware":
        from speclaunch.facts.declared_gpus import names

        return names()
    if name in ("--select", "--ignore"):
        return [one.value for one in _rules()]
    return ()


def _rules() -> Iterator[Candidate]:
    from speclaunch.rules.registry import all_rules

    for rule in all_rules():
        yield Candidate(rule.code, rule.name)

"""What the word under the cursor can become: the answers to a shell's completion.

Read without the framework, Hydra or pydantic: a key waits for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from speclaunch.cli.option_table import OPTIONS, VERBS_BELOW, Row
from speclaunch.cli.override_words import config_dirs, overrides
from speclaunch.cli.verbs import DEFAULT, DEFAULT_BELOW, VERBS
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


def _verb(words: Sequence[str]) -> tuple[str, list[str]]:
    """The verb that was named (`""`: none so far), and the words behind it."""
    names = {verb.name for verb in VERBS}
    for at, word in enumerate(words):
        if word in names:
            below = words[at + 1] if at + 1 < len(words) else ""
            if below in dict(VERBS_BELOW.get(word, ())):
                return f"{word} {below}", list(words[at + 2 :])
            return word, list(words[at + 1 :])
        if "=" in word and not word.startswith("-"):
            return DEFAULT, list(words)
    return "", list(words)


def _candidates(verb: str, before: list[str], current: str) -> Iterable[Candidate]:
    own = f"{verb} {DEFAULT_BELOW[verb]}" if verb in DEFAULT_BELOW else verb
    options = OPTIONS.get(own, ())
    if verb == "" and "=" in current and not current.startswith("-"):
        verb = DEFAULT
    option, equals, _ = current.partition("=")
    if current.startswith("-"):
        if not equals:
            return _options(options)
        row = _row(options, option)
        return [Candidate(f"{option}={v}") for v in _values(row, option)] if row else ()
    if before and (row := _row(options, before[-1])) is not None and row[1]:
        return map(Candidate, _listed(_values(row, before[-1]), current))
    if verb == "":
        return _verbs()
    found: list[Candidate] = []
    if verb not in DEFAULT_BELOW or not before:
        found += [Candidate(*one) for one in VERBS_BELOW.get(verb, ())]
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
        yield Candidate(verb.name, verb.help)


def _options(rows: Sequence[Row]) -> Iterator[Candidate]:
    for ways, _, _, text in rows:
        for way in ways:
            if way.startswith("--"):
                yield Candidate(way, text)


def _row(rows: Sequence[Row], option: str) -> Row | None:
    return next((row for row in rows if option in row[0]), None)


def _listed(values: Iterable[str], current: str) -> Iterator[str]:
    """Values that may be several, with commas between."""
    done, comma, _ = current.rpartition(",")
    for value in values:
        yield f"{done}{comma}{value}"


def _values(row: Row, option: str) -> Iterable[str]:
    """What may follow an option; nothing for files and directories."""
    if row[2]:
        return row[2]
    if option in ("--engine", "--to", "--from"):
        from speclaunch.engine.catalogue import held_versions

        if "version" in row[3].lower():
            return reversed(held_versions())
        from speclaunch.deploy import RENDERERS

        return RENDERERS
    if option == "--hardware":
        from speclaunch.facts.declared_gpus import names

        return names()
    if option in ("--select", "--ignore"):
        return [one.value for one in _rules()]
    return ()


def _rules() -> Iterator[Candidate]:
    from speclaunch.rules.registry import all_rules

    for rule in all_rules():
        yield Candidate(rule.code, rule.name)

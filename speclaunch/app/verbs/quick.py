"""Parser of plain command lines without typer, whose loading is too slow for short answers.

Other command lines (abbreviations, values that begin with a hyphen, unknown options, mistakes) are
left to typer, which reports errors. A test compares both parsers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from speclaunch.app.verbs.verbs import COMPLETION, DEFAULT, Verb, verb_named, verb_of

if TYPE_CHECKING:
    from speclaunch.app.verbs.options import Option, VerbOptions

QUICK = ("lint", DEFAULT, "watch")


def quick_explain(words: Sequence[str], environment: Mapping[str, str] = os.environ) -> bool:
    """True for a plain `explain CODE`, answered without loading the options."""
    plain = len(words) == 2 and words[0] == "explain" and not words[1].startswith("-")
    return plain and COMPLETION not in environment


def quick_command(
    words: Sequence[str], environment: Mapping[str, str] = os.environ
) -> tuple[Verb, VerbOptions] | None:
    """Return the verb and the options of a plain command line; None if typer has to parse it."""
    name = verb_of(words)
    if name not in QUICK or COMPLETION in environment:
        return None
    if words[0] == name:
        words = words[1:]
    elif words[0].startswith("-"):
        return None
    verb = verb_named(name)
    options = plain_options(verb.declared, words)
    return None if options is None else (verb, options)


def plain_options(declared: type[VerbOptions], words: Sequence[str]) -> VerbOptions | None:
    """Return the options of plain words; None if a word is not plain or missing."""
    by_name = {
        name: (attribute, option)
        for attribute, option in declared.declared().items()
        for name in option.spellings
    }
    found: dict[str, Any] = {}
    arguments: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            arguments.append(word)
            continue
        name, equals, text = word.partition("=")
        if name not in by_name:
            return None
        attribute, option = by_name[name]
        if option.is_flag:
            if equals:
                return None
            found[attribute] = not name.startswith("--no-") or name in option.names
            continue
        if equals and not name.startswith("--"):
            return None  # `-o=x`: typer reads the value `=x`
        if not equals:
            text = next(rest, "-")
            if text.startswith("-"):
                return None
        value = _value(option, text)
        if value is None:
            return None
        found[attribute] = (*found.get(attribute, ()), value) if option.is_list else value
    return _with_arguments(declared, arguments, found)


def _with_arguments(
    declared: type[VerbOptions], words: list[str], found: dict[str, Any]
) -> VerbOptions | None:
    for attribute, option in declared.declared().items():
        if option.names:
            continue
        if not words and option.is_required:
            return None
        if option.is_list:
            found[attribute], words = tuple(words), []
        elif words:
            found[attribute] = words.pop(0)
    return None if words else declared(**found)


def _value(option: Option[Any], text: str) -> Any:
    kind: Any = option.kind
    if issubclass(kind, StrEnum):
        return next((member for member in kind if member.value == text), None)
    if kind in (int, float):
        digits, _, fraction = text.partition(".") if kind is float else (text, "", "")
        if not (text.isascii() and digits.isdigit() and (fraction or "0").isdigit()):
            return None
        number = kind(text)
        in_range = (option.least is None or option.least <= number) and (
            option.most is None or number <= option.most
        )
        return number if in_range else None
    return kind(text)

"""Flags and values that are written so plainly that argparse's verdict on them is certain.

A parser of all arguments takes as long to build as a whole check of a script. Nearly every command
line needs none of it: its flags stand in the catalogue letter by letter, and behind each of them
stand as many values as it takes, none of which begins with a dash. What these functions do not
know, and every refusal, is argparse's to say (`parser.py`); tests/engine/test_plain_flags.py
compares both over random command lines.

Source: argparse of Python 3.11, `_parse_optional`, `_get_option_tuples`, `_get_values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speclaunch.engine.argument import Argument, ArgumentKind, is_negation
from speclaunch.engine.catalogue import Ambiguous, Catalogue, UnknownFlag
from speclaunch.engine.conversions import converter

ANY_NUMBER = 1 << 30
"""More values than anybody writes."""

NOT_PLAIN = object()
"""Stands for a value that is argparse's to say, or to refuse."""


def flag_of(word: str, catalogue: Catalogue) -> Argument | Ambiguous | UnknownFlag | None:
    """What argparse takes a word for; None for one that is no flag."""
    if not word.startswith("-"):
        return None
    if is_plain(word):
        return catalogue.resolve_flag(word)
    return _by_argparse(word, catalogue)


def is_plain(word: str) -> bool:
    """Whether a word is certainly a flag, and is known or unknown by its first letters alone.

    A single dash may be a number's, and words with a space may be values.
    """
    return word.startswith("--") and " " not in word and word[2:3] not in ("", "=")


def _by_argparse(word: str, catalogue: Catalogue) -> Argument | Ambiguous | UnknownFlag | None:
    from speclaunch.engine.parser import parser_of  # noqa: PLC0415  most command lines need none

    found = parser_of(catalogue, required=False).option_of(word)
    if found is False:
        return None
    if isinstance(found, bool) or found is None:
        meant = catalogue.resolve_flag(word)
        return UnknownFlag(word) if isinstance(meant, Argument) else meant
    return catalogue.by_flag(found.option_strings[0]) or UnknownFlag(word)


def most_values(argument: Argument) -> int:
    """How many words behind its flag belong to an argument at most."""
    kind = argument.kind
    if kind is ArgumentKind.IGNORED:
        most = argument.nargs or 0
    elif kind.takes_value:
        most = 1 if argument.nargs is None else argument.nargs
    else:
        return 0
    if isinstance(most, int):
        return most
    return ANY_NUMBER if most in ("+", "*") else 1


def plain_value(
    argument: Argument, flag: str, words: Sequence[str], version: str, *, checked: bool
) -> Any:
    """What the engine stores for a flag (in full, and as it stands in `words`) and its values.

    Unchecked: any text is a value. NOT_PLAIN where argparse has to be asked.
    """
    _, equals, text = words[0].partition("=")
    values = (text,) if equals else tuple(words[1:])
    if not argument.kind.takes_value:
        return NOT_PLAIN if values else _switched(argument, flag)
    if not values and argument.kind is ArgumentKind.OPTIONAL_VALUE:
        return NOT_PLAIN if isinstance(argument.const, str) else argument.const
    if not _is_simple(argument, values):
        return NOT_PLAIN
    stored = _converted(argument, values, version) if checked else list(values)
    if stored is None:
        return NOT_PLAIN
    one = argument.nargs in (None, "?") and argument.kind is not ArgumentKind.LIST
    return stored[0] if one else stored  # an appended one is appended to nothing


def _switched(argument: Argument, flag: str) -> Any:
    kind = argument.kind
    if kind is ArgumentKind.BOOLEAN:
        return not is_negation(argument, flag)
    if kind is ArgumentKind.CONSTANT:
        return argument.const
    if kind in (ArgumentKind.FLAG, ArgumentKind.FLAG_OFF):
        return kind is ArgumentKind.FLAG
    return NOT_PLAIN


def _is_simple(argument: Argument, values: Sequence[str]) -> bool:
    """Whether as many values are there as it takes, and no action of its own takes them."""
    if any(not value or value.startswith("-") for value in values):
        return False
    constant = argument.const is not None and argument.kind is not ArgumentKind.OPTIONAL_VALUE
    if constant or argument.dest == "lora_paths":
        return False
    nargs, count = argument.nargs, len(values)
    if nargs in (None, "?"):
        return count == 1
    return count == nargs if isinstance(nargs, int) else nargs in ("+", "*") and count > 0


def _converted(argument: Argument, values: Sequence[str], version: str) -> list[Any] | None:
    """The values as the engine's type; None where one is refused."""
    convert = converter(argument, version)
    try:
        found = [convert(value) for value in values]
    except Exception:  # of whatever kind: argparse has the words for it
        return None
    if argument.choices is not None and any(one not in argument.choices for one in found):
        return None
    return found

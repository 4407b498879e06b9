"""The few computations that a launch script does and that need nothing but the script itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set

from speclaunch.importer.scope import ShellScope
from speclaunch.importer.source_text import WordPiece
from speclaunch.importer.syntax import Node
from speclaunch.patterns import lazy

_TOKEN = lazy(r"\s*(?:(0[xX][0-9A-Fa-f]{1,15}|[0-9]{1,18})|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))")
_MAX_TOKENS = 200
_COMPARISON = lazy(
    r"""\[\[?\s+"?\$\{?(\w+)\}?"?\s+(==?|!=)\s+(["']?)([\w./-]+)\3\s+\]\]?""", re.ASCII
)
"""`[ "$kind" = "sglang" ]`."""
_INTEGER = lazy(r"[+-]?[0-9]{1,18}\Z")


def arithmetic(text: str, lookup: Callable[[str], str | None]) -> int | None:
    """The value of ``$(( … ))`` with ``+ - * / %`` and parentheses; None when it has more."""
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(tokens) > _MAX_TOKENS:
            return None
        at = match.end()
        if match[2]:
            known = lookup(match[2])
            if known is None or not _INTEGER.match(known):
                return None
            tokens.append(str(int(known)))
        elif match[1]:
            octal = len(match[1]) > 1 and match[1][0] == "0" and match[1][1] not in "xX"
            if octal:
                return None
            tokens.append(str(int(match[1], 0)))
        else:
            tokens.append(match[3])
    try:
        value, rest = _sum(tokens, 0)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return value if rest == len(tokens) and abs(value) < 1 << 62 else None


def _sum(tokens: Sequence[str], at: int) -> tuple[int, int]:
    value, at = _product(tokens, at)
    while at < len(tokens) and tokens[at] in "+-":
        other, after = _product(tokens, at + 1)
        value = value + other if tokens[at] == "+" else value - other
        at = after
    return value, at


def _product(tokens: Sequence[str], at: int) -> tuple[int, int]:
    value, at = _factor(tokens, at)
    while at < len(tokens) and tokens[at] in "*/%":
        other, after = _factor(tokens, at + 1)
        if tokens[at] == "*":
            value *= other
        else:  # towards zero, as in C
            quotient = abs(value) // abs(other) * (1 if value * other >= 0 else -1)
            value = quotient if tokens[at] == "/" else value - quotient * other
        at = after
    return value, at


def _factor(tokens: Sequence[str], at: int) -> tuple[int, int]:
    sign = tokens[at]
    if sign == "(":
        value, at = _sum(tokens, at + 1)
        if tokens[at] != ")":
            raise ValueError
        return value, at + 1
    if sign in "+-":
        value, at = _factor(tokens, at + 1)
        return (value if sign == "+" else -value), at
    return int(sign), at + 1


def command(words: Sequence[str], most: int) -> str | None:
    """What ``seq``, ``echo`` or ``printf %s`` would print; None for every other command."""
    name, arguments = words[0], list(words[1:])
    if name == "seq":
        return _seq(arguments, most)
    if name == "echo":
        newline = arguments[:1] != ["-n"]
        rest = arguments if newline else arguments[1:]
        if rest and re.match(r"-[neE]+\Z", rest[0]):
            return None
        return " ".join(rest)
    return None


def _seq(arguments: list[str], most: int) -> str | None:
    separator = "\n"
    while arguments and arguments[0].startswith("-") and not _INTEGER.match(arguments[0]):
        option = arguments.pop(0)
        if option in ("-s", "--separator") and arguments:
            separator = arguments.pop(0)
        elif option.startswith("-s") and len(option) > 2:
            separator = option[2:]
        elif option.startswith("--separator="):
            separator = option.partition("=")[2]
        else:
            return None
    if not 1 <= len(arguments) <= 3 or not all(_INTEGER.match(text) for text in arguments):
        return None
    numbers = [int(text) for text in arguments]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0:
        return None
    values = range(first, numbers[-1] + (1 if step > 0 else -1), step)
    if (numbers[-1] - first) // step >= most:
        return None
    return separator.join(str(value) for value in values)


def is_false(condition: Sequence[Node], scope: ShellScope, arguments: Sequence[Set[int]]) -> bool:
    """True if a condition compares an argument of the function that is read, and does not hold.

    `arguments` is where the arguments of each call are written: nothing else decides it.
    """
    found = _COMPARISON.fullmatch(condition[0].span.text.strip()) if len(condition) == 1 else None
    if found is None or not arguments:
        return False
    positional = scope.positional or ()
    pieces: Sequence[WordPiece] | None = None
    if not found[1].isdigit():
        value = scope.get(found[1])
        pieces = value.pieces if value is not None else None
    elif 0 < int(found[1]) <= len(positional):
        pieces = positional[int(found[1]) - 1].pieces
    if not pieces or any(
        one.offset(0) not in arguments[-1] or one.unknown or one.condition or one.note
        for one in pieces
    ):
        return False
    is_equal = "".join(one.text for one in pieces) == found[4]
    return is_equal == (found[2] == "!=")

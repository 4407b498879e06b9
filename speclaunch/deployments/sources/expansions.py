"""Results of bash's expansions, from the script alone.

Supported: ``${NAME:-word}``, ``${NAME##*/}`` and the other operators; ``$(( … ))``; ``seq`` and
``echo`` in ``$( … )``; and braces (``{a,b}``, ``{1..8}``), which bash expands first.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources.fields import Field, ShellScope, Value, present
from speclaunch.deployments.sources.shell_syntax import (
    Literal,
    OpaquePart,
    Parameter,
    Part,
    ShellWord,
)
from speclaunch.deployments.sources.source_text import (
    DefaultOf,
    Document,
    SourceSpan,
    SourceText,
    WordPiece,
)

_MAX_PATTERN = 200
MAX_TEXT = 1 << 16
"""Maximum number of characters in a variable's value; a longer value is not evaluated."""
_SLICE = lazy(r"\s*(-?[0-9]{1,9})?\s*(?::\s*(-?[0-9]{1,9})\s*)?\Z")
_QUOTED = lazy(r'"[^"@]*"\Z')

BY_KEY = "its elements are set by key"
"""Reason why an associative array is unknown. Its elements are pseudo-variables: ``NAME[key]``."""
_KEY = lazy(r"[\"']?(\$\{?)?(\w[\w.:/@+-]*)\}?[\"']?")

Result: TypeAlias = tuple[WordPiece, ...] | list[Field]
"""Expansion of a part: text, or several fields (an array)."""


class WordExpander(Protocol):
    """Interface of `expand.Expander` that these expansions use; it documents the methods."""

    document: Document
    scope: ShellScope

    def part(self, part: Part, source: SourceText) -> Result: ...
    def text(self, word: ShellWord) -> tuple[WordPiece, ...]: ...
    def plain(self, word: ShellWord) -> str | None: ...
    def unknown(
        self, part: Part, source: SourceText, why: str, *, inside: bool = False
    ) -> tuple[WordPiece, ...]: ...
    def unset(self, part: Parameter, source: SourceText) -> tuple[WordPiece, ...]: ...
    def chosen(self, part: Parameter, source: SourceText, value: Value) -> Result: ...


def by_key(scope: ShellScope, part: Parameter, array: Value) -> tuple[Parameter, Value]:
    """Return the element of an associative array and `part` without its key, if both are known."""
    found = _KEY.fullmatch(part.index or "")
    key, note = found[2] if found else "", None
    if found and found[1]:
        number = int(key) if key.isdecimal() else 0
        fields = (scope.positional or ())[number - 1 : number] if number else ()
        held = scope.get(key)
        pieces = present(fields[0].pieces if fields else (held and held.pieces) or ())
        if any(piece.unknown or piece.condition for piece in pieces):
            return part, array
        key = "".join(piece.text for piece in pieces)
        note = next((piece.note for piece in pieces if piece.note), None)
    element = scope.get(f"{part.name}[{key}]")
    if element is None:
        return part, array
    return replace(part, index=None), element.noted(note) if note else element


def expand_parameter(  # noqa: PLR0911
    expander: WordExpander, part: Parameter, source: SourceText, value: Value | None
) -> Result:
    """Return the expansion of a parameter with an operator; `value` is None if it is unset."""
    if part.prefix == "#":
        return _length(expander, part, source, value)
    if part.operator in (":-", "-", ":=", "=", ":+", "+", ":?", "?"):
        return _conditional(expander, part, source, value)
    if value is None:
        return expander.unset(part, source)
    why = f"`{source.text[part.start : part.end]}` is not evaluated"
    if value.items is not None and part.index in ("@", "*"):
        operand = part.operand if part.operator == ":" else None
        bounds = _SLICE.match(expander.plain(operand) or "x") if operand is not None else None
        start, count = (int(text or 0) for text in bounds.groups()) if bounds else (-1, 0)
        if bounds is None or start < 0 or count < 0:
            return expander.unknown(part, source, why)
        return list(value.items[start : start + count if bounds[2] else None])
    chosen = expander.chosen(part, source, value)
    if isinstance(chosen, list) or any(piece.unknown for piece in chosen):
        return expander.unknown(part, source, why)
    text = "".join(piece.text for piece in chosen)
    changed = _changed(expander, part, text)
    if changed is None or len(changed) > MAX_TEXT:
        return expander.unknown(part, source, why)
    expander.document.spend(1 + (len(text) + len(changed)) // 100)
    note = next((piece.note for piece in chosen if piece.note), None)
    condition = next((piece.condition for piece in chosen if piece.condition), None)
    piece = WordPiece(changed, source, part.start, exact=False, note=note, condition=condition)
    return (piece,)


def default_value(
    expander: WordExpander, part: Parameter, source: SourceText
) -> tuple[WordPiece, ...]:
    """Return the word after ``:-`` or ``-`` in `part`, the value of an unset variable."""
    variable = None if part.name.isdigit() or part.name in "@*" else part.name
    filled = part.operator.startswith(":")
    note = f"the default of `{part.name}`, which this file does not set"
    if part.name.isdigit():
        note = f"the default of argument {part.name} of the script"
    written = expander.text(part.operand) if part.operand is not None else ()
    if not written:  # empty, but with a place
        defaults = (DefaultOf(variable, filled, part.start, 0),) if variable is not None else ()
        return (WordPiece("", source, part.start, exact=False, note=note, default_of=defaults),)
    if any(piece.unknown for piece in written):
        return expander.unknown(part, source, f"the default of `{part.name}` cannot be evaluated")
    noted = [replace(piece, note=piece.note or note) for piece in written]
    return tuple(noted) if variable is None else _within(noted, variable, part, filled=filled)


def _within(
    pieces: Sequence[WordPiece], variable: str, part: Parameter, *, filled: bool
) -> tuple[WordPiece, ...]:
    """Return the pieces, marked as the default of `variable`."""
    return tuple(
        replace(
            piece, default_of=(DefaultOf(variable, filled, part.start, number), *piece.default_of)
        )
        for number, piece in enumerate(pieces)
    )


def _conditional(  # noqa: PLR0911
    expander: WordExpander, part: Parameter, source: SourceText, value: Value | None
) -> Result:
    colon, sign = part.operator.startswith(":"), part.operator[-1]
    unset = expander.scope.get(f"{part.name}?") if sign in "-=" else None
    unset = unset if unset and value and value.pieces and unset.pieces is value.pieces else None
    value = value if unset is None else None  # unset by default
    empty = value is None or (colon and _is_empty(expander, part, source, value))
    if sign == "+":
        if empty and value is None and part.name not in expander.scope.variables:
            return expander.unset(part, source) if not part.name.isdigit() else ()
        if empty or part.operand is None:
            pieces = value.pieces or () if value is not None and part.index != "@" else ()
            note = next((piece.note for piece in pieces if piece.note), None)
            held = (WordPiece("", source, part.start, exact=False, note=note),) if note else ()
            return [] if part.index == "@" else held
        return _if_set(expander, part, part.operand, source, value)
    if not empty and value is not None:
        return expander.chosen(part, source, value)
    if sign == "?" or (value is None and part.name in _SET_BY_BASH):
        return expander.unset(part, source)
    pieces = default_value(expander, part, source)
    if unset is not None:
        pieces = tuple(replace(piece, note=unset.why) for piece in pieces)
    elif value is not None:  # set in the file, to nothing or to a variable that is empty by default
        pieces = _for_empty(expander, part, source, value, pieces)
    if sign == "=" and part.operand is not None and not any(piece.unknown for piece in pieces):
        span = SourceSpan(source, part.operand.start, part.operand.end)
        exported = value is not None and value.exported
        expander.scope.set(part.name, Value(span, pieces, exported=exported))
    if sign == "=":  # it substitutes the variable, without the quotes of the default
        return tuple(replace(piece, quoted=bool(piece.unknown)) for piece in pieces)
    return pieces


def _if_set(
    expander: WordExpander,
    part: Parameter,
    word: ShellWord,
    source: SourceText,
    value: Value | None,
) -> Result:
    """Return the word or array after `:+` or `+`; unknown for a value that may be empty."""
    inner = word.parts[0] if len(word.parts) == 1 and part.quoted else None
    if isinstance(inner, Parameter) and inner.index == "@":
        return expander.part(inner, word.source)
    held = present(value.pieces or ()) if value is not None else ()
    if part.operator == ":+" and held and all(piece.unknown for piece in held):
        return expander.unknown(part, source, f"`{part.name}` may be empty", inside=True)
    condition = next((piece.condition for piece in held if piece.condition), None)
    pieces = expander.text(word)
    return tuple(replace(piece, condition=piece.condition or condition) for piece in pieces)


def _is_empty(expander: WordExpander, part: Parameter, source: SourceText, value: Value) -> bool:
    """True if a value is empty in the branches that run by default."""
    chosen = expander.chosen(part, source, value)
    fields: list[Field] = chosen if isinstance(chosen, list) else [Field(chosen)]
    return not any(piece.text for field in fields for piece in present(field.pieces))


def _for_empty(
    expander: WordExpander,
    part: Parameter,
    source: SourceText,
    value: Value,
    pieces: tuple[WordPiece, ...],
) -> tuple[WordPiece, ...]:
    """Return the default, `pieces`, for a variable that the file sets to an empty string.

    For `X=${A:-}`, the default applies only if the environment does not set A.
    """
    chosen = expander.chosen(part, source, value)
    empty = () if isinstance(chosen, list) else chosen
    names = [default.name for piece in empty for default in piece.default_of]
    if len(names) > 1:
        why = f"`{part.name}` is empty only by default"
        return expander.unknown(part, source, why, inside=True)
    assumed = next((piece.note for piece in empty if piece.note), None)
    found = tuple(
        replace(piece, note=piece.note if names else assumed, default_of=piece.default_of[1:])
        for piece in pieces
    )
    return _within(found, names[0], part, filled=True) if names else found


def _length(
    expander: WordExpander, part: Parameter, source: SourceText, value: Value | None
) -> Result:
    if value is None:
        return expander.unset(part, source)
    chosen = expander.chosen(part, source, value)
    if isinstance(chosen, list):
        fields = [field for field in chosen if present(field.pieces) or not field.pieces]
        size = len(fields)
        known = all(not f.unknown or _QUOTED.match(f.stretch.text) for f in fields)
        known = known and not any(piece.condition for field in fields for piece in field.pieces)
    else:
        size = sum(len(piece.text) for piece in present(chosen))
        known = not any(piece.unknown or piece.condition for piece in present(chosen))
    if not known:
        return expander.unknown(part, source, f"the length of `{part.name}` is unknown")
    counted = chosen if isinstance(chosen, list) else [Field(chosen)]
    note = next((piece.note for field in counted for piece in field.pieces if piece.note), None)
    return (WordPiece(str(size), source, part.start, exact=False, note=note),)


def _changed(expander: WordExpander, part: Parameter, text: str) -> str | None:  # noqa: PLR0911
    operand = expander.plain(part.operand) if part.operand is not None else ""
    if operand is None:
        return None
    match part.operator:
        case "#" | "##" | "%" | "%%":
            return _trimmed(text, operand, part.operator)
        case "/" | "//":
            old, _, new = operand.partition("/")
            if not old or any(char in old for char in "*?[\\"):
                return None
            return text.replace(old, new, -1 if part.operator == "//" else 1)
        case ":":
            bounds = _SLICE.match(operand)
            if bounds is None or (bounds[1] is None and bounds[2] is None):
                return None
            start = int(bounds[1] or 0)
            if start < 0:
                start = len(text) + start if len(text) + start >= 0 else len(text)
            if bounds[2] is None:
                return text[start:]
            count = int(bounds[2])
            return text[start : start + count] if count >= 0 else text[start:count]
        case ",," if not operand:
            return text.lower()
        case "^^" if not operand:
            return text.upper()
        case _:
            return None


def _trimmed(text: str, pattern: str, operator: str) -> str | None:
    """Return `text` without a matching prefix or suffix; None for an unsupported `pattern`.

    `operator` selects the shortest or longest prefix (`#`, `##`) or suffix (`%`, `%%`).
    """
    before, star, after = pattern.partition("*")
    if any(char in pattern for char in "?[\\") or "*" in after or len(pattern) > _MAX_PATTERN:
        return None
    longest = len(operator) == 2
    between = f".*{'' if longest else '?'}" if star else ""
    matched = re.escape(before) + between + re.escape(after)
    if operator[0] == "#":
        return re.sub(rf"\A{matched}", "", text, count=1, flags=re.DOTALL)
    if not text.endswith(after):
        return text
    match = re.match(rf"(.*{'?' if longest else ''}){matched}\Z", text, re.DOTALL)
    return match[1] if match else text


# -- computations

_TOKEN = lazy(
    r"\s*(?:(0[xX][0-9A-Fa-f]{1,15}|[0-9]{1,18})|\$\{([A-Za-z_]\w*):?-([0-9]{1,18})\}"
    r"|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))"
)
_MAX_TOKENS = 200
INTEGER = lazy(r"[+-]?[0-9]{1,18}\Z")
_ORDERS: dict[str, Callable[[int, int], bool]] = {
    f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
_SET_BY_BASH = {
    *("BASHPID", "EUID", "HOME", "HOSTNAME", "HOSTTYPE", "LINENO", "OLDPWD", "OSTYPE"),
    *("PPID", "PWD", "RANDOM", "SECONDS", "UID"),
}
_SET = lazy(
    r"(?<!\w)([A-Za-z_]\w*)(?:\[[^][]*\])?\s*(?:(?:[-+*/%&^|]|<<|>>)?=(?!=)|\+\+|--)"
    r"|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
_CHANGE = lazy(
    r"(?:\(\(|let\s+[\"']?)?\s*(?:(\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(?:(\+\+|--)|([-+*/%]?=)(?!=)(.+)))\s*\Z"
)


def set_by(expression: str) -> list[str]:
    """Return the variables that an arithmetic expression sets."""
    return [first or second for first, second in _SET.findall(expression)]


def changed_number(expression: str, lookup: Callable[[str], str | None]) -> int | None:
    """Return the number that `X=…`, `X+=…`, `X++` or `++X` sets; None for others, or if unknown."""
    match = _CHANGE.match(expression.rstrip("\"'").removesuffix("))"))
    if match is None or set_by(right := match[6] or "1"):
        return None
    sign, name = (match[1] or match[4] or match[5])[0], match[2] or match[3]
    return arithmetic(right if sign == "=" else f"{name}{sign}({right})", lookup)


def arithmetic(text: str, lookup: Callable[[str], str | None]) -> int | None:
    """Return the value of ``$(( … ))`` with ``+ - * / %`` and parentheses; None if unknown.

    `lookup` returns a variable's number: "" if the script does not set it, None if unknown.
    """
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(tokens) > _MAX_TOKENS:
            return None
        at = match.end()
        if name := match[2] or match[4]:
            known = lookup(name)
            if known == "":
                known = match[3]
            if known is None or not INTEGER.match(known) or known.lstrip("+-")[:-1][:1] == "0":
                return None  # also octal numbers
            tokens.append(str(int(known)))
        elif match[1]:
            if len(match[1]) > 1 and match[1][0] == "0" and match[1][1] not in "xX":  # octal
                return None
            tokens.append(str(int(match[1], 0)))
        else:
            tokens.append(match[5])
    try:
        value, rest = _added(tokens, 0)
    except (IndexError, ValueError, ZeroDivisionError):
        return None
    return value if rest == len(tokens) and abs(value) < 1 << 62 else None


def _added(tokens: Sequence[str], at: int, operators: str = "+-") -> tuple[int, int]:
    operand = _factor if operators == "*/%" else partial(_added, operators="*/%")
    value, at = operand(tokens, at)
    while at < len(tokens) and tokens[at] in operators:
        other, after = operand(tokens, at + 1)
        value, at = _combined(value, tokens[at], other), after
    return value, at


def _combined(left: int, sign: str, right: int) -> int:
    if sign in "+-*":
        return {"+": left + right, "-": left - right, "*": left * right}[sign]
    quotient = abs(left) // abs(right) * (1 if left * right >= 0 else -1)  # towards zero, as in C
    return quotient if sign == "/" else left - quotient * right


def _factor(tokens: Sequence[str], at: int) -> tuple[int, int]:
    sign = tokens[at]
    if sign == "(":
        value, at = _added(tokens, at + 1)
        if tokens[at] != ")":
            raise ValueError
        return value, at + 1
    if sign in "+-":
        value, at = _factor(tokens, at + 1)
        return (value if sign == "+" else -value), at
    return int(sign), at + 1


def comparison(words: Sequence[str]) -> bool | None:
    """Return the result of `[ words ]` for a comparison of texts or integers; None for others."""
    match words:
        case [text]:
            return bool(text)
        case ["-n" | "-z" as operator, text]:
            return bool(text) == (operator == "-n")
        case [left, "=" | "==" | "!=" as operator, right]:
            return (left == right) == (operator != "!=")
        case [left, operator, right] if operator in _ORDERS and (
            INTEGER.match(left) and INTEGER.match(right)
        ):
            return _ORDERS[operator](int(left), int(right))
        case _:
            return None


# -- braces

MAX_WORDS = 10_000
"""Maximum number of words that one word may expand to. A word that exceeds it is unchanged."""

_MAX_BRACES, _MAX_BRACED_TEXT = 60, 5_000
_NUMBERS = lazy(r"([+-]?[0-9]{1,18})\.\.([+-]?[0-9]{1,18})(?:\.\.([+-]?[0-9]{1,18}))?\Z")
_LETTERS = lazy(
    r"([a-z])\.\.([a-z])(?:\.\.([+-]?[0-9]{1,9}))?\Z|([A-Z])\.\.([A-Z])(?:\.\.([+-]?[0-9]{1,9}))?\Z"
)

Parts = tuple[Part, ...]


class TooMany(Exception):
    """Expansion to more than `MAX_WORDS` words."""


def expand_braces(parts: Parts) -> list[Parts]:
    """Return the words that `parts` expand to. Raise `TooMany` above a limit."""
    unquoted = "".join(p.text for p in parts if isinstance(p, Literal) and not p.quoted)
    if "{" not in unquoted:
        return [parts]
    if unquoted.count("{") > _MAX_BRACES or len(unquoted) > _MAX_BRACED_TEXT:
        raise TooMany
    atoms: list[Part] = []
    for part in parts:
        if isinstance(part, Literal) and not part.quoted:
            atoms.extend(
                Literal(char, part.start + index if part.exact else part.start, exact=part.exact)
                for index, char in enumerate(part.text)
            )
        else:
            atoms.append(part)
    return [_merged(word) for word in _expand(atoms, 0)]


def _char(part: Part) -> str:
    return part.text if isinstance(part, Literal) and not part.quoted else ""


def _expand(atoms: Sequence[Part], depth: int) -> list[Parts]:
    if depth > 200:
        raise TooMany
    results: list[Parts] = [()]
    while True:
        start = _opening(atoms)
        end = None if start is None else _find(atoms, start + 1, "}")
        if start is None or end is None:
            return _product(results, [tuple(atoms)])
        inside = atoms[start + 1 : end]
        items = _items(inside, atoms[start], depth)
        if items is None:
            if end + 1 == len(atoms):
                return _product(results, [tuple(atoms)])
            items = [tuple(atoms[start : end + 1])]
        results = _product(_product(results, [tuple(atoms[:start])]), items)
        atoms = atoms[end + 1 :]
        if not atoms:
            return results


def _items(inside: Sequence[Part], brace: Part, depth: int) -> list[Parts] | None:
    if any(_char(atom) == "," for atom in inside):
        items: list[Parts] = []
        start = 0
        while True:
            comma = _find(inside, start, ",")
            items.extend(_expand(inside[start:comma], depth + 1))
            if len(items) > MAX_WORDS:
                raise TooMany
            if comma is None:
                return items
            start = comma + 1
    if not all(isinstance(atom, Literal) and not atom.quoted for atom in inside):
        return None
    texts = _sequence("".join(map(_char, inside)))
    return None if texts is None else [(Literal(t, brace.start, exact=False),) for t in texts]


def _opening(atoms: Sequence[Part]) -> int | None:
    if not any(_char(atom) == "}" for atom in atoms):
        return None
    opening = (index for index, atom in enumerate(atoms) if _char(atom) == "{")
    return next((at for at in opening if _find(atoms, at + 1, "}") is not None), None)


def _find(atoms: Sequence[Part], start: int, end: str) -> int | None:
    level = 0
    separators = 0 if end == "}" else 1
    for index in range(start, len(atoms)):
        char = _char(atoms[index])
        if char == end and level == 0 and separators:
            return index
        if char == "{":
            level += 1
        elif char == "}" and level:
            level -= 1
        elif end == "}" and level == 0:
            if char == ",":
                separators += 1
            elif char == "." and index + 2 < len(atoms) and _char(atoms[index + 1]) == ".":
                separators += _char(atoms[index + 2]) != "}"
    return None


def _sequence(text: str) -> list[str] | None:
    numbers = _NUMBERS.match(text)
    if numbers is not None:
        first, last = int(numbers[1]), int(numbers[2])
        values = _range(first, last, int(numbers[3] or 0))
        if any(re.match(r"-?0[0-9]", part) for part in (numbers[1], numbers[2])):
            width = max(len(numbers[1]), len(numbers[2]))
            return [f"{value:0{width}d}" for value in values]
        return [str(value) for value in values]
    letters = _LETTERS.match(text)
    if letters is not None:
        low, high = letters[1] or letters[4], letters[2] or letters[5]
        step = int(letters[3] or letters[6] or 0)
        return [chr(code) for code in _range(ord(low), ord(high), step)]
    return None


def _range(first: int, last: int, step: int) -> range:
    step = abs(step) or 1
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    if abs(last - first) // step >= MAX_WORDS:
        raise TooMany
    return values


def _product(left: list[Parts], right: list[Parts]) -> list[Parts]:
    if len(left) * len(right) > MAX_WORDS:
        raise TooMany
    return [a + b for a in left for b in right]


def _merged(parts: Parts) -> Parts:
    """Return parts with adjacent source characters merged into one piece."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if (
            isinstance(part, Literal)
            and isinstance(last, Literal)
            and not part.quoted
            and not last.quoted
            and part.exact
            and last.exact
            and last.start + len(last.text) == part.start
        ):
            merged[-1] = Literal(last.text + part.text, last.start)
        elif (
            isinstance(last, Parameter)
            and isinstance(part, Literal)
            and not (part.quoted or last.quoted)
            and last.end - last.start == len(last.name) + 1
            and re.match(r"[A-Za-z_]", last.name)
            and re.match(r"[A-Za-z0-9_]", part.text)
        ):  # `$V{1,2}` is `$V1 $V2`
            merged[-1] = OpaquePart("a name composed from braces", last.start, last.end)
            merged.append(part)
        else:
            merged.append(part)
    return tuple(merged)

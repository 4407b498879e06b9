"""Expressions of Go's text/template with the functions that Helm adds. Nothing is executed.

Helm reads numbers as floats, so it renders those from 1,000,000 on as 1e+06: they are unknown here.
Source: Go's text/template, Sprig, https://helm.sh/docs/chart_template_guide/function_list/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any, NamedTuple

from speclaunch.core import lazy
from speclaunch.deployments.sources.source_text import MARK_FIRST

_TOKEN = lazy(
    r"\s*(?:(?P<text>\"(?:\\.|[^\"\\])*\"|`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?)"
    r"|(?P<path>\$\w*(?:\.\w+)*|(?:\.\w+)+|\.|\w+)|(?P<sign>:=|[()|=,]))"
)
_MOST_NUMBER = 1_000_000
_MOST_ARGUMENT = 10_000
_MOST_SPACES = 200
MOST_CHARS = 1 << 20
UNKNOWN: Any = object()


class Undecided(Exception):
    """A value that the chart alone does not determine."""


class GoObject(dict[str, Any]):
    """Object of Helm's, of which only some fields are known."""


class GoChunk(NamedTuple):
    """Rendered text, with the range of the template from which it comes.

    `path` contains the numbers of the undecided branches around it. If `is_value`, the chart's
    values determine it.
    """

    text: str
    start: int
    end: int
    path: tuple[int, ...]
    is_literal: bool = False
    is_value: bool = False


class GoOutput(list[GoChunk]):
    """Output of a named template; paths contain only branches inside it."""

    def plain(self) -> str:
        """Return the text. Raise Undecided if it has placeholders or undecided branches."""
        text = "".join(chunk.text for chunk in self)
        if MARK_FIRST in text or any(chunk.path for chunk in self):
            raise Undecided
        return text

    def inside(self, path: tuple[int, ...]) -> Iterator[GoChunk]:
        """Yield the output as printed inside the undecided branches of `path`."""
        return (chunk._replace(path=(*path, *chunk.path)) for chunk in self)

    def indented(self, spaces: int, before: str) -> GoOutput:
        if sum(chunk.text.count("\n") for chunk in self) * spaces > MOST_CHARS:
            raise Undecided
        pad = " " * spaces
        parts = [c._replace(text=c.text.replace("\n", f"\n{pad}")) for c in self]
        if parts:
            parts[0] = parts[0]._replace(text=f"{before}{pad}{parts[0].text}")
        return GoOutput(parts)

    def trimmed(self) -> GoOutput:
        parts = list(self)
        while parts and not parts[0].text.strip():
            del parts[0]
        while parts and not parts[-1].text.strip():
            del parts[-1]
        if parts:
            parts[0] = parts[0]._replace(text=parts[0].text.lstrip())
            parts[-1] = parts[-1]._replace(text=parts[-1].text.rstrip())
        return GoOutput(parts)


class GoExpression:
    """Evaluator of one pipeline. Unknown operands raise Undecided unless a function allows them."""

    def __init__(
        self,
        code: str,
        dot: Any,
        lookup: Callable[[str], Any],
        include: Callable[[str, str, Any], GoOutput],
    ) -> None:
        self._tokens = list(_tokens(code))
        self._at = 0
        self._dot = dot
        self._lookup = lookup
        self._include = include

    def value(self) -> Any:
        found = self._pipeline()
        if self._at < len(self._tokens):
            raise Undecided
        return found

    def _peek(self) -> tuple[str, str, bool]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "", False)

    def _pipeline(self) -> Any:
        found = self._command([])
        while self._peek()[1] == "|":
            self._at += 1
            found = self._command([found])
        return found

    def _command(self, piped: list[Any]) -> Any:
        kind, name, _ = self._peek()
        is_function = kind == "path" and name[0] not in "$." and name not in _CONSTANTS
        if is_function:
            self._at += 1
            return self._call(name, [*self._operands(), *piped])
        found = self._operands()
        if piped or len(found) != 1:
            raise Undecided
        return found[0]

    def _operands(self) -> list[Any]:
        found = []
        while self._at < len(self._tokens) and self._peek()[1] not in ("|", ")"):
            found.append(self._operand())
        return found

    def _operand(self) -> Any:
        kind, text, _ = self._peek()
        self._at += 1
        if kind == "text":
            return text[1:-1] if text[0] == "`" else json.loads(text)
        if kind == "number":
            return json.loads(text)
        if text == "(":
            found = self._pipeline()
            if self._peek()[1] != ")":
                raise Undecided
            self._at += 1
            if self._peek()[2]:  # `(…).name`
                found = _field(found, self._peek()[1])
                self._at += 1
            return found
        if kind != "path":
            raise Undecided
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] == "$":
            name, _, rest = text.partition(".")
            return _field(self._lookup(name), f".{rest}" if rest else "")
        return _field(self._dot, text) if text[0] == "." else self._call(text, [])

    def _call(self, name: str, args: list[Any]) -> Any:
        first = args[0] if args else None
        if name in ("include", "tpl") and len(args) == 2:
            text = first.plain() if isinstance(first, GoOutput) else first
            if isinstance(text, str) and (name == "include" or "{{" in text[:_MOST_ARGUMENT]):
                return self._include(name, text, args[1])
        if isinstance(args[-1] if args else None, GoOutput):
            parts = args[-1]
            if name in ("nindent", "indent") and type(first) is int and 0 <= first <= _MOST_SPACES:
                return parts.indented(first, "\n" if name == "nindent" else "")
            if name == "trim":
                return parts.trimmed()
        plain = [arg.plain() if isinstance(arg, GoOutput) else arg for arg in args]
        if name in ("and", "or") and plain:
            return _selected(plain, is_and=name == "and")
        if name == "default" and len(plain) == 2 and plain[1] is not UNKNOWN and plain[1]:
            return plain[1]
        function = _FUNCTIONS.get(name)
        if function is None or any(arg is UNKNOWN or _is_large(arg) for arg in plain):
            raise Undecided
        try:
            return function(*plain)
        except (TypeError, ValueError, LookupError, AttributeError, StopIteration) as error:
            raise Undecided from error


def _is_large(value: Any) -> bool:
    """True for a text or list that a function may expand beyond the limits."""
    return isinstance(value, str | list) and len(value) > _MOST_ARGUMENT


def _tokens(code: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the kind and text of each token; True for a field of what is in parentheses."""
    at, code = 0, code.strip()
    while at < len(code):
        found = _TOKEN.match(code, at)
        if found is None or found.lastgroup is None:
            raise Undecided
        text = found[found.lastgroup]
        is_glued = code[at - 1 : at] == ")" and found.start(found.lastgroup) == at
        yield found.lastgroup, text, is_glued and text[:1] == "." and len(text) > 1
        at = found.end()


def _field(value: Any, path: str) -> Any:
    """Return a field; None if the chart's values lack it. Raise Undecided below unknown values."""
    for name in path.split(".")[1:] if path != "." else ():
        if not isinstance(value, dict) or (isinstance(value, GoObject) and name not in value):
            return UNKNOWN
        value = value.get(name)
    return value


def _selected(values: Sequence[Any], *, is_and: bool) -> Any:
    for value in values[:-1]:
        if value is UNKNOWN:
            raise Undecided
        if bool(value) is not is_and:
            return value
    return values[-1]


def shown(value: Any) -> str:
    """Return a text, number or truth value as Helm prints it. Raise Undecided for others."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and abs(value) < _MOST_NUMBER:
        return str(int(value) if value == int(value) else value)
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict) and not value:
        return "[]" if isinstance(value, list) else "map[]"
    raise Undecided


def _quoted(*values: Any) -> str:
    texts = [shown(value) for value in values]
    if not all(texts):
        raise Undecided  # a value that users have to set
    return " ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def _formatted(template: str, *values: Any) -> str:
    rest = iter(values)

    def text(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        value = next(rest)
        if found[0] == "%s" and not isinstance(value, str):
            raise Undecided  # Go prints the type
        return json.dumps(shown(value)) if found[0] == "%q" else shown(value)

    if re.search(r"%[^sdvqt%]", template):
        raise Undecided
    return re.sub(r"%[sdvqt%]", text, template)


def _is_equal(first: Any, *others: Any) -> bool:
    kinds = {_kind(value) for value in (first, *others) if value is not None}
    if len(kinds) > 1 or kinds & {"slice", "map"}:
        raise Undecided
    return any(first == other for other in others)


def _kind(value: Any) -> str:
    names = {bool: "bool", int: "float64", float: "float64", str: "string", list: "slice"}
    return "invalid" if value is None else names.get(type(value), "map")


def _type(value: Any) -> str:
    kinds = {"slice": "[]interface {}", "map": "map[string]interface {}", "invalid": "<nil>"}
    return kinds.get(_kind(value), _kind(value))


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise Undecided
    number: float = value
    return number


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise Undecided
    return value


def _as_yaml(value: Any) -> str:
    """Return YAML of the same meaning as Helm's, with nested values in JSON."""

    def text(part: Any) -> str:
        if isinstance(part, GoObject):
            raise Undecided
        if isinstance(part, dict | list):
            rows = enumerate(part) if isinstance(part, list) else part.items()
            texts = [(json.dumps(key), text(held)) for key, held in rows]
            items = ", ".join(held if type(part) is list else f"{k}: {held}" for k, held in texts)
            if _is_large(items):
                raise Undecided
            return f"[{items}]" if isinstance(part, list) else f"{{{items}}}"
        if part is None or isinstance(part, str):
            return json.dumps(part)
        return shown(part)

    if isinstance(value, dict) and not isinstance(value, GoObject):
        return "\n".join(f"{json.dumps(key)}: {text(held)}" for key, held in value.items())
    return (
        "\n".join(f"- {text(item)}" for item in value) if isinstance(value, list) else text(value)
    )


def _indented(spaces: int, text: str) -> str:
    if not 0 <= spaces <= _MOST_SPACES:
        raise Undecided
    return f"\n{text}".replace("\n", "\n" + " " * spaces)


def _required(_: str, value: Any) -> Any:
    if value in (None, ""):
        raise Undecided
    return value


_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "nil": None}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda *numbers: sum(map(_integer, numbers)),
    "append": lambda items, item: [*items, item],
    "coalesce": lambda *values: next(filter(None, values), None),
    "concat": lambda *lists: [*chain(*lists)],
    "contains": lambda part, text: part in shown(text),
    "default": lambda other, _=None: other,
    "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
    "empty": lambda value: not value,
    "eq": _is_equal,
    "first": lambda items: items[0],
    "get": lambda table, key: table.get(key, ""),
    "ge": lambda first, other: _number(first) >= _number(other),
    "gt": lambda first, other: _number(first) > _number(other),
    "has": lambda item, items: item + "" in items,  # Go's 4 is not the 4 of a chart's values
    "hasKey": lambda table, key: key in table,
    "hasPrefix": lambda start, text: shown(text).startswith(start),
    "hasSuffix": lambda end, text: shown(text).endswith(end),
    "indent": lambda spaces, text: _indented(spaces, text)[1:],
    "index": lambda held, key: held.get(key) if isinstance(held, dict) else held[key],
    "int": _integer,
    "int64": _integer,
    "join": lambda between, items: between.join(map(shown, items)),
    "kindIs": lambda kind, value: _kind(value) == kind,
    "kindOf": _kind,
    "le": lambda first, other: _number(first) <= _number(other),
    "len": len,
    "list": lambda *items: list(items),
    "lower": lambda text: text.lower(),
    "lt": lambda first, other: _number(first) < _number(other),
    "mul": lambda *numbers: prod(map(_integer, numbers)),
    "ne": lambda first, other: not _is_equal(first, other),
    "nindent": _indented,
    "not": lambda value: not value,
    "printf": _formatted,
    "quote": _quoted,
    "replace": lambda old, new, text: text.replace(old, new),
    "required": _required,
    "squote": lambda value: "'" + _quoted(value)[1:-1] + "'",
    "sub": lambda first, other: _integer(first) - _integer(other),
    "ternary": lambda yes, no, value: yes if _kind(value) == "bool" and value else no,
    "toJson": lambda value: _as_yaml([value])[2:],
    "toString": shown,
    "toYaml": _as_yaml,
    "tpl": lambda text, _: text,
    "trim": lambda text: text.strip(),
    "trimPrefix": lambda start, text: text.removeprefix(start),
    "trimSuffix": lambda end, text: text.removesuffix(end),
    "trunc": lambda length, text: text[:length] if length >= 0 else text[length:],
    "typeOf": _type,
    "upper": lambda text: text.upper(),
}
"""Functions of Go's templates and of Sprig; an unknown argument makes their result unknown."""

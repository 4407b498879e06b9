"""A word of a script as a value of a recipe: variables become OmegaConf's `${oc.env:…}`."""

from __future__ import annotations

import re

from speclaunch.importer.interface import Word
from speclaunch.importer.recipe_text import OPEN, Interpolation, Line

_VARIABLE = re.compile(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|\{([A-Za-z_]\w*):?-|\(([A-Z_][A-Z0-9_]*)\))"
)
"""`$A`, `${A}`, the beginning of `${A:-…}`, and Kubernetes' `$(A)`."""
_BARE = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)[A-Za-z_/.][\w./@-]*", re.IGNORECASE)
_MAX_DEPTH = 8


def value_of(word: Word, start: int = 0) -> Line:
    """What a recipe says for the text of a word from `start` on, and a comment to go with it.

    A placeholder, and what only running the script could tell, is left open.
    """
    if word.placeholder:
        return Line(OPEN, f"fill in `{word.text[start:]}`")
    if word.evaluated:
        kept = [one for one in word.defaults if one[0] >= start]
        return Line(_with_defaults(word.text, start, kept), None if kept else word.why)
    found = None if word.inside else _from_environment(word.text[start:])
    if found is None:
        return Line(OPEN, word.why or f"`{word.text[start:]}` is not evaluated")
    return Line(found)


def _with_defaults(text: str, start: int, defaults: list[tuple[int, int, str]]) -> str:
    if not defaults:
        return text[start:]
    parts: list[str] = []
    for begin, end, name in defaults:
        parts += [_escaped(text[start:begin]), _variable(name, _quoted(text[begin:end]))]
        start = end
    return Interpolation("".join([*parts, _escaped(text[start:])]))


def _from_environment(text: str, depth: int = 0) -> str | None:
    """A text with variables in it; None where something else would have to be run."""
    parts: list[str] = []
    at = 0
    while found := _VARIABLE.search(text, at):
        parts.append(text[at : found.start()])
        at = found.end()
        if found[3] is None:
            parts.append(_variable(found[1] or found[2] or found[4]))
            continue
        end = _closing(text, at)
        inner = _from_environment(text[at:end], depth + 1) if end and depth < _MAX_DEPTH else None
        if end is None or inner is None:
            return None
        nested = isinstance(inner, Interpolation)
        parts.append(_variable(found[3], f'"{inner}"' if nested else _quoted(inner)))
        at = end + 1
    rest = [part for index, part in enumerate(parts) if not part.startswith("${oc.env:")]
    rest.append(text[at:])
    if any(char in piece for piece in rest for char in "$`"):
        return None
    joined = "".join([*parts, text[at:]])
    return Interpolation(joined) if "${oc.env:" in joined else joined


def _closing(text: str, at: int) -> int | None:
    depth = 1
    for index in range(at, len(text)):
        depth += (text[index] == "{") - (text[index] == "}")
        if depth == 0:
            return index
    return None


def _variable(name: str, default: str | None = None) -> str:
    return f"${{oc.env:{name}}}" if default is None else f"${{oc.env:{name},{default}}}"


def _quoted(text: str) -> str:
    """A text as OmegaConf's grammar takes it for one: 0.80 and true stay what they are."""
    if _BARE.fullmatch(text):
        return text
    body = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return f"'{body}'"


def _escaped(text: str) -> str:
    return text.replace("${", "\\${")

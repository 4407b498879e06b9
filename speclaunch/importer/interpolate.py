"""A word of a script as a value of a recipe: variables become OmegaConf's `${oc.env:…}`, or our
`${env_or:…}` where an empty variable has the default, too."""

from __future__ import annotations

import re
from collections.abc import Sequence

from speclaunch.importer.interface import Default, Word
from speclaunch.importer.recipe_text import OPEN, Interpolation, RecipeLine
from speclaunch.patterns import lazy

_VARIABLE = lazy(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|\{([A-Za-z_]\w*)(:?)-|\(([A-Z_][A-Z0-9_]*)\))",
    re.ASCII,
)
"""`$A`, `${A}`, the beginning of `${A:-…}`, and Kubernetes' `$(A)`."""
_BARE = lazy(r"(?!(?:null|true|false|nan|inf)\Z)[A-Za-z_/.][\w./@-]*", re.IGNORECASE | re.ASCII)
_MAX_DEPTH = 8
_RESOLVERS = ("${oc.env:", "${env_or:")


def value_of(word: Word, start: int = 0) -> RecipeLine:
    """What a recipe says for the text of a word from `start` on, and a comment to go with it.

    A placeholder, and what only running the script could tell, is left open.
    """
    if word.placeholder:
        return RecipeLine(OPEN, f"fill in `{word.text[start:]}`")
    if word.evaluated:
        kept = [one for one in word.defaults if one.start >= start]
        return RecipeLine(
            _with_defaults(word.text, start, len(word.text), kept), None if kept else word.why
        )
    found = None if word.inside else _from_environment(word.text[start:])
    if found is None:
        return RecipeLine(OPEN, word.why or f"`{word.text[start:]}` is not evaluated")
    return RecipeLine(found)


def _with_defaults(text: str, start: int, end: int, defaults: Sequence[Default]) -> str:
    if not defaults:
        return text[start:end]
    parts: list[str] = []
    for one in defaults:
        said = _with_defaults(text, one.start, one.end, one.inner)
        nested = isinstance(said, Interpolation)
        default = f'"{said}"' if nested else _quoted(said)
        parts += [_escaped(text[start : one.start]), _variable(one.name, default, one.filled)]
        start = one.end
    return Interpolation("".join([*parts, _escaped(text[start:end])]))


def _from_environment(text: str, depth: int = 0) -> str | None:
    """A text with variables in it; None where something else would have to be run."""
    parts: list[str] = []
    at = 0
    while found := _VARIABLE.search(text, at):
        parts.append(text[at : found.start()])
        at = found.end()
        name = found[1] or found[2] or found[3] or found[5]
        if not _BARE.fullmatch(name):  # OmegaConf reads `null` as a value
            return None
        if found[3] is None:
            parts.append(_variable(name))
            continue
        end = closing(text, at)
        inner = _from_environment(text[at:end], depth + 1) if end and depth < _MAX_DEPTH else None
        nested = isinstance(inner, Interpolation)
        if end is None or inner is None or (nested and any(c in text[at:end] for c in '"\\')):
            return None
        default = f'"{inner}"' if nested else _quoted(inner)
        parts.append(_variable(found[3], default, bool(found[4])))
        at = end + 1
    rest = [part for part in parts if not part.startswith(_RESOLVERS)]
    rest.append(text[at:])
    if any(char in piece for piece in rest for char in "$`"):
        return None
    joined = "".join([*parts, text[at:]])
    return Interpolation(joined) if any(one in joined for one in _RESOLVERS) else joined


def closing(text: str, at: int) -> int | None:
    """Return the end of a `${…}`, in which only other ones count; None if it is not closed."""
    depth = 1
    for index in range(at, len(text)):
        depth += (text[index] == "{" and text[index - 1] == "$") - (text[index] == "}")
        if depth == 0:
            return index
    return None


def _variable(name: str, default: str | None = None, filled: bool = False) -> str:
    if default is None:
        return f"${{oc.env:{name}}}"
    return f"${{{'env_or' if filled else 'oc.env'}:{name},{default}}}"


def _quoted(text: str) -> str:
    """A text as OmegaConf's grammar takes it for one: 0.80 and true stay what they are."""
    if _BARE.fullmatch(text):
        return text
    body = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return f"'{body}'"


def _escaped(text: str) -> str:
    return text.replace("${", "\\${")

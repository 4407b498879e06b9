"""Placeholders for a user's value: `<model>`, `[model]`, `{model}`, `{{ model }}`, `__PORT__`.

Documents and templates often contain placeholders; `<model>` is not a redirection in them. Values
of placeholders are unknown and never passed on. In a script that runs unchanged, the shell does
redirect; the parser reports the redirection and still reads the placeholder.
"""

from __future__ import annotations

from msgspec import Struct

from speclaunch.core import lazy

_NAME = r"<[^\W_](?:[^<>\n$`\"\\]{0,78}[^<>\s$`\"\\])?(?:(?<!\s\d)>|>(?=\s|\Z))"
_ANGLE = lazy(rf"{_NAME}(?![&>|])")
_ANGLE_ENDS = lazy(r"[\s\"';)\\]|/<|\Z")
"""Text after a placeholder in a script: `<in>out` is a redirection."""
_BRACES = lazy(r"\{\{-?[ \t]*[^\W\d](?:(?!\.\.)[^{},\n])*\}\}")
_LINK = lazy(r"\[([^\[\]\n]+)\]\([^()\s]*\)")
_BRACKETS = lazy(r"\[[^\W\d_][^\[\]\n\"'=,]{0,78}\]")
_BRACE = lazy(r"\{[^\W\d_][^{}\n\"'=,.;$]{0,78}\}")
MARKS = lazy(r"[<{[]")
"""First characters of a placeholder."""
_NAMED = lazy(r"(?<![\w@])(__|@)[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\1(?![\w@])")
"""`__PORT__`, `@PORT@`: an installer writes the value."""
_DOTS = lazy(r"\.\.\.|…")
_PATH = r"[\w./:@=+-]*"
_PATH_WITH_NAME = lazy(rf"{_PATH}(?:{_NAME}{_PATH})+")


class Placeholder(Struct, frozen=True):
    """Placeholder or link in a source; `text` begins at `at`."""

    start: int
    end: int
    text: str
    at: int
    for_shell: str | None = None
    """Meaning in a shell, if it differs."""


def find(text: str, start: int, end: int, *, lenient: bool, begins: bool) -> Placeholder | None:
    """Return the first placeholder that begins in `text` from `start` to `end`, inclusive.

    `lenient`: the text is a document or a template. `begins`: a word at `start` is a flag's value.
    Elsewhere in a script, `<name>` must directly follow other text.
    """
    for mark in MARKS.finditer(text, start, end + 1):
        at, char = mark.start(), mark[0]
        if char == "<":
            angle = _ANGLE.match(text, at)
            due = lenient or (
                (begins or at > start) and angle and _ANGLE_ENDS.match(text, angle.end())
            )
            if angle and due:
                from_file = f"it redirects from the file `{angle[0][1:-1]}`"
                return Placeholder(at, angle.end(), angle[0], at, None if lenient else from_file)
        elif char == "{" and (braces := _BRACES.match(text, at)):
            return Placeholder(at, braces.end(), braces[0], at)
        else:
            if link := _LINK.match(text, at):
                shell = None if lenient else "it stops with a syntax error at the parenthesis"
                return Placeholder(at, link.end(), link[1], at + 1, shell)
            own = _BRACE if char == "{" else _BRACKETS
            if lenient and begins and at == start and (found := own.match(text, at)):
                return Placeholder(at, found.end(), found[0], at)
    return None


def is_ellipsis(text: str) -> bool:
    """True if a word only marks an omission."""
    return text in ("...", "…", "[...]", "[…]")


def why(text: str, *, lenient: bool, quoted: bool) -> str | None:
    """Return why a word is a placeholder, or None. `quoted`: no shell changes the word."""
    if _NAMED.search(text):
        return "a placeholder"
    if not lenient and not MARKS.search(text):
        return None
    if lenient and is_ellipsis(text):
        return "an ellipsis: the value is not shown"
    found = _PATH_WITH_NAME.fullmatch(text) or _BRACES.search(text)
    if found is None and (lenient or not quoted):
        found = _BRACKETS.fullmatch(text)
    if found is None and lenient:
        found = _ANGLE.search(text) or _DOTS.search(text) or _BRACE.fullmatch(text)
    return "a placeholder" if found is not None else None

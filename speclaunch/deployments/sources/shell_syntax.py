"""Syntax tree of a shell script, and the lexer of its words as bash reads them.

Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from msgspec import Struct

from speclaunch.core import InputError, Problem, lazy
from speclaunch.deployments.sources.source_text import (
    PLACEHOLDER_STARTS,
    Placeholder,
    SourceSpan,
    SourceText,
    find_placeholder,
)


class Literal(Struct, frozen=True):
    """Literal characters; `exact` is true if the file has exactly these characters."""

    text: str
    start: int
    quoted: bool = False
    exact: bool = True


class Parameter(Struct, frozen=True):
    """``$NAME`` or ``${NAME…}``.

    `operator` follows the name (``:-``, ``##``, ``/`` …) and `operand` is the word after it.
    `index` is the text between brackets. `prefix` is ``#`` or ``!`` for ``${#NAME}``, ``${!NAME}``.
    """

    name: str
    start: int
    end: int
    quoted: bool = False
    operator: str = ""
    operand: ShellWord | None = None
    index: str | None = None
    prefix: str = ""

    @property
    def list_like(self) -> bool:
        """True for ``$@`` and ``${A[@]}``, which expand to any number of words, even in quotes."""
        return self.prefix != "#" and (self.name == "@" or self.index == "@")


class Substitution(Struct, frozen=True):
    """``$(…)`` or backticks."""

    body: tuple[Node, ...]
    start: int
    end: int
    quoted: bool = False
    source: SourceText | None = None
    """Source of `body` if it is not the word's source (backticks)."""


class Arithmetic(Struct, frozen=True):
    """``$((…))``; `text` is the expression between the parentheses."""

    text: str
    start: int
    end: int
    quoted: bool = False


class OpaquePart(Struct, frozen=True):
    """Part that remains unchanged: ``<(…)`` and similar forms."""

    why: str
    start: int
    end: int
    quoted: bool = False


Part: TypeAlias = Literal | Parameter | Substitution | Arithmetic | OpaquePart


class ShellWord(Struct, frozen=True):
    """One word of the script, before expansion."""

    parts: tuple[Part, ...]
    source: SourceText
    start: int
    end: int

    @property
    def span(self) -> SourceSpan:
        return SourceSpan(self.source, self.start, self.end)

    @property
    def plain(self) -> str | None:
        """Text of the word; None if it contains quotes or expansions."""
        text = ""
        for part in self.parts:
            if not isinstance(part, Literal) or part.quoted:
                return None
            text += part.text
        return text


class Assignment(Struct, frozen=True):
    """``NAME=value``, ``NAME+=value``, ``NAME=( … )``."""

    name: str
    value: ShellWord | tuple[ShellWord, ...]
    span: SourceSpan
    append: bool = False
    index: str | None = None


class Redirect(Struct):
    """``2>&1``, ``> log``, ``<<EOF`` (with the range of its text)."""

    operator: str
    span: SourceSpan
    target: ShellWord | None = None
    body: SourceSpan | None = None
    literal: bool = False
    """True if the here-document is not expanded (its delimiter was quoted)."""


class Simple(Struct):
    """Simple command. `declared` contains assignments after ``export``, ``local`` and the like."""

    span: SourceSpan
    assignments: tuple[Assignment, ...] = ()
    words: tuple[ShellWord, ...] = ()
    declared: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    end: str = ""
    """Terminator of the command: ``;``, ``&``, ``&&``, ``||``, ``|``, a newline or nothing."""
    end_at: int = 0


class Branch(Struct):
    """Alternative of an ``if`` or ``case``, or body of a loop; `label` is its condition."""

    label: SourceSpan
    condition: tuple[Node, ...]
    body: tuple[Node, ...]
    certain: bool = False
    """True for ``else`` and ``*)``, which run if no other branch does."""


class Compound(Struct):
    """``if``, ``case``, ``while``, ``until``, ``for``, ``select``, ``( … )``, ``{ … }``."""

    kind: str
    span: SourceSpan
    branches: tuple[Branch, ...]
    variable: str | None = None
    items: tuple[ShellWord, ...] | None = None
    redirects: tuple[Redirect, ...] = ()
    end: str = ""
    end_at: int = 0


class Function(Struct):
    """``name() { … }``."""

    name: str
    span: SourceSpan
    body: tuple[Node, ...]
    end: str = ""
    end_at: int = 0


Node: TypeAlias = Simple | Compound | Function


class Script(Struct):
    """Parsed script, with the spans of its comments in order."""

    source: SourceText
    nodes: tuple[Node, ...]
    comments: list[SourceSpan] = []
    unread: list[Problem] = []
    """Commands that were skipped because they cannot be read."""
    misread: list[Problem] = []
    strict: bool = False
    """True if bash gets the text unchanged; False for a fragment or part of a document."""


_QUESTIONS = {
    *("[", "test", "false", "grep", "egrep", "pgrep"),
    *("command", "which", "type", "hash", "cmp", "diff"),
}
"""Commands run for their exit status. Other commands before `&&` are assumed to succeed."""


def asks(node: Node) -> bool:
    """True if the next command of a list depends on this command's uncertain exit status."""
    if node.end == "||":
        return True
    if node.end != "&&" or not isinstance(node, Simple):
        return False
    if not node.words:  # `[[ … ]]` and `(( … ))`
        return not node.assignments
    return node.words[0].plain in _QUESTIONS


def pipeline(nodes: Sequence[Node], index: int) -> SourceSpan | None:
    """Return the span that the command at `index` pipes into; None if it has no pipe."""
    node = nodes[index]
    if node.end not in ("|", "|&"):
        return None
    last = index + 1
    while last + 1 < len(nodes) and nodes[last].end in ("|", "|&"):
        last += 1
    if last >= len(nodes):
        return None
    return SourceSpan(node.span.source, node.end_at, nodes[last].span.end)


MAX_DEPTH = 40
_MAX_ARITHMETIC = 2_000

_PLAIN = lazy(r"""[^ \t\n;&|()<>"'\\$`]+""")
_PLAIN_WORD = lazy(r"""[^ \t\n;&|()<>"'\\$`]++(?=[ \t\n;&|()>]|\Z)""")
"""Pattern of a word without quotes and expansions."""
_IN_QUOTES = lazy(r"""[^"\\$`]+""")
_IN_BRACES = lazy(r"""[^}\\'"$`]+""")
_SPECIAL = lazy(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_INDEX = lazy(r"\[([^\]\s]*)\]")
_OPERATOR = lazy(r":-|:=|:\?|:\+|[-=?+]|##|#|%%|%|//|/#|/%|/|\^\^|\^|,,|,|@|:")
_ANSI = lazy(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)
_ANSI_NAMED = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b",
    "f": "\f", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?",
}  # fmt: skip


class UnreadableCommandError(InputError):
    """Unreadable command, which begins at `at`. The text before and after it is readable."""

    def __init__(self, problem: Problem, at: int, *, by_line: bool = False) -> None:
        super().__init__(problem)
        self.at = at
        self.by_line = by_line
        """True to continue after the line of `at`, False after the command's first line."""


class Lexer:
    """Reader of words from a source, starting at `pos`."""

    def __init__(self, source: SourceText, depth: int = 0) -> None:
        self.source = source
        self.text = source.text
        self.pos = 0
        self.depth = depth
        self.comments: list[SourceSpan] = []
        self.unread: list[Problem] = []
        self.misread: list[Problem] = []
        self.strict = False
        self.slips: list[Problem] = []
        """Syntax errors that stop bash but do not hide commands from this reader."""

    def parse_list(self, closers: frozenset[str], *, paren: bool = False) -> tuple[Node, ...]:
        """Return the commands up to a closing word or parenthesis. The parser implements this."""
        raise NotImplementedError

    def fail(self, message: str, at: int) -> NoReturn:
        raise UnreadableCommandError(Problem(message, self.source.place(at)), at)

    def slip(self, what: str, at: int) -> None:
        """Record a syntax error of a strict script."""
        if self.strict:
            help_ = "correct it; bash runs nothing after this error"
            self.slips.append(Problem(f"syntax error: {what}", self.source.place(at), help_))

    def enter(self, at: int) -> None:
        """Add one level of nesting. Raise InputError above `MAX_DEPTH`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise InputError(f"nested more than {MAX_DEPTH} levels deep", self.source.place(at))

    def span(self, start: int) -> SourceSpan:
        return SourceSpan(self.source, start, self.pos)

    def placeholder(self, start: int, end: int, *, begins: bool) -> Placeholder | None:
        """Return the first placeholder in a range, or None. `begins` allows `<name>` at `start`."""
        lenient = self.source.document.lenient
        return find_placeholder(self.text, start, end, lenient=lenient, begins=begins)

    def read_word(self, *, value_due: bool = False) -> ShellWord:
        """Return the word that starts here. It may be empty.

        `value_due`: true after a flag, whose `<name>` is a placeholder, not a redirection.
        """
        start = self.pos
        text = self.text
        word = _PLAIN_WORD.match(text, start)  # fast path for nearly all words
        if word is not None and not PLACEHOLDER_STARTS.search(text, start, word.end() + 1):
            self.pos = word.end()
            self.source.document.spend()
            return ShellWord((Literal(word[0], start),), self.source, start, self.pos)
        parts: list[Part] = []
        while self.pos < len(text):
            plain = _PLAIN.match(text, self.pos)
            begins = self.pos == start and (value_due or self.source.document.lenient)
            glued = self.pos > start or text[start - 1 : start] == "="
            end = plain.end() if plain is not None else self.pos
            if PLACEHOLDER_STARTS.search(text, self.pos, end + 1) and (
                mark := self.placeholder(self.pos, end, begins=begins or glued)
            ):
                self._mark(mark, parts)
                continue
            if plain is not None:
                parts.append(Literal(plain[0], self.pos))
                self.pos = plain.end()
                continue
            char = text[self.pos]
            if char == "\\":
                self._escape(parts)
            elif char == "'":
                parts.append(self._single_quoted())
            elif char == '"':
                self._double_quoted(parts)
            elif char == "$":
                self._dollar(parts, quoted=False)
            elif char == "`":
                parts.append(self._backticks(quoted=False))
            else:
                break
        self.source.document.spend()
        return ShellWord(tuple(parts), self.source, start, self.pos)

    def _mark(self, mark: Placeholder, parts: list[Part]) -> None:
        if mark.start > self.pos:
            parts.append(Literal(self.text[self.pos : mark.start], self.pos))
        parts.append(Literal(mark.text, mark.at, quoted=True))
        self.pos = mark.end
        if mark.for_shell is not None:
            written = self.text[mark.start : mark.end]
            message = f"`{written}` is not a value for the shell: {mark.for_shell}"
            place = self.source.place(mark.start, mark.end)
            self.misread.append(Problem(message, place, "write the value itself"))

    def _escape(self, parts: list[Part]) -> None:
        self.source.document.spend()
        if self.pos + 1 >= len(self.text):
            parts.append(Literal("\\", self.pos, quoted=True))
            self.pos += 1
            return
        if self.text[self.pos + 1] != "\n":  # a continued line adds nothing
            parts.append(Literal(self.text[self.pos + 1], self.pos + 1, quoted=True))
        self.pos += 2

    def _single_quoted(self) -> Literal:
        self.source.document.spend()
        start = self.pos + 1
        end = self.text.find("'", start)
        if end < 0:
            self.fail("a single quote is not closed", self.pos)
        self.pos = end + 1
        return Literal(self.text[start:end], start, quoted=True)

    def _double_quoted(self, parts: list[Part]) -> None:
        start = self.pos
        self.source.document.spend()
        self.enter(start)
        self.pos += 1
        first = len(parts)
        while self.pos < len(self.text) and self.text[self.pos] != '"':
            self._quoted_part(parts, start)
        if self.pos >= len(self.text):
            self.fail("a double quote is not closed", start)
        self.pos += 1
        if not any(isinstance(part, Parameter) and part.list_like for part in parts[first:]):
            parts.insert(first, Literal("", start + 1, quoted=True))  # "" is also a word
        self.depth -= 1

    def read_quoted(self, parts: list[Part]) -> None:
        """Add to `parts` the next part of a text as in double quotes, with `"` as plain text."""
        if self.text[self.pos] == '"':
            parts.append(Literal('"', self.pos, quoted=True))
            self.pos += 1
        else:
            self._quoted_part(parts, self.pos)

    def _quoted_part(self, parts: list[Part], start: int) -> None:
        plain = _IN_QUOTES.match(self.text, self.pos)
        if plain is not None:
            parts.append(Literal(plain[0], self.pos, quoted=True))
            self.pos = plain.end()
            return
        self.source.document.spend()
        char = self.text[self.pos]
        if char == "\\":
            follows = self.text[self.pos + 1 : self.pos + 2]
            if follows in ("$", "`", '"', "\\"):
                parts.append(Literal(follows, self.pos + 1, quoted=True))
            elif follows != "\n":
                parts.append(Literal("\\" + follows, self.pos, quoted=True))
            self.pos += 2
        elif char == "$":
            self._dollar(parts, quoted=True)
        elif char == "`":
            parts.append(self._backticks(quoted=True))
        else:  # pragma: no cover - every other character is plain
            self.fail("cannot parse this", start)

    def _dollar(self, parts: list[Part], *, quoted: bool) -> None:
        self.source.document.spend()
        text, start = self.text, self.pos
        follows = text[start + 1 : start + 2]
        if follows == "(":
            parts.append(self._parenthesis(quoted=quoted))
        elif follows == "{":
            self.enter(start)
            parts.append(self._braces(quoted=quoted))
            self.depth -= 1
        elif follows == "'" and not quoted:
            parts.append(self._ansi_quoted())
        elif follows == '"' and not quoted:
            self.pos += 1
            self._double_quoted(parts)
        elif name := _SPECIAL.match(text, start + 1):
            self.pos = name.end()
            parts.append(Parameter(name[0], start, self.pos, quoted))
        else:
            parts.append(Literal("$", start, quoted))
            self.pos += 1

    def _ansi_quoted(self) -> Literal:
        start = self.pos
        raw = self.text[start + 2 : self._closing(start + 2, "'", "a single quote")]
        self.source.document.spend(raw.count("\\"))
        text = _ANSI.sub(_ansi, raw)
        return Literal(text.partition("\0")[0], start + 2, quoted=True, exact=text == raw)

    def _closing(self, end: int, quote: str, what: str) -> int:
        """Return the offset of the next unescaped `quote` from `end` on, which is consumed."""
        while end < len(self.text) and self.text[end] != quote:
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            self.fail(f"{what} is not closed", self.pos)
        self.pos = end + 1
        return end

    def _parenthesis(self, *, quoted: bool) -> Part:
        start = self.pos
        if self.text.startswith("$((", start):
            end = self.arithmetic_end(start + 3)
            if end is not None:
                self.pos = end + 2
                return Arithmetic(self.text[start + 3 : end], start, self.pos, quoted)
        self.pos = start + 2
        body = self.parenthesised_list("$(", start, loose=self.text.startswith("$((", start))
        return Substitution(body, start, self.pos, quoted)

    def parenthesised_list(
        self, opening: str, start: int, *, loose: bool = False
    ) -> tuple[Node, ...]:
        """Return the commands up to a ``)``, which is consumed.

        `start` is the offset of `opening`. `loose`: the text may also be arithmetic.
        """
        strict, slips = self.strict, len(self.slips)
        self.strict = strict and not loose
        body = self.parse_list(frozenset(), paren=True)
        self.strict = strict
        if loose:
            del self.slips[slips:]
        if self.pos >= len(self.text):
            self.fail(f"`{opening}` is not closed", start)
        self.pos += 1
        return body

    def arithmetic_end(self, start: int) -> int | None:
        """Return the offset of the ``))`` that closes an arithmetic expression, or None."""
        depth = 0
        for match in re.compile(r"[()\n;'\"`]").finditer(self.text, start, start + _MAX_ARITHMETIC):
            if match[0] == "(":
                depth += 1
            elif match[0] != ")":
                return None  # a command: arithmetic has none of these
            elif depth:
                depth -= 1
            else:
                return match.start() if self.text.startswith("))", match.start()) else None
        return None

    def _backticks(self, *, quoted: bool) -> Part:
        start = self.pos
        inside = self.source.part(start + 1, self._closing(start + 1, "`", "a backtick"))
        if "\\" in inside.text:
            return OpaquePart("a command between backticks is not run", start, self.pos, quoted)
        self.enter(start)
        inner = type(self)(inside, self.depth)
        nodes = inner.parse_list(frozenset())
        self.unread += inner.unread
        self.misread += inner.misread
        self.depth -= 1
        return Substitution(nodes, start, self.pos, quoted, inside)

    def _braces(self, *, quoted: bool) -> Part:
        start = self.pos
        self.pos += 2
        prefix = ""
        if re.compile(r"[#!][A-Za-z0-9_@*]").match(self.text, self.pos):
            prefix = self.text[self.pos]
            self.pos += 1
        name = _NAME.match(self.text, self.pos)
        if name is None:
            return self._skip_braces(start, quoted=quoted)
        self.pos = name.end()
        index = _INDEX.match(self.text, self.pos)
        if index is not None:
            self.pos = index.end()
        subscript = index[1] if index is not None else None
        operator = _OPERATOR.match(self.text, self.pos)
        if operator is not None:
            self.pos = operator.end()
            operand = self._operand(start, quoted=quoted)
        elif self.text[self.pos : self.pos + 1] == "}":
            operand = None
        else:
            return self._skip_braces(start, quoted=quoted)
        self.pos += 1
        sign = operator[0] if operator is not None else ""
        return Parameter(name[0], start, self.pos, quoted, sign, operand, subscript, prefix)

    def _skip_braces(self, start: int, *, quoted: bool) -> Part:
        self._operand(start, quoted=quoted)
        self.pos += 1
        return OpaquePart("this expansion is not supported", start, self.pos, quoted)

    def _operand(self, start: int, *, quoted: bool) -> ShellWord:
        """Return the word up to the ``}``, which is not consumed."""
        begin = self.pos
        parts: list[Part] = []
        while self.pos < len(self.text) and self.text[self.pos] != "}":
            plain = _IN_BRACES.match(self.text, self.pos)
            if plain is not None:
                parts.append(Literal(plain[0], self.pos, quoted))
                self.pos = plain.end()
                continue
            char = self.text[self.pos]
            if char == "\\":
                if quoted and self.text[self.pos + 1 : self.pos + 2] not in '$`"\\}\n':
                    parts.append(Literal("\\", self.pos, quoted))
                    self.pos += 1
                else:
                    self._escape(parts)
            elif char == "'" and quoted:
                parts.append(Literal("'", self.pos, quoted))
                self.pos += 1
            elif char == "'":
                parts.append(self._single_quoted())
            elif char == '"':
                self._double_quoted(parts)
            elif char == "$":
                self._dollar(parts, quoted=quoted)
            else:
                parts.append(self._backticks(quoted=quoted))
        if self.pos >= len(self.text):
            self.fail("`${` is not closed", start)
        self.source.document.spend(len(parts))
        return ShellWord(tuple(parts), self.source, begin, self.pos)


def _ansi(match: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group]:
            code = int(match[group], base)
            return chr(code & 0xFF if base == 8 else min(code, 0x10FFFF))
    if match[5]:
        return chr(ord(match[5]) & 0x1F)
    return _ANSI_NAMED.get(match[6], match[0])

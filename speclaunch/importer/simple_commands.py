"""Simple commands: words, assignments, redirections, here-documents, comments."""

from __future__ import annotations

import re

from speclaunch.errors import Problem
from speclaunch.importer.lexer import Lexer, UnreadableCommandError
from speclaunch.importer.source_text import SourceSpan, SourceText
from speclaunch.importer.syntax import Assignment, OpaquePart, Redirect, ShellWord, Simple
from speclaunch.patterns import lazy

DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})
_TAKE_ARRAYS = frozenset({"eval", "let", "alias"})
"""Builtins whose arguments may be ``name=( … )`` too."""

_BLANK = lazy(r"(?:[ \t]+|\\\n)+")
_ASSIGNMENT = lazy(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\n]*\])?(\+?=)")
_REDIRECT = lazy(r"(?:[0-9]+|\{[A-Za-z_]\w*\})?(<<<|<<-?|<>|<&|>&|>>|>\||&>>|&>|<(?!\()|>(?!\())")

_MAY_REDIRECT = frozenset("0123456789{<>&")
"""How a redirection begins."""


class SimpleParser(Lexer):
    """Reads what stands between two operators of the shell."""

    def __init__(self, source: SourceText, depth: int = 0) -> None:
        super().__init__(source, depth)
        self._pending: list[tuple[Redirect, str]] = []

    # -- between commands ---------------------------------------------------------------

    def skip_blank(self, *, newlines: bool = False, comments: bool = True) -> None:
        """Step over blanks, continued lines, and on request line ends and comments."""
        text = self.text
        while self.pos < len(text):
            blank = _BLANK.match(text, self.pos)
            if blank is not None:
                self.pos = blank.end()
            elif newlines and text[self.pos] == "\n":
                self.pos += 1
                if self._pending:
                    self._here_documents()
            elif comments and text[self.pos] == "#":
                end = text.find("\n", self.pos)
                start, self.pos = self.pos, len(text) if end < 0 else end
                self.source.document.spend()
                self.comments.append(self.span(start))
            else:
                return

    def _here_documents(self) -> None:
        for redirect, delimiter in self._pending:
            start = self.pos
            tabs = "\t*" if redirect.operator == "<<-" else ""
            ending = re.compile(rf"^{tabs}{re.escape(delimiter)}$\n?", re.MULTILINE)
            found = ending.search(self.text, start)
            stop = found.start() if found is not None else len(self.text)
            self.pos = found.end() if found is not None else len(self.text)
            redirect.body = SourceSpan(self.source, start, stop)
        self._pending.clear()

    def words(self) -> tuple[ShellWord, ...]:
        """Words up to an operator or the end of the line."""
        words: list[ShellWord] = []
        while True:
            self.skip_blank()
            word = self.read_word()
            if word.end == word.start:
                return tuple(words)
            words.append(word)

    # -- simple commands ----------------------------------------------------------------

    def simple(self, start: int) -> Simple:
        """The simple command that starts here."""
        assignments: list[Assignment] = []
        declared: list[Assignment] = []
        words: list[ShellWord] = []
        redirects: list[Redirect] = []
        end = start
        while True:
            self.skip_blank()
            due = bool(words) and (words[-1].plain or "").startswith("-")
            redirects_here = self.text[self.pos : self.pos + 1] in _MAY_REDIRECT
            if redirects_here and (redirect := self._redirect(value_due=due)) is not None:
                redirects.append(redirect)
            elif not words and (assignment := self._assignment()) is not None:
                assignments.append(assignment)
            elif (
                words
                and words[0].plain in DECLARING
                and (assignment := self._assignment()) is not None
            ):
                declared.append(assignment)
            else:
                before = self.pos
                if self.text.startswith(("<(", ">("), before):
                    words.append(self._process_substitution())
                else:
                    word = self.read_word(value_due=due)
                    if self.pos == before:
                        self._no_parenthesis(words, end)
                        break
                    if word.parts:  # not so after a continued line alone
                        words.append(word)
            end = self.pos
        if end == start:  # nothing that starts a command: step over it
            self.pos += 1
            end = self.pos
        span = SourceSpan(self.source, start, end)
        return Simple(span, tuple(assignments), tuple(words), tuple(declared), tuple(redirects))

    def _no_parenthesis(self, words: list[ShellWord], end: int) -> None:
        """bash stops at a ``(`` behind a word, which is no function, array or pattern here."""
        at = self.pos
        if not self.strict or not self.text.startswith("(", at) or at == 0:
            return
        glued = at == end
        if glued and self.text[at - 1] in "@!+?*":  # `!(a|b)`, where extglob is on
            return
        takes_arrays = not words or words[0].plain in _TAKE_ARRAYS
        if glued and takes_arrays and self.text[at - 1] == "=":  # bash takes it, and may complain
            return
        raise UnreadableCommandError(
            Problem("syntax error near the unexpected `(`", self.source.place(at)), at, by_line=True
        )

    def _process_substitution(self) -> ShellWord:
        start = self.pos
        self.pos += 2
        self.parse_list(frozenset(), paren=True)
        if self.pos >= len(self.text):
            self.fail("`<(` is not closed", start)
        self.pos += 1
        part = OpaquePart("a command in `<( )` is not run", start, self.pos)
        return ShellWord((part,), self.source, start, self.pos)

    def redirects(self) -> tuple[Redirect, ...]:
        """The redirections that follow a compound command."""
        found: list[Redirect] = []
        while True:
            self.skip_blank()
            redirect = self._redirect()
            if redirect is None:
                return tuple(found)
            found.append(redirect)

    def _redirect(self, *, value_due: bool = False) -> Redirect | None:
        start = self.pos
        match = _REDIRECT.match(self.text, start)
        if match is None or self.placeholder(start, start, begins=value_due):
            return None
        self.pos = match.end()
        self.skip_blank()
        if self.text.startswith(("<(", ">("), self.pos) and match[1] not in ("<<", "<<-"):
            target = self._process_substitution()  # `> >(tee log)`, `< <(command)`
        else:
            target = self.read_word()
        if target.end == target.start:
            self.slip(f"`{match[0]}` does not name a file", start)
        quoted = target.plain is None
        redirect = Redirect(match[1], self.span(start), target, literal=quoted)
        if match[1] in ("<<", "<<-"):
            delimiter = "".join(getattr(part, "text", "") for part in target.parts)
            self._pending.append((redirect, delimiter))
        return redirect

    def _assignment(self) -> Assignment | None:
        start = self.pos
        match = _ASSIGNMENT.match(self.text, start)
        if match is None:
            return None
        self.pos = match.end()
        value: ShellWord | tuple[ShellWord, ...]
        if self.text.startswith("(", self.pos) and match[2] is None:
            value = self._array(start)
        else:
            value = self.read_word()
        index = match[2][1:-1] if match[2] is not None else None
        return Assignment(match[1], value, self.span(start), match[3] == "+=", index)

    def _array(self, start: int) -> tuple[ShellWord, ...]:
        self.pos += 1
        items: list[ShellWord] = []
        while True:
            self.skip_blank(newlines=True)
            if self.pos >= len(self.text):
                self.fail("an array `( … )` is not closed", start)
            if self.text[self.pos] == ")":
                self.pos += 1
                return tuple(items)
            before = self.pos
            word = self.read_word(value_due=True)
            if self.pos == before:
                self.fail(f"`{self.text[before]}` inside of an array `( … )`", before)
            items.append(word)

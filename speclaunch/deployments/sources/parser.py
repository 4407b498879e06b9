"""Parser of a shell script into a tree of commands.

The parser skips unknown syntax, because a fragment or an incorrect script can still contain
commands. An unreadable command (an unclosed quote) is skipped and reported. Excessive nesting
raises InputError.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from speclaunch.core import InputError, Problem, lazy
from speclaunch.deployments.sources.shell_syntax import (
    Assignment,
    Branch,
    Compound,
    Function,
    Lexer,
    Node,
    OpaquePart,
    Part,
    Redirect,
    Script,
    ShellWord,
    Simple,
    UnreadableCommandError,
)
from speclaunch.deployments.sources.source_text import SourceSpan, SourceText

DECLARING = frozenset({"export", "declare", "local", "readonly", "typeset"})
_TAKE_ARRAYS = frozenset({"eval", "let", "alias"})
"""Builtins whose arguments may also be ``name=( … )``."""

_BLANK = lazy(r"(?:[ \t]+|\\\n)+")
_ASSIGNMENT = lazy(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\n]*\])?(\+?=)")
_REDIRECT = lazy(r"(?:[0-9]+|\{[A-Za-z_]\w*\})?(<<<|<<-?|<>|<&|>&|>>|>\||&>>|&>|<(?!\()|>(?!\())")

_MAY_REDIRECT = frozenset("0123456789{<>&")
_RESERVED = lazy(
    r"(?:if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|time|coproc"
    r"|\{|\}|!|\[\[)"
    r"(?=[ \t\n;&|()<>]|\Z)"
)
_FUNCTION = lazy(r"""([^\s;&|()<>$`"'=\\#]+)[ \t]*\([ \t]*\)""")
_ENDING = lazy(r"&&|\|\||\|&|;(?![;&])|&|\||\n")
_LOGICAL_LINE = lazy(r"(?:[^\n\\]|\\[\s\S]|\\\Z)*")
"""Pattern of a line with its continuation lines."""
_QUOTE = lazy("[\"'`]")
_COST_OF_GIVING_UP = 500
"""Work that each unreadable command adds (`Document.spend`).

Lines may be read again after it, so this limits the time for a file with many errors.
"""
_COPROCESS_NAME = lazy(r"[ \t]+\w+(?=[ \t]+[({])")
_WORD_START = lazy(r"[^\s;&|()<>#]")
_FOR_NAME = lazy(r"[A-Za-z_]\w*")


def parse(source: SourceText, *, strict: bool = False) -> Script:
    """Return the tree of a script. Raise InputError if it is too large or deeply nested.

    `strict`: report the first syntax error, because bash gets the text unchanged.
    """
    parser = _Parser(source)
    parser.strict = strict
    nodes = parser.parse_list(frozenset())
    for comment in parser.comments:
        end = source.offset(comment.end - 1) + 1
        source.document.note_comment(source.offset(comment.start), end)
    unread = parser.unread or parser.slips[:1]
    return Script(source, nodes, parser.comments, unread, parser.misread, strict)


def quoted_text(body: SourceSpan) -> ShellWord | None:
    """Parse a text in which only ``$``, backticks and escapes are special, as in a here-document.

    Return None if it contains an unclosed expansion.
    """
    source = body.source.part(body.start, body.end)
    parser = _Parser(source)
    parts: list[Part] = []
    try:
        while parser.pos < len(source.text):
            parser.read_quoted(parts)
    except InputError:
        return None
    return ShellWord(tuple(parts), source, 0, len(source.text))


class _Parser(Lexer):
    def __init__(self, source: SourceText, depth: int = 0) -> None:
        super().__init__(source, depth)
        self._pending: list[tuple[Redirect, str]] = []

    # -- between commands ---------------------------------------------------------------

    def skip_blank(self, *, newlines: bool = False, comments: bool = True) -> None:
        """Skip blanks and line continuations, and (if enabled) newlines and comments."""
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
        """Return the words up to an operator or the end of the line."""
        words: list[ShellWord] = []
        while True:
            self.skip_blank()
            word = self.read_word()
            if word.end == word.start:
                return tuple(words)
            words.append(word)

    # -- simple commands ----------------------------------------------------------------

    def simple(self, start: int) -> Simple:
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
                words and words[0].plain in DECLARING and (found := self._assignment()) is not None
            ):
                declared.append(found)
            else:
                before = self.pos
                if self.text.startswith(("<(", ">("), before):
                    words.append(self._process_substitution())
                else:
                    word = self.read_word(value_due=due)
                    if self.pos == before:
                        self._no_parenthesis(words, end)
                        break
                    if word.parts:  # empty after only a continued line
                        words.append(word)
            end = self.pos
        if end == start:  # no start of a command: skip it
            self.pos += 1
            end = self.pos
        span = SourceSpan(self.source, start, end)
        return Simple(span, tuple(assignments), tuple(words), tuple(declared), tuple(redirects))

    def _no_parenthesis(self, words: list[ShellWord], end: int) -> None:
        """Raise UnreadableCommandError for a ``(`` after a word if bash rejects it.

        Bash accepts it in a function, an array or a pattern.
        """
        at = self.pos
        if not self.strict or not self.text.startswith("(", at) or at == 0:
            return
        glued = at == end
        if glued and self.text[at - 1] in "@!+?*":  # `!(a|b)`, if extglob is on
            return
        takes_arrays = not words or words[0].plain in _TAKE_ARRAYS
        if glued and takes_arrays and self.text[at - 1] == "=":  # bash accepts it, and may complain
            return
        problem = Problem("syntax error near unexpected token `(`", self.source.place(at))
        raise UnreadableCommandError(problem, at, by_line=True)

    def _process_substitution(self) -> ShellWord:
        start = self.pos
        self.pos += 2
        self.parenthesised_list("<(", start)
        part = OpaquePart("a command in `<( )` is not run", start, self.pos)
        return ShellWord((part,), self.source, start, self.pos)

    def redirects(self) -> tuple[Redirect, ...]:
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
                self.fail(f"unexpected `{self.text[before]}` in an array `( … )`", before)
            items.append(word)

    # -- lists of commands --------------------------------------------------------------

    def parse_list(
        self, closers: frozenset[str], *, paren: bool = False, case: bool = False
    ) -> tuple[Node, ...]:
        self.enter(self.pos)
        nodes: list[Node] = []
        while True:
            self.skip_blank(newlines=True)
            if self.pos >= len(self.text):
                break
            char = self.text[self.pos]
            if char == ")":
                if paren:
                    break
                self.slip("unmatched `)`", self.pos)
                self.pos += 1
            elif char in ";&|" and not self.text.startswith("&>", self.pos):
                if case and self.text.startswith((";;", ";&"), self.pos):
                    break
                self.slip(f"no command before `{char}`", self.pos)
                self.pos += 1
            elif (word := _RESERVED.match(self.text, self.pos)) and word[0] in closers:
                break
            else:
                node = self._command() if paren else self._readable_command()
                if node is not None:
                    self._ending(node)
                    nodes.append(node)
        self.depth -= 1
        return tuple(nodes)

    def _readable_command(self) -> Node | None:
        """Return the command that starts here; skip its line and return None if unreadable."""
        start, depth = self.pos, self.depth
        held: tuple[list[Any], ...] = (self._pending, self.comments, self.misread)
        before = [len(items) for items in held]
        try:
            return self._command()
        except UnreadableCommandError as error:
            by_line = error.by_line and self.text[start] != "("
            if not by_line:  # the parser reads lines a second time
                self.source.document.spend(_COST_OF_GIVING_UP)
            line = _LOGICAL_LINE.match(self.text, error.at if by_line else start)
            end = line.end() if line is not None else len(self.text)
            self._give_up(error, start, end)
            self.depth, self.pos = depth, end
            for items, count in zip(held, before, strict=True):
                del items[count:]
            return None

    def _give_up(self, error: UnreadableCommandError, start: int, end: int) -> None:
        """Report why a command is skipped, at the place where its unclosed quote opened."""
        (problem,) = error.problems
        quote = _QUOTE.search(self.text, start, end)
        if error.at >= end and quote is not None:
            problem = replace(problem, place=self.source.place(quote.start()))
        help_ = "correct this command, which is skipped; the rest of the file is read"
        self.unread.append(replace(problem, help=help_))

    def _ending(self, node: Node) -> None:
        self.skip_blank()
        node.end_at = self.pos
        ending = _ENDING.match(self.text, self.pos)
        if ending is not None:
            node.end = ending[0]
            if ending[0] != "\n":
                self.pos = ending.end()
        elif isinstance(node, Compound):
            word = _WORD_START.match(self.text, self.pos)
            if word and not _RESERVED.match(self.text, self.pos):
                self.slip(f"unexpected word after the end of the {_named(node)}", self.pos)

    # -- commands -----------------------------------------------------------------------

    def _command(self) -> Node | None:  # noqa: PLR0911
        start = self.pos
        word = _RESERVED.match(self.text, start)
        if word is not None:
            self.pos = word.end()
            match word[0]:
                case "if":
                    return self._if(start)
                case "while" | "until":
                    return self._loop(start, word[0])
                case "for" | "select":
                    return self._for(start, word[0])
                case "case":
                    return self._case(start)
                case "{":
                    body = self.parse_list(frozenset({"}"}))
                    self._shut(start, "{", body, "}")
                    return self._compound("group", start, body)
                case "[[":
                    return self._test(start)
                case "function":
                    return self._function_word(start)
                case _:
                    self._before_command(start, word[0])
                    return None
        if self.text[start] == "(":
            return self._parenthesised(start)
        name = _FUNCTION.match(self.text, start)
        if name is not None:
            self.pos = name.end()
            return self._function(start, name[1])
        return self.simple(start)

    def _before_command(self, start: int, word: str) -> None:
        """Skip ``time``, ``!`` or ``coproc NAME`` before a command; report other words."""
        if word == "coproc":
            name = _COPROCESS_NAME.match(self.text, self.pos)
            self.pos = name.end() if name is not None else self.pos
        elif word not in ("time", "!"):
            self.slip(f"unmatched `{word}`", start)

    def _close(self, *words: str) -> str:
        found = _RESERVED.match(self.text, self.pos)
        if found is not None and found[0] in words:
            self.pos = found.end()
            return found[0]
        return ""

    def _shut(self, start: int, opening: str, body: tuple[Node, ...] | None, *closing: str) -> str:
        """Consume and return a `closing` word; "" if missing. Report that, or an empty `body`."""
        at = self.pos
        found = self._close(*closing)
        if not found:
            self.slip(f"`{opening}` has no `{closing[-1]}`", start)
        elif body == ():
            self.slip(f"no command before `{found}`", at)
        return found

    def _compound(self, kind: str, start: int, body: tuple[Node, ...]) -> Compound:
        branch = Branch(SourceSpan(self.source, start, start), (), body, certain=True)
        return Compound(kind, self.span(start), (branch,), redirects=self.redirects())

    def _if(self, start: int) -> Compound:
        branches: list[Branch] = []
        keyword, at = "if", start
        while keyword in ("if", "elif"):
            condition = self.parse_list(frozenset({"then"}))
            label = SourceSpan(self.source, at, _trimmed(self.text, at, self.pos))
            self._shut(at, keyword, condition, "then")
            body = self.parse_list(frozenset({"elif", "else", "fi"}))
            branches.append(Branch(label, condition, body))
            at = self.pos
            keyword = self._shut(start, "if", body, "elif", "else", "fi")
        if keyword == "else":
            label = self.span(at)
            body = self.parse_list(frozenset({"fi"}))
            self._shut(start, "if", body, "fi")
            branches.append(Branch(label, (), body, certain=True))
        return Compound("if", self.span(start), tuple(branches), redirects=self.redirects())

    def _loop(self, start: int, kind: str) -> Compound:
        condition = self.parse_list(frozenset({"do"}))
        label = SourceSpan(self.source, start, _trimmed(self.text, start, self.pos))
        self._shut(start, kind, condition, "do")
        body = self.parse_list(frozenset({"done"}))
        self._shut(start, kind, body, "done")
        branch = Branch(label, condition, body)
        return Compound(kind, self.span(start), (branch,), redirects=self.redirects())

    def _for(self, start: int, kind: str) -> Compound:
        variable: str | None = None
        items: tuple[ShellWord, ...] | None = None
        self.skip_blank()
        if self.text.startswith("((", self.pos):
            self.pos = self._for_header_end()
        elif name := _FOR_NAME.match(self.text, self.pos):
            variable = name[0]
            self.pos = name.end()
            self.skip_blank(newlines=True)
            if re.compile(r"in(?=[ \t\n;]|\\\n|\Z)").match(self.text, self.pos):
                self.pos += 2
                items = self.words()
        label = self.span(start)
        self.skip_blank()
        if self.text.startswith(";", self.pos):
            self.pos += 1
        self.skip_blank(newlines=True)
        closer = "done" if self._shut(start, kind, None, "{", "do") == "do" else "}"
        body = self.parse_list(frozenset({closer}))
        self._shut(start, kind, body, closer)
        branch = Branch(label, (), body)
        redirects = self.redirects()
        return Compound(kind, self.span(start), (branch,), variable, items, redirects)

    def _for_header_end(self) -> int:
        depth = 0
        for match in re.compile(r"[()]").finditer(self.text, self.pos):
            depth += 1 if match[0] == "(" else -1
            if not depth:
                return match.end()
        return len(self.text)

    def _case(self, start: int) -> Compound:
        self.skip_blank()
        subject = self.read_word()
        self.skip_blank(newlines=True)
        if self.text.startswith("in", self.pos):
            self.pos += 2
        branches: list[Branch] = []
        while True:
            self.skip_blank(newlines=True)
            if self.pos >= len(self.text):
                self.slip("`case` has no `esac`", start)
                break
            if self._close("esac"):
                break
            at = self.pos
            pattern = self._pattern()
            label = SourceSpan(self.source, at, _trimmed(self.text, at, self.pos))
            body = self.parse_list(frozenset({"esac"}), case=True)
            branches.append(Branch(label, (), body, certain=pattern.strip() == "*"))
            ending = re.compile(r";;&|;;|;&").match(self.text, self.pos)
            self.pos = ending.end() if ending is not None else max(self.pos, at + 1)
        redirects = self.redirects()
        return Compound("case", self.span(start), tuple(branches), None, (subject,), redirects)

    def _pattern(self) -> str:
        if self.text.startswith("(", self.pos):
            self.pos += 1
        start = self.pos
        while self.pos < len(self.text):
            self.skip_blank(newlines=True)
            before = self.pos
            self.read_word()
            if self.text.startswith(")", self.pos):
                self.pos += 1
                return self.text[start : self.pos - 1]
            if self.pos == before:
                self.pos = min(self.pos + 1, len(self.text))
        return self.text[start:]

    def _test(self, start: int) -> Simple:
        while self.pos < len(self.text):
            self.skip_blank(newlines=True, comments=False)
            if self.text.startswith("]]", self.pos):
                self.pos += 2
                return Simple(self.span(start))
            before = self.pos
            self.read_word()
            if self.pos == before:
                self.pos += 1
        return self.fail("`[[` is not closed", start)

    def _parenthesised(self, start: int) -> Node:
        if self.text.startswith("((", start):
            end = self.arithmetic_end(start + 2)
            if end is not None:
                self.pos = end + 2
                return Simple(self.span(start))
        self.pos = start + 1
        loose = self.text.startswith("((", start)
        body = self.parenthesised_list("(", start, loose=loose)
        if not body and not loose:
            self.slip("no command before `)`", self.pos - 1)
        return self._compound("subshell", start, body)

    def _function_word(self, start: int) -> Node | None:
        self.skip_blank()
        name = re.compile(r"[^\s;&|()<>]+").match(self.text, self.pos)
        if name is None:
            return None
        self.pos = name.end()
        parentheses = re.compile(r"[ \t]*\([ \t]*\)").match(self.text, self.pos)
        if parentheses is not None:
            self.pos = parentheses.end()
        return self._function(start, name[0])

    def _function(self, start: int, name: str) -> Function:
        self.enter(start)
        self.skip_blank(newlines=True)
        body = self._command() if self.pos < len(self.text) else None
        self.depth -= 1
        if isinstance(body, Simple) and (body.words or body.assignments):
            self.slip(f"`{name}()` is not followed by `{{`", start)
        return Function(name, self.span(start), (body,) if body is not None else ())


def _named(node: Compound) -> str:
    return {"subshell": "`( … )`", "group": "`{ … }`"}.get(node.kind, f"`{node.kind}`")


def _trimmed(text: str, start: int, end: int) -> int:
    while end > start and text[end - 1] in " \t\n;":
        end -= 1
    return end

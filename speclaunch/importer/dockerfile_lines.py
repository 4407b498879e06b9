"""The instructions of a Dockerfile: logical lines, here-documents, the words of an exec form.

As BuildKit's parser reads them (frontend/dockerfile/parser): a line goes on behind the escape
character, comments and empty lines between continued lines count for nothing, and a list of JSON
strings is an exec form; anything else behind the instruction is a shell form.
"""

from __future__ import annotations

import json
import re

from speclaunch.importer.scope import Field
from speclaunch.importer.source_text import Document, SourceSpan, SourceText, WordPiece
from speclaunch.patterns import lazy
from speclaunch.record import record

_INSTRUCTION = lazy(r"[ \t]*(?:ONBUILD[ \t]+)?([A-Za-z]+)(?=[ \t\\`]|\Z)", re.IGNORECASE)
_DIRECTIVE = lazy(r"#[ \t]*(\w+)[ \t]*=[ \t]*(\S+)[ \t]*")
_HEREDOC = lazy(r"<<(-?)([\"']?)([A-Za-z_]\w*)\2")
_OPTIONS = lazy(r"(?:[ \t]*--[a-z][a-z-]*(?:=\S*)?(?=\s))+")
_STRING = lazy(r'"((?:[^"\\\n]|\\.)*)"')
_MAY_HAVE_HEREDOC = frozenset({"RUN", "COPY", "ADD"})
KNOWN = frozenset(
    [
        *("FROM", "ARG", "ENV", "RUN", "CMD", "ENTRYPOINT", "COPY", "ADD", "SHELL", "WORKDIR"),
        *("LABEL", "EXPOSE", "USER", "VOLUME", "STOPSIGNAL", "HEALTHCHECK", "ONBUILD"),
        "MAINTAINER",
    ]
)


@record
class Instruction:
    """One instruction. `rest` is what stands behind its name, as one line of the same length.

    `bodies` are its here-documents, `start` where its name stands in the file.
    """

    name: str
    rest: SourceText
    start: int
    end: int
    bodies: tuple[SourceText, ...] = ()
    on_build: bool = False
    """It is carried out in the build of another image."""

    @property
    def span(self) -> SourceSpan:
        """What stands behind the name."""
        return SourceSpan(self.rest, 0, len(self.rest.text))


def instructions(document: Document, start: int = 0, end: int | None = None) -> list[Instruction]:
    """The instructions of a Dockerfile, or of the stretch of a document that holds one."""
    text = document.text[: len(document.text) if end is None else end]
    escape = _escape(text, start)
    found: list[Instruction] = []
    at = start
    while at < len(text):
        stop, line = _logical_line(text, at, escape)
        name = _INSTRUCTION.match(line)
        if name is None or name[1].upper() not in KNOWN:
            at = stop
            continue
        document.spend(1 + len(line) // 50)
        rest = line[name.end() :]
        options = _OPTIONS.match(rest)
        skipped = name.end() + (options.end() if options is not None else 0)
        source = SourceText(document, line[skipped:].rstrip(), at + skipped)
        kind, begin = name[1].upper(), at
        bodies: list[SourceText] = []
        if kind in _MAY_HAVE_HEREDOC:
            stop = _bodies(document, text, source.text, stop, bodies)
        on_build = line.lstrip()[:7].upper() == "ONBUILD"
        found.append(Instruction(kind, source, begin, stop, tuple(bodies), on_build))
        at = stop
    return found


def _escape(text: str, at: int) -> str:
    """The escape character: a directive before the first instruction may choose the backtick."""
    while True:
        end = text.find("\n", at)
        line = text[at : len(text) if end < 0 else end].strip()
        directive = _DIRECTIVE.fullmatch(line)
        if directive is None:
            return "\\"
        if directive[1].lower() == "escape":
            return directive[2] if directive[2] in ("\\", "`") else "\\"
        if end < 0:
            return "\\"
        at = end + 1


def _logical_line(text: str, start: int, escape: str) -> tuple[int, str]:
    """Where the instruction that may start here ends, and its text as one line.

    What belongs to no word (an escaped line end, a comment, an empty line) is blank in it; so that
    each character stands where it does in the file.
    """
    parts: list[str] = []
    at, continued = start, False
    while at < len(text):
        found = text.find("\n", at)
        end = len(text) if found < 0 else found
        line = text[at:end]
        stop = min(end + 1, len(text))
        bare = line.strip()
        if continued and (not bare or bare.startswith("#")):
            parts.append(" " * (stop - at))
            at = stop
            continue
        if not continued and (not bare or bare.startswith("#")):
            return stop, ""
        if not bare.endswith(escape):
            parts.append(line)
            return stop, "".join(parts)
        kept = line.rstrip()[:-1]
        parts.append(kept + " " * (stop - at - len(kept)))
        at, continued = stop, True
    return at, "".join(parts)


def _bodies(document: Document, text: str, line: str, at: int, bodies: list[SourceText]) -> int:
    """The here-documents behind an instruction; gives where they end."""
    for opening in _HEREDOC.finditer(line):
        tabs = "\t*" if opening[1] else ""
        ending = re.compile(rf"^{tabs}{re.escape(opening[3])}$\n?", re.MULTILINE).search(text, at)
        if ending is None:
            return at
        bodies.append(SourceText(document, text[at : ending.start()], at))
        at = ending.end()
    return at


@record
class ExecForm:
    """The words of an exec form. `is_json` is False where Docker takes it for a shell command."""

    words: tuple[Field, ...]
    is_json: bool = True


def exec_form(source: SourceText) -> ExecForm | None:
    """The words of ``["program", "argument"]``; None for a shell form."""
    text = source.text.strip()
    if not text.startswith("["):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    is_json = isinstance(data, list) and all(isinstance(one, str) for one in data)
    words: list[Field] = []
    for string in _STRING.finditer(source.text):
        words.append(_string(source, string))
        source.document.spend()
    return ExecForm(tuple(words), is_json)


def _string(source: SourceText, string: re.Match[str]) -> Field:
    raw = string[1]
    whole = SourceSpan(source, string.start(1), max(string.end(1), string.start(1)))
    if "\\" not in raw:
        return Field((WordPiece(raw, source, string.start(1), quoted=True),), whole)
    try:
        text = str(json.loads(string[0]))
    except ValueError:
        text = raw
    where: list[int] = []
    at = string.start(1)
    for match in re.compile(r"\\u[0-9A-Fa-f]{4}|\\.|.", re.DOTALL).finditer(raw):
        where.append(source.offset(at + match.start()))
    if len(where) != len(text):
        where = [source.offset(at)] * len(text)
    return Field(
        (WordPiece(text, SourceText(source.document, text, where), 0, quoted=True),), whole
    )

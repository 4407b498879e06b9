"""Text of a user's file: the place of each character, the file's kind, templates, placeholders.

A script or a YAML value may contain a script (``bash -c "…"``), and a variable's value may be split
into words. All of these are a `SourceText`: text whose characters point into one `Document`.

A template (Jinja, or a file of a Helm chart) is rendered by another program before it is used. Only
the rendered text can be checked.

Placeholders stand for users' values: `<model>`, `[model]`, `{model}`, `{{ model }}`, `__PORT__`.
Their values are unknown. Documents and templates often contain them; `<model>` is not a redirection
there. In a script that runs unchanged, the shell does redirect: the parser reports the
redirection and still reads the placeholder.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import accumulate
from pathlib import Path, PurePath
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import ExitCode, InputError, Place, bounded, lazy, reads

MAX_WORK = 150_000
"""Maximum number of words and expansions in one file. Reading these takes about a second."""


class Document:
    """Text of one user file."""

    def __init__(self, text: str, shown: str, *, lenient: bool = False) -> None:
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise InputError("a NUL byte: this is not a text file", Place(shown, line))
        # Columns are the same without the carriage returns, and no shell needs them.
        self.text = text.replace("\r\n", "\n")
        self.shown = shown
        self.lenient = lenient
        """True for a document or a template, which no shell runs unchanged."""
        self._lines: list[int] | None = None
        self._work = 0
        self._parent: Document | None = None
        self.lines_above = 0
        """Number of lines of the file above this part."""
        self._chars_above = 0
        self._comments: list[tuple[int, int]] = []

    @property
    def has_room(self) -> bool:
        """True if the file has needed only little work so far."""
        return self._work < MAX_WORK // 4

    def spend(self, steps: int = 1) -> None:
        """Add `steps` to the work on the file. Raise InputError above `MAX_WORK`."""
        self._work += steps
        if self._parent is not None:
            self._parent.spend(steps)
        if self._work > MAX_WORK:
            what = f"it contains or expands to more than {MAX_WORK} words"
            message = f"{self.shown} is too large to read: {what}"
            help_ = "pass only the part with the server command"
            raise InputError(message, Place(self.shown), help_)

    def place(self, at: int, length: int = 1) -> Place:
        """Return the place of the character `at`; `length` is clipped to the end of its line."""
        if self._lines is None:
            lengths = (len(line) + 1 for line in self.text.split("\n"))
            self._lines = list(accumulate(lengths, initial=0))[:-1]
        at = min(max(at, 0), len(self.text))
        line = bisect_right(self._lines, at)
        start = self._lines[line - 1]
        end = self._lines[line] - 1 if line < len(self._lines) else len(self.text)
        length = max(1, min(length, end - at))
        return Place(self.shown, self.lines_above + line, at - start + 1, length)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a 0-based line and column (as in YAML marks)."""
        self.place(0)
        starts = self._lines or [0]
        return min(starts[min(line, len(starts) - 1)] + column, len(self.text))

    def at(self, place: Place) -> int:
        return self.offset(max(place.line - 1 - self.lines_above, 0), place.column - 1)

    def stretch(self, at: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the start and end offsets of the file that contains offset `at`."""
        return 0, len(self.text)

    def excerpt(self, start: int, text: str) -> Document:
        """Return `text` as a document with places in this document's file.

        `text` replaces equally long text from `start`, a line's beginning. Work on the excerpt also
        counts for this document.
        """
        found = Document(text, self.shown, lenient=self.lenient)
        found.lines_above = self.place(start).line - 1
        found._chars_above = start
        found._parent = self
        return found

    def indented(self, start: int, text: str) -> Document:
        """Return an excerpt of a program; an indented one gets a first line that opens a block."""
        if text[:1] not in (" ", "\t"):
            return self.excerpt(start, text)
        above = "if 1:\n"
        found = self.excerpt(start, above + text)
        found.lines_above -= 1
        found._chars_above -= len(above)
        return found

    def note_comment(self, start: int, end: int) -> None:
        """Record a range that a shell reads as a comment."""
        if self._parent is not None:
            self._parent.note_comment(start + self._chars_above, end + self._chars_above)
        self._comments.append((start, end))

    @property
    def shell_comments(self) -> list[tuple[int, int]]:
        """Ranges that shells read as comments in the scripts read so far."""
        return self._comments

    def source(self, start: int = 0, end: int | None = None) -> SourceText:
        return SourceText(self, self.text[start:end], start)


class SourceText(Struct, frozen=True, eq=False):
    """Text, with the document offset of each of its characters.

    `where` is one offset if the text is a contiguous part of the file, otherwise one offset per
    character.
    """

    document: Document
    text: str
    where: int | Sequence[int] = 0
    outer: Sequence[tuple[int, WordPiece]] = ()
    """Pieces of the outer script that are unknown or conditional, with positions in `text`."""

    def offset(self, at: int) -> int:
        """Return the document offset of character `at`, which may be the end of the text."""
        if isinstance(self.where, int):
            return self.where + at
        if at < len(self.where):
            return self.where[at]
        return self.where[-1] + 1 if self.where else 0

    def place(self, at: int, end: int | None = None) -> Place:
        """Return the place of the text from `at` to `end`, or of one character if `end` is None."""
        start = self.offset(at)
        last = self.offset(end - 1) if end is not None and end > at else start
        return self.document.place(start, max(last - start, 0) + 1)

    def part(self, start: int, end: int) -> SourceText:
        if isinstance(self.where, int):
            return SourceText(self.document, self.text[start:end], self.where + start)
        return SourceText(self.document, self.text[start:end], self.where[start:end])


class SourceSpan(Struct, frozen=True):
    """Range of a source text."""

    source: SourceText
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def place(self) -> Place:
        return self.source.place(self.start, self.end)


class DefaultOf(NamedTuple):
    """Variable whose default contains a piece: `${name-…}`, or `${name:-…}` if `filled`.

    `at` is the position of that expansion; `number` is the index of the piece in the default.
    """

    name: str
    filled: bool
    at: int
    number: int


class WordPiece(Struct, frozen=True):
    """Part of an expanded word.

    If `exact`, the characters appear in the source from `start` on; otherwise all have that
    position. `unknown` is the reason why a piece could not be evaluated; its text is then raw.
    `note` states an assumption. `owner` is the assignment that contains it. `condition` states when
    the piece exists: "only under the condition of line 7".
    """

    text: str
    source: SourceText
    start: int
    quoted: bool = False
    exact: bool = True
    unknown: str | None = None
    note: str | None = None
    owner: SourceSpan | None = None
    default_of: tuple[DefaultOf, ...] = ()
    """Environment variables whose default contains this piece, outermost first."""
    inside: bool = False
    """True if an unknown value depends on the file (a loop, a condition)."""
    condition: str | None = None

    def offset(self, index: int) -> int:
        return self.source.offset(self.start + (index if self.exact else 0))

    def with_owner(self, owner: SourceSpan | None, *, quoted: bool) -> WordPiece:
        return replace(self, quoted=quoted, owner=owner)

    def slice(self, start: int, end: int) -> WordPiece:
        begin = self.start + (start if self.exact else 0)
        return replace(self, text=self.text[start:end], start=begin)


class SourceBuilder:
    """Builder of a source from texts and the document offsets of their characters."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._text: list[str] = []
        self._where: list[int] = []

    def put(self, text: str, where: Iterable[int]) -> None:
        self._text.append(text)
        self._where.extend(where)

    def put_straight(self, text: str, at: int) -> None:
        """Add a text that the document contains at `at`."""
        self.put(text, range(at, at + len(text)))

    def stand_in(self, text: str, at: int, last: int) -> None:
        """Add a replacement for the text from `at` to `last`, inclusive."""
        self.put(text, [at] * (len(text) - 1) + [last] * bool(text))

    def source(self) -> SourceText:
        return SourceText(self._document, "".join(self._text), self._where)


Section = tuple[tuple[int, int, str], ...]
"""Level, line number and text of the headings above; a stated release has level 0 (no end)."""
_QUOTES = str.maketrans("\"'", "  ")


def joined(pieces: Iterable[WordPiece | SourceText], document: Document) -> SourceText:
    """Join pieces into one source, for a script inside a word.

    Quotes in an unknown piece become blanks, because they must not end a word of the script.
    """
    builder = SourceBuilder(document)
    outer: list[tuple[int, WordPiece]] = []
    end = quotes = 0
    for piece in pieces:
        text = piece.text
        if isinstance(piece, WordPiece) and (piece.unknown or piece.condition or piece.note):
            outer.append((end, piece))
        if isinstance(piece, WordPiece) and piece.unknown:
            text = text.translate(_QUOTES)
        quotes += text.count("'")
        if isinstance(piece, WordPiece) and not text and piece.default_of and quotes % 2 == 0:
            text = f"${{{piece.default_of[0].name}:-}}"  # the script expands it again
            builder.put(text, [piece.offset(0)] * len(text))
        else:
            builder.put(text, map(piece.offset, range(len(text))))
        end += len(text)
    return replace(builder.source(), outer=outer)


MAX_BYTES = bounded.MAX_BYTES
"""Maximum size of a file; a larger file is rejected before it is read."""
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
YAML_AND_JSON_SUFFIXES = YAML_SUFFIXES | {".json"}
JINJA_SUFFIXES = frozenset({".j2", ".jinja", ".jinja2"})
GO_SUFFIXES = frozenset({".tpl", ".tmpl", ".gotmpl"})
TEMPLATE_SUFFIXES = JINJA_SUFFIXES | GO_SUFFIXES
"""Suffixes of templates; `run.sh.j2` is a script once it is rendered."""
_TEMPLATES = TEMPLATE_SUFFIXES | {".template", ".example"}
"""Suffixes of files that are filled in before they are used."""
DOCUMENT_SUFFIXES = frozenset(
    {".md", ".markdown", ".mdx", ".qmd", ".rst", ".adoc", ".txt", ".html", ".htm", ".log"}
)
"""Suffixes of prose files that may contain code. A `.txt` file may be an exported issue."""
KUSTOMIZATIONS = frozenset({"kustomization.yaml", "kustomization.yml", "Kustomization"})
"""Names of kustomization files, which compose other files."""
NOTEBOOK_SUFFIX = ".ipynb"
_DOCKERFILE = lazy(r"(?:.*\.)?(?:docker|container)file(?:[.-].*)?", re.IGNORECASE)
_FROM = lazy(
    r"(?:[ \t]*(?:#[^\n]*)?\n|ARG[ \t][^\n]*\n)*FROM[ \t]+(?!import\b)\S+[ \t]*(?:[Aa][Ss][ \t]|$)",
    re.MULTILINE,
)
_MAKEFILE = lazy(r"(?:GNU)?makefile(?:\.[\w.-]+)?|.*\.(?:mk|mak)", re.IGNORECASE)
PYTHON_SUFFIX = ".py"
MAX_PROGRAM_BYTES = 1 << 20
"""Maximum size of a Python program. Larger programs are generated code, not launchers."""
_PROGRAM = re.compile(
    rb"launch_server|dynamo\.sglang|sglang_chute|prepare_server_args|popen_launch|--sglang-"
    rb"|sglang[\"',\s]+serve\b|(?:\b|Ray)(?:Engine|Runtime)\(|\bServerArgs\b|ModelLaunchSettings"
)


def starts_a_program(data: bytes) -> bool:
    """True if a Python program may start a server. It is not parsed."""
    return (b"sglang" in data or b"sgl." in data) and _PROGRAM.search(data) is not None


def is_dockerfile(name: str, text: str = "") -> bool:
    """True for a Dockerfile, by its name, or by its first lines if it has no suffix."""
    base = PurePath(name).name
    if _DOCKERFILE.fullmatch(base):
        return PurePath(name).suffix.lower() not in (".md", ".yaml", ".yml", ".json", ".py", ".sh")
    return not PurePath(name).suffix and _FROM.match(text) is not None


def is_makefile(name: str) -> bool:
    """True for a Makefile, by its name."""
    return _MAKEFILE.fullmatch(PurePath(name).name) is not None


_YAML_START = lazy(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*(?:---|%YAML|(?:apiVersion|kind|services|version|name|defaults):)"
)
_SHELL_START = lazy(r"#!.*sh\b")


class Form(StrEnum):
    """Format that a file is read as."""

    PROGRAM = "program"
    PLAIN = "plain"
    """Text file (`.txt`), which may contain a document or a script."""
    DOCUMENT = "document"
    NOTEBOOK = "notebook"
    DOCKERFILE = "dockerfile"
    MAKEFILE = "makefile"
    YAML = "yaml"
    SHELL = "shell"


def form_of(text: str, shown: str, kind: str) -> Form:  # noqa: PLR0911
    """Return a text's format by suffix (`kind`) or name (`shown`), else by its beginning."""
    if kind == PYTHON_SUFFIX:
        return Form.PROGRAM
    if kind == ".txt":
        return Form.PLAIN
    if kind in DOCUMENT_SUFFIXES:
        return Form.DOCUMENT
    if kind == NOTEBOOK_SUFFIX:
        return Form.NOTEBOOK
    if is_dockerfile(shown, text):
        return Form.DOCKERFILE
    if is_makefile(shown):
        return Form.MAKEFILE
    return Form.YAML if looks_like_yaml(text, kind) else Form.SHELL


def looks_like_yaml(text: str, suffix: str) -> bool:
    """True if a text is read as YAML, by its file's suffix, else by its first lines."""
    if suffix in DOCUMENT_SUFFIXES or suffix in YAML_AND_JSON_SUFFIXES or suffix == NOTEBOOK_SUFFIX:
        return suffix in YAML_AND_JSON_SUFFIXES
    return not _SHELL_START.match(text) and _YAML_START.match(text) is not None


# -- templates

CHART = "Chart.yaml"
_MOST_PARENTS = 8
_VALUES = lazy(r"values\b.*\.ya?ml", re.I)
_HELM = lazy(r"\{\{[^{}\n]*(?<![\w.])\.(?:Values|Release|Chart|Capabilities)\.")
"""Pattern of references to Helm's own objects."""
_TEMPLATE_MARK = lazy(r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}")
_BARE = lazy(r"(?:^|[:,\[-])[ \t]+\{\{[^{}\n]*\}\}|^\{\{|^[ \t]*\{%", re.MULTILINE)
"""Pattern of an unquoted template mark as a YAML value, which makes the text invalid YAML."""

_HELM_REMEDY = "render it: helm template . | speclaunch lint -"
_REMEDY = "render it, and check the result"


def is_template(name: str) -> bool:
    """True if a file's name marks it as a template."""
    return PurePath(name).suffix.lower() in _TEMPLATES


class TemplateError(InputError):
    """Input that is only a template and cannot be checked (exit 3)."""

    exit_code = ExitCode.NOTHING


def template_of(text: str, path: Path | None, *, is_yaml: bool) -> str | None:
    """Return why a text is a template, with the remedy; None if it is not a template.

    `path` is the text's file, if any. Files of a chart have a `Chart.yaml` in a parent directory.
    Scripts and documents with `{{ x }}` in their words, and YAML with quoted marks, are not
    templates: the rest of their text can be checked.
    """
    if path is not None:
        reason = _by_name(text, path)
        if reason is not None:
            return reason
    if path is not None and path.suffix.lower() in DOCUMENT_SUFFIXES:
        return None
    if _HELM.search(text):
        return f"is a Helm template: not checked; {_HELM_REMEDY}"
    if is_yaml and _TEMPLATE_MARK.search(text) and (_BARE.search(text) or not _is_yaml(text)):
        return f"is a template: not checked; {_REMEDY}"
    return None


def _by_name(text: str, path: Path) -> str | None:
    chart = chart_of(path)
    if chart is not None and path.parent == chart and _VALUES.fullmatch(path.name):
        return f"contains the values of a Helm chart: not checked; {_HELM_REMEDY}"
    if chart is not None and path.relative_to(chart).parts[0] == "templates":
        if _TEMPLATE_MARK.search(text) or path.suffix in GO_SUFFIXES:
            return f"is a Helm template: not checked; {_HELM_REMEDY}"
        return None
    suffixes = {suffix.lower() for suffix in path.suffixes}
    if suffixes & JINJA_SUFFIXES:
        return f"is a Jinja template: not checked; {_REMEDY}"
    if suffixes & GO_SUFFIXES and _TEMPLATE_MARK.search(text):
        return f"is a template: not checked; {_REMEDY}"
    return None


def chart_of(path: Path) -> Path | None:
    """Return the directory of the Helm chart that contains a file; None outside charts."""
    parents = list(path.parents)[:_MOST_PARENTS]
    return next((parent for parent in parents if reads.is_file(parent / CHART)), None)


def _is_yaml(text: str) -> bool:
    """True if a text is YAML, or begins as YAML and exceeds the limits on depth or size."""
    import yaml  # noqa: PLC0415  few files have a mark of a template

    from speclaunch.deployments.recipe.source import BoundsError, events  # noqa: PLC0415

    try:
        for _ in events(text):
            pass
    except BoundsError:
        return True
    except yaml.YAMLError:
        return False
    return True


_NAME = r"<[^\W_](?:[^<>\n$`\"\\]{0,78}[^<>\s$`\"\\])?(?:(?<!\s\d)>|>(?=\s|\Z))"
_ANGLE = lazy(rf"{_NAME}(?![&>|])")
_ANGLE_ENDS = lazy(r"[\s\"';)\\]|/<|\Z")
"""Pattern of the text that may follow `<name>` in a script; `<in>out` is a redirection."""
_BRACES = lazy(r"\{\{-?[ \t]*[.$]?[^\W\d](?:(?!\.\.)[^{},\n])*\}\}")
_LINK = lazy(r"\[([^\[\]\n]+)\]\([^()\s]*\)")
_BRACKETS = lazy(r"\[[^\W\d_][^\[\]\n\"'=,]{0,78}\]")
_BRACE = lazy(r"\{[^\W\d_][^{}\n\"'=,.;$]{0,78}\}")
PLACEHOLDER_STARTS = lazy(r"[<{[]")
MARK_FIRST, MARK_LAST = "\ue000", "\ue001"
MARK = lazy(f"{MARK_FIRST}[\ue100-\ue4e7]+{MARK_LAST}")
"""Pattern of a stand-in for text that a template fills in (`templates.Masks`)."""
_NAMED = lazy(r"(?<![\w@$])(?:(__|@)[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*\1|YOUR(?:_[A-Z0-9]+)+)(?![\w@])")
"""Pattern of what an installer or a reader fills in: `__PORT__`, `@PORT@`, `YOUR_PORT`."""
_YOURS = lazy(r"(?<![^\W_])your(?:[_-]\w+)+", re.IGNORECASE)
"""Pattern of the same in a document: `your_port`, `path/to/your-model`."""
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
    """Effect in a shell, if the shell reads the text differently; else None."""


def find_placeholder(
    text: str, start: int, end: int, *, lenient: bool, begins: bool
) -> Placeholder | None:
    """Return the first placeholder that begins in `text[start : end + 1]`, or None.

    `lenient`: the text is a document or a template. `begins`: a flag's value begins at `start`.
    Elsewhere in a script, `<name>` must directly follow other text.
    """
    for mark in PLACEHOLDER_STARTS.finditer(text, start, end + 1):
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


def why_placeholder(text: str, *, lenient: bool, quoted: bool) -> str | None:
    """Return why a word is a placeholder, or None. `quoted`: no shell changes the word."""
    if _NAMED.search(text) or (lenient and _YOURS.search(text)):
        return "a placeholder"
    if not lenient and not PLACEHOLDER_STARTS.search(text):
        return None
    if lenient and is_ellipsis(text):
        return "an ellipsis: the value is not shown"
    found = _PATH_WITH_NAME.fullmatch(text) or _BRACES.search(text)
    if found is None and (lenient or not quoted):
        found = _BRACKETS.fullmatch(text)
    if found is None and lenient:
        found = _ANGLE.search(text) or _DOTS.search(text) or _BRACE.fullmatch(text)
    return "a placeholder" if found is not None else None

"""Read server commands in a document: Markdown, reStructuredText, an issue or a Jupyter notebook.

The parts that contain code (fenced, indented and literal blocks, HTML, inline code) are read in one
pass over the lines. The time is therefore linear in the text's length, even with unclosed fences.
In prose, only complete commands are read: a complete line or inline code. In a notebook, ``%%bash``
cells, ``!`` lines and commands in strings are read.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, Place, lazy
from speclaunch.deployments.sources import nodes, slime
from speclaunch.deployments.sources.commands import CommandContext
from speclaunch.deployments.sources.expand import Expander
from speclaunch.deployments.sources.fields import Field, ShellScope, Value
from speclaunch.deployments.sources.interface import (
    SERVER,
    VLLM,
    Invocation,
    InvocationKind,
    Reading,
    ReadingBuilder,
    Word,
)
from speclaunch.deployments.sources.interpret import ScriptReader, run
from speclaunch.deployments.sources.parser import parse
from speclaunch.deployments.sources.shell_syntax import Script, Simple
from speclaunch.deployments.sources.source_text import (
    Document,
    Section,
    SourceBuilder,
    SourceText,
    is_ellipsis,
    joined,
    starts_a_program,
)
from speclaunch.deployments.sources.units import in_shell
from speclaunch.deployments.sources.wrappers import ELSEWHERE, DocumentShells


class BlockKind(StrEnum):
    """Kind of a block's contents."""

    SCRIPT = "script"
    """Shell script, whose unreadable parts are reported."""
    TEXT = "text"
    """Text that may contain commands or their output."""
    YAML = "yaml"
    DOCKERFILE = "dockerfile"
    PYTHON = "python"
    PROSE = "prose"
    """Line of prose that begins like a command."""
    INLINE = "inline"
    """Inline code, or the end of a sentence. Only complete commands are read."""


class Block(Struct, frozen=True):
    """Part of a document that may contain a command."""

    kind: BlockKind
    source: SourceText
    section: Section = ()


_MAX_BLOCKS = 5_000
_HEADING = lazy(
    r"[ \t>]*+(?:(#{1,6})[ \t]|[=~^-]{3,}[ \t]*$|</?(?:h\d|details|summary|tab)|===[+!]? [\"']|:::"
    r"|\.\. tab|(?:[-*+]|\d+[.)])?[ \t]*\*\*[^*\n]+\*\*:?[ \t]*$|(.{0,300}?\bv?0\.[4-9]\.\d))",
    re.IGNORECASE,
)
"""Pattern of a line that separates sections: a heading, an underline, a tab, bold, a release."""
FENCE = lazy(r"([ \t>]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?)(`{3,}|~{3,})[ \t]*([^\n`]*)")
_DIRECTIVE = lazy(
    r"([ \t]*)\.\.[ \t]+(?:code-block|code|sourcecode|prompt|parsed-literal|console)::[ \t]*(\S*)"
)
_HTML = lazy(r"<(pre|code)\b[^>]*>", re.IGNORECASE)
_HTML_END = lazy(r"</(?:pre|code)\s*>", re.IGNORECASE)
_TAG_OR_ENTITY = lazy(r"<[/a-zA-Z][^<>\n]{0,200}>|&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|\w{2,8});")
_INLINE = lazy(r"(?<!`)(`{1,2})(?!`)([^`\n]{10,4000}?)(?<!`)\1(?!`)")
_INLINE_START = lazy(r"(?:[^`\n]*`[^`\n]*`)*[^`\n]*`([^`\n]{10,})")
"""Pattern of a line whose last inline code ends on a later line."""
_INLINE_REST = lazy(r"(?:\n[ \t]*[^`\s][^`\n]*){0,20}(?:\n[ \t]*)?(?=`(?!`))")
_LIST_MARKER = r"[ \t>]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?"
_LABEL = r"(?:\*{0,2}[A-Za-z][\w '()/-]{0,40}:\*{0,2}[ \t]+)?"
_PROMPT_TEXT = r"(?:\([\w.-]+\)[ \t]*)?(?:[\w.-]+@[\w.-]+:[^\s#$]{0,200}[#$]|[$%])[ \t]+"
"""Pattern of a shell prompt: `$`, `(env) $`, `user@host:~/x$`."""
_PROGRAM = (
    rf"(?:{_PROMPT_TEXT})?"
    r"(?:[A-Za-z_]\w*=\S*[ \t]+)*"
    r"(?:(?:sudo|nohup|exec|time|numactl|taskset|env|srun|uv|docker|podman|conda|apptainer"
    r"|singularity|timeout|mpirun|nsys)[ \t][^\n]{0,400}?)?"
    r"(?:(?:\S{0,200}/)?python[\d.]*[ \t]+(?:-\S+[ \t]+)*-m[ \t]*"
    r"sglang(?:_router)?\.launch_server\b|(?:\S{0,200}/)?sglang[ \t]+serve\b)"
)
_COMMAND = lazy(rf"({_LIST_MARKER}{_LABEL})(?={_PROGRAM})")
_CONTAINER = lazy(
    rf"({_LIST_MARKER}{_LABEL})(?=(?:[$][ \t]+)?(?:sudo[ \t]+)?(?:docker|podman)[ \t]+run\b)"
)
_WITHIN = lazy(
    r"(?:\b(?:is|was|command|cmd|run|ran|running|use|using|execute|with|by|via)|:)[ \t]+"
    r"(?=(?:[A-Z_][A-Z0-9_]{0,60}=\S{0,80}[ \t]+){0,8}"
    r"(?:python[\d.]{0,5}[ \t]+-m[ \t]*sglang\.launch_server|sglang[ \t]+serve)\b)",
    re.IGNORECASE,
)
"""Pattern of the words in a sentence that introduce a command: `I run: python -m …`."""
_MAX_SENTENCE = 2_000
_LOGGED = lazy(r"[ \t>]*(?:[\[<#/]|\d{4}-|(?:info|debug|warn|error)\b)", re.IGNORECASE)
WHOLE_COMMAND = lazy(_PROGRAM)
"""Pattern of a server command's beginning, including its wrappers and variables."""
_SHELL = lazy(
    r"(?:[ \t]*(?:(?:#|(?:pip3?|uv|git|cd|export|source|conda|mkdir)[ \t])[^\n]*)?\n){0,50}"
    rf"[ \t]*{_PROGRAM}"
)
"""Pattern of a block that begins as a shell script, whatever language it declares."""
_SETS = lazy(r"[ \t>]*(?:export[ \t]+)?[A-Za-z_]\w*=\S")
_ASSIGNED = lazy(r"(?<![\w$.-])([A-Za-z_]\w*)=(\"[^\"\n]*\"|'[^'\n]*'|[^\s`;&|)]*)")
_PROMPT = lazy(rf"^([ \t]*)({_PROMPT_TEXT})(?=\S)", re.MULTILINE)
_QUOTED = lazy(r"^[ \t]*>+", re.MULTILINE)
_MENTIONS = lazy(
    rf"sglang|--speculative-|{VLLM}"
    r"|\b(?:docker|podman|nerdctl|install|export|unset|exit|ssh|kubectl|conda|git)\b"
    r"|(?m:^[ \t]*[A-Za-z_]\w*=\S)"
)
"""Pattern of text that may contain a server command, or prepare a shell for one."""

_IMPORTS = lazy(r"(?:[ \t]*(?:#[^\n]*)?\n){0,50}(?:import[ \t]+\w|from[ \t]+[\w.]+[ \t]+import\b)")
"""Pattern of a Python program's beginning, in a block that declares a shell or no language."""
_SESSIONS = frozenset({"console", "shell-session", "shellsession", "sh-session", "bash-session"})
_KINDS = {
    **dict.fromkeys(("bash", "sh", "shell", "zsh"), BlockKind.SCRIPT),
    **dict.fromkeys(("yaml", "yml", "json", "jsonc"), BlockKind.YAML),
    **dict.fromkeys(("python", "py", "python3"), BlockKind.PYTHON),
    **dict.fromkeys(("dockerfile", "docker", "containerfile"), BlockKind.DOCKERFILE),
}
"""Block kinds by the language of a fence or directive; TEXT for others (shellscript, compose)."""
_UNREAD = frozenset(
    ["c", "cpp", "cs", "csharp", "diff", "go", "hcl", "html", "java", "javascript", "js", "kotlin",
     "patch", "php", "ruby", "rust", "sql", "swift", "terraform", "toml", "ts", "typescript", "xml"]
)  # fmt: skip
"""Languages that are not read, unless the block begins as a shell script."""
_MYST = frozenset({"code-block", "code", "code-cell", "sourcecode"})


def blocks(document: Document) -> list[Block]:
    """Return the parts of a document that may contain a command, in order."""
    lines = _Lines(document)
    found = (replace(block, section=lines.section) for block in lines.read())
    return list(islice((b for b in found if _MENTIONS.search(b.source.text)), _MAX_BLOCKS))


class _Lines:
    """One pass over the lines of a document."""

    def __init__(self, document: Document, start: int = 0, stop: int | None = None) -> None:
        self.document = document
        self.text = document.text[:stop]
        self.at = start
        self.section: Section = ()
        self._has_end = True  # the end of an HTML element may follow

    def read(self) -> Iterator[Block]:
        above = 0  # start of the lines directly above this line that set variables
        is_above = False
        while self.at < len(self.text):
            start, end = self.at, self._line_end(self.at)
            line = self.text[start:end]
            fence = FENCE.match(line)
            if fence and not self._is_underline(start, line):
                yield from self._fenced(fence, end)
            elif directive := _DIRECTIVE.match(line):
                yield from self._directive(directive, end)
            elif "<" in line and (tag := _HTML.search(line)):
                yield from self._html(start + tag.start(), start + tag.end())
            else:
                self.at = min(end + 1, len(self.text))
                if heading := _HEADING.match(line):
                    level = 0 if heading[2] else len(heading[1] or "#######")
                    outer = (title for title in self.section if title[0] < level)
                    self.section = (*outer, (level, self.document.place(start).line, line))
                if _MENTIONS.search(line):
                    yield from self._prose(start, end, above if is_above else start)
                is_setting = _SETS.match(line) is not None
                if is_setting and not is_above:
                    above = start
                is_above = is_setting
                continue
            is_above = False

    def _is_underline(self, start: int, line: str) -> bool:
        """True if a line of tildes underlines a reStructuredText title."""
        title = self.text[self.text.rfind("\n", 0, max(start - 1, 0)) + 1 : max(start - 1, 0)]
        return len(line) > 3 and not line.strip("~") and len(line) >= len(title.rstrip()) > 0

    def _line_end(self, at: int) -> int:
        found = self.text.find("\n", at)
        return len(self.text) if found < 0 else found

    # -- fences -------------------------------------------------------------------------

    def _fenced(self, fence: re.Match[str], end: int) -> Iterator[Block]:
        start = min(end + 1, len(self.text))
        mark = fence[2]
        closing = re.compile(
            rf"^[ \t>]*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$", re.MULTILINE
        ).search(self.text, start)
        stop = closing.start() if closing is not None else len(self.text)
        self.at = min(closing.end() + 1, len(self.text)) if closing is not None else stop
        language = _language(fence[3])
        if language == "eval-rst":  # text that contains directives
            yield from _Lines(self.document, start, stop).read()
            return
        text = self.text[start:stop]
        if ">" in fence[1]:
            text = _QUOTED.sub(lambda match: " " * len(match[0]), text)
        yield from self._code(language, text, start)

    def _code(self, language: str, text: str, start: int) -> Iterator[Block]:
        kind = _KINDS.get(language, None if language in _UNREAD else BlockKind.TEXT)
        if kind in (None, BlockKind.PYTHON) and _SHELL.match(text):
            kind = BlockKind.TEXT
        if kind in (BlockKind.SCRIPT, BlockKind.TEXT):
            text = _without_prompts(text) if language in _SESSIONS or _PROMPT.match(text) else text
            text = text.translate(_DRAWING)
        if kind is not None:
            yield Block(kind, in_shell(SourceText(self.document, text, start), language))

    def _directive(self, directive: re.Match[str], end: int) -> Iterator[Block]:
        """Yield the indented text below a reStructuredText directive, without its options."""
        indent = len(directive[1])
        at = start = min(end + 1, len(self.text))
        has_body = False
        while at < len(self.text):
            stop = self._line_end(at)
            line = self.text[at:stop]
            bare = line.lstrip(" \t")
            if bare and len(line) - len(bare) <= indent:
                break
            if not has_body and (not bare or bare.startswith(":")):
                start = min(stop + 1, len(self.text))
            else:
                has_body = True
            at = min(stop + 1, len(self.text))
        self.at = max(at, end + 1)
        if has_body:
            yield from self._code(directive[2].lower(), self.text[start:at], start)

    def _html(self, begin: int, start: int) -> Iterator[Block]:
        """Yield the text in ``<pre>`` or ``<code>``, without tags and with entities decoded."""
        closing = _HTML_END.search(self.text, start) if self._has_end else None
        if closing is None:
            self._has_end = False
            self.at = self._line_end(begin) + 1
            return
        self.at = closing.end()
        if not _MENTIONS.search(self.text, start, closing.start()):
            return
        builder, at = SourceBuilder(self.document), start
        for mark in _TAG_OR_ENTITY.finditer(self.text, start, closing.start()):
            builder.put_straight(self.text[at : mark.start()], at)
            meant = html.unescape(mark[0]) if mark[0].startswith("&") else ""
            builder.stand_in(meant, mark.start(), mark.start())
            at = mark.end()
        builder.put_straight(self.text[at : closing.start()], at)
        inside = builder.source()
        is_block = "\n" in inside.text or self.text[begin : begin + 4].lower() == "<pre"
        kind = BlockKind.TEXT if is_block else BlockKind.INLINE
        yield Block(kind, replace(inside, text=_without_prompts(inside.text)))

    # -- prose --------------------------------------------------------------------------

    def _prose(self, start: int, end: int, above: int) -> Iterator[Block]:
        line = self.text[start:end]
        command = _COMMAND.match(line) or _CONTAINER.match(line)
        if command is not None:
            begin = start + command.end()
            while self.text[start:end].rstrip().endswith("\\") and end < len(self.text):
                start, end = end + 1, self._line_end(end + 1)
                self.at = min(end + 1, len(self.text))
            if not command[1].strip():
                begin = min(above, begin)
            text = self.text[begin:end]
            if ">" in command[1]:
                text = _QUOTED.sub(lambda match: " " * len(match[0]), text)
            yield Block(BlockKind.PROSE, SourceText(self.document, _without_prompts(text), begin))
            return
        is_sentence = "`" not in line and len(line) < _MAX_SENTENCE and not _LOGGED.match(line)
        if is_sentence and (within := _WITHIN.search(line)) is not None:
            rest = SourceText(self.document, line[within.end() :], start + within.end())
            yield Block(BlockKind.INLINE, rest)
        for code in _INLINE.finditer(line):
            if WHOLE_COMMAND.match(code[2].lstrip()) or ELSEWHERE.search(code[2]):
                text, at = _without_prompts(code[2]), start + code.start(2)
                yield Block(BlockKind.INLINE, SourceText(self.document, text, at))
        begun, after = _INLINE_START.fullmatch(line), _INLINE_REST.match(self.text, end)
        if begun is not None and after is not None and WHOLE_COMMAND.match(begun[1].lstrip()):
            text = f"{begun[1]}{after[0]}".replace("\n", " ")
            yield Block(BlockKind.INLINE, SourceText(self.document, text, start + begun.start(1)))


def _language(written: str) -> str:
    """Return the language of a fence from its text, such as ``{.bash}`` or ``bash title="x"``."""
    words = [word.strip("{}.,").lower() for word in written.split()]
    if words and words[0] in _MYST:
        words = words[1:]
    return words[0] if words else ""


def _without_prompts(text: str) -> str:
    return _PROMPT.sub(lambda match: " " * len(match[0]), text)


_DRAWING = dict.fromkeys(range(0x2500, 0x2580), " ")  # boxes and trees around commands
_SAME_SHELL = "another block sets it, in the same shell"
_SHORTENED = "an ellipsis: the document shows only part of the command"
_SENTENCE = frozenset(
    ["to", "and", "the", "with", "for", "is", "are", "on", "in", "or", "of", "a", "an", "this",
     "that", "which", "when", "then", "will", "from", "as", "by", "it", "instead"]
)  # fmt: skip
"""Words that are never argument values. A line that contains one is a sentence."""
_DOCKERFILE = lazy(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:ARG[ \t]+\S+\s+)*FROM[ \t]+\S+")
_YAML_START = lazy(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:---|\{\s*(?:\"|//)|(?:apiVersion|kind|services|version):)"
)


def read_markdown(document: Document) -> Reading:
    """Return the server commands in a document, reading each block according to its kind."""
    reader = _Reader(document)
    for block in blocks(document):
        reader.read(block)
    return reader.done()


def kind_of(block: Block) -> BlockKind:
    """Return a block's kind from its declared kind and the start of its text."""
    if block.kind is not BlockKind.TEXT:
        return block.kind
    if _YAML_START.match(block.source.text):
        return BlockKind.YAML
    return BlockKind.DOCKERFILE if _DOCKERFILE.match(block.source.text) else block.kind


class _Reader(ReadingBuilder):
    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document
        self.options: list[Field] = []
        assigned = set(_ASSIGNED.findall(document.text))
        self.shells = DocumentShells(Counter(name for name, _ in assigned))

    def done(self) -> Reading:
        if any(found.kind is InvocationKind.SLIME for found in self.invocations):
            self.problems.extend(slime.unprefixed(word) for word in self.options)
        return self.reading()

    def read(self, block: Block) -> None:
        kind = kind_of(block)
        try:
            if kind in (BlockKind.PROSE, BlockKind.INLINE):
                self._prose(block)
            elif kind in (BlockKind.YAML, BlockKind.DOCKERFILE):
                self._file(block, kind)
            elif kind is BlockKind.PYTHON:
                self._program(block)
            elif not (_IMPORTS.match(block.source.text) and self._program(block)):
                self._script(block, is_script=kind is BlockKind.SCRIPT)
        except InputError as error:
            if not SERVER.search(block.source.text) or block.source.text.lstrip()[0] == "{":  # JSON
                return
            if kind is BlockKind.SCRIPT:
                self.unread.extend(error.problems)
            elif kind in (BlockKind.YAML, BlockKind.DOCKERFILE, BlockKind.TEXT):
                self.problems.extend(error.problems)

    def _script(self, block: Block, *, is_script: bool) -> None:
        script = parse(block.source)
        reading = _BlockReader(script, self, block).read()
        # a block without a stated language may show the output of a command
        if SERVER.search(block.source.text):
            (self.unread if is_script else self.problems).extend(reading.unread)
        if not reading.invocations:
            self.options.extend(_options(script))
        shown = (found for found in reading.invocations if found.words or is_script)
        self.invocations.extend(map(_open, shown))
        self.problems.extend(reading.problems)

    def _file(self, block: Block, kind: BlockKind) -> None:
        where = block.source.where
        words = (word.strip("\"',[]") for word in block.source.text.split())
        if not isinstance(where, int) or not SERVER.search(" ".join(words)):
            return
        part = self.document.excerpt(where, block.source.text)
        if kind is BlockKind.DOCKERFILE:
            from speclaunch.deployments.sources.dockerfile import read_dockerfile  # noqa: PLC0415

            reading = read_dockerfile(part)
        else:
            from speclaunch.deployments.sources.yaml_files import read_yaml_document  # noqa: PLC0415  YAML

            reading = read_yaml_document(part)
        servers = (x for x in reading.invocations if x.words and x.kind != InvocationKind.CONFIG)
        self.invocations.extend(servers)
        self.problems.extend((*reading.problems, *reading.unread))
        self.misread.extend(reading.misread)

    def _program(self, block: Block) -> bool:
        """Add the servers that a Python program starts; return False if there are none."""
        where = block.source.where
        if not isinstance(where, int) or not starts_a_program(block.source.text.encode()):
            return False
        from speclaunch.deployments.sources.python_files import read_program  # noqa: PLC0415  `ast`

        part = self.document.indented(where, block.source.text)
        found = read_program(part).invocations
        self.invocations.extend(found)
        return bool(found)

    def _prose(self, block: Block) -> None:
        reading = _BlockReader(parse(block.source), self, block).read()
        if not reading.unread:
            test = is_complete if block.kind is BlockKind.INLINE else is_command
            self.invocations.extend(found for found in reading.invocations if test(found))


class _BlockReader(ScriptReader):
    """Reader of a block in the shell of the blocks above; variables below a server are variants."""

    def __init__(self, script: Script, above: _Reader, block: Block) -> None:
        section, self.shells = block.section, above.shells
        self.known = self.shells.known(section)
        script.source.document.spend(len(self.known))
        context = CommandContext(image=self.shells.image(section))
        super().__init__(script, ShellScope(dict(self.known)), context)
        self.at = section, len(above.invocations)
        self.is_shell = block.kind is BlockKind.SCRIPT and "#!" not in script.source.text[:9]
        first_line = section[-1][1] if section else 0
        self.is_variant = any(found.place.line > first_line for found in above.invocations[-1:])

    def read(self) -> Reading:
        reading, variables = super().read(), self.shells.variables
        for name in self.known.keys() - self.scope.variables.keys():
            variables.pop(name, None)
        for name, value in self.scope.variables.items():
            if value is not self.known.get(name) and (value.exported or self.is_shell):
                is_again = variables.get(name, (None, value))[0] == self.at
                later = Value(value.span, why="several blocks set it") if is_again else value
                holds = value.exported and not (reading.invocations or self.is_variant)
                later = later if value.exported else later.noted(_SAME_SHELL)
                variables[name] = self.at, replace(later, exported=holds)
        return reading

    def _command(self, node: Simple, fields: Sequence[Field], *rest: Any, **more: Any) -> None:
        image = self.shells.opens(fields)
        if image is not None:
            self.shells.opened.append((self.at, image))
            self.shells.variables.clear()
            self.known = dict(self.scope.variables)
            self.context = replace(self.context, image=self.shells.image(self.at[0]))
        super()._command(node, fields, *rest, **more)


def _open(found: Invocation) -> Invocation:
    """Return a command, adding unknown arguments if an ellipsis precedes its program."""
    if not any(is_ellipsis(word.text) for word in found.program):
        return found
    more = Word("…", found.place, evaluated=False, why=_SHORTENED, placeholder=True)
    return replace(found, words=(more, *found.words))


def is_complete(found: Invocation) -> bool:
    """True if a part of a sentence is a command that names a model."""
    texts = [word.text for word in found.words]
    names_model = any(x.startswith(("--model", "--config")) or is_ellipsis(x) for x in texts)
    if found.kind is InvocationKind.SERVE:
        names_model = names_model or (bool(texts) and not texts[0].startswith("-"))
    return names_model and is_command(found) and texts[-1] not in ("--model", "--model-path")


def is_command(found: Invocation) -> bool:
    """True if a line is a command, not a sentence that begins like a command."""
    texts = [word.text for word in found.words]
    if not any(text.startswith("-") for text in texts):
        return False
    if any(text.rstrip(",.;:").lower() in _SENTENCE for text in texts):
        return False
    return not texts[-1].endswith((".", ",", ";", ":")) or is_ellipsis(texts[-1])


def _options(script: Script) -> list[Field]:
    """Return the `--speculative-…` options at line starts of a block without a command."""
    expander = Expander(script.source.document, ShellScope())
    starts = (n.words[0] for n in script.nodes if isinstance(n, Simple) and n.words)
    options = (word for word in starts if (word.plain or "").startswith("--speculative-"))
    return [field for word in options for field in expander.fields(word)]


_SHELL_CELL = lazy(r"\s*%%(?:bash|sh|script[ \t]+(?:ba)?sh)\b[^\n]*\n")
_SHELL_LINE = lazy(r"^[ \t]*!((?:[^\n\\]|\\\n|\\.)*)", re.MULTILINE)
_MARK = lazy(r"\\(?:\n|.)|\{\{|\}\}|\{[^{}\n]+\}", re.DOTALL)
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t"}
_STRING = lazy(r"(?<!\w)([rRfFuUbB]{0,2})(\"\"\"|'''|\"|')((?:(?!\2)[^\\]|\\.)*?)\2", re.DOTALL)


_SGLANG = lazy(r"\bsgl(?:ang)?\b")
"""Pattern of a cell's text that may start a server with `sgl.Engine(…)`."""
_MAGIC = lazy(r"^[ \t]*[!%](?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def _start(found: Invocation) -> Place:
    return next((word.place for word in found.words if word.text.startswith("-")), found.place)


def read_notebook(document: Document) -> Reading:
    """Return the servers that the cells of a notebook start."""
    reader = _NotebookReader()
    for root in nodes.load(document):
        for cell in nodes.items(nodes.entries(root).get("cells")):
            keys = nodes.entries(cell)
            kind, source = nodes.text(keys.get("cell_type")), _source(keys.get("source"), document)
            if kind == "code" and (SERVER.search(source.text) or _SGLANG.search(source.text)):
                reader.code(source)
            elif kind == "markdown" and SERVER.search(source.text):
                reader.add(read_markdown(nodes.StringDocument(source)))
    return reader.reading()


def _source(node: yaml.Node | None, document: Document) -> SourceText:
    """Return the text of a cell, which is stored as one string or one per line."""
    parts = [node] if isinstance(node, yaml.ScalarNode) else nodes.items(node)
    scalars = (part for part in parts if isinstance(part, yaml.ScalarNode))
    return joined((nodes.source(part, document) for part in scalars), document)


def _string_text(source: SourceText, string: re.Match[str]) -> SourceText:
    """Return the text of a Python string. The fields of an f-string become placeholders."""
    prefix, raw = string[1].lower(), string[3]
    builder = SourceBuilder(source.document)
    start, at = string.start(3), 0
    for mark in _MARK.finditer(raw):
        if mark[0][0] == "\\" and "r" not in prefix:
            meant = "" if mark[0][1] == "\n" else _ESCAPES.get(mark[0][1], mark[0])
        elif mark[0][0] == "{" and "f" in prefix:
            meant = mark[0][0] if mark[0] == "{{" else "<value>"
        elif mark[0] == "}}" and "f" in prefix:
            meant = "}"
        else:
            continue
        written = range(start + at, start + mark.start())
        builder.put(raw[at : mark.start()], map(source.offset, written))
        builder.put(meant, [source.offset(start + mark.start())] * len(meant))
        at = mark.end()
    builder.put(raw[at:], map(source.offset, range(start + at, string.end(3))))
    return builder.source()


class _NotebookReader(ReadingBuilder):
    def code(self, source: SourceText) -> None:
        cell = _SHELL_CELL.match(source.text)
        if cell is not None:
            self._script(source.part(cell.end(), len(source.text)))
            return
        for line in _SHELL_LINE.finditer(source.text):
            if SERVER.search(line[1]):
                self._script(source.part(line.start(1), line.end(1)))
        seen = {_start(found) for found in self._program(source)}
        for string in _STRING.finditer(source.text):
            if SERVER.search(string[3]):
                text = _string_text(source, string)
                if WHOLE_COMMAND.match(text.text, len(text.text) - len(text.text.lstrip())):
                    self._script(text, seen)

    def _program(self, source: SourceText) -> tuple[Invocation, ...]:
        """Add and return the servers of a cell, read as Python, ignoring IPython commands."""
        from speclaunch.deployments.sources.python_files import read_program  # noqa: PLC0415  `ast`

        text = _MAGIC.sub(lambda line: " " * len(line[0]), source.text)
        found = read_program(nodes.StringDocument(replace(source, text=text))).invocations
        self.invocations.extend(found)
        return found

    def _script(self, source: SourceText, seen: Container[Place] | None = None) -> None:
        """Read a script. If `seen` is set, skip incomplete commands and those already seen."""
        with self.tolerant():
            reading = run(source)
            found = reading.invocations
            if seen is not None:
                found = tuple(x for x in found if is_complete(x) and _start(x) not in seen)
            self.add(replace(reading, invocations=found, misread=()))

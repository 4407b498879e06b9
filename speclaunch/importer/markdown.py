"""The server commands of a document: Markdown, reStructuredText, the text of an issue."""

from __future__ import annotations

from speclaunch.errors import InputError
from speclaunch.importer import slime
from speclaunch.importer.blocks import Block, BlockKind, blocks
from speclaunch.importer.expand import Expander
from speclaunch.importer.fields import Field
from speclaunch.importer.interface import Invocation, InvocationKind, Reading, ReadingBuilder
from speclaunch.importer.interpret import ScriptReader
from speclaunch.importer.parser import parse
from speclaunch.importer.placeholders import is_ellipsis
from speclaunch.importer.scope import ShellScope
from speclaunch.importer.source_text import Document
from speclaunch.importer.suffixes import starts_a_program
from speclaunch.importer.syntax import Script, Simple
from speclaunch.importer.wrappers import SERVER
from speclaunch.patterns import lazy

_MODEL = ("--model", "--config")
_SENTENCE = frozenset(
    ["to", "and", "the", "with", "for", "is", "are", "on", "in", "or", "of", "a", "an", "this",
     "that", "which", "when", "then", "will", "from", "as", "by", "it", "instead"]
)  # fmt: skip
"""Words that no argument has as a value: the line goes on as a sentence."""
_DOCKERFILE = lazy(r"(?:\s*(?:#[^\n]*)?\n)*\s*(?:ARG[ \t]+\S+\s+)*FROM[ \t]+\S+", 0)
_YAML_START = lazy(r"(?:[ \t]*(?:#[^\n]*)?\n)*[ \t]*(?:---|(?:apiVersion|kind|services|version):)")


def read_markdown(document: Document) -> Reading:
    """The server commands in the code of a document, each block a script or file of its own."""
    reader = _Reader(document)
    for block in blocks(document):
        reader.read(block)
    return reader.done()


def kind_of(block: Block) -> BlockKind:
    """What a block holds, by what it is said to hold and how it begins."""
    if block.kind is BlockKind.TEXT and _YAML_START.match(block.source.text):
        return BlockKind.YAML
    if block.kind is BlockKind.TEXT and _DOCKERFILE.match(block.source.text):
        return BlockKind.DOCKERFILE
    return block.kind


class _Reader(ReadingBuilder):
    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document
        self.options: list[Field] = []

    def done(self) -> Reading:
        if any(found.kind is InvocationKind.SLIME for found in self.invocations):
            self.problems.extend(slime.unprefixed(word) for word in self.options)
        return self.reading()

    def read(self, block: Block) -> None:
        """Read one block as what it is said to hold, or looks like."""
        kind = kind_of(block)
        try:
            if kind in (BlockKind.PROSE, BlockKind.INLINE):
                self._prose(block)
            elif kind in (BlockKind.YAML, BlockKind.DOCKERFILE):
                self._file(block, kind)
            elif kind is BlockKind.PYTHON:
                self._program(block)
            else:
                self._script(block, is_script=kind is BlockKind.SCRIPT)
        except InputError as error:
            if kind is BlockKind.SCRIPT and SERVER.search(block.source.text):
                self.unread.extend(error.problems)
            elif kind in (BlockKind.YAML, BlockKind.DOCKERFILE, BlockKind.TEXT) and SERVER.search(
                block.source.text
            ):
                self.problems.extend(error.problems)

    def _script(self, block: Block, *, is_script: bool) -> None:
        script = parse(block.source)
        reading = ScriptReader(script, ShellScope(), None).read()
        # a block that is not said to be a script may show what a command printed
        if SERVER.search(block.source.text):
            (self.unread if is_script else self.problems).extend(reading.unread)
        if not reading.invocations:
            self.options.extend(_options(script))
        self.invocations.extend(reading.invocations)
        self.problems.extend(reading.problems)

    def _file(self, block: Block, kind: BlockKind) -> None:
        where = block.source.where
        if not isinstance(where, int) or not SERVER.search(" ".join(_words(block.source.text))):
            return
        part = self.document.excerpt(where, block.source.text)
        if kind is BlockKind.DOCKERFILE:
            from speclaunch.importer.dockerfile import read_dockerfile  # noqa: PLC0415

            reading = read_dockerfile(part)
        else:
            from speclaunch.importer.yaml_files import read_yaml_document  # noqa: PLC0415  YAML

            reading = read_yaml_document(part)
        self.invocations.extend(
            found for found in reading.invocations if found.kind is not InvocationKind.CONFIG
        )
        self.problems.extend((*reading.problems, *reading.unread))
        self.misread.extend(reading.misread)

    def _program(self, block: Block) -> None:
        where = block.source.where
        if not isinstance(where, int) or not starts_a_program(block.source.text.encode()):
            return
        from speclaunch.importer.python_files import read_program  # noqa: PLC0415  `ast`

        self.invocations.extend(
            read_program(self.document.indented(where, block.source.text)).invocations
        )

    def _prose(self, block: Block) -> None:
        reading = ScriptReader(parse(block.source), ShellScope(), None).read()
        if not reading.unread:
            test = is_whole if block.kind is BlockKind.INLINE else is_command
            self.invocations.extend(found for found in reading.invocations if test(found))


def _words(text: str) -> list[str]:
    """Words as they stand in lists: `"-m", "sglang.launch_server"`, `- sglang`."""
    return [word.strip("\"',[]") for word in text.split()]


def is_whole(found: Invocation) -> bool:
    """Whether a command in a sentence is one to run: it names a model."""
    texts = [word.text for word in found.words]
    names_model = any(text.startswith(_MODEL) or is_ellipsis(text) for text in texts)
    if found.kind is InvocationKind.SERVE:
        names_model = names_model or (bool(texts) and not texts[0].startswith("-"))
    return names_model and is_command(found)


def is_command(found: Invocation) -> bool:
    """Whether a line that begins as a command does is one: no sentence goes on behind it."""
    texts = [word.text for word in found.words]
    if not any(text.startswith("-") for text in texts):
        return False
    if any(text.rstrip(",.;:").lower() in _SENTENCE for text in texts):
        return False
    return not texts[-1].endswith((".", ",", ";", ":")) or is_ellipsis(texts[-1])


def _options(script: Script) -> list[Field]:
    """The `--speculative-…` lines of a block that has no command."""
    expander = Expander(script.source.document, ShellScope())
    return [
        field
        for node in script.nodes
        if isinstance(node, Simple)
        and node.words
        and (node.words[0].plain or "").startswith("--speculative-")
        for field in expander.fields(node.words[0])
    ]

"""Distinguish comments from similar text in strings, prose and documents."""

from __future__ import annotations

import io
import tokenize
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from speclaunch.core import InputError, lazy
from speclaunch.deployments.sources import documents
from speclaunch.deployments.sources.documents import Block, BlockKind
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.source_text import (
    Document,
    Form,
    form_of,
    is_template,
    looks_like_yaml,
    template_of,
)

Stretch = tuple[int, int]
"""Start and end offset in a text; the end is exclusive."""
IsComment = Callable[[int], bool]
r"""Predicate of text offsets: True if the `#` (or `<!--`) at an offset is part of a comment.

Lines of the text end with `\n`.
"""

_INDENTED = lazy(r"(?:[ ]{2}|\t)")


def comments_of(text: str, shown: str) -> IsComment | None:
    """Return a predicate for offsets in comments; None if the file is unreadable or unsupported.

    Templates and notebooks are unsupported.
    """
    kind = Path(shown).suffix.lower()
    if is_template(shown):
        return None
    if kind != ".py" and template_of(text, Path(shown), is_yaml=looks_like_yaml(text, kind)):
        return None
    form = form_of(text, shown, kind)
    try:
        document = Document(text, shown, lenient=form in (Form.PLAIN, Form.DOCUMENT))
        return _FORMS[form](document)
    except InputError:
        return None


def _shell(document: Document) -> IsComment | None:
    run(document.source())
    return _within(document.shell_comments)


def _yaml(document: Document) -> IsComment | None:
    import yaml  # noqa: PLC0415  scripts need none

    from speclaunch.deployments.sources.yaml_files import read_yaml_document  # noqa: PLC0415

    try:
        values = _within(_values(document.text))
    except (yaml.YAMLError, ValueError):
        return None
    with suppress(InputError):
        read_yaml_document(document)
    script = _within(document.shell_comments)
    return lambda at: script(at) or not values(at)


def _values(text: str) -> Iterator[Stretch]:
    """Yield the ranges of scalars in a YAML text. A block scalar's first line is excluded."""
    import yaml  # noqa: PLC0415

    from speclaunch.deployments.recipe.source import events  # noqa: PLC0415

    for event in events(text):
        if not isinstance(event, yaml.ScalarEvent):
            continue
        if event.start_mark is None or event.end_mark is None:
            continue  # pragma: no cover - both loaders have marks
        start, end = event.start_mark.index, event.end_mark.index
        if event.style in ("|", ">"):
            below = text.find("\n", start)
            start = len(text) if below < 0 else below
        yield start, end


def _program(document: Document) -> IsComment | None:
    from speclaunch.deployments.sources.python_files import read_program  # noqa: PLC0415  `ast`

    lines = io.StringIO(document.text, newline="\n").readline
    own: list[Stretch] = []
    try:
        for token in tokenize.generate_tokens(lines):
            if token.type == tokenize.COMMENT:
                at = document.offset(token.start[0] - 1, token.start[1])
                own.append((at, at + len(token.string)))
    except (tokenize.TokenError, SyntaxError):
        return None
    read_program(document)
    return _within([*own, *document.shell_comments])


def _dockerfile(document: Document) -> IsComment | None:
    from speclaunch.deployments.sources.dockerfile import instructions, read_dockerfile  # noqa: PLC0415

    with suppress(InputError):
        read_dockerfile(document)
    bodies = (body for instruction in instructions(document) for body in instruction.bodies)
    body = _within((part.offset(0), part.offset(len(part.text))) for part in bodies)
    script = _within(document.shell_comments)
    return lambda at: script(at) or (_begins_line(document.text, at) and not body(at))


def _document(document: Document) -> IsComment | None:
    """Return the predicate for `<!-- … -->` in prose, and for comments in code."""
    with suppress(InputError):
        documents.read_markdown(document)
    text = document.text
    fenced, script = _within(_fenced(text)), _within(document.shell_comments)
    code: dict[BlockKind, list[Stretch]] = defaultdict(list)
    values: list[Stretch] = []
    for block in documents.blocks(document):
        start, end = block.source.offset(0), block.source.offset(len(block.source.text))
        kind = documents.kind_of(block)
        code[kind if kind in _OWN_COMMENTS else block.kind].append((start, end))
        if kind is BlockKind.YAML:
            values += ((start + first, start + last) for first, last in _values_or_none(block))
    of_yaml, of_docker = (_within(code[kind]) for kind in _OWN_COMMENTS)
    of_shell = _within([*code[BlockKind.SCRIPT], *code[BlockKind.TEXT]])
    is_value = _within(values)

    def is_comment(at: int) -> bool:
        start = text.rfind("\n", 0, at) + 1
        if text.startswith("<!--", at):
            return not fenced(at) and text.count("`", start, at) % 2 == 0
        if script(at) and of_shell(at):
            return True
        if of_yaml(at):
            return script(at) or not is_value(at)
        if of_docker(at):
            return script(at) or _begins_line(text, at)
        # indented code, or a comment after a command in it
        is_code = not fenced(at) and _INDENTED.match(text, start) is not None
        return is_code and (_begins_line(text, at) or script(at))

    return is_comment


_OWN_COMMENTS = (BlockKind.YAML, BlockKind.DOCKERFILE)


def _values_or_none(block: Block) -> list[Stretch]:
    import yaml  # noqa: PLC0415

    with suppress(yaml.YAMLError, ValueError):
        return list(_values(block.source.text))
    return []


def _fenced(text: str) -> Iterator[Stretch]:
    at, mark, start = 0, "", 0
    for line in text.splitlines(keepends=True):
        fence = documents.FENCE.match(line)
        if fence is not None and not mark:
            mark, start = fence[2], at
        elif fence is not None and fence[2].startswith(mark):
            yield start, at + len(line)
            mark = ""
        at += len(line)
    if mark:
        yield start, at


def _plain(document: Document) -> IsComment | None:
    if document.text.startswith("#!"):
        return _shell(document)
    if documents.read_markdown(document).invocations:
        return _document(document)
    return _shell(Document(document.text, document.shown))


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _within(stretches: Iterable[Stretch]) -> IsComment:
    """Return a predicate for offsets inside any of `stretches`, which may overlap."""
    merged: list[Stretch] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    starts = [start for start, _ in merged]

    def lies_in(at: int) -> bool:
        before = bisect_right(starts, at) - 1
        return before >= 0 and at < merged[before][1]

    return lies_in


_FORMS: dict[Form, Callable[[Document], IsComment | None]] = {
    Form.PROGRAM: _program,
    Form.PLAIN: _plain,
    Form.DOCUMENT: _document,
    Form.NOTEBOOK: lambda _: None,
    Form.DOCKERFILE: _dockerfile,
    Form.YAML: _yaml,
    Form.MAKEFILE: _shell,
    Form.SHELL: _shell,
}

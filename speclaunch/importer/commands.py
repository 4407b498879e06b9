"""From the words of one command to an invocation: program, arguments, environment, the rest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from speclaunch.errors import Problem
from speclaunch.importer import slime
from speclaunch.importer.interface import (
    Comment,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    RouterCommand,
    Word,
)
from speclaunch.importer.scope import Field, ShellScope, Value
from speclaunch.importer.source_text import Document, SourceSpan
from speclaunch.importer.syntax import Simple
from speclaunch.importer.wrappers import (
    DIFFUSION,
    HELP,
    READ,
    ROUTER,
    SILENT,
    Wrapping,
    base,
    cut,
    find_program,
    find_router,
    read_wrappers,
)
from speclaunch.patterns import lazy
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.importer.expand import Expander
    from speclaunch.importer.here_documents import HereScript

_OPTION = lazy(r"--?[A-Za-z][\w-]*=(?=\S)")
_MAX_ABOVE = 50
"""Lines of comments above a command that belong to it."""


@record
class CommandContext:
    """What surrounds a command: the wrappers of the shell that it stands in, conditions, a name."""

    program: tuple[Word, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    name: str | None = None
    image: str | None = None
    base: Mapping[str, Word] = field(default_factory=dict)
    """Environment that the file gives to everything in here (a container's)."""


@record(frozen=False)
class FoundCommand:
    """What one command holds: an invocation, or a script for another shell."""

    invocation: Invocation | None = None
    router: RouterCommand | None = None
    script: tuple[Field, ...] = ()
    """The words that hold a script, to be read as one."""
    positional: tuple[Field, ...] | None = None
    wrapping: Wrapping = field(default_factory=Wrapping)
    before: tuple[Field, ...] = ()
    """The words before the script."""
    is_diffusion: bool = False
    """A trainer of images, whose engines are none of ours."""
    problems: list[Problem] = field(default_factory=list)


def look(words: Sequence[Field]) -> FoundCommand:
    """Find the server in a command, or the script that may hold one."""
    found = FoundCommand()
    if not words or base(words[0].text) in SILENT:
        return found
    words = _with_entrypoint(words)
    program = find_program(words)
    if program is not None:
        if _is_no_server(program.kind, [word.text for word in words[program.arguments :]]):
            return found
        before = words[: program.start]
        found.wrapping = read_wrappers(before)
        given = tuple(word.word() for word in words[program.arguments :])
        dropped: tuple[Dropped, ...] = ()
        if any(word.text == ROUTER for word in words[program.start : program.arguments]):
            from speclaunch.importer import router  # noqa: PLC0415  few commands have one

            given, dropped = router.of_servers(given)
        found.invocation = Invocation(
            program.kind,
            given,
            words[program.start].place,
            dropped=dropped,
            program=tuple(word.word() for word in words[: program.arguments]),
            name=found.wrapping.name,
            image=found.wrapping.image,
        )
        if program.kind is InvocationKind.DYNAMO:
            from speclaunch.importer import dynamo  # noqa: PLC0415  most are SGLang's

            found.invocation = dynamo.without_own(found.invocation)
        return found
    if any(slime.is_engines(word.text) for word in words):
        return _slime(words, found)
    for index, word in enumerate(words):
        text = "".join(piece.text for piece in word.pieces)
        if READ.search(text) and any(char in text for char in " \t\n"):
            return _script(words, index, found)
    started = find_router(words)
    if started is not None:
        program_name, first = started
        arguments = tuple(word.word() for word in words[first:])
        place = words[first - 1].place
        found.wrapping = read_wrappers(words[: max(first - 3, 0)])
        found.router = RouterCommand(program_name, arguments, place, found.wrapping.name)
    return found


def _is_no_server(kind: InvocationKind, texts: Sequence[str]) -> bool:
    """True if the arguments only ask for help, or are for a server of images."""
    if not HELP.isdisjoint(texts):
        return True
    return kind is InvocationKind.SERVE and any(map(DIFFUSION.fullmatch, texts))


def _slime(words: Sequence[Field], found: FoundCommand) -> FoundCommand:
    if slime.is_diffusion(words):
        found.is_diffusion = True
        return found
    if words[0].text.startswith("-"):
        start = 0
    else:
        start = (
            next(
                (i for i, word in enumerate(words) if word.text.endswith(".py")),
                next((i for i, word in enumerate(words) if word.text.startswith("--")), 1) - 1,
            )
            + 1
        )
    program = start - 2 if start > 1 and words[start - 1].text.endswith(".py") else start - 1
    found.wrapping = read_wrappers(words[: max(program, 0)])
    reading = slime.read_options(words[start:])
    found.invocation = replace(
        reading.invocation,
        program=tuple(word.word() for word in words[:start]),
        place=words[max(program, 0)].place if start else reading.invocation.place,
    )
    found.wrapping.env |= slime.runtime_environment(words[:start])
    found.problems.extend(reading.problems)
    return found


def _script(words: Sequence[Field], index: int, found: FoundCommand) -> FoundCommand:
    head = base(words[0].text)
    if head == "eval":
        found.script = tuple(words[1:])
    else:
        found.script = (_without_option(words[index], words[:index]),)
        if index + 1 < len(words):
            found.positional = tuple(words[index + 2 :])
    found.before = tuple(words[: 1 if head == "eval" else index])
    found.wrapping = Wrapping() if head == "eval" else read_wrappers(found.before)
    return found


def _without_option(word: Field, before: Sequence[Field]) -> Field:
    """The script alone in ``--wrap="…"``; of what `screen` types, without the end of the line."""
    option = _OPTION.match(word.text)
    if option is not None:
        word = cut(word, option.end())
    last = word.pieces[-1] if word.pieces else None
    if last is not None and any(one.text == "stuff" for one in before):
        for ending in ("\\n", "\\r", "^M", "\n", "\r"):
            if last.text.endswith(ending):
                kept = last.slice(0, len(last.text) - len(ending))
                return replace(word, pieces=(*word.pieces[:-1], kept))
    return word


def _with_entrypoint(words: Sequence[Field]) -> Sequence[Field]:
    """``docker run --entrypoint X IMAGE args``: what is run is ``X args``."""
    if not any(word.text.startswith("--entrypoint") for word in words):
        return words
    wrapping = read_wrappers(words)
    at = next(
        (i for i, w in enumerate(words) if w.text.split("=")[0] == "--entrypoint"), len(words)
    )
    if wrapping.entrypoint is None or at >= len(words):
        return words
    image = at + (1 if "=" in words[at].text else 2)
    while image < len(words) and words[image].text.startswith("-"):
        image += 1 if "=" in words[image].text else 2
    return (*words[: image + 1], wrapping.entrypoint, *words[image + 1 :])


def environment(
    scope: ShellScope, assigned: Mapping[str, Value], wrapping: Wrapping, around: CommandContext
) -> Mapping[str, Word]:
    """The environment that the file gives to a command."""
    env: dict[str, Word] = {}
    outside = exported(scope) | {name: _word(value) for name, value in assigned.items()}
    if not wrapping.isolated:
        env |= around.base
        env |= {name: word for name, word in outside.items() if word is not None}
    for name, field_ in wrapping.passed.items():
        known = outside.get(name)
        why = f"`{name}` is passed on from the environment, which this file does not set"
        env[name] = known or Word(field_.text, field_.place, evaluated=False, why=why)
    env |= {name: field_.word() for name, field_ in wrapping.env.items()}
    for name in wrapping.unset:
        env.pop(name, None)
    return MappingProxyType(env)


def exported(scope: ShellScope) -> dict[str, Word | None]:
    """Every exported variable that has a text."""
    return {
        name: _word(value)
        for name, value in scope.variables.items()
        if value.exported and value.items is None
    }


def _word(value: Value) -> Word | None:
    if value.pieces is None and value.why is None:
        return None
    if value.pieces is None:
        return Word(value.span.text, value.span.place, evaluated=False, why=value.why)
    return Field(value.pieces, value.span).word()


def leftovers(node: Simple, pipeline: SourceSpan | None) -> Iterable[Dropped]:
    """Redirections, the pipe and `&`."""
    for redirect in node.redirects:
        text = redirect.span.text
        yield Dropped(text, redirect.span.place, "the caller decides where the output goes")
    if pipeline is not None:
        yield Dropped(pipeline.text, pipeline.place, "the output is piped on")
    if node.end == "&":
        source = node.span.source
        place = source.place(node.end_at)
        yield Dropped("&", place, "the caller watches the engine")


def prompt(first: Field) -> Iterable[Problem]:
    """What bash makes of the prompt of a terminal that was copied with its command."""
    if first.text in ("$", "%") and first.span is not None:
        yield Problem(
            f"`{first.text}` is not a command: bash looks for a program of that name, and starts "
            "no server",
            first.span.place,
            f"remove the `{first.text}`, the prompt of a terminal",
        )


class Comments:
    """The comments of a script, to be found by where they stand."""

    def __init__(self, comments: Sequence[SourceSpan]) -> None:
        self._comments = comments
        self._offsets = [span.source.offset(span.start) for span in comments]

    def within(self, regions: Sequence[tuple[int, int]]) -> tuple[Comment, ...]:
        """Those inside of stretches of the document, at their ends and directly above them."""
        if not self._comments:
            return ()
        document = self._comments[0].source.document
        chosen: set[int] = set()
        for start, end in regions:
            first = bisect_left(self._offsets, start)
            line = document.text.find("\n", end)
            last = bisect_left(self._offsets, len(document.text) if line < 0 else line)
            chosen.update(range(first, last), self._above(start, first, document))
        return tuple(
            Comment(span.text.lstrip("#").strip(), span.place)
            for span in (self._comments[index] for index in sorted(chosen))
        )

    def _above(self, start: int, first: int, document: Document) -> Iterable[int]:
        above = document.place(start).line - 1
        for index in range(first - 1, max(first - 1 - _MAX_ABOVE, -1), -1):
            at = self._offsets[index]
            line_start = document.text.rfind("\n", 0, at) + 1
            alone = not document.text[line_start:at].strip()
            hashbang = self._comments[index].text.startswith("#!")
            if document.place(at).line != above or not alone or hashbang:
                return
            yield index
            above -= 1


def distinct(invocations: Iterable[Invocation]) -> Iterable[Invocation]:
    """Without repetitions: a function that is called twice in the same way is one command."""
    seen: set[tuple[object, ...]] = set()
    for found in invocations:
        words: tuple[Word, ...] = found.words
        key = (
            found.place,
            tuple(w.text for w in words),
            tuple((k, v.text) for k, v in found.env.items()),
        )
        if key not in seen:
            seen.add(key)
            yield found


def text_of(value: Value) -> str:
    """The text of a variable, what is not known in it as it is written."""
    return "".join(piece.text for piece in value.pieces or ())


def owned(field: Field) -> Field:
    """An argument of a function: its text belongs to where it was given."""
    pieces = tuple(replace(piece, owner=piece.owner or field.span) for piece in field.pieces)
    return replace(field, pieces=pieces)


def here_script(node: Simple, fields: Sequence[Field], expander: Expander) -> HereScript | None:
    """The script in a here-document of a command, if there is one (`here_documents.script`)."""
    if all(redirect.body is None for redirect in node.redirects):
        return None
    from speclaunch.importer import here_documents  # noqa: PLC0415  few commands have one

    return here_documents.script(node, fields, expander)


def here_manifest(
    node: Simple, fields: Sequence[Field], pipeline: SourceSpan | None
) -> Reading | None:
    """The servers in the YAML of a here-document, if there is one (`here_documents.manifest`)."""
    if all(redirect.body is None for redirect in node.redirects):
        return None
    from speclaunch.importer import here_documents  # noqa: PLC0415  few commands have one

    return here_documents.manifest(node, fields, pipeline.text if pipeline is not None else "")

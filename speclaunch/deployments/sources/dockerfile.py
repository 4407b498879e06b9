"""Read the servers that a Dockerfile starts with ``ENTRYPOINT``, ``CMD`` and ``RUN``.

The rules are Docker's. An entrypoint in exec form gets the tokens of ``CMD``; an entrypoint in
shell form does not. A stage inherits the settings of the stage that it builds on. Docker itself
substitutes variables in ``FROM``, ``ENV`` and ``ARG``. In a shell form, the shell substitutes them.
In an exec form, nothing does.

Instructions are parsed as in BuildKit (frontend/dockerfile/parser). A line continues after the
escape character; comments and empty lines between continued lines are skipped. A list of JSON
strings is an exec form. Anything else after the instruction is a shell form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Problem, lazy
from speclaunch.deployments.sources.commands import CommandContext, environment, look
from speclaunch.deployments.sources.expand import Expander
from speclaunch.deployments.sources.fields import Field, ShellScope, Value
from speclaunch.deployments.sources.interface import SERVER, Reading, ReadingBuilder
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.parser import parse
from speclaunch.deployments.sources.shell_builtins import assign
from speclaunch.deployments.sources.shell_syntax import Simple
from speclaunch.deployments.sources.source_text import (
    Document,
    SourceBuilder,
    SourceSpan,
    SourceText,
    WordPiece,
)
from speclaunch.deployments.sources.wrappers import MODULES, Wrapping

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


class Instruction(Struct, frozen=True):
    """One instruction. `rest` is the text after its name, joined into one line of equal length.

    `bodies` contains its here-documents; `start` is the offset of its name in the file.
    """

    name: str
    rest: SourceText
    start: int
    end: int
    bodies: tuple[SourceText, ...] = ()
    on_build: bool = False
    """True for `ONBUILD`, which runs in the build of a derived image."""

    @property
    def span(self) -> SourceSpan:
        return SourceSpan(self.rest, 0, len(self.rest.text))


def instructions(document: Document, start: int = 0, end: int | None = None) -> list[Instruction]:
    """Return the instructions of a Dockerfile; `start` and `end` select a part of `document`."""
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
    """Return the escape character, which a directive before the first instruction may set."""
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
    """Return the end of the instruction that may start here, and its text as one line.

    Escaped line ends, comments and empty lines become blanks, so offsets match the file.
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
        content = line.rstrip()[:-1]
        parts.append(content + " " * (stop - at - len(content)))
        at, continued = stop, True
    return at, "".join(parts)


def _bodies(document: Document, text: str, line: str, at: int, bodies: list[SourceText]) -> int:
    """Append an instruction's here-documents to `bodies`, and return the offset after them."""
    for opening in _HEREDOC.finditer(line):
        tabs = "\t*" if opening[1] else ""
        ending = re.compile(rf"^{tabs}{re.escape(opening[3])}$\n?", re.MULTILINE).search(text, at)
        if ending is None:
            return at
        bodies.append(SourceText(document, text[at : ending.start()], at))
        at = ending.end()
    return at


class ExecForm(Struct, frozen=True):
    """Tokens of an exec form. `is_json` is False if Docker runs it as a shell command."""

    words: tuple[Field, ...]
    is_json: bool = True


def exec_form(source: SourceText) -> ExecForm | None:
    """Return the tokens of ``["program", "argument"]``; None for a shell form."""
    text = source.text.strip()
    if not text.startswith("["):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    is_json = isinstance(data, list) and all(isinstance(item, str) for item in data)
    words = tuple(_string(source, string) for string in _STRING.finditer(source.text))
    source.document.spend(len(words))
    return ExecForm(words, is_json)


def _string(source: SourceText, string: re.Match[str]) -> Field:
    raw = string[1]
    span = SourceSpan(source, string.start(1), max(string.end(1), string.start(1)))
    if "\\" not in raw:
        return Field((WordPiece(raw, source, string.start(1), quoted=True),), span)
    try:
        text = str(json.loads(string[0]))
    except ValueError:
        text = raw
    at = string.start(1)
    marks = re.finditer(r"\\u[0-9A-Fa-f]{4}|\\.|.", raw, re.DOTALL)
    where = [source.offset(at + mark.start()) for mark in marks]
    if len(where) != len(text):
        where = [source.offset(at)] * len(text)
    return Field((WordPiece(text, SourceText(source.document, text, where), 0, quoted=True),), span)


_VARIABLE = lazy(r"\$(?:\{?[A-Za-z_])")
_ASSIGNMENTS = lazy(r"\s*[A-Za-z_]\w*=")
_LEGACY = lazy(r"\s*([A-Za-z_]\w*)[ \t]+")
_NAMED = lazy(r"(\S+)(?:\s+[Aa][Ss]\s+(\S+))?")
_ECHOED = lazy(
    r"\b(?:echo|printf)\s+(?:-[neE]+\s+)*(?:'([^']*)'|\"([^\"$`]*)\")\s*>>?\s*[\"']?([^\s;&|\"']+)"
)
"""Pattern of a text that a build writes to a file, and of the file's name."""
_ESCAPED = lazy(r"\\([nt\\])")
_BETWEEN = lazy(r"[^\w.-]+")
_SHELLS = frozenset({"bash", "sh", "ash", "dash", "zsh"})


class BuildStage(Struct):
    """Settings of a build stage after the instructions read so far."""

    name: str | None = None
    image: str | None = None
    variables: dict[str, Value] = {}
    entrypoint: Instruction | None = None
    cmd: Instruction | None = None
    inherited_cmd: bool = False
    own: bool = False
    """True if the stage sets a command instead of inheriting it."""
    has_shell: bool = True
    """True if shell forms run in a shell with sh syntax."""
    echoed: tuple[tuple[str, SourceText], ...] = ()
    """Names and texts of the scripts that ``RUN echo '…' > FILE`` writes."""

    def at_run(self) -> ShellScope:
        """Return the variables at run time, which exclude ``ARG``."""
        return ShellScope({name: value for name, value in self.variables.items() if value.exported})


def read_dockerfile(document: Document, start: int = 0, end: int | None = None) -> Reading:
    """Return the servers of a Dockerfile; `start` and `end` select a part of `document`."""
    reader = _Reader(document)
    for instruction in instructions(document, start, end):
        if not instruction.on_build:
            with reader.tolerant():
                reader.carry_out(instruction)
    return reader.done()


class _Reader(ReadingBuilder):
    def __init__(self, document: Document) -> None:
        super().__init__()
        self.document = document
        self.stage: BuildStage | None = None
        self.stages: list[BuildStage] = []
        self.global_args: dict[str, Value] = {}
        """``ARG`` variables before the first ``FROM``."""

    def done(self) -> Reading:
        self._end_stage()
        return self.reading()

    def carry_out(self, found: Instruction) -> None:
        if found.name == "FROM":
            self._end_stage()
            self._begin_stage(found)
            return
        if found.name == "ARG":
            self._arg(found)
            return
        stage = self.stage = self.stage or BuildStage()  # a fragment has no FROM
        match found.name:
            case "ENV":
                self._env(found, stage)
            case "SHELL":
                form = exec_form(found.rest)
                first = form.words[0].text if form is not None and form.words else "sh"
                stage.has_shell = first.rsplit("/", 1)[-1] in _SHELLS
            case "ENTRYPOINT":
                stage.entrypoint, stage.own = found, True
                if stage.inherited_cmd:
                    stage.cmd, stage.inherited_cmd = None, False
            case "CMD":
                stage.cmd, stage.inherited_cmd, stage.own = found, False, True
            case "RUN" | "COPY":
                self._build_step(found, stage)

    # -- stages and variables -----------------------------------------------------------

    def _begin_stage(self, found: Instruction) -> None:
        named = _NAMED.match(found.rest.text.strip())
        image, name = (named[1], named[2]) if named is not None else (None, None)
        before = next((old for old in self.stages if image and old.name == image.lower()), None)
        if before is not None:
            self.stage = replace(
                before,
                name=(name or "").lower() or None,
                variables=dict(before.variables),
                inherited_cmd=before.cmd is not None,
                own=False,
            )
        else:
            if image is not None and "$" in image:
                written = found.rest.part(*_stripped(found.rest))
                image = self._text(written, self.global_args).split()[0]
            self.stage = BuildStage((name or "").lower() or None, image)
        self.stages.append(self.stage)

    def _expander(self, variables: dict[str, Value]) -> Expander:
        return Expander(self.document, ShellScope(variables))

    def _text(self, source: SourceText, variables: dict[str, Value]) -> str:
        """Return a text with known variables substituted; other variables are unchanged."""
        nodes = parse(source).nodes
        words = nodes[0].words if nodes and isinstance(nodes[0], Simple) else ()
        fields = self._expander(variables).words(words)
        return " ".join(field.text for field in fields) or source.text

    def _arg(self, found: Instruction) -> None:
        into = self.global_args if self.stage is None else self.stage.variables
        if not _ASSIGNMENTS.match(found.rest.text):
            for name in found.rest.text.split():
                if self.stage is not None and name in self.global_args:
                    into.setdefault(name, self.global_args[name])
                elif name not in into:
                    why = f"`{name}` is a build argument without a default"
                    into[name] = Value(found.span, why=why)
            return
        into.update(self._assigned(found, into))

    def _env(self, found: Instruction, stage: BuildStage) -> None:
        legacy = _LEGACY.match(found.rest.text)
        if _ASSIGNMENTS.match(found.rest.text):
            for name, value in self._assigned(found, stage.variables).items():
                stage.variables[name] = replace(value, exported=True)
        elif legacy is not None:
            source = found.rest.part(legacy.end(), len(found.rest.text))
            nodes = parse(source).nodes
            words = nodes[0].words if len(nodes) == 1 and isinstance(nodes[0], Simple) else ()
            pieces: tuple[WordPiece, ...] = (WordPiece(source.text, source, 0, quoted=True),)
            if len(words) == 1:
                pieces = self._expander(stage.variables).text(words[0])
            span = SourceSpan(source, 0, len(source.text))
            stage.variables[legacy[1]] = Value(span, pieces, exported=True)

    def _assigned(self, found: Instruction, known: dict[str, Value]) -> dict[str, Value]:
        """Return the variables that ENV or ARG sets; values may use earlier variables."""
        nodes = parse(found.rest).nodes
        if not nodes or not isinstance(nodes[0], Simple):
            return {}
        expander = self._expander(dict(known))
        assigned: dict[str, Value] = {}
        for assignment in nodes[0].assignments:
            name, value, _ = assign(expander, assignment, temporary=True)
            assigned[name] = replace(value, exported=False)
        return assigned

    # -- commands -----------------------------------------------------------------------

    def _end_stage(self) -> None:
        stage, self.stage = self.stage, None
        if stage is None or not stage.own:
            return
        with self.tolerant():
            self._command(stage)

    def _command(self, stage: BuildStage) -> None:
        first = stage.entrypoint or stage.cmd
        if first is None:
            return
        started = _BETWEEN.split(first.rest.text + (stage.cmd.rest.text if stage.cmd else ""))
        for name, script in stage.echoed:
            if name in started:
                self._shell(script, stage, stage.at_run())
        form = self._form(first)
        if form is None:
            if SERVER.search(first.rest.text):
                self._shell(first.rest, stage, stage.at_run())
            return
        words = list(form.words)
        if first is stage.entrypoint and stage.cmd is not None:
            cmd_form = self._form(stage.cmd)
            words += cmd_form.words if cmd_form is not None else _in_shell(stage.cmd)
        texts = [word.text for word in words]
        has_model = any(text.startswith(("--model", "--config")) for text in texts)
        is_incomplete = not (has_model or MODULES.keys().isdisjoint(texts))
        if is_incomplete or (first is stage.entrypoint and stage.cmd is None):
            words.append(_run_arguments(first))
        self._exec(words, stage, stage.at_run())

    def _form(self, found: Instruction) -> ExecForm | None:
        form = exec_form(found.rest)
        shown = " ".join(word.text for word in form.words) if form is not None else ""
        if form is not None and not form.is_json and SERVER.search(shown):
            message = f"the list of {found.name} is not JSON: Docker runs it as a shell command"
            place = replace(found.rest.place(*_stripped(found.rest)), length=1)
            help_ = "use double quotes, and no comma after the last word"
            self.misread.append(Problem(message, place, help_))
        return form

    def _exec(self, words: Sequence[Field], stage: BuildStage, scope: ShellScope) -> None:
        found = look(words)
        context = CommandContext(image=stage.image)
        env = environment(scope, {}, found.wrapping, context)
        if found.invocation is not None:
            for word in words:
                self._literal_variable(word)
            dropped = (*found.wrapping.dropped, *found.invocation.dropped)
            image = found.invocation.image or stage.image
            server = replace(found.invocation, env=env, dropped=dropped, image=image)
            self.invocations.append(server)
            self.problems.extend(found.problems)
        elif found.script:
            pieces = [piece for field in found.script for piece in field.pieces]
            source = pieces[0].source
            if len(pieces) == 1 and pieces[0].exact:
                source = source.part(pieces[0].start, pieces[0].start + len(pieces[0].text))
            before = tuple(field.word() for field in found.before)
            context = CommandContext(before, tuple(found.wrapping.dropped), None, stage.image, env)
            scope.positional = found.positional
            self.add(run(source, scope, context))

    def _literal_variable(self, word: Field) -> None:
        mark = _VARIABLE.search(word.text)
        if mark is not None and word.unknown is None:
            message = f"`{word.text}` is passed unchanged: the exec form starts no shell"
            help_ = 'write the command without the list, or as ["sh", "-c", "…"]'
            self.misread.append(Problem(message, word.place, help_))

    def _shell(self, source: SourceText, stage: BuildStage, scope: ShellScope) -> None:
        if stage.has_shell:
            env = environment(scope, {}, Wrapping(), CommandContext())
            self.add(run(source, scope, CommandContext(image=stage.image, base=env)))

    def _build_step(self, found: Instruction, stage: BuildStage) -> None:
        for body in found.bodies:  # a script that runs, or is written into the image
            if SERVER.search(body.text):
                self._shell(body, stage, ShellScope(dict(stage.variables)))
        if found.name == "RUN" and not found.bodies and SERVER.search(found.rest.text):
            stage.echoed += tuple(_echoed(found.rest))
            form, scope = exec_form(found.rest), ShellScope(dict(stage.variables))
            if form is not None and form.is_json:
                self._exec(form.words, stage, scope)
            else:
                self._shell(found.rest, stage, scope)


def _echoed(source: SourceText) -> Iterator[tuple[str, SourceText]]:
    """Yield the file names and texts that a shell form writes, with ``\\n`` as line ends."""
    for echo in _ECHOED.finditer(source.text):
        at, end = echo.span(1 if echo[1] is not None else 2)
        builder = SourceBuilder(source.document)
        for mark in _ESCAPED.finditer(source.text, at, end):
            builder.put(source.text[at : mark.start()], map(source.offset, range(at, mark.start())))
            builder.put({"n": "\n", "t": "\t"}.get(mark[1], "\\"), [source.offset(mark.start())])
            at = mark.end()
        builder.put(source.text[at:end], map(source.offset, range(at, end)))
        yield echo[3].rpartition("/")[2], builder.source()


def _run_arguments(found: Instruction) -> Field:
    """Return a placeholder for the arguments of ``docker run``."""
    start, end = _stripped(found.rest)
    why = "the arguments of `docker run`"
    piece = WordPiece("$@", found.rest, max(end - 1, start), True, False, why)
    return Field((piece,))


def _in_shell(found: Instruction) -> tuple[Field, ...]:
    """Return the tokens that an exec-form entrypoint gets from a shell form."""
    start, end = _stripped(found.rest)
    shell = (WordPiece(text, found.rest, start, True, False) for text in ("/bin/sh", "-c"))
    script = WordPiece(found.rest.text[start:end], found.rest, start, True)
    return (*(Field((piece,)) for piece in shell), Field((script,)))


def _stripped(source: SourceText) -> tuple[int, int]:
    text = source.text
    return len(text) - len(text.lstrip()), len(text.rstrip())

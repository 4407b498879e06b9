"""Convert one command's tokens to an invocation: program, arguments, environment."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from speclaunch.core import InputError, Problem, lazy
from speclaunch.deployments.sources import slime
from speclaunch.deployments.sources.expand import Expander
from speclaunch.deployments.sources.fields import Field, ShellScope, Value
from speclaunch.deployments.sources.interface import (
    READ,
    SERVER,
    Comment,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    RouterCommand,
    Word,
)
from speclaunch.deployments.sources.parser import quoted_text
from speclaunch.deployments.sources.shell_builtins import DIRECTORY
from speclaunch.deployments.sources.shell_syntax import Compound, Function, Node, Redirect, Simple
from speclaunch.deployments.sources.source_text import Document, SourceSpan, SourceText, joined
from speclaunch.deployments.sources.wrappers import (
    DIFFUSION,
    HELP,
    ROUTER,
    SHELLS,
    SILENT,
    Wrapping,
    base,
    cut,
    find_program,
    find_router,
    read_wrappers,
)

_STEP = ("-N", "-n", "--nodes", "--ntasks")
"""Options of `srun` that change the variables of its step."""
_OPTION = lazy(r"--?[A-Za-z][\w-]*=(?=\S)")
_MAX_ABOVE = 50
"""Maximum number of comment lines that belong to the command below them."""


class CommandContext(Struct, frozen=True):
    """Settings that a command gets from its container or the script that runs it."""

    program: tuple[Word, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    name: str | None = None
    image: str | None = None
    base: Mapping[str, Word] = {}
    """Environment that the file sets for all enclosed commands, such as those of a container."""


class FoundCommand(Struct):
    """Server, router or shell script that a command starts."""

    invocation: Invocation | None = None
    router: RouterCommand | None = None
    script: tuple[Field, ...] = ()
    """Tokens that together form one script."""
    positional: tuple[Field, ...] | None = None
    wrapping: Wrapping = field(default_factory=Wrapping)
    before: tuple[Field, ...] = ()
    """Tokens before the script."""
    is_diffusion: bool = False
    """True for a trainer of image models, whose engines are not SGLang's LLM engines."""
    problems: list[Problem] = []


def look(words: Sequence[Field]) -> FoundCommand:
    """Return the server, router or shell script in a command; empty if there is none."""
    found = FoundCommand()
    if not words or base(words[0].text) in SILENT:
        return found
    words = _with_entrypoint(words)
    is_text = len(words) > 2 and words[0].text == "eval"
    program = None if is_text else find_program(words)
    if program is not None:
        texts = [word.text for word in words[program.arguments :]]
        is_diffusion = program.kind is InvocationKind.SERVE and any(map(DIFFUSION.fullmatch, texts))
        if is_diffusion or not HELP.isdisjoint(texts):
            return found
        before = words[: program.start]
        found.wrapping = read_wrappers(before)
        argv = tuple(word.word() for word in words[program.arguments :])
        dropped: tuple[Dropped, ...] = ()
        if any(word.text == ROUTER for word in words[program.start : program.arguments]):
            argv, dropped = without_router(argv)
        start, last = words[program.start], words[program.arguments - 1]
        used = start.used if last.used is None else None  # `"$PYTHON" -m …` starts where it is used
        found.invocation = Invocation(
            program.kind,
            argv,
            start.place if used is None else used.place,
            dropped=dropped,
            program=tuple(word.word() for word in words[: program.arguments]),
            name=found.wrapping.name,
            image=found.wrapping.image,
        )
        if program.kind is InvocationKind.DYNAMO:
            from speclaunch.deployments.sources import dynamo  # noqa: PLC0415  most are SGLang's

            found.invocation = dynamo.without_own(found.invocation)
        return found
    trained = _trainer(words, found)
    if trained is not None:
        return trained
    for index, word in enumerate(words):
        text = "".join(piece.text for piece in word.pieces)
        if is_text or (READ.search(text) and any(char in text for char in " \t\n")):
            return _script(words, index, found)
    started = find_router(words)
    if started is not None:
        program_name, first = started
        arguments = tuple(word.word() for word in words[first:])
        place = words[first - 1].place
        found.wrapping = read_wrappers(words[: max(first - 3, 0)])
        found.router = RouterCommand(program_name, arguments, place, found.wrapping.name)
    return found


def _trainer(words: Sequence[Field], found: FoundCommand) -> FoundCommand | None:
    """Return the server of slime's or verl's rollouts; None for any other command."""
    if slime.starts_engines(words):
        return _slime(words, found)
    if not any("actor_rollout_ref." in word.text for word in words):
        return None
    from speclaunch.deployments.sources import verl  # noqa: PLC0415  few commands are verl's

    found.invocation = verl.read_overrides(words)
    if found.invocation is None:
        return None
    found.wrapping = read_wrappers(words)
    found.wrapping.env |= slime.runtime_environment(words)
    return found


def _slime(words: Sequence[Field], found: FoundCommand) -> FoundCommand:
    if slime.is_diffusion(words):
        found.is_diffusion = True
        return found
    start = 0
    if not words[0].text.startswith("-"):
        option = next((i for i, word in enumerate(words) if word.text.startswith("--")), 1)
        start = next((i + 1 for i, word in enumerate(words) if word.text.endswith(".py")), option)
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
    if base(words[0].text) == "eval":
        found.before, found.script = tuple(words[:1]), tuple(words[1:])
        return found
    found.before = tuple(words[:index])
    found.script = (_without_option(words[index], found.before),)
    found.wrapping = read_wrappers(found.before)
    if index + 1 < len(words):
        found.positional = tuple(words[index + 2 :])
    return found


def _without_option(word: Field, before: Sequence[Field]) -> Field:
    """Remove a leading ``--wrap=`` from `word` and, for `screen`, the final line end."""
    option = _OPTION.match(word.text)
    if option is not None:
        word = cut(word, option.end())
    last = word.pieces[-1] if word.pieces else None
    if last is not None and any(field.text == "stuff" for field in before):
        for ending in ("\\n", "\\r", "^M", "\n", "\r"):
            if last.text.endswith(ending):
                shortened = last.slice(0, len(last.text) - len(ending))
                return replace(word, pieces=(*word.pieces[:-1], shortened))
    return word


def _with_entrypoint(words: Sequence[Field]) -> Sequence[Field]:
    """Return the tokens, with X of ``docker run --entrypoint X IMAGE args`` moved after IMAGE."""
    if not any(word.text.startswith("--entrypoint") for word in words):
        return words
    wrapping = read_wrappers(words)
    at = next((i for i, w in enumerate(words) if w.text.split("=")[0] == "--entrypoint"), None)
    if wrapping.entrypoint is None or at is None:
        return words
    image = at + (1 if "=" in words[at].text else 2)
    while image < len(words) and words[image].text.startswith("-"):
        image += 1 if "=" in words[image].text else 2
    return (*words[: image + 1], wrapping.entrypoint, *words[image + 1 :])


def environment(
    scope: ShellScope, assigned: Mapping[str, Value], wrapping: Wrapping, context: CommandContext
) -> Mapping[str, Word]:
    """Return the environment that the file sets for a command."""
    env: dict[str, Word] = {}
    outside = exported(scope) | {name: _word(value) for name, value in assigned.items()}
    if not wrapping.isolated:
        env |= context.base
        env |= {name: word for name, word in outside.items() if word is not None}
    for name, field_ in wrapping.passed.items():
        known = outside.get(name)
        why = f"`{name}` comes from the environment; this file does not set it"
        env[name] = known or Word(field_.text, field_.place, evaluated=False, why=why)
    env |= {name: field_.word() for name, field_ in wrapping.env.items()}
    for name in wrapping.unset:
        env.pop(name, None)
    return MappingProxyType(env)


def exported(scope: ShellScope) -> dict[str, Word | None]:
    """Return the exported variables of `scope`, each None if the file does not set its value."""
    return {
        name: _word(value)
        for name, value in scope.variables.items()
        if value.exported and value.items is None
    }


def _word(value: Value) -> Word | None:
    if value.pieces is not None:
        return Field(value.pieces, value.span).word()
    if value.why is None:
        return None
    return Word(value.span.text, value.span.place, evaluated=False, why=value.why)


def child_scope(
    scope: ShellScope, found: FoundCommand, assigned: Mapping[str, Value]
) -> ShellScope:
    """Return the scope of a script that a command runs, with the `assigned` variables."""
    wrapping: Wrapping = found.wrapping
    known: dict[str, Value] = {}
    everything = found.before and found.before[0].text == "eval"
    if not wrapping.isolated:
        is_step = any(field.text.startswith(_STEP) for field in found.before)
        job = () if is_step else "SLURM_"
        held = scope.variables.items()
        known = {n: v for n, v in held if v.exported or everything or n.startswith(job)}
        known |= {name: replace(value, exported=True) for name, value in assigned.items()}
        if (current := scope.get(DIRECTORY)) is not None:
            known[DIRECTORY] = current
    for name, own in wrapping.env.items():
        known[name] = Value(own.stretch, own.pieces, exported=True)
    functions = scope.functions if everything else {}
    positional = scope.positional if everything else found.positional
    return ShellScope(known, dict(functions), positional, list(scope.sourced))


def leftovers(node: Simple, pipeline: SourceSpan | None) -> Iterable[Dropped]:
    """Yield a command's redirections, its `pipeline` and its `&`, which a recipe omits."""
    for redirect in node.redirects:
        text = redirect.span.text
        yield Dropped(text, redirect.span.place, "the caller decides where the output goes")
    if pipeline is not None:
        yield Dropped(pipeline.text, pipeline.place, "the output goes to a pipe")
    if node.end == "&":
        place = node.span.source.place(node.end_at)
        yield Dropped("&", place, "the caller watches the engine")


def prompt(first: Field) -> Iterable[Problem]:
    """Yield a problem if `first` is a terminal prompt, copied with its command."""
    if first.text in ("$", "%") and first.span is not None:
        yield Problem(
            f"`{first.text}` is not a command: bash searches for a program of that name, and "
            "no server starts",
            first.span.place,
            f"remove the terminal prompt `{first.text}`",
        )


class Comments:
    """Comments of a script, searchable by position."""

    def __init__(self, comments: Sequence[SourceSpan]) -> None:
        self._comments = comments
        self._offsets = [span.source.offset(span.start) for span in comments]

    def within(self, regions: Sequence[tuple[int, int]]) -> tuple[Comment, ...]:
        """Return comments inside document ranges, on their last lines and directly above them."""
        if not self._comments:
            return ()
        document = self._comments[0].source.document
        chosen: set[int] = set()
        for start, end in regions:
            first = bisect_left(self._offsets, start)
            line = document.text.find("\n", end)
            last = bisect_left(self._offsets, len(document.text) if line < 0 else line)
            chosen.update(range(first, last), self._above(start, first, document))
        spans = (self._comments[index] for index in sorted(chosen))
        return tuple(Comment(span.text.lstrip("#").strip(), span.place) for span in spans)

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
    """Yield invocations without duplicates, such as those of identical function calls."""
    seen: set[tuple[object, ...]] = set()
    for found in invocations:
        env = tuple((name, word.text) for name, word in found.env.items())
        key = (found.place, tuple((word.text, word.condition) for word in found.words), env)
        if key not in seen:
            seen.add(key)
            yield found


def hands_on(function: Function, call: Sequence[Field]) -> bool:
    """True if `call` passes a server command to `function`, which starts it elsewhere.

    Example: `on() { ssh "$1" "docker ${q[*]}"; }`. The text that `ssh` gets may be unknown.
    """
    return _runs(function.body) and look(call).invocation is not None


def _runs(nodes: Sequence[Node]) -> bool:
    return any(
        base(node.words[0].plain or "") in _RUN
        if isinstance(node, Simple) and node.words
        else isinstance(node, Compound) and any(_runs(branch.body) for branch in node.branches)
        for node in nodes
    )


# -- here-documents: ``bash <<EOF``, ``ssh host <<'EOF'``, ``cat > run.sh <<EOF``

_RUN = SHELLS | {
    *("ssh", "sbatch", "sudo", "su", "env", "nohup", "srun", "qsub", "bsub"),
    *("docker", "podman", "kubectl", "singularity", "apptainer", "chroot"),
}
"""Commands that run a script from standard input."""
_WRITE = frozenset({"cat", "tee"})
_APPLY = frozenset({"kubectl", "oc", "microk8s", "k3s"})
_READ_ONLY = "it is a manifest in a here-document"
_MAPPING = lazy(r"^[ \t]*(?:- )?[\w.-]+:(?:[ \t]|$)", re.MULTILINE)
_PIPED = lazy(r"\b(?:kubectl|oc|k3s)\b")
_NO_SCRIPT = (".md", ".txt", ".rst", ".log", ".yaml", ".yml", ".json", ".py", ".toml")


_ENDS = frozenset(("exit", "return", "die"))


def stops(nodes: Sequence[Node], functions: Mapping[str, Function]) -> bool:
    """True if the last of `nodes` ends the script."""
    for _ in range(4):
        last = nodes[-1] if nodes else None
        name = last.words[0].plain or "" if isinstance(last, Simple) and last.words else ""
        if isinstance(last, Compound) and last.kind == "group":
            nodes = last.branches[0].body
        elif name in _ENDS or name not in functions:
            return name in _ENDS
        else:
            nodes = functions[name].body
    return False


def returns(nodes: Sequence[Node], others: Sequence[list[str]] = ()) -> bool:
    """True if one of `nodes` may leave a function, or is one of `others` outside an inner loop."""
    leaving = (["return"], ["return", "0"], *others)
    for node in nodes:
        if isinstance(node, Compound) and node.kind != "subshell":
            inner = others if node.kind in ("if", "case", "group") else ()
            if any(returns(branch.body, inner) for branch in node.branches):
                return True
        elif isinstance(node, Simple) and [word.plain for word in node.words[:3]] in leaving:
            return True
    return False


def here_script(
    node: Simple, fields: Sequence[Field], expander: Expander
) -> tuple[SourceText, bool, str] | None:
    """Return the script in a command's here-document, or None.

    The result is the source, True if a shell that inherits this environment runs it, and a
    description. A here-document that the command writes to a file is also returned.
    """
    redirect, body = _here_document(node)
    if redirect is None or body is None:
        return None
    head = base(fields[0].text)
    is_local, why = False, "the script of a here-document"
    if head in _RUN and not any(base(field.text).startswith("python") for field in fields):
        is_local = head in SHELLS or head in ("sudo", "env", "nohup", "srun", "sbatch")
    else:
        target = _target(node, fields) if head in _WRITE else None
        if target is None or target.lower().endswith(_NO_SCRIPT):
            return None
        why = f"written to {target}"
    word = None if redirect.literal else quoted_text(body)
    if word is None:
        source = body.source.part(body.start, body.end)
    else:
        source = joined(expander.text(word), expander.document)
    return source, is_local, why


def here_manifest(
    node: Simple, fields: Sequence[Field], pipeline: SourceSpan | None
) -> Reading | None:
    """Return the servers in a YAML here-document; None if it is not YAML.

    ``kubectl`` reads the YAML, or ``cat`` writes it to a file or pipes it to ``kubectl``.
    `pipeline` is the destination of the output.
    """
    redirect, body = _here_document(node)
    if redirect is None or body is None:
        return None
    head, target = base(fields[0].text), _target(node, fields)
    is_yaml = head in _APPLY
    if head in _WRITE and target:
        is_yaml = target.endswith((".yaml", ".yml"))
    elif head in _WRITE:
        is_yaml = pipeline is not None and _PIPED.search(pipeline.text) is not None
    where = body.source.where
    if not is_yaml or not isinstance(where, int) or not _MAPPING.search(body.text):
        return None
    text = body.text if redirect.literal else body.text.replace("\\$", " $")
    from speclaunch.deployments.sources.yaml_files import read_yaml_document  # noqa: PLC0415  each may contain the other

    try:
        reading = read_yaml_document(body.source.document.excerpt(where + body.start, text))
    except InputError as error:
        return Reading(problems=error.problems)
    shown = (found for found in reading.invocations if found.kind is not InvocationKind.CONFIG)
    return replace(reading, invocations=tuple(replace(o, read_only=_READ_ONLY) for o in shown))


def _here_document(node: Simple) -> tuple[Redirect | None, SourceSpan | None]:
    redirect = next((redirect for redirect in node.redirects if redirect.body is not None), None)
    if redirect is None or redirect.body is None or not SERVER.search(redirect.body.text):
        return None, None
    return redirect, redirect.body


def _target(node: Simple, fields: Sequence[Field]) -> str | None:
    for redirect in node.redirects:
        if redirect.operator in (">", ">>", ">|") and redirect.target is not None:
            return redirect.target.span.text.strip("\"'")
    if base(fields[0].text) == "tee":
        return next((field.text for field in fields[1:] if not field.text.startswith("-")), None)
    return None


# -- a router with its servers

_ROUTER_PREFIX = "--router-"
_RANKS = frozenset({"--dp-size", "--dp", "--data-parallel-size"})


def without_router(words: Sequence[Word]) -> tuple[tuple[Word, ...], tuple[Dropped, ...]]:
    """Split the arguments of ``python -m sglang_router.launch_server``.

    Return each server's arguments, and the router's as omitted parts. The program accepts the
    server's arguments and, with the prefix ``--router-``, those of the router. Each server gets
    ``dp_size`` 1 and its own port (sgl-project/sglang at 0e6ed14,
    sgl-router/py_src/sglang_router/launch_server.py: `main`, `launch_server_process`).
    """
    remaining: list[Word] = []
    dropped: list[Dropped] = []
    routers: list[Word] | None = None
    for word in words:
        if word.text.startswith("--"):
            _drop(routers, dropped)
            name = word.text.partition("=")[0]
            routers = [] if name.startswith(_ROUTER_PREFIX) or name in _RANKS else None
        (remaining if routers is None else routers).append(word)
    _drop(routers, dropped)
    return tuple(remaining), tuple(dropped)


def _drop(words: Sequence[Word] | None, dropped: list[Dropped]) -> None:
    if words:
        text = " ".join(word.text for word in words)
        name = words[0].text.partition("=")[0]
        why = "each rank is a separate server" if name in _RANKS else "an argument of the router"
        dropped.append(Dropped(text, words[0].place, why))

"""Read Python programs that start a server (`subprocess`, `sgl.Engine(…)`, launchers).

Only the text is read (`ast`); nothing is imported or executed. Non-literal values are unknown.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from types import MappingProxyType

from msgspec.structs import replace

from speclaunch.core import InputError, Place, lazy
from speclaunch.deployments.sources.commands import CommandContext, distinct, look
from speclaunch.deployments.sources.fields import ShellScope, split
from speclaunch.deployments.sources.interface import (
    SERVER,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.deployments.sources.interpret import run
from speclaunch.deployments.sources.python_scope import PythonProgram
from speclaunch.deployments.sources.python_values import (
    PythonCall,
    PythonList,
    PythonTable,
    PythonText,
    PythonValue,
    ScopeContents,
    dotted,
    last_name,
    note_of,
)
from speclaunch.deployments.sources.source_text import (
    MAX_PROGRAM_BYTES,
    Document,
    SourceBuilder,
    WordPiece,
    starts_a_program,
)
from speclaunch.deployments.sources.templates import Masks
from speclaunch.deployments.sources.wrappers import base, declared
from speclaunch.engine import history, name_of

_ENGINES = frozenset({"Engine", "RayEngine", "ServerArgs", "Runtime"})
_DIFFUSION = "sglang.multimodal_gen"
"""SGLang's package for image models, with a separate `ServerArgs`."""
_OF_THE_ENGINE = frozenset({"placement_group", "stat_loggers", "custom_sigquit_handler"})
"""Parameters of `RayEngine` itself (srt/ray/engine.py), and `ServerArgs` fields without a flag."""
_PACKAGES = frozenset({"sgl", "sglang"})
_OFF = ("None", "False")
_FIXED = ("--enable-multimodal", "--trust-remote-code")
"""Arguments that `ModelLaunchSettings` adds (0.5.23 test/test_utils.py)."""
MORE = "the program may add more"


class Calls:
    """Reader of the calls of one program."""

    def __init__(self, tree: ast.Module, document: Document, program: PythonProgram) -> None:
        self._document = document
        self._positions = program.positions
        self._imported = _imported(tree)

    def invocation(self, name: str, call: PythonCall) -> Invocation | None:
        where = self._place(call.node.func)
        if self._is_sglangs(call.node.func):
            return self._engine(call)
        if name == "prepare_server_args" and call.args and isinstance(call.args[0], PythonList):
            words = tuple(item.field().word() for item in call.args[0].items)
            return Invocation(InvocationKind.LAUNCH_SERVER, words, where)
        if name.startswith("popen_launch") and (call.args or "model" in call.entries):
            return self._popen(call)
        if name == "ModelLaunchSettings" and (call.args or "model_path" in call.entries):
            return self._variant(call)
        if name == "build_sglang_chute":
            return self._server(replace(call, args=[]), "model_name", "engine_args", 0)
        return None

    def _place(self, node: ast.AST) -> Place:
        start, end = self._positions.span(node)
        return self._document.place(start, max(end - start, 1))

    def _is_sglangs(self, function: ast.AST) -> bool:
        name = dotted(function) or ""
        if "." not in name:
            return name in self._imported
        module, _, last = name.rpartition(".")
        return last in _ENGINES and module.partition(".")[0] in _PACKAGES | self._imported

    def _engine(self, call: PythonCall) -> Invocation | None:
        words: list[Word] = []
        dropped: list[Dropped] = []
        fields = list(call.entries.items())
        if not (fields or call.rest) or "server_args" in call.entries:
            return None  # the arguments are created elsewhere
        for name, (key, value) in fields:
            note = note_of(value) if getattr(value, "constant", None) is True else None
            flag = replace(key.field().word(), text=f"--{name.replace('_', '-')}", why=note)
            at = flag.place
            if name in _OF_THE_ENGINE:
                dropped.append(Dropped(name, at, "it is not an argument of the server"))
                continue
            is_known = isinstance(value, PythonText) and not value.is_text and not value.unknown
            if isinstance(value, PythonText) and is_known and value.text in _OFF:
                why = "a false or None field keeps its default"
                dropped.append(Dropped(f"{name}={value.text}", at, why))
                continue
            words += [flag, *self._values(value, flag)]
        words = [*(item.field().word() for item in call.rest), *words]
        where = self._place(call.node.func)
        return Invocation(InvocationKind.ENGINE, tuple(words), where, dropped=tuple(dropped))

    def _values(self, value: PythonValue, flag: Word) -> list[Word]:
        if isinstance(value, PythonList):
            return [item.field().word() for item in value.consume()]
        if isinstance(value, PythonTable):
            return [Word("{…}", flag.place, evaluated=False, why="a dictionary is not read")]
        if value.constant is True and not value.is_text:
            return []
        return [value.field().word()]

    def _server(self, call: PythonCall, model: str, others: str, at: int) -> Invocation:
        """Read a call with a model and further arguments, which are `others` or argument `at`."""
        where = self._place(call.node.func)
        name, more = _argument(call, model, 0), _argument(call, others, at)
        env = _argument(call, "env", at + 1)
        words: list[Word] = []
        if isinstance(name, PythonText):
            word = name.field().word()
            words += [Word("--model-path", word.used_at or word.place), word]
        if isinstance(more, PythonList):
            words += [item.field().word() for item in more.consume()]
        elif isinstance(more, PythonText) and more.is_text:
            words += [field.word() for field in split(more.pieces)]
        elif more is not None:
            words.append(Word("*", where, evaluated=False, why=MORE))
        table = env.words() if isinstance(env, PythonTable) else {}
        return Invocation(InvocationKind.LAUNCH_SERVER, tuple(words), where, env=table)

    def _popen(self, call: PythonCall) -> Invocation:
        """Read `popen_launch_server(model, url, timeout=…, other_args=[…])` of SGLang's tests.

        The host and the port come from the URL (0.5.23 test/test_utils.py).
        """
        found, url = self._server(call, "model", "other_args", 4), _argument(call, "base_url", 1)
        is_behind_balancer = {"pd_separated", "num_replicas"} & call.entries.keys()
        if not isinstance(url, PythonText) or is_behind_balancer:
            return found
        word = url.field().word()
        _, *parts = word.text.split(":")
        start = "".join(p.text for p in takewhile(lambda piece: not piece.unknown, url.pieces))
        known = len(parts) == 2 and start.count(":") > 1
        texts = (parts[0][2:], parts[1]) if known else (word.text, word.text)
        host, port = (replace(word, text=text, evaluated=known) for text in texts)
        port = replace(port, evaluated=known and word.evaluated)
        added = (Word("--host", word.place), host, Word("--port", word.place), port)
        return replace(found, added=added)

    def _variant(self, call: PythonCall) -> Invocation:
        """Read `ModelLaunchSettings(model, tp_size=8, extra_args=[…])` of SGLang's tests."""
        found = self._server(call, "model_path", "extra_args", 2)
        size = _argument(call, "tp_size", 1)
        texts = {word.text for word in found.words}
        added = [Word(flag, found.place) for flag in _FIXED if flag not in texts]
        if isinstance(size, PythonText) and size.text != "1" and "--tp" not in texts:
            word = size.field().word()
            known = word.evaluated and all(word.evaluated for word in found.words[2:])
            added[:0] = [Word("--tp", word.place), replace(word, evaluated=known)]
        return replace(found, added=tuple(added))


def _argument(call: PythonCall, name: str, at: int) -> PythonValue | None:
    if name in call.entries:
        return call.entries[name][1]
    return call.args[at] if at < len(call.args) else None


def _imported(tree: ast.Module) -> set[str]:
    """Return the local names of SGLang's engine classes and modules."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "sglang":
                found = [] if module.startswith(_DIFFUSION) else node.names
                names |= {alias.asname or alias.name for alias in found if alias.name in _ENGINES}
            case ast.ImportFrom(module=str(module)) if "sglang" in module.split("."):
                found = [alias for alias in node.names if alias.name == "ServerArgs"]
                names |= {alias.asname or alias.name for alias in found}  # a wrapper passes it on
            case ast.Import():
                found = [alias for alias in node.names if alias.name.split(".")[0] == "sglang"]
                names |= {alias.asname for alias in found if alias.asname}
    return names


_READ_ONLY = "it is Python code"
_FILLED_IN = "the program fills it in"
_RUNNERS = frozenset(
    [
        *("Popen", "run", "call", "check_call", "check_output", "getoutput", "system", "popen"),
        *("execv", "execve", "execvp", "execvpe", "launch_server_cmd", "execute_shell_command"),
        *("create_subprocess_exec", "create_subprocess_shell", "spawn", "run_command"),
    ]
)
"""Functions that run a command unchanged; others may add to it."""
_SPLITTERS = frozenset({"launch_server_cmd", "execute_shell_command"})
"""sglang.utils' functions, which split a text at spaces and at newlines (0.5.23)."""
_CONTAINER = (
    ("entrypoint", "command"),
    ("command", "args"),
    ("serving_container_command", "serving_container_args"),
)
"""Keywords of a container's command in Docker, Kubernetes and Vertex AI."""
_SILENT = frozenset(
    [
        *("print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log"),
        *("add_argument", "ArgumentParser", "add_parser", "fail", "skip", "skipTest", "Option"),
        *("search", "match", "findall", "compile", "sub", "replace", "startswith", "endswith"),
        *("echo", "Markdown", "markdown", "print_highlight", "Exception", "ValueError"),
        *("RuntimeError", "NotImplementedError", "ImportError", "pip_install", "run_commands"),
    ]
)
"""Functions that only mention a command."""
_NEUTRAL = frozenset(
    [
        *("split", "join", "list", "tuple", "str", "dedent", "cleandoc", "strip", "rstrip"),
        *("lstrip", "format", "copy", "quote", "dict", "len", "map", "Path"),
    ]
)
"""Functions that convert a command or a part of it. The result is read where it is used."""
_IGNORED = _SILENT | _NEUTRAL | {"append", "extend"}
_HEADS = lazy(
    r"python[\d.]*|sglang|env|exec|nohup|setsid|docker|podman|bash|sh|sudo|srun|mpirun|numactl|uv"
    r"|conda|timeout|nsys|ray|torchrun|taskset|stdbuf|ssh|kubectl|cd|source|export|--.*"
)
"""Pattern of the first word of a command. Prose about a command begins differently."""
_IMAGE = lazy(r"(?:[\w.-]+(?::\d+)?/)*sglang[\w.-]*:v?\d[\w.-]*")
_PIN = lazy(r"sglang(?:\[[\w,-]+\])?==(?P<version>\d+(?:\.\d+)+(?:\.?post\d+|rc\d+)?)")
_PLAIN = lazy(r"(?!.*sgl)[\w.,/:@+-]+")
"""Pattern of a value that a shell does not change, and that names no program."""
_SHELL_OPTION = frozenset({"-c", "-lc"})
_VERSION = "--version"
"""Option that only shows a version and starts no server."""


def read_python(text: str, shown: str) -> Reading:
    """Return the servers that a Python program starts with literal arguments.

    The result is empty for a program that cannot be parsed, exceeds 1 MiB, or needs far more work
    than a launcher.
    """
    if len(text) > MAX_PROGRAM_BYTES or not starts_a_program(text.encode("utf-8", "replace")):
        return Reading()
    return read_program(Document(text, shown, lenient=True))


def read_program(document: Document) -> Reading:
    """Return the servers that a program starts, without checking its size or contents."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(document.text)
        return _Launches(tree, document, PythonProgram(tree, document, _IGNORED)).reading()
    except (SyntaxError, ValueError, RecursionError, MemoryError, InputError):
        return Reading()


class _Launches:
    """Server commands among a program's calls and values."""

    def __init__(self, tree: ast.Module, document: Document, program: PythonProgram) -> None:
        self.document = document
        self.program = program
        self._calls = Calls(tree, document, program)
        self._image = _image(tree)

    def reading(self) -> Reading:
        found: list[Invocation] = []
        for seen in self.program.seen:
            hardware = declared(seen.gpus)
            for launch in self._scope(seen):
                env = MappingProxyType({**seen.env, **launch.env})
                image = launch.image or self._image
                more = {"env": env, "image": image, "hardware": hardware, "read_only": _READ_ONLY}
                found.append(replace(launch, **more))
        found.sort(key=lambda invocation: (invocation.place.line, invocation.place.column))
        run: dict[Place, list[Sequence[Word]]] = {}
        for launch in found:
            if not _is_open(launch):
                run.setdefault(launch.place, []).append(launch.words)
        # a list that one scope makes and another one runs or extends is one command
        known = (
            launch
            for launch in found
            if not _is_open(launch)
            or not any(_begins(words, launch.words[1:]) for words in run.get(launch.place, ()))
        )
        return Reading(tuple(distinct(known)))

    def _scope(self, seen: ScopeContents) -> Iterator[Invocation]:
        listings: dict[int, tuple[PythonList, bool]] = {}
        texts: dict[int, tuple[PythonText, bool]] = {}
        tables: dict[int, PythonTable] = {}  # by id; a table may hold another twice

        def offer(value: PythonValue, complete: bool) -> None:
            if isinstance(value, PythonList):
                known = listings.get(id(value), (value, False))[1]
                listings[id(value)] = (value, known or complete)
            elif isinstance(value, PythonText) and value.is_text:
                known = texts.get(id(value.pieces), (value, False))[1]
                texts[id(value.pieces)] = (value, known or complete)
            elif isinstance(value, PythonTable) and id(value) not in tables:
                tables[id(value)] = value
                for _, item in value.entries.values():
                    offer(item, False)

        for value in seen.values:
            offer(value, False)
        for call in seen.calls:
            name = last_name(call.node.func)
            special = self._calls.invocation(name, call)
            if special is not None:
                yield special
                continue
            if (container := _container(call)) is not None:
                offer(container, True)
            for value in (*call.args, *(value for _, value in call.entries.values())):
                argument = _without_newlines(value) if name in _SPLITTERS else value
                offer(argument, name in _RUNNERS and container is None)
            if name in _RUNNERS and len(call.args) > 1 and isinstance(call.args[0], PythonText):
                words = [argument for argument in call.args if isinstance(argument, PythonText)]
                if len(words) == len(call.args):
                    offer(PythonList(words), True)
        for listing, complete in listings.values():
            if complete or not listing.consumed:
                yield from self._listing(listing, complete)
        longest = _longest([text for text, _ in texts.values()])
        for text in longest:
            if SERVER.search(text.text) and any(char in text.text for char in " \t\n"):
                yield from self._shell(text.pieces, CommandContext(), texts[id(text.pieces)][1])

    # -- lists and texts ----------------------------------------------------------------

    def _listing(self, listing: PythonList, complete: bool) -> Iterator[Invocation]:
        lines = _lines(listing)
        if lines:
            yield from self._shell(lines, CommandContext(), complete)
            return
        if any(text.text == _VERSION for text in listing.items):
            return
        words = [field.field() for item in listing.items for field in _split_item(item)]
        found = look(words)
        if found.invocation is not None and not _is_of_others(found.invocation):
            env = {name: value.word() for name, value in found.wrapping.env.items()}
            dropped = (*found.wrapping.dropped, *found.invocation.dropped)
            yield self._open(replace(found.invocation, env=env, dropped=dropped), complete)
        elif found.script:
            pieces = tuple(piece for field in found.script for piece in field.pieces)
            before = tuple(field.word() for field in found.before)
            dropped = tuple(found.wrapping.dropped)
            context = CommandContext(before, dropped, found.wrapping.name)
            yield from self._shell(pieces, context, complete)

    def _shell(
        self, pieces: Sequence[WordPiece], context: CommandContext, complete: bool
    ) -> Iterator[Invocation]:
        masks = Masks(_FILLED_IN)
        script = SourceBuilder(self.document)
        for piece in pieces:
            self.document.spend(1 + len(piece.text) // 20)
            is_known = not (piece.unknown or piece.condition)
            if not is_known or (piece.note and _PLAIN.fullmatch(piece.text)):
                mark = masks.mark(piece.text)
                if is_known:
                    masks.values[mark], masks.notes[mark] = piece.text, piece.note or ""
                if piece.text.startswith("*"):
                    mark = f" {mark} "
                last = piece.offset(len(piece.text) - 1) if piece.exact else piece.offset(0)
                script.stand_in(mark, piece.offset(0), last)
            else:
                script.put(piece.text, map(piece.offset, range(len(piece.text))))
        try:
            reading = run(script.source(), ShellScope(), context)
        except InputError:
            return
        for found in masks.reading(reading, lambda _: None).invocations:
            head = found.program[0] if found.program else None
            if head is None or not head.evaluated or _HEADS.fullmatch(base(head.text)):
                yield self._open(found, complete)

    def _open(self, found: Invocation, complete: bool) -> Invocation:
        if complete:
            return found
        more = Word("*", found.place, evaluated=False, why=MORE)
        return replace(found, words=(more, *found.words))


def _is_open(launch: Invocation) -> bool:
    return bool(launch.words) and launch.words[0].why == MORE


def _begins(words: Sequence[Word], start: Sequence[Word]) -> bool:
    """True if a command begins with `start`, whose unknown tokens may be any."""
    pairs = zip(words, start, strict=False)
    return len(words) >= len(start) and all(
        word.text == other.text or not other.evaluated for word, other in pairs
    )


def _container(call: PythonCall) -> PythonList | None:
    """Return a container's command with its arguments; None for a call without both lists."""
    for names in _CONTAINER:
        parts = [call.entries[name][1] for name in names if name in call.entries]
        lists = [part for part in parts if isinstance(part, PythonList)]
        if len(lists) == len(names):
            return PythonList([item for part in lists for item in part.consume()])
    return None


def _split_item(item: PythonText) -> list[PythonText]:
    """Split an item with several options, which the program later joins into one text."""
    if not item.text.startswith("--") or not any(char in item.text for char in " \t"):
        return [item]
    return [PythonText(field.pieces) for field in split(item.pieces)]


def _is_of_others(found: Invocation) -> bool:
    """True if a trainer's command has no SGLang argument (`--sglang-dir` is not one)."""
    if found.kind is not InvocationKind.SLIME:
        return False
    flags = [word.text.partition("=")[0] for word in found.words if word.text.startswith("--")]
    return all(history(name_of(flag)) is None for flag in flags)


def _without_newlines(value: PythonValue) -> PythonValue:
    """Return a text with spaces instead of newlines."""
    if not isinstance(value, PythonText):
        return value
    pieces = (
        replace(p, text=p.text.replace("\\\n", "  ").replace("\n", " ")) for p in value.pieces
    )
    return replace(value, pieces=tuple(pieces))


def _lines(listing: PythonList) -> list[WordPiece]:
    """Return the joined pieces of a list whose items form one text; empty for other lists."""
    texts = [item.text for item in listing.items]
    is_joined = listing.separator is not None and not _SHELL_OPTION.intersection(texts)
    starts = (SERVER.search(text) and " " in text.strip() for text in texts)
    if not any(starts if is_joined else islice(starts, 1)) or len(texts) == 1:
        return []
    pieces: list[WordPiece] = []
    for item in listing.items:
        pieces += item.pieces
        last = item.pieces[-1]
        between = "\n" if listing.separator == "\n" or last.text.endswith("\\") else " "
        end = last.slice(len(last.text), len(last.text))
        pieces.append(replace(end, text=between, exact=False, unknown=None, condition=None))
    return pieces


def _longest(texts: Sequence[PythonText]) -> list[PythonText]:
    """Return the texts that no other text contains."""
    owners: dict[int, int] = {}
    for text in texts:
        for piece in text.pieces:
            owners[id(piece)] = max(owners.get(id(piece), 0), len(text.pieces))
    return [text for text in texts if owners[id(text.pieces[0])] <= len(text.pieces)]


def _image(tree: ast.Module) -> str | None:
    """Return the program's SGLang image or release; None unless it has exactly one."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 300:
            image = _IMAGE.fullmatch(node.value.strip())
            if image is not None:
                found.add(image[0])
            found |= {f"sglang:{match['version']}" for match in _PIN.finditer(node.value)}
    return found.pop() if len(found) == 1 else None

"""Judge of a release: it validates commands in a worker process with the release's own code."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from threading import Lock, current_thread, main_thread
from typing import Any

from msgspec import Struct

from speclaunch.checks.engine_check.questions import EngineAnswer, EngineQuestion
from speclaunch.core import InputError, Redactor, children, lazy
from speclaunch.engine import SHIM, Vendor, declare

START = Path(__file__).with_name("worker") / "start.py"
_LONGEST = 8 << 20
"""Maximum bytes of an answer line; the worker's own limit is lower."""
_TAIL = 4000
"""Bytes of the worker's standard error that are stored for an error message."""


_DYING_S = 10.0


class WorkerError(Exception):
    """The worker gave no valid answer and was killed; the message is the reason."""


class JsonWorker:
    """Process that answers lines of JSON with lines of JSON.

    `ask` always returns or raises within its time limit, and `end` leaves no process behind.
    """

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str], folder: Path) -> None:
        self._buffer = b""
        self._output_tail = b""
        self._number = 0
        self._process = children.start(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None  # noqa: S101  (requested above)
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ)
        assert self._process.stdin is not None  # noqa: S101
        os.set_blocking(self._process.stdin.fileno(), False)

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Return the answer. Without a valid answer in time, end the process; raise WorkerError."""
        self._number += 1
        self.send({**question, "number": self._number}, deadline := time.monotonic() + seconds)
        answer = self.hear(deadline, seconds)
        if answer.pop("number", None) != self._number:
            raise self._failed("the judge printed an answer without a query")
        return answer

    def send(self, question: object, deadline: float) -> None:
        """Write a question as one line; buffer the process's output meanwhile."""
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101
        rest = memoryview(json.dumps(question).encode() + b"\n")
        self._selector.register(pipe, selectors.EVENT_WRITE)
        try:
            while rest:
                self._turn(deadline)
                try:
                    rest = rest[os.write(pipe.fileno(), rest) :]
                except BlockingIOError:
                    continue
                except OSError:
                    raise self._failed(self._death()) from None
        finally:
            self._selector.unregister(pipe)

    def hear(self, deadline: float, seconds: float) -> dict[str, Any]:
        """Return the next line of output as a JSON object. Raises WorkerError."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LONGEST:
                raise self._failed(f"the judge's answer is longer than {_LONGEST >> 20} MiB")
            if time.monotonic() >= deadline:
                raise self._failed(f"the judge gave no answer within {seconds:.3g} s")
            if not self._turn(deadline):
                raise self._failed(self._death())
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._failed("the judge printed an invalid answer")
        return found

    def _turn(self, deadline: float) -> bool:
        """Read available output; return False once the process has closed its standard output."""
        open_still = True
        for key, _ in self._selector.select(max(0.0, min(1.0, deadline - time.monotonic()))):
            if key.fileobj is self._process.stdin:
                continue
            with contextlib.suppress(BlockingIOError):
                chunk = os.read(key.fd, 1 << 16)
                if key.fileobj is self._process.stdout:
                    self._buffer += chunk
                    open_still = open_still and bool(chunk)
                elif chunk:
                    self._output_tail = (self._output_tail + chunk)[-_TAIL:]
                else:
                    self._selector.unregister(key.fileobj)
        return open_still

    def _death(self) -> str:
        """Return how the process ended, with its last output."""
        try:
            status = self._process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            return "the judge closed its output"
        how = (
            f"died of {signal.Signals(-status).name}"
            if -status in set(signal.Signals)
            else f"ended with exit code {status}"
        )
        lines = self._output_tail.decode("utf-8", "replace").strip().splitlines()
        return f"the judge's process {how}" + (f": {lines[-1][:300]}" if lines else "")

    def _failed(self, why: str) -> WorkerError:
        self.end()
        return WorkerError(why)

    def end(self) -> None:
        """Kill the process and its session; safe to repeat."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


PATIENCE_S = 20.0
"""Time limit of one question in seconds; an answer takes less than 0.1 s on an idle machine."""
LOADING_S = 600.0
"""Time limit in seconds for the import of a release, which usually takes about 10 s, but longer on
a busy machine."""
_SLACK_S = 5.0
"""Extra seconds for a worker beyond its child's time limit."""
MEMORY = 2 << 30
"""Bytes of memory that a question may use in addition to the loaded release."""
LONGEST = 1 << 20
"""Maximum characters of a command with its variables, which Linux limits to 2 MiB."""
_RESTARTS = 5
"""Maximum number of worker restarts within one `ask`."""
_MODEL = """{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
"intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
"num_hidden_layers": 2, "max_position_embeddings": 2048, "torch_dtype": "bfloat16"}"""
_MOST_OTHERS = 2
"""Maximum number of extra workers for other values of variables that a release reads at import.

Each worker uses about 200 MiB.
"""
_NAMES_CODE = lazy(r"EXTERNAL|PLUGIN|PLATFORM")
_OF_NO_WEIGHT = lazy(r"_DIR$|_PATH$|LOG|DUMP|COREDUMP|_PORT|_CI$")
"""Variables that no validation depends on, such as output paths."""
_FLAG = lazy(r"--[A-Za-z][\w-]*")
_OF_THE_JUDGE = frozenset(
    {
        *("ImportError", "ModuleNotFoundError", "AttributeError", "NameError", "OSError"),
        *("FileNotFoundError", "PermissionError", "NotADirectoryError", "ConnectionError"),
        *("LocalEntryNotFoundError", "RepositoryNotFoundError", "OfflineModeIsEnabled"),
        *("MemoryError", "RecursionError", "TimeoutError", "KeyboardInterrupt"),
    }
)
"""Exceptions caused by the judge's machine, not by the command."""
_PACKAGE = lazy(
    r"(?i)\bnot installed|\bpip3? install|the '[\w.-]+' package|flashinfer installation"
)
"""Pattern of an engine's message about a missing package (0.5.23
kernel_plugins/nvidia/binding.py:380, arg_groups/serving_hook.py: granian)."""
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
_OURS: dict[str, str] = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
}


Variables = tuple[tuple[str, str], ...]


class _NotSentError(Exception):
    """A question cannot be sent; the message is the reason."""


class EngineJudge:
    """Judge that validates commands with the SGLang of one interpreter.

    The first question starts the worker, which serves all later questions until this process ends
    or calls `close`. A forked process starts its own worker.
    """

    def __init__(
        self,
        release: str,
        python: Path,
        digest: str,
        *,
        paths: Sequence[Path] = (),
        command: Sequence[str | Path] | None = None,
        patience: float = PATIENCE_S,
        compiling: bool = False,
        early: Variables = (),
    ) -> None:
        """Create the judge without starting its worker.

        `compiling`: store compiled Python next to the sources, for the next start, and list all
        loaded files in `hello`. `early`: variables set before SGLang is imported."""
        self.release = release
        self.python = python
        self.digest = digest
        self.paths = tuple(paths)
        self._command = tuple(command) if command else command_of(python, light=False)
        self._patience = patience
        self._compiling = compiling
        self._early = early
        self._others: dict[Variables, EngineJudge] = {}
        """Judges for other settings of the variables that the release reads at import."""
        self._worker: JsonWorker | None = None
        self._lock = Lock()
        self._folder: Path | None = None
        self._process = os.getpid()
        self.hello: Mapping[str, Any] = {}
        """The worker's report about its release after loading."""

    def ask(self, questions: Sequence[EngineQuestion], *, seconds: float) -> list[EngineAnswer]:
        """Return an answer for each question, in order. `seconds`: time limit for all questions."""
        deadline = time.monotonic() + seconds
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._lock:
            failures: list[str] = []
            return [self._answer(question, deadline, failures) for question in questions]

    def _answer(
        self, question: EngineQuestion, deadline: float, failures: list[str]
    ) -> EngineAnswer:
        try:
            self._may_ask(question, deadline, failures)
            machine = machine_facts(question.machine)
            worker = self._loaded(deadline, failures)
            early = self._read_early(question)
            if early != self._early:
                return self._other(early).ask([question], seconds=deadline - time.monotonic())[0]
            assert self._folder is not None  # noqa: S101  (made with the worker)
            redactor = Redactor.of_command(question.words, question.env)
            with place(question, self._folder) as placed:
                request = {
                    "words": placed.words,
                    "env": placed.env,
                    "cwd": str(placed.folder),
                    "machine": machine,
                }
                left = min(self._patience + _SLACK_S, deadline - time.monotonic())
                try:
                    reply = worker.ask(request, max(left, 0.1))
                except WorkerError as error:
                    failures.append(str(error))
                    raise
                return self._read(reply, placed, redactor)
        except WorkerError as error:
            self.close()
            return self._no_verdict(str(error))
        except (_NotSentError, InputError) as error:
            return self._no_verdict(str(error))
        except OSError as error:
            return self._no_verdict(f"the judge cannot be used here: {error}")

    def _leave_to_parent(self) -> None:
        """In a fork, drop the worker and its files, which belong to the parent process."""
        self._process, self._lock = os.getpid(), Lock()
        self._worker, self._folder, self._others = None, None, {}

    def _may_ask(self, question: EngineQuestion, deadline: float, failures: list[str]) -> None:
        variables = sum(len(name) + len(value) for name, value in question.env)
        if sum(map(len, question.words)) + variables > LONGEST:
            raise _NotSentError(f"the command is longer than {LONGEST >> 20} MiB")
        if time.monotonic() >= deadline:
            raise _NotSentError("the time limit for all queries is reached")
        if len(failures) >= _RESTARTS:
            raise _NotSentError(
                f"the judge failed {len(failures)} times; last failure: {failures[-1]}"
            )

    def _read_early(self, question: EngineQuestion) -> Variables:
        """Return the variables of a question that the release reads at import.

        Raises _NotSentError for variables that change what is imported or started.
        """
        read = self.hello.get("at_import", ())
        found = tuple(sorted(pair for pair in question.env if pair[0] in read and _is_own(pair[0])))
        for name, _ in found:
            if _NAMES_CODE.search(name):
                raise _NotSentError(
                    f"{name} changes what is imported, which an engine check does not allow"
                )
        return found

    def _other(self, early: Variables) -> EngineJudge:
        """Return a judge of the same release that sets `early` before importing it."""
        if early not in self._others:
            while len(self._others) >= _MOST_OTHERS:
                self._others.pop(next(iter(self._others))).close()
            self._others[early] = EngineJudge(
                self.release,
                self.python,
                self.digest,
                paths=self.paths,
                command=self._command,
                patience=self._patience,
                early=early,
            )
        return self._others[early]

    def _read(
        self, answer: Mapping[str, Any], placed: PlacedQuestion, redactor: Redactor
    ) -> EngineAnswer:
        verdict, values = answer.get("verdict"), answer.get("values")

        def text(name: str) -> str:
            value = answer.get(name)
            return redactor.text(placed.own_names(value)) if isinstance(value, str) else ""

        accepted = {"accepted": True, "refused": False, "usage_error": False}.get(str(verdict))
        why = text("said") or text("message") or ("" if accepted else text("line"))
        if verdict not in ("accepted", "refused", "usage_error", "unjudged", "artefact"):
            why = "the judge printed an invalid answer"
        elif verdict == "artefact":
            why = f"its validation failed here: {text('error')}: {why}"
        if accepted is False and text("error") in _OF_THE_JUDGE:
            accepted, why = None, f"{text('error')}: {why}"
        if accepted is False and self.paths and _PACKAGE.search(why):
            accepted, why = None, f"the judge lacks a required package: {why}"
        place = text("where")
        if verdict == "usage_error":  # its line is always the same
            flag = _FLAG.search(why)
            place = flag[0] if flag else ""
        resolved = values if accepted and isinstance(values, dict) else {}
        return EngineAnswer(
            accepted=accepted,
            release=self.release,
            why=why,
            kind=text("error"),
            place=place,
            resolved={
                str(name): redactor.value(placed.own_names_in(value))
                for name, value in resolved.items()
            },
            line="" if verdict == "usage_error" else text("line"),
        )

    def _no_verdict(self, why: str) -> EngineAnswer:
        return EngineAnswer(None, self.release, why, "", "")

    def _loaded(self, deadline: float, failures: list[str]) -> JsonWorker:
        """Return the worker; start it and load the release if needed."""
        if self._worker is not None:
            return self._worker
        folder = Path(tempfile.mkdtemp(prefix="speclaunch-judge-"))
        self._folder = folder
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        model = folder / "warm"
        model.mkdir()
        (model / "config.json").write_text(_MODEL, encoding="utf-8")
        home = folder / "home"
        home.mkdir()
        env = environment_of(self.paths, home)
        env |= dict(self._early)
        if self._compiling:
            del env["PYTHONDONTWRITEBYTECODE"]
        self._worker = worker = JsonWorker(self._command, env, home)
        weakref.finalize(self, worker.end)
        setting = {
            "warm": ["--model-path", str(model)],
            "seconds": self._patience,
            "memory": MEMORY,
            "scratch": str(folder),
            "files": self._compiling,
            "sites": [] if self._compiling else [str(path) for path in self.paths],
            # in case this process is killed; the kernel signals the end of a thread
            "ends_with": os.getpid() if current_thread() is main_thread() else None,
        }
        try:
            seconds = min(LOADING_S, deadline - time.monotonic())
            self.hello = worker.ask(setting, seconds)
            found = self.hello.get("sglang")
            if not isinstance(found, str):
                raise WorkerError("the judge does not report its release")
        except WorkerError as error:
            failures += [str(error)] * _RESTARTS  # a retry would fail after the same time
            raise
        return worker

    def close(self) -> None:
        """End the worker and remove its files; the next question starts another."""
        if self._process != os.getpid():
            self._leave_to_parent()
        for other in self._others.values():
            other.close()
        self._others = {}
        worker, self._worker = self._worker, None
        folder, self._folder = self._folder, None
        if worker is not None:
            worker.end()
        if folder is not None:
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


def _is_own(name: str) -> bool:
    """True if a variable belongs to the release and may change its verdict."""
    return name.startswith("SGL") and not _OF_NO_WEIGHT.search(name)


def command_of(python: Path, *, light: bool) -> tuple[str | Path, ...]:
    """Return the command that starts a worker. `light`: without the interpreter's packages."""
    return (python, "-S", "-P", START) if light else (python, "-P", START)


def environment_of(paths: Sequence[Path], home: Path) -> dict[str, str]:
    """Return an environment in which a worker imports from `paths` and writes only to `home`."""
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    found = os.pathsep.join(str(path) for path in (*paths, SHIM))
    places = {name: str(home) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HOME")}
    return env | _OURS | places | {"PYTHONPATH": found}


def digest_of(*parts: str | Path) -> str:
    """Return a digest of strings and of file contents."""
    total = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()


def worker_digest() -> str:
    """Return the digest of the worker's and the shim's code, which affects verdicts."""
    files = [*START.parent.rglob("*.py"), *SHIM.rglob("*.py")]
    return digest_of(*sorted(files))


_RESERVED = frozenset(
    {
        *("HOME", "TMPDIR", "XDG_CACHE_HOME", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
        *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
    }
)
_RESERVED_BEGIN = ("HF_", "TRANSFORMERS_", "HUGGING", "PYTHON", "http", "HTTP", "no_proxy")
"""Prefixes of variables reserved for the worker, such as those that control write directories or
network access."""


class PlacedQuestion(Struct, frozen=True):
    """Question whose models are on disk; in `words`, paths replace the model ids in `ids`."""

    words: list[str]
    env: dict[str, str]
    folder: Path
    """Working directory of the question."""
    ids: dict[str, str]
    """Model ids by the paths that replace them."""

    def own_names(self, text: str) -> str:
        """Return an engine's text with the original model ids in place of their paths."""
        for path, name in self.ids.items():
            text = text.replace(path, name)
        return text

    def own_names_in(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.own_names(value)
        if isinstance(value, list):
            return [self.own_names_in(item) for item in value]
        return value


@contextmanager
def place(question: EngineQuestion, scratch: Path) -> Iterator[PlacedQuestion]:
    """Provide the model files of a question on disk while the block runs.

    A model with a known config becomes a folder. The command is unchanged if the engine runs in a
    temporary folder and the id is a valid path there. Otherwise the path replaces the id in the
    tokens, and the id replaces the path in the engine's texts.
    """
    if question.folder is not None and not question.configs:
        yield PlacedQuestion(list(question.words), _own_env(question), question.folder, {})
        return
    own = Path(tempfile.mkdtemp(dir=scratch))
    try:
        folder = question.folder or own
        ids: dict[str, str] = {}
        for name, text in question.configs:
            if not name:
                continue
            parts = [part for part in PurePosixPath(name).parts if part.strip("/") and part != ".."]
            plain = question.folder is None and "/".join(parts) == name and "~" not in name
            model = own.joinpath(*parts) if plain else own.joinpath("models", *parts)
            model.mkdir(parents=True, exist_ok=True)
            (model / "config.json").write_text(text, encoding="utf-8")
            if not plain:
                ids[str(model)] = name
        paths = {name: path for path, name in ids.items()}
        words = [_with_path(word, paths) for word in question.words]
        yield PlacedQuestion(words, _own_env(question), folder, ids)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _own_env(question: EngineQuestion) -> dict[str, str]:
    return {
        name: value
        for name, value in question.env
        if name not in _RESERVED and not name.startswith(_RESERVED_BEGIN)
    }


def _with_path(word: str, paths: dict[str, str]) -> str:
    flag, equals, value = word.partition("=")
    if equals and flag.startswith("--") and value in paths:
        return f"{flag}={paths[value]}"
    return paths.get(word, word)


_GFX = {
    "mi210": ("gfx90a", 90, 104),
    "mi250x": ("gfx90a", 90, 110),
    "mi300x": ("gfx942", 94, 304),
    "mi325x": ("gfx942", 94, 304),
    "mi350x": ("gfx950", 95, 256),
    "mi355x": ("gfx950", 95, 256),
}
"""Architecture, capability as reported by torch, and compute units of AMD's GPUs. Source: AMD's
ROCm documentation, "accelerator and GPU hardware specifications"."""


def machine_facts(machine: str) -> dict[str, Any]:
    """Return the facts of a declared machine. Raises InputError for an unknown machine."""
    hardware = declare(machine)
    if hardware.vendor is Vendor.CPU:
        return {"name": "cpu", "device": "cpu", "count": 0, "memory_mib": None, "capability": None}
    vendor = "AMD Instinct" if hardware.vendor is Vendor.AMD else "NVIDIA"
    found: dict[str, Any] = {
        "name": f"{vendor} {hardware.name.upper()}",
        "device": "cuda",
        "count": hardware.count,
        "memory_mib": hardware.memory_mib,
        "capability": hardware.capability,
    }
    if hardware.vendor is Vendor.AMD:
        gfx, capability, units = _GFX[hardware.name]
        found |= {"gfx": gfx, "capability": capability, "processors": units}
    return found

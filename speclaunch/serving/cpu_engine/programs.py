"""Run and log the programs of an installation: pip, make_models.py, the NGRAM compilation."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from speclaunch.core import ExitCode, LaunchError, children, locked, make_private, replace_file
from speclaunch.engine import CpuEngine, pip_environment

_TAIL = 200
_GRACE_S = 5.0
TICK_S = 1.0


def ignore(*_: object) -> None:
    """Ignore a line of output, a tick or a report."""


class Completed(Struct, frozen=True):
    """Result of a program: its exit status and last output lines."""

    status: int
    lines: tuple[str, ...]
    in_time: bool = True
    """False if the program was stopped at the deadline."""

    def last_error(self) -> str:
        """Return the error line: pip's last ``ERROR:`` or, without one, the last nonblank line."""
        texts = [line for line in self.lines if line.strip()]
        errors = [line for line in texts if line.startswith("ERROR: ")]
        if errors:
            return errors[-1].removeprefix("ERROR: ")
        return texts[-1].strip() if texts else f"exit status {self.status}, without a message"


def run_logged(
    command: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str],
    on_line: Callable[[str], None] = ignore,
    on_tick: Callable[[], None] = ignore,
    keep_open: Sequence[int] = (),
    deadline_s: float | None = None,
) -> Completed:
    """Run ``command`` to its end and return its result. Append its output to ``log`` and pass each
    line to ``on_line``.

    ``on_tick`` is called every second from a separate thread, even while the program is silent.
    After ``deadline_s`` seconds, the program is killed.

    The child has its own session. If an exception leaves this call, including Ctrl-C, the child and
    all its descendants are stopped first. The child inherits the file descriptors ``keep_open``, so
    a lock outlives a killed parent.
    """
    tail: deque[str] = deque(maxlen=_TAIL)
    with log.open("a", encoding="utf-8", errors="replace") as record:
        record.write(f"\n$ {' '.join(str(part) for part in command)}\n")
        record.flush()
        child = children.start(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=log.parent,  # our folder: no module of the user's directory is imported
            start_new_session=True,
            pass_fds=tuple(keep_open),
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        late = threading.Event()
        try:
            with _clock(child, on_tick, deadline_s, late):
                for raw in child.stdout or ():
                    line = raw.rstrip()
                    record.write(line + "\n")
                    record.flush()
                    tail.append(line)
                    on_line(line)
                return Completed(child.wait(), tuple(tail), not late.is_set())
        finally:
            _stop(child)


@contextmanager
def _clock(
    child: subprocess.Popen[str],
    on_tick: Callable[[], None],
    deadline_s: float | None,
    late: threading.Event,
) -> Iterator[None]:
    """Call ``on_tick`` while the block runs. At the deadline, set ``late`` and kill the child's
    session."""
    ended = threading.Event()
    began = time.monotonic()

    def run() -> None:
        while not ended.wait(TICK_S):
            if deadline_s is not None and time.monotonic() - began >= deadline_s:
                late.set()
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                return
            on_tick()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _stop(child: subprocess.Popen[str]) -> None:
    if child.stdout is not None:
        child.stdout.close()
    if child.poll() is not None:
        return
    for sign, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            return


AGAIN = "run the installation again: it resumes where it stopped"


class StepState(StrEnum):
    """State of an installation step."""

    WAITING = "waiting"
    """Another process is installing; this process waits for it to finish."""
    RUNNING = "running"
    NOTE = "note"
    """Information for the user; the step continues."""
    SKIPPED = "skipped"
    """An earlier run completed the step."""
    DONE = "done"
    FAILED = "failed"


class InstallStep(Struct, frozen=True):
    """Progress report: step ``index`` (from 1) of ``total`` and its current activity."""

    index: int
    total: int
    title: str
    detail: str
    state: StepState


Report = Callable[[InstallStep], None]


class ReportDetail(Protocol):
    """Callback for the current activity of a step."""

    def __call__(self, detail: str, state: StepState = StepState.RUNNING, /) -> None:
        """Report the current activity, `detail`."""


class InstallError(LaunchError):
    """Failure to install or use the CPU engine, with a remedy."""

    def __init__(self, message: str, remedy: str, log: Path | None = None) -> None:
        super().__init__(message, help=remedy, log=log)
        self.message = message
        self.remedy = remedy


class InstallInterruptedError(InstallError):
    """Interruption of the installation by the user; the next run resumes it."""

    exit_code = ExitCode.INTERRUPTED


MAKE_MODELS = Path(__file__).with_name("make_models.py")

_CORPUS = (
    "from sglang.srt.speculative.cpp_ngram.ngram_corpus import get_ngram_corpus_cls;"
    " get_ngram_corpus_cls()"
)


def ensure_model(engine: CpuEngine, name: str) -> Path:
    """Return the folder of the tiny model ``name``, writing it on first use.

    Rewrites it when ``make_models.py``, which lists the names, has changed.
    """
    _require_interpreter(engine)
    folder = engine.model(name)
    expected = models_fingerprint()
    if _generator(folder) == expected:
        return folder
    with locked(engine.models / ".lock"):
        if _generator(folder) != expected:
            command: list[str | Path] = [engine.python, "-P", MAKE_MODELS, name, folder]
            ended = run_logged(command, log=engine.log, environment=engine_environment(engine))
            if ended.status != 0:
                raise InstallError(
                    f"the tiny model {name!r} could not be written: {ended.last_error()}",
                    f"see the log; repair the engine with `{engine.install_command}`",
                    engine.log,
                )
    return folder


def has_model(engine: CpuEngine, name: str) -> bool:
    """True if the tiny model ``name`` was written by the current script."""
    return engine.python.exists() and _generator(engine.model(name)) == models_fingerprint()


def models_fingerprint() -> str:
    """Return the hash of ``make_models.py``, as stored in each model."""
    return hashlib.sha256(MAKE_MODELS.read_bytes()).hexdigest()


def ensure_corpus(engine: CpuEngine, *, keep_open: tuple[int, ...] = ()) -> None:
    """Compile the extension for NGRAM speculation unless it is already compiled.

    Without this call, SGLang compiles it at the first start with NGRAM, which adds 10 seconds.
    """
    _require_interpreter(engine)
    mark = engine.cache / "ngram-corpus.done"
    if mark.exists() and mark.read_text(encoding="utf-8") == engine.release:
        return
    ended = run_logged(
        [engine.python, "-P", "-c", _CORPUS],
        log=engine.log,
        environment=engine_environment(engine),
        keep_open=keep_open,
    )
    if ended.status != 0:
        raise InstallError(
            f"the NGRAM corpus code did not compile: {ended.last_error()}",
            f"see the compiler output in the log, then {AGAIN}",
            engine.log,
        )
    make_private(mark.parent)
    replace_file(mark, engine.release, 0o666)


def engine_environment(engine: CpuEngine) -> dict[str, str]:
    """Return the complete environment for the engine's processes."""
    inherited = pip_environment()
    return inherited | engine.environment(inherited)


def _generator(folder: Path) -> str | None:
    """Return the hash of the script that wrote the model in ``folder``; None if unknown."""
    try:
        content = json.loads((folder / "speclaunch-model.json").read_text(encoding="utf-8"))
        return str(content["generator"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _require_interpreter(engine: CpuEngine) -> None:
    if not engine.python.exists():
        raise InstallError(
            f"the CPU engine is not installed at {engine.root}",
            f"install it with `{engine.install_command}`",
        )

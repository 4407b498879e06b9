"""Main loop of the worker: read a setting, then answer each question line with a verdict."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from .compiled import use
from .guards import AuditGuard, end_with, limit, refuse_remote_code, without_network
from .pretend import import_all, places, prepare, pretend
from .verdict import refusal, verdict

LONGEST = 4 << 20
"""Maximum bytes of an answer."""
ENDING_S = 5.0
"""Seconds that a process may take to end after its answer."""
GUARD = AuditGuard()


def main() -> None:
    """Answer questions until standard input ends."""
    # Output of packages goes to standard error; answers use a separate descriptor.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    setting = json.loads(lines.readline())

    def leave(*_: object) -> None:
        """Remove the scratch folder and exit, without an exception that imported code may catch."""
        shutil.rmtree(setting["scratch"], ignore_errors=True)
        os._exit(1)

    if setting.get("ends_with"):
        signal.signal(signal.SIGTERM, leave)
        end_with(setting["ends_with"], signal.SIGTERM)
    try:
        serve(lines, out, setting)
    finally:
        shutil.rmtree(setting["scratch"], ignore_errors=True)


def serve(lines: TextIO, out: TextIO, setting: dict[str, Any]) -> None:
    """Import the release, warm it up, and answer questions."""
    without_network()
    GUARD.install()
    for site in setting.get("sites", ()):
        use(site)
    logging.basicConfig(level=logging.ERROR)
    with reading() as at_import:
        prepare()
        failed = import_all()
    sglang = importlib.import_module("sglang.version").__version__
    refuse_remote_code()
    # One resolution with the real facts triggers imports that the sources' text does not show.
    verdict([*setting["warm"], "--device", "cpu"], {})
    places()
    gc.collect()
    gc.freeze()
    hello = {"sglang": sglang, "failed": failed, "at_import": sorted(at_import)}
    if setting.get("files"):
        found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        hello["files"] = [name for name in found if isinstance(name, str)]
    print(numbered(json.dumps(hello), setting), file=out, flush=True)
    answers(lines, out, setting)


@contextlib.contextmanager
def reading() -> Iterator[set[str]]:
    """Yield a set that collects the names of variables read while the block runs."""
    kind = type(os.environ)
    own = kind.__getitem__
    names: set[str] = set()

    def item(self: Any, key: str) -> str:
        names.add(key)
        return own(self, key)

    kind.__getitem__ = item  # type: ignore[method-assign]
    try:
        yield names
    finally:
        kind.__getitem__ = own  # type: ignore[method-assign]


def answers(lines: Iterable[str], out: TextIO, setting: dict[str, Any]) -> None:
    """Print a verdict for each question line, from its own child process.

    The next child is forked while the current one works. A child that has answered ends in the
    background.
    """
    ready = Child(setting)
    gone: list[Child] = []
    for line in lines:
        child = ready
        child.tell(line)
        ready = Child(setting)
        print(numbered(child.answer(), json.loads(line)), file=out, flush=True)
        gone = [process for process in (*gone, child) if not process.has_ended()]
    ready.end()
    for process in gone:
        process.end()


def numbered(text: str, question: dict[str, Any]) -> str:
    """Return a JSON answer with the number of its question added."""
    number = json.dumps(question.get("number"))
    return f'{{"number": {number}, {" ".join(text.splitlines())[1:]}'


class Child:
    """Process for a single question."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._setting = setting
        self._status: int | None = None
        question_pipe, self._asks = os.pipe()
        self._read, answer_pipe = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                end_with(parent, signal.SIGKILL)
                os.close(self._asks)
                os.close(self._read)
                answer_question(question_pipe, answer_pipe, setting)
                status = 0
            finally:
                os._exit(status)
        os.close(question_pipe)
        os.close(answer_pipe)

    def tell(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._asks, "wb") as pipe:
            pipe.write(line.encode())
        self._asks = -1

    def answer(self) -> str:
        """Return the verdict as a line of JSON; `unjudged` if there is no answer in time."""
        text, why = collect(self._read, self._setting["seconds"])
        if text:
            return text
        if why:
            os.kill(self._pid, signal.SIGKILL)
        self.end()
        why = why or ended(self._status or 0, self._setting)
        return json.dumps({"verdict": "unjudged", "stage": "fork", "error": "", "message": why})

    def has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._finish(status)
        return self._status is not None

    def end(self) -> None:
        """End the process; wait briefly if it has answered."""
        if not self.has_ended():
            if self._asks >= 0:
                os.close(self._asks)  # it waits for a question that never comes
                self._asks = -1
            if not select.select([self._read], [], [], ENDING_S)[0] or not self._closed():
                os.kill(self._pid, signal.SIGKILL)
            self._finish(os.waitpid(self._pid, 0)[1])

    def _closed(self) -> bool:
        return not os.read(self._read, 1)

    def _finish(self, status: int) -> None:
        self._status = status
        os.close(self._read)


def answer_question(question_pipe: int, answer_pipe: int, setting: dict[str, Any]) -> None:
    """Wait for the question and answer it; runs in the child."""
    gc.disable()
    limit(setting["seconds"], setting["memory"])
    with os.fdopen(question_pipe, "rb") as pipe:
        line = pipe.read()
    if line:
        with os.fdopen(answer_pipe, "w", encoding="utf-8") as answer:
            answer.write(in_child(json.loads(line), setting) + "\n")


def ended(status: int, setting: dict[str, Any]) -> str:
    """Return why a child ended without an answer."""
    if not os.WIFSIGNALED(status):
        return f"its process ended without an answer (exit {os.WEXITSTATUS(status)})"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return f"no answer within {setting['seconds']:g} s"
    return f"its process died of {signal.Signals(number).name}"


def collect(read: int, seconds: float) -> tuple[str, str]:
    """Return a line from the pipe, or an empty line and the reason (empty: the pipe was closed)."""
    deadline, chunks, size = time.monotonic() + seconds, [], 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([read], [], [], left)[0]:
            return "", f"no answer within {seconds:g} s"
        chunk = os.read(read, 1 << 16)
        if not chunk:
            return "", ""
        chunks.append(chunk)
        if chunk.endswith(b"\n"):
            return b"".join(chunks).decode("utf-8", "replace").rstrip(), ""
        size += len(chunk)
        if size > LONGEST:
            return "", f"its answer is longer than {LONGEST >> 20} MiB"


def in_child(question: dict[str, Any], setting: dict[str, Any]) -> str:
    """Return the verdict on a question as a line of JSON; an error becomes a verdict, too."""
    try:
        pretend(question["machine"])
        os.chdir(question["cwd"])
        GUARD.arm(setting["scratch"])
        found = verdict(question["words"], question["env"])
    except BaseException as error:
        found = refusal(error, "record")
    if found.get("error") == "MemoryError":
        found["message"] = f"it needs more than {setting['memory'] >> 20} MiB of memory"
    return json.dumps(found, default=str)

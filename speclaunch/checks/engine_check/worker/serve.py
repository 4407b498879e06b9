"""The loop of the worker: one setting, then a question and a verdict a line."""

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
from .stubs import FINDER
from .verdict import refusal, verdict

LONGEST = 4 << 20
"""Bytes of an answer."""
ENDING_S = 5.0
"""For the end of a process that has answered."""
GUARD = AuditGuard()


def main() -> None:
    """EngineAnswer until standard input ends."""
    # What packages print goes to standard error; the answers have a way of their own.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    setting = json.loads(lines.readline())

    def leave(*_: object) -> None:
        """Also for who asked and was killed. No exception: what is imported catches any."""
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
    """Import the release, warm it up, and answer."""
    apart = without_network() if setting.get("apart", True) else False
    GUARD.install()
    for site in setting.get("sites", ()):
        use(site)
    logging.basicConfig(level=logging.ERROR)
    with reading() as at_import:
        prepare()
        failed = import_all()
    sglang = importlib.import_module("sglang.version").__version__
    refuse_remote_code()
    # One resolution with the truth told brings in what the sources' text does not show.
    warm = verdict([*setting["warm"], "--device", "cpu"], {})
    warm.pop("values", None)
    places()
    gc.collect()
    gc.freeze()
    stood_in = sorted(FINDER.packages)
    hello = {"sglang": sglang, "failed": failed, "warm": warm, "apart": apart, "stood_in": stood_in}
    hello["at_import"] = sorted(at_import)
    if setting.get("files"):
        found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        hello["files"] = [name for name in found if isinstance(name, str)]
    print(numbered(json.dumps(hello), setting), file=out, flush=True)
    answers(lines, out, setting)


@contextlib.contextmanager
def reading() -> Iterator[set[str]]:
    """The names of the variables that are asked for while the block lasts."""
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
    """A verdict for each line, each from a child of its own.

    The child for the next question is forked while this one's is at work, and a child that has
    answered ends while the next question is on its way: neither is waited for.
    """
    ready = Child(setting)
    gone: list[Child] = []
    for line in lines:
        child = ready
        child.tell(line)
        ready = Child(setting)
        print(numbered(child.answer(), json.loads(line)), file=out, flush=True)
        gone = [one for one in (*gone, child) if not one.has_ended()]
    ready.end()
    for one in gone:
        one.end()


def numbered(text: str, question: dict[str, Any]) -> str:
    """An answer as one line that says which question it is to."""
    number = json.dumps(question.get("number"))
    return f'{{"number": {number}, {" ".join(text.splitlines())[1:]}'


class Child:
    """A process that is there for one question."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._setting = setting
        self._status: int | None = None
        asked, self._asks = os.pipe()
        self._read, said = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                end_with(parent, signal.SIGKILL)
                os.close(self._asks)
                os.close(self._read)
                serve_one(asked, said, setting)
                status = 0
            finally:
                os._exit(status)
        os.close(asked)
        os.close(said)

    def tell(self, line: str) -> None:
        """Give it the question; one that has died meanwhile has no answer."""
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._asks, "wb") as pipe:
            pipe.write(line.encode())
        self._asks = -1

    def answer(self) -> str:
        """The verdict as a line; why there is none, where it says nothing in time."""
        text, why = collect(self._read, self._setting["seconds"])
        if text:
            return text
        if why:
            os.kill(self._pid, signal.SIGKILL)
        self.end()
        why = why or ended(self._status or 0, self._setting)
        return json.dumps({"verdict": "unjudged", "stage": "fork", "error": "", "message": why})

    def has_ended(self) -> bool:
        """Whether it has; it is not waited for."""
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._finish(status)
        return self._status is not None

    def end(self) -> None:
        """Leave nothing of it; it may take a moment where it has its answer out."""
        if not self.has_ended():
            if self._asks >= 0:
                os.close(self._asks)  # it waits for a question, and there is none
                self._asks = -1
            if not select.select([self._read], [], [], ENDING_S)[0] or not self._closed():
                os.kill(self._pid, signal.SIGKILL)
            self._finish(os.waitpid(self._pid, 0)[1])

    def _closed(self) -> bool:
        return not os.read(self._read, 1)

    def _finish(self, status: int) -> None:
        self._status = status
        os.close(self._read)


def serve_one(asked: int, said: int, setting: dict[str, Any]) -> None:
    """In the child: wait for the question, and answer it."""
    gc.disable()
    limit(setting["seconds"], setting["memory"])
    with os.fdopen(asked, "rb") as pipe:
        line = pipe.read()
    if line:
        with os.fdopen(said, "w", encoding="utf-8") as answer:
            answer.write(in_child(json.loads(line), setting) + "\n")


def ended(status: int, setting: dict[str, Any]) -> str:
    """Why a child ended without an answer."""
    if not os.WIFSIGNALED(status):
        return f"its process ended without an answer (exit {os.WEXITSTATUS(status)})"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return f"no answer within {setting['seconds']:g} s"
    return f"its process died of {signal.Signals(number).name}"


def collect(read: int, seconds: float) -> tuple[str, str]:
    """The line that comes through a pipe, or why it was not waited for; neither: it ended."""
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
    """The verdict as a line; nothing of it is left behind."""
    try:
        pretend(question["machine"])
        os.chdir(question["cwd"])
        GUARD.arm(setting["scratch"])
        found = verdict(question["words"], question["env"])
    except BaseException as error:
        found = refusal(error, "record")
    if found.get("error") == "MemoryError":
        found["message"] = f"it wants more than {setting['memory'] >> 20} MiB of memory"
    return json.dumps(found, default=str)

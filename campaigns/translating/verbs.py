"""Run verbs of speclaunch as a user would: the whole command line, in a process of its own.

Each call is a fork of this process, which has imported speclaunch already: a thousand calls need
seconds instead of a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from speclaunch.app.output import console
from speclaunch.app.verbs import app, commands
from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import load

SECONDS = 300

VERBS = ("migrate", "import", "render", "launch", "lint")


@dataclass(frozen=True, slots=True)
class Said:
    """How a verb ended, and what it wrote."""

    code: int
    out: str
    err: str


def load_verbs() -> None:
    """Import what the verbs need, once, before the forks: by running them here."""
    for verb in VERBS:
        commands.register([verb])
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "warm.sh"
        script.write_text("python3 -m sglang.launch_server --model-path m\n")
        for words in (
            ["import", str(script), "--engine", "0.5.23"],
            ["migrate", str(script), "--to", "0.5.22"],
            ["render", "recipe=ngram_qwen7b", "--to", "shell"],
            ["launch", "recipe=ngram_qwen7b", "--dry-run", "--force"],
        ):
            said, quiet = io.StringIO(), io.StringIO()
            with (
                contextlib.redirect_stdout(said),
                contextlib.redirect_stderr(quiet),
                contextlib.suppress(SystemExit),
            ):
                commands.app(words, standalone_mode=False)


@cache
def load_version(version: str) -> None:
    """Load what is known of a version, and build its parsers."""
    parse_argv(["--model-path", "m"], load(version))


def speclaunch(words: Sequence[str], directory: Path) -> Said:
    """Run `speclaunch WORDS` in a directory."""
    out, err = directory / ".stdout", directory / ".stderr"
    child = os.fork()
    if child == 0:
        code = 4
        try:
            code = _become(words, directory, out, err)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    with _within(child):
        _, status = os.waitpid(child, 0)
    said = Said(os.waitstatus_to_exitcode(status), out.read_text(), err.read_text())
    out.unlink()
    err.unlink()
    return said


def _become(words: Sequence[str], directory: Path, out: Path, err: Path) -> int:
    os.chdir(directory)
    home = directory / ".home"
    home.mkdir(exist_ok=True)
    kept = {"PATH": os.defpath, "LANG": "C.UTF-8", "COLUMNS": "4000"}
    os.environ.clear()
    os.environ.update(kept | {"HOME": str(home), "SPECLAUNCH_HOME": str(home)})
    sys.stdout.flush()
    for stream, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, stream)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", closefd=False)
    for stream_of in (console.err, console.out):
        stream_of.cache_clear()
    sys.argv = ["speclaunch", *words]
    try:
        app.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


@contextlib.contextmanager
def _within(child: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        os.kill(child, signal.SIGKILL)

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

"""Runs `python -m speclaunch` for tests that ask only for words in, streams and exit code out.

Starting Python and importing speclaunch takes longer than most of what they ask. A server imports
everything once and forks; each call is a process of its own, with its own streams, folder and
environment, that ends as the interpreter ends. What needs the process itself (signals, terminals,
closed streams, its command line in the list of processes, variables that Python reads when it
starts) runs `subprocess` with :data:`COMMAND`; where such a variable differs, so does :func:`run`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "speclaunch")
"""What a user runs."""

_server: subprocess.Popen[str] | None = None


def run(
    *words: str | Path,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str | bytes = b"",
    timeout: int = 60,
) -> subprocess.CompletedProcess[str]:
    """Run speclaunch with `words`: its exit code and what it wrote.

    `env` is the whole environment (default: this process's); `given` is its standard input.
    Past `timeout` seconds it is killed by SIGALRM: exit code -14.
    """
    done = run_bytes(*words, cwd=cwd, env=env, given=given, timeout=timeout)
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def run_bytes(
    *words: str | Path,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str | bytes = b"",
    timeout: int = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Do what :func:`run` does, with the bytes that it wrote."""
    env = dict(os.environ if env is None else env)
    given = given.encode() if isinstance(given, str) else given
    if _read_at_start(env) != _read_at_start(os.environ):
        command = [*COMMAND, *map(str, words)]
        return subprocess.run(
            command, cwd=cwd, env=env, input=given, timeout=timeout, capture_output=True
        )
    with tempfile.TemporaryDirectory(prefix="speclaunch-program-") as folder:
        streams = {name: f"{folder}/{name}" for name in ("stdin", "stdout", "stderr")}
        Path(streams["stdin"]).write_bytes(given)
        request = {
            "words": [str(word) for word in words],
            "cwd": str(cwd or Path.cwd()),
            "env": env,
            "timeout": timeout,
            **streams,
        }
        status = _ask(request)
        out, err = (Path(streams[name]).read_bytes() for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess([*COMMAND, *request["words"]], status, out, err)


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    """What Python reads when it starts: a fork has the server's."""
    return {n: v for n, v in env.items() if n.startswith(("PYTHON", "LC_", "LANG"))}


def _ask(request: dict[str, Any]) -> int:
    global _server  # noqa: PLW0603 - one a test process, whoever asks first
    if _server is None:
        _server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(_end)
    assert _server.stdin is not None and _server.stdout is not None
    _server.stdin.write(json.dumps(request) + "\n")
    _server.stdin.flush()
    answer = _server.stdout.readline()
    assert answer, f"the server of tests/support/program.py ended with {_server.wait()}"
    return int(answer)


def _end() -> None:
    if _server is not None and _server.stdin is not None:
        _server.stdin.close()
        _server.wait()
        if _server.stdout is not None:
            _server.stdout.close()


def _serve() -> None:
    """Fork for each request; the fork runs the program, and returns to where it is started."""
    import speclaunch

    for module in pkgutil.walk_packages(speclaunch.__path__, "speclaunch."):
        apart = (
            module.name.startswith("speclaunch.serving.cpu_engine.shim")
            or "make_models" in module.name
        )
        if not apart and not module.name.endswith("__main__"):  # what runs in the engine's world
            import_module(module.name)
    _read_data()
    gc.collect()
    gc.freeze()
    requests = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w")
    while line := requests.readline():
        child = os.fork()
        if child == 0:
            os.close(requests.fileno())
            os.close(answers.fileno())
            _become(json.loads(line))
            _run()
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        answers.flush()


def _read_data() -> None:
    """What nearly every call reads of the package's own data, and keeps."""
    from speclaunch.checks.edit.round_trip import defaults
    from speclaunch.checks.rules.table import RULES
    from speclaunch.engine.plan.architectures import architectures
    from speclaunch.engine.releases.argv import parse_argv
    from speclaunch.engine.releases.catalogue import held_versions, load

    newest = held_versions()[-1]
    architectures(newest)
    parse_argv(("--model-path", "m"), load(newest))
    defaults(load(newest))
    assert RULES


def _run() -> None:
    """Run the program to its end. What the server imported is not torn down, which takes as long
    as many a call; streams are flushed, and threads and `atexit` have their turn."""
    status: int | str | None = 0
    try:
        runpy.run_module("speclaunch", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code
    if isinstance(status, str):
        sys.stderr.write(f"{status}\n")
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


def _become(request: Mapping[str, Any]) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(request[name], flags), number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = request["cwd"]
    sys.argv = ["speclaunch", *request["words"]]
    signal.alarm(request["timeout"])


if __name__ == "__main__":
    _serve()

"""Starts all child processes, without executing files in the current directory.

With `-c`, `-m`, or an empty or relative entry in PYTHONPATH, Python searches the current directory
before its standard library. A json.py in a repository would then replace the standard library's.
Therefore a child:

- runs in a directory that only root can write, unless its caller names a different one;
- gets no relative entry in PYTHONPATH;
- is found only through absolute entries in PATH.

Callers also choose the interpreter's isolation: `isolated`, `safe_path` or `own_command`.

The engine of a launch is an exception: it inherits the user's directory and environment.
`serving/launch/guard.py` starts exactly the command that a dry run shows.
"""

from __future__ import annotations

# ruff: noqa: PTH117  entries of variables are text, and the first start must be fast
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SAFE_DIRECTORY = "/"
"""Default working directory of a child. Only root can put a module there."""
_SAFE_PATH, _OURS = "PYTHONSAFEPATH", "speclaunch"
"""Environment variable equivalent to `-P`, and the value that speclaunch sets. Any nonempty value
works."""
_OWN_PROCESS = Path(__file__).with_name("own_process.py")
_BOUND = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Script that requests SIGTERM when its parent ends (PR_SET_PDEATHSIG), then runs a program."""


def isolated(python: str | Path, *args: str | Path) -> list[str]:
    """Return the command for a script that needs only the standard library and site-packages.

    Uses `-I`, with which Python also ignores PYTHONPATH and the user's site-packages.
    """
    return [str(python), "-I", *map(str, args)]


def safe_path(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` with PYTHONSAFEPATH set, for a script that imports the engine's packages.

    Python 3.10 rejects `-P` and ignores this variable. There, only the child's working directory
    protects the script.
    """
    return {_SAFE_PATH: _OURS, **env}


def without_safe_path(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` for an engine that a user starts, without the additions of `safe_path`."""
    return {n: value for n, value in env.items() if (n, value) != (_SAFE_PATH, _OURS)}


def own_command(*args: str | Path, module: str = "speclaunch") -> list[str]:
    """Return the command that runs a module of this installation, by default speclaunch itself.

    The command works in any directory: it imports neither from the current directory nor from
    another installation of speclaunch (see `own_process.py`).
    """
    return [sys.executable, "-P", str(_OWN_PROCESS), module, *map(str, args)]


def bound(command: Sequence[str | Path]) -> list[str]:
    """Return `command`, wrapped to receive SIGTERM when this process ends for any reason."""
    return isolated(sys.executable, "-c", _BOUND, str(os.getpid()), *command)


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return `env` (default: this process's) without empty or relative PYTHONPATH entries."""
    found = dict(os.environ if env is None else env)
    if "PYTHONPATH" in found:
        entries = [entry for entry in found["PYTHONPATH"].split(os.pathsep) if os.path.isabs(entry)]
        found["PYTHONPATH"] = os.pathsep.join(entries)
        if not entries:
            del found["PYTHONPATH"]
    return found


def find_program(name: str | Path) -> str | None:
    """Return the path of a program, using only absolute entries of PATH; None if not found."""
    folders = (os.environ.get("PATH") or os.defpath).split(os.pathsep)
    return shutil.which(
        name, path=os.pathsep.join(folder for folder in folders if os.path.isabs(folder))
    )


def start(
    command: Sequence[str | Path],
    *,
    cwd: str | Path = SAFE_DIRECTORY,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen[Any]:
    """Start a child process with empty standard input. `options` are those of `subprocess.Popen`.

    Raises OSError if it cannot be run, or if no absolute entry of PATH contains the program.
    """
    options.setdefault("stdin", subprocess.DEVNULL)
    child_env = environment(env)
    if "PWD" in child_env:  # scripts that choose an interpreter read it
        child_env["PWD"] = str(cwd)
    return subprocess.Popen(_absolute(command), cwd=cwd, env=child_env, **options)


def run(
    command: Sequence[str | Path],
    *,
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a child process until it exits. Return its exit code and output.

    Raises subprocess.TimeoutExpired after `timeout` seconds, and OSError like `start`.
    """
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start(command, **pipes, **options) as child:
        try:
            out, err = child.communicate(timeout=timeout)
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(child.args, child.returncode, out, err)


def _absolute(command: Sequence[str | Path]) -> list[str]:
    program, *args = map(str, command)
    found = program if os.path.isabs(program) else find_program(program)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return [found, *args]

"""Finds interpreters with an engine, and their package versions, without importing packages.

Also records what an interpreter's answer depends on (the interpreter and its visible packages), and
decides which programs named in files may run.

A recipe may come from an untrusted repository. A launch runs its `engine.python`; verbs that only
read run it only with `--trust-engine`. A command-line value is trusted, because the user wrote it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import Struct

from speclaunch.core import LaunchError, children, expand_user, reads
from speclaunch.engine.facts import installed_packages

_TELLING = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONSAFEPATH"),
    *("PYTHONPLATLIBDIR", "HOME"),
)
"""Environment variables that determine where an interpreter finds its packages."""
_PYENV = re.compile(rb'^export PYENV_ROOT="([^"$`\\]+)"$.*^exec "[^"]*/pyenv" exec ', re.M | re.S)
"""Matches the script that pyenv installs for each interpreter (libexec/pyenv-rehash, 2.x)."""


def note_environment(interpreter: Path, real: Path, folders: Sequence[str]) -> None:
    """Record where an interpreter searches for packages, and which of those paths exist.

    `interpreter`: the path that is run. `real`, `folders`: its `sys.executable` and `sys.path`.
    """
    for name in _TELLING:
        reads.variable(name)
    try:
        _note_program(interpreter)
        if real != interpreter:
            _note_program(real)
        for folder in folders:
            _note_packages(folder or os.curdir)
    except OSError:
        reads.mark_uncacheable()


def _note_program(path: Path) -> None:
    with path.open("rb") as file:
        found, start = os.fstat(file.fileno()), file.read(_LONGEST_SCRIPT)
        reads.content(path, found, start if len(start) == found.st_size else None)
    if start.startswith(b"#!"):  # a script that selects an interpreter
        by_pyenv = _PYENV.search(start)
        if by_pyenv is None:
            reads.mark_uncacheable()
        else:
            _note_choice(Path(os.fsdecode(by_pyenv[1])))
    _note_file(path.parent.parent / "pyvenv.cfg")


def _note_choice(root: Path) -> None:
    """Record what pyenv's choice depends on: variables, `.python-version` and pyenv's own file."""
    for name in ("PYENV_VERSION", "PYENV_DIR", "PYENV_ROOT", "PWD"):
        reads.variable(name)
    here = Path(reads.variable("PYENV_DIR") or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        _note_file(folder / ".python-version")
    _note_file(root / "version")


def pyenv_choice(interpreter: Path) -> Path | None:
    """Return the interpreter that a pyenv script would start in the current directory.

    None for other programs, or if unclear. Reads the same files as pyenv (libexec/
    pyenv-version-name, pyenv-version-file, pyenv-exec, 2.x).
    """
    try:
        root = _pyenv_root(interpreter)
        if root is None or os.environ.get("PYENV_ROOT", root) != root:
            return None
        names = os.environ.get("PYENV_VERSION", "").replace(":", " ") or _written(root)
        name = (names.split() or [""])[0]
        chosen = Path(root, "versions", name, "bin", interpreter.name)
        return chosen if _NAME.match(name) and os.access(chosen, os.X_OK) else None
    except (OSError, UnicodeDecodeError):
        return None


def pyenv_environment(interpreter: Path) -> dict[str, str]:
    """Return the environment for an interpreter that is started in a different directory.

    A pyenv script then still selects the version for the current directory.
    """
    env = dict(os.environ)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        root = _pyenv_root(interpreter)
        if root is not None and not env.get("PYENV_VERSION"):
            names = _written(root).split()
            env["PYENV_VERSION"] = ":".join(name for name in names if _NAME.match(name))
    return env


_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*\Z", re.ASCII)


def _pyenv_root(interpreter: Path) -> str | None:
    with interpreter.open("rb") as file:
        found = _PYENV.search(file.read(_LONGEST_SCRIPT))
    return None if found is None else os.fsdecode(found[1])


def _written(root: str) -> str:
    """Return the Python versions in the nearest `.python-version`, else in pyenv's own file."""
    here = Path(os.environ.get("PYENV_DIR") or Path.cwd()).absolute()
    files = [folder / ".python-version" for folder in (here, *here.parents)]
    nearest = next((file for file in files if file.is_file()), Path(root, "version"))
    lines = nearest.read_text(encoding="utf-8").splitlines()
    return " ".join(line.partition("#")[0] for line in lines)


def _note_packages(folder: str) -> None:
    if reads.is_file(folder):  # a zip archive
        reads.content(folder, Path(folder).stat())
    if not reads.is_dir(folder):
        return
    for name in reads.names(folder):
        if name.endswith(".pth"):
            _note_file(Path(folder) / name)
        elif name == "sglang.egg-info":  # its name has no version
            reads.mark_uncacheable()


def _note_file(path: Path) -> None:
    if reads.is_file(path):
        reads.read_bytes(path)


_PACKAGES = (
    "sglang",
    "torch",
    "sgl-kernel",
    "sglang-kernel",
    "flashinfer-python",
    "transformers",
)
SOURCE = Path(installed_packages.__file__).read_text(encoding="utf-8")
"""Source of the functions in `installed_packages`, for scripts that run in an engine's
interpreter."""
_PROBE = f"{SOURCE}\nprint(answer({_PACKAGES!r}))\n"
_PROBE_SECONDS = 15
_SHOWN_CHARACTERS = 100
_LONGEST_SCRIPT = 4096
"""Maximum size of a pyenv script, in bytes."""

T = TypeVar("T")


class InterpreterError(Exception):
    """Error: an interpreter did not answer. The message states the reason."""


class NoEngineError(LaunchError):
    """Error: no interpreter has sglang. `failed` lists why queries failed."""

    failed: tuple[str, ...] = ()

    def for_user(self, cpu_engine: bool) -> NoEngineError:
        """Return the same error with advice. `cpu_engine`: True if the CPU engine is installed."""
        install = "" if cpu_engine else "`speclaunch engine install cpu`, then "
        which = "the installed CPU engine" if cpu_engine else "the CPU engine"
        found = NoEngineError(
            self.problems[0].message,
            help=f"set engine.python=/path/to/python; or try {which}: {install}"
            "`speclaunch recipe=cpu_ngram`",
        )
        found.failed = self.failed
        return found


class Runtime(Struct, frozen=True):
    """An interpreter and the engine packages in its environment."""

    interpreter: Path
    python_version: str
    packages: Mapping[str, str]
    sglang_path: Path | None = None
    executed: bool = True
    """False if only its files were read, because the user does not trust the interpreter."""

    @property
    def sglang(self) -> str | None:
        """Version of the installed SGLang; None if it is not installed."""
        return self.packages.get("sglang")


class RunningScript:
    """A script that starts immediately in an interpreter, so several can run in parallel.

    Used as a context manager, it leaves no process behind, even after Ctrl-C.
    """

    def __init__(self, interpreter: Path, script: str) -> None:
        self._left = False
        self._process: subprocess.Popen[str] | OSError
        try:
            self._process = children.start(
                children.isolated(interpreter, "-c", script),
                env=pyenv_environment(interpreter),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            self._process = error

    def answer(self, read: Callable[[Any], T], seconds: float) -> T:
        """Return the result of `read` for the JSON in the last output line.

        Raises InterpreterError if the output is not as expected or takes longer than `seconds`;
        OSError if the script could not be run.
        """
        if isinstance(self._process, OSError):
            raise self._process
        try:
            out, stderr = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            out, stderr = "", f"no answer within {seconds} s"
        try:
            return read(json.loads(out.strip().splitlines()[-1]))
        except (ValueError, IndexError, KeyError, TypeError) as error:
            last = (stderr.strip().splitlines() or ["unexpected output"])[-1]
            raise InterpreterError(last[:_SHOWN_CHARACTERS]) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._left or isinstance(self._process, OSError):
            return
        self._left = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with self._process:  # closes its pipes and waits
            pass


def query_interpreter(
    interpreter: Path, script: str, read: Callable[[Any], T], seconds: float
) -> T:
    """Return an interpreter's answer to a script; see `RunningScript.answer`."""
    with RunningScript(interpreter, script) as running:
        return running.answer(read, seconds)


def _start_query(interpreter: Path) -> RunningScript:
    """Start the probe script, bypassing pyenv's slow script if possible."""
    return RunningScript(pyenv_choice(interpreter) or interpreter, _PROBE)


def probe(interpreter: Path, query: RunningScript | None = None) -> Runtime:
    """Return an interpreter's runtime, with package versions from metadata.

    `query`: a query that is already running. Raises LaunchError if the interpreter does not answer,
    OSError if it cannot be run.
    """

    def read(found: Any) -> Runtime:
        place = Path(found["sglang"]) if found["sglang"] else None
        folders = [str(folder) for folder in found.get("path", ())]
        note_environment(interpreter, Path(found.get("executable", interpreter)), folders)
        return Runtime(interpreter, found["python"], dict(found["packages"]), place)

    try:
        with query or _start_query(interpreter) as question:
            return question.answer(read, _PROBE_SECONDS)
    except InterpreterError as error:
        raise LaunchError(
            f"{interpreter} is not a working Python interpreter: {error}",
            help="set engine.python to the engine's Python: engine.python=/path/to/python",
        ) from error


def find_runtime(requested: str | None, *, meanwhile: Callable[[], None] = lambda: None) -> Runtime:
    """Return the engine's interpreter: the named one, else the first that has sglang.

    Order: `engine.python`; the active virtual environment (VIRTUAL_ENV, CONDA_PREFIX); the
    Python that runs speclaunch; `python3` and `python` on PATH. `meanwhile` is called during the
    queries, which run in parallel.

    A named interpreter runs only if the user trusts it (`is_trusted`), or if it is also one
    of the later candidates. Otherwise the files of its environment are read.

    Raises LaunchError if the named interpreter has no sglang, NoEngineError if no candidate has.
    """
    if requested:
        interpreter = _named(requested)
        if not (is_trusted(requested) or is_trusted(str(interpreter))):
            if interpreter not in _candidates():
                return _unexecuted(interpreter)
        else:
            trust(str(interpreter))
        runtime = probe(interpreter)
        if runtime.sglang is None:
            raise LaunchError(
                f"{interpreter} has no sglang",
                help=f"install it there: {interpreter} -m pip install sglang",
            )
        return runtime
    own = Path(sys.executable).absolute()
    tried = list(_candidates())
    failed: list[str] = []
    with contextlib.ExitStack() as left:
        queries = {
            interpreter: left.enter_context(_start_query(interpreter))
            for interpreter in tried
            if interpreter != own
        }
        if queries:
            meanwhile()
        for interpreter in tried:
            try:
                runtime = _own() if interpreter == own else probe(interpreter, queries[interpreter])
            except (LaunchError, OSError) as error:
                reads.mark_uncacheable()
                failed.append(_why(interpreter, error))
                continue
            if runtime.sglang is not None:
                return runtime
    message = "no Python with sglang was found (tried " + ", ".join(map(str, tried)) + ")"
    help_ = "set engine.python=/path/to/python"
    none_found = NoEngineError("; ".join([message, *failed]), help=help_)
    none_found.failed = tuple(failed)
    raise none_found


def _why(interpreter: Path, error: LaunchError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{interpreter} cannot be run: {error.strerror or error}"
    return error.problems[0].message


def _unexecuted(interpreter: Path) -> Runtime:
    """Return the runtime of an interpreter that must not run, from its environment's files."""
    from speclaunch.engine.facts.environment_files import read_environment  # noqa: PLC0415

    reads.mark_uncacheable()  # with --trust-engine the answer may differ
    found = read_environment(interpreter, _PACKAGES)
    if found is None or "sglang" not in found.packages:
        why = "no sglang in its environment" if found else "no readable environment"
        raise LaunchError(
            f"engine unknown: {interpreter} was not executed, because it is named in a file"
            f" ({why})",
            help="set the version: --engine VERSION, or engine.version in the recipe; "
            "or run the interpreter: --trust-engine",
        )
    return Runtime(
        interpreter, found.python_version, found.packages, found.sglang_path, executed=False
    )


def _own() -> Runtime:
    """Return the runtime of the interpreter that runs speclaunch, without starting a process."""
    packages = installed_packages.installed(_PACKAGES, sys.path)
    place = installed_packages.place("sglang", sys.path)
    own = Path(sys.executable)
    note_environment(own, own, sys.path)
    version = sys.version.split()[0]
    return Runtime(own.absolute(), version, packages, Path(place) if place else None)


def pip_command() -> list[str]:
    """Return the command for pip in speclaunch's interpreter, else for Python's bundled copy.

    Raises LaunchError if there is neither.
    """
    import importlib.util  # noqa: PLC0415  only downloads need it

    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    spec = importlib.util.find_spec("ensurepip")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    wheels = sorted(folder.glob("_bundled/pip-*.whl")) if folder is not None else []
    if not wheels:
        raise LaunchError(
            f"{sys.executable} has no pip",
            help="install it: python -m ensurepip, or uv pip install pip",
        )
    return [sys.executable, "-P", str(wheels[-1] / "pip")]


def pip_environment() -> dict[str, str]:
    """Return this process's environment without variables that change where pip installs."""
    diverting = {"PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"}
    return {name: value for name, value in os.environ.items() if name not in diverting}


def download_wheel(version: str, directory: Path) -> Path:
    """Download the wheel of an SGLang release, without dependencies. Return its path.

    Raises LaunchError with pip's last error.
    """
    command = [*pip_command(), "download", "--quiet", "--no-deps"]
    folder = directory.absolute()
    done = children.run(
        [*command, "--disable-pip-version-check", "-d", folder, f"sglang=={version}"]
    )
    wheels = sorted(directory.glob("sglang-*.whl"))
    if done.returncode != 0 or not wheels:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise LaunchError(
            f"SGLang {version} cannot be downloaded: {(errors or ['no wheel'])[-1]}",
            help="name a released version, `installed`, or a path to a wheel",
        )
    return wheels[0]


def _named(requested: str) -> Path:
    path = expand_user(requested)
    if path.is_dir():  # a virtual environment
        path = path / "bin" / "python"
    if "/" in requested:
        path = path.absolute()  # do not search `./python` on PATH
    found = children.find_program(path)
    if found is None:
        raise LaunchError(
            f"engine.python: {requested} is not a program",
            help="set it to the path of a Python interpreter or a virtual environment",
        )
    return Path(found).absolute()  # not resolved: a virtual environment's python is a link


def _candidates() -> Iterator[Path]:
    seen: set[tuple[Path, Path | bytes]] = set()
    for base in (reads.variable("VIRTUAL_ENV"), reads.variable("CONDA_PREFIX")):
        if base and Path(base).is_absolute():  # else it would be relative to the current directory
            yield from _new(Path(base) / "bin" / "python", seen)
    yield from _new(Path(sys.executable), seen)
    for name in ("python3", "python"):
        found = children.find_program(name)
        for folder in (reads.variable("PATH") or os.defpath).split(os.pathsep):
            reads.may_run(f"{folder or os.curdir}/{name}")
        if found:
            yield from _new(Path(found), seen)


def _new(path: Path, seen: set[tuple[Path, Path | bytes]]) -> Iterator[Path]:
    """Yield a path unless it duplicates another path in the same directory: a link, or an equal
    script.

    Equal scripts in different directories belong to different environments.
    """
    path = path.absolute()
    if not reads.exists(path):
        return
    found = path.parent, _script(path) or reads.resolve(path)
    if found not in seen:
        seen.add(found)
        yield path


def _script(path: Path) -> bytes | None:
    """Return the content of a short script; None for other files. pyenv installs equal scripts for
    all interpreters."""
    try:
        if reads.size(path) > _LONGEST_SCRIPT:
            return None
        text = reads.read_bytes(path)
    except OSError:
        return None
    return text if text.startswith(b"#!") else None


_TRUSTED: set[str] = set()
_EVERY = "*"


def trust_all() -> None:
    """Trust every program that a file names, until the process exits (`--trust-engine`)."""
    _TRUSTED.add(_EVERY)


def trust(program: str) -> None:
    """Trust the program with this exact name or path until the process exits."""
    _TRUSTED.add(program)


def is_trusted(program: str) -> bool:
    """True if the user allows this program to run."""
    return _EVERY in _TRUSTED or program in _TRUSTED

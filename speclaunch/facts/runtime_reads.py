"""What the answer of an interpreter rests on: which one it is, and which packages it sees."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from speclaunch import reads

_TELLING = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONSAFEPATH"),
    *("PYTHONPLATLIBDIR", "HOME"),
)
"""The variables by which an interpreter decides where its packages are."""
_PYENV = re.compile(rb'^export PYENV_ROOT="([^"$`\\]+)"$.*^exec "[^"]*/pyenv" exec ', re.M | re.S)
"""The script that pyenv puts in the place of each interpreter (libexec/pyenv-rehash, 2.x)."""
_LONGEST_SCRIPT = 4096


def note_environment(interpreter: Path, real: Path, folders: Sequence[str]) -> None:
    """Note where an interpreter looks for packages, and which there are.

    `interpreter`: as it was called; `real`, `folders`: what it calls itself, and its `sys.path`.
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
        reads.unrepeatable()


def _note_program(path: Path) -> None:
    with path.open("rb") as file:
        found, start = os.fstat(file.fileno()), file.read(_LONGEST_SCRIPT)
        reads.content(path, found, start if len(start) == found.st_size else None)
    if start.startswith(b"#!"):  # a script that chooses one
        by_pyenv = _PYENV.search(start)
        if by_pyenv is None:
            reads.unrepeatable()
        else:
            _note_choice(Path(os.fsdecode(by_pyenv[1])))
    _note_file(path.parent.parent / "pyvenv.cfg")


def _note_choice(root: Path) -> None:
    """By what pyenv chooses: a variable, else the nearest `.python-version`, else its own file."""
    for name in ("PYENV_VERSION", "PYENV_DIR", "PYENV_ROOT", "PWD"):
        reads.variable(name)
    here = Path(reads.variable("PYENV_DIR") or Path.cwd()).absolute()
    for folder in (here, *here.parents):
        _note_file(folder / ".python-version")
    _note_file(root / "version")


def pyenv_choice(interpreter: Path) -> Path | None:
    """The interpreter that a script of pyenv would start here; None where that takes more than
    reading what it reads (libexec/pyenv-version-name, pyenv-version-file, pyenv-exec, 2.x)."""
    try:
        with interpreter.open("rb") as file:
            found = _PYENV.search(file.read(_LONGEST_SCRIPT))
        if found is None or os.environ.get("PYENV_ROOT", os.fsdecode(found[1])) != os.fsdecode(
            found[1]
        ):
            return None
        root = Path(os.fsdecode(found[1]))
        said = os.environ.get("PYENV_VERSION", "").replace(":", " ") or _written(root)
        name = (said.split() or [""])[0]
        chosen = root / "versions" / name / "bin" / interpreter.name
        return chosen if _NAME.match(name) and os.access(chosen, os.X_OK) else None
    except (OSError, UnicodeDecodeError):
        return None


def pyenv_environment(interpreter: Path) -> dict[str, str]:
    """The variables of an interpreter that is started in another directory: a script of pyenv
    still chooses by the `.python-version` of this one, among pyenv's own versions."""
    env = dict(os.environ)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        with interpreter.open("rb") as file:
            found = _PYENV.search(file.read(_LONGEST_SCRIPT))
        if found is not None and not env.get("PYENV_VERSION"):
            names = _written(Path(os.fsdecode(found[1]))).split()
            env["PYENV_VERSION"] = ":".join(name for name in names if _NAME.match(name))
    return env


_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*\Z", re.ASCII)


def _written(root: Path) -> str:
    """What the nearest `.python-version` says, else pyenv's own file."""
    here = Path(os.environ.get("PYENV_DIR") or Path.cwd()).absolute()
    files = [folder / ".python-version" for folder in (here, *here.parents)]
    nearest = next((file for file in files if file.is_file()), root / "version")
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
        elif name == "sglang.egg-info":  # its name does not say the version
            reads.unrepeatable()


def _note_file(path: Path) -> None:
    if reads.is_file(path):
        reads.read_bytes(path)

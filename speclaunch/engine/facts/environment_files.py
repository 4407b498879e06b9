"""Package versions of a Python environment, read from its files without running Python."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from speclaunch.core import UnreadableFileError, read_start

_MOST_BYTES = 1 << 16
_MOST_NAMES = 20_000
_DISTRIBUTION = re.compile(r"([A-Za-z0-9][\w.]*)-([0-9][\w.!+]*)\.(?:dist|egg)-info\Z", re.ASCII)
_PYTHON = re.compile(r"python(\d+\.\d+)t?\Z", re.ASCII)


class EnvironmentFiles(Struct, frozen=True):
    """Python and package versions of an environment, read from its files."""

    python_version: str
    packages: Mapping[str, str]
    sglang_path: Path | None = None


def read_environment(interpreter: Path, names: Sequence[str]) -> EnvironmentFiles | None:
    """Return the versions of Python and of the packages `names` in an environment.

    The environment is a virtual environment (`pyvenv.cfg`) or a prefix (`bin/`, `lib/python3.x/`).
    Package versions come from the names of `*.dist-info`. None if there is no such environment.
    """
    if interpreter.parent.name != "bin":
        return None
    root = interpreter.parent.parent
    settings = _settings(root / "pyvenv.cfg")
    folders = list(_site_folders(root))
    if settings.get("include-system-site-packages", "").lower() == "true":
        folders += _site_folders(Path(settings.get("home", "")).parent)
    if not folders:
        return None
    packages: dict[str, str] = {}
    for folder in folders:
        for found in map(_DISTRIBUTION.match, _names(folder)):
            if found is not None:
                packages.setdefault(_plain(found[1]), found[2])
    version = settings.get("version") or ".".join(settings.get("version_info", "").split(".")[:3])
    return EnvironmentFiles(
        version or _PYTHON.sub(r"\1", folders[0].parent.name),
        {name: packages[_plain(name)] for name in names if _plain(name) in packages},
        next(_places(folders, "sglang"), None),
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _text(path: Path) -> str:
    try:
        return read_start(path, _MOST_BYTES)[0].decode("utf-8", "replace")
    except UnreadableFileError:
        return ""


def _names(folder: Path) -> list[str]:
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(entry.name)
                if len(found) >= _MOST_NAMES:
                    break
    except OSError:
        return []
    return sorted(found)


def _settings(path: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in _text(path).splitlines())
    return {key.strip().lower(): value.strip() for key, equals, value in lines if equals}


def _site_folders(root: Path) -> Iterator[Path]:
    for library in ("lib", "lib64"):
        for name in _names(root / library):
            for site in ("site-packages", "dist-packages"):
                folder = root / library / name / site
                if _PYTHON.match(name) and folder.is_dir() and not (root / library).is_symlink():
                    yield folder


def _places(folders: Sequence[Path], package: str) -> Iterator[Path]:
    """Yield the directories of `package`: in `folders`, or in a checkout that they link to."""
    for folder in folders:
        if (folder / package / "__init__.py").is_file():
            yield folder / package
        for name in _names(folder):
            found = _DISTRIBUTION.match(name)
            if name.endswith(".pth"):
                for line in _text(folder / name).splitlines():
                    if line.startswith("/") and (Path(line.strip()) / package).is_dir():
                        yield Path(line.strip()) / package
            elif found is not None and _plain(found[1]) == package:
                yield from _checkout(_text(folder / name / "direct_url.json"), package)


def _checkout(text: str, package: str) -> Iterator[Path]:
    """Yield the directory of `package` in the checkout that `text`, a direct_url.json, names."""
    try:
        url = urlsplit(json.loads(text)["url"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if url.scheme == "file":
        for part in (package, f"python/{package}", f"src/{package}"):
            if (Path(unquote(url.path)) / part / "__init__.py").is_file():
                yield Path(unquote(url.path)) / part

"""Which of some packages an interpreter sees, by their metadata, without importing one of them.

The engine's interpreter is given the text of this module: it knows the standard library alone.
"""

# It starts quickly: no pathlib, no typing.
# ruff: noqa: PLC0415, PTH113, PTH208
import contextlib
import json
import os
import sys


def installed(names: "tuple[str, ...]", path: "list[str]") -> "dict[str, str]":
    """The versions of those of `names` that are installed below `path`.

    Reading metadata takes long to import, and most interpreters have none of what is asked for.
    """
    beginnings = tuple(name.replace("-", "_") for name in names)
    if not any(_may_hold(folder or os.curdir, beginnings) for folder in path):
        return {}
    import importlib.metadata

    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _may_hold(folder: str, beginnings: "tuple[str, ...]") -> bool:
    try:
        inside = os.listdir(folder)
    except OSError:
        return os.path.isfile(folder)  # an archive
    return any(
        name.lower().replace("-", "_").replace(".", "_").startswith(beginnings) for name in inside
    )


def place(name: str) -> "str | None":
    """The directory of a package; it is found, also where it is a checkout, and not run."""
    import importlib.util

    spec = importlib.util.find_spec(name)
    places: list[str] = list((spec and spec.submodule_search_locations) or [])
    return places[0] if places else None


def answer(names: "tuple[str, ...]") -> str:
    """What is asked of an interpreter, as JSON."""
    said = {
        "python": sys.version.split()[0],
        "packages": installed(names, sys.path),
        "sglang": place("sglang"),
        "executable": sys.executable,
        "path": sys.path,
    }
    return json.dumps(said)

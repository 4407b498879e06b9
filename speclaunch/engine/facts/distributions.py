"""Lists all packages in an engine's environment, with digests, without importing any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct, convert

from speclaunch.core import LaunchError
from speclaunch.engine.facts.runtime import SOURCE, InterpreterError, query_interpreter

_SECONDS = 60
_OURS = frozenset({"speclaunch", "pip"})
"""Packages that the engine never imports."""

# Runs in any Python from 3.8 on, so it uses nothing newer.
_SCRIPT = (
    SOURCE
    + r"""
import csv, hashlib, importlib.metadata as m, json, platform, re
def digest(record):
    rows = []
    for row in csv.reader(record.splitlines()):
        name, code = (row + ["", ""])[:2]
        end = name.rpartition("/")[2]
        # what differs by installer and folder: scripts in bin, caches, notes of pip and uv
        if not code or name.startswith(("..", "/")) or "__pycache__" in name: continue
        if end in ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"): continue
        rows.append("%s %s\n" % (name, code))
    return "sha256:" + hashlib.sha256("".join(sorted(rows)).encode()).hexdigest() if rows else None
found = {}
for one in m.Distribution.discover(path=search_path()):
    name = one.metadata["Name"]
    name = name and re.sub(r"[-_.]+", "-", name).lower()
    if name and name not in found:
        found[name] = [one.version, digest(one.read_text("RECORD") or "")]
print(json.dumps({"python": platform.python_version(), "packages": found}))
"""
)


class InstalledPackage(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A package in an environment."""

    name: str
    """In lowercase, with dashes."""
    version: str
    hash: str | None = None
    """Digest of the names and digests of its files in RECORD; None without that file. Equal in all
    installations of the same wheel."""


def read_distributions(interpreter: Path) -> tuple[str, tuple[InstalledPackage, ...]]:
    """Return the Python version and all packages of an interpreter's environment, by name.

    Raises LaunchError if the interpreter does not list them.
    """

    def read(found: Any) -> tuple[str, tuple[InstalledPackage, ...]]:
        packages = convert(found["packages"], dict[str, tuple[str, str | None]])
        return str(found["python"]), tuple(
            InstalledPackage(name, *packages[name]) for name in sorted(packages.keys() - _OURS)
        )

    try:
        return query_interpreter(interpreter, _SCRIPT, read, _SECONDS)
    except (InterpreterError, OSError) as error:
        raise LaunchError(f"{interpreter} did not list its packages: {error}") from error

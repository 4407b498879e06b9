"""Packages of an engine's environment, read by its interpreter without importing any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, field

from speclaunch.core import LaunchError
from speclaunch.engine.facts.runtime import SOURCE, InterpreterError, query_interpreter

_PACKAGES_SECONDS = 8

# Runs in any Python from 3.8 on, so it uses nothing newer. `assert_pkg_version(NAME, VERSION` is in
# sglang/srt/entrypoints/engine.py of every release from 0.4.6 to 0.5.23: with an older package the
# engine refuses to start on a CUDA GPU.
_PACKAGES_SCRIPT = (
    SOURCE
    + r"""
import importlib.metadata as m, json, os, re, shutil, sys
path = search_path()
def text(*parts):
    try:
        with open(os.path.join(*parts), encoding="utf-8", errors="replace") as f: return f.read()
    except OSError: return ""
def canonical(name): return re.sub(r"[-_.]+", "-", name).lower()
found = next(iter(m.Distribution.discover(name="sglang", path=path)), None)
requires = (found and found.requires) or []
names = {canonical(re.match(r"[A-Za-z0-9._-]+", r.strip())[0]) for r in requires}
names |= {"sglang", "torch", "sgl-kernel", "sglang-kernel", "flashinfer-python"}
names |= {"flashinfer-cubin", "flashinfer-jit-cache"}
sglang, torch = place("sglang", path), place("torch", path)
source = text(sglang, "srt", "entrypoints", "engine.py") if sglang else ""
minimums = re.findall(r'assert_pkg_version\(\s*"([\w-]+)",\s*"([^"]+)"', source)
built = {}
for key in ("__version__", "cuda", "hip"):
    pattern = r"^%s\b[^=]*=\s*['\"]([^'\"]+)" % key
    found = re.search(pattern, text(torch, "version.py"), re.M) if torch else None
    built[key] = found[1] if found else None
beside = os.path.dirname(sys.executable)
print(json.dumps({
    "requires": requires, "installed": installed(tuple(names), path), "torch": built,
    "minimums": {canonical(k): v for k, v in minimums},
    "pip": place("pip", path) is not None,
    "ninja": bool(shutil.which("ninja") or shutil.which("ninja", path=beside)),
}))
"""
)


class Torch(Struct, frozen=True):
    """The engine's torch, read from its `version.py`."""

    version: str
    cuda: str | None = None
    """CUDA version of the build; None if it was built without CUDA."""
    hip: str | None = None


class Packages(Struct, frozen=True):
    """The requirements of the installed SGLang, and the packages in its environment."""

    requires: tuple[str, ...] = ()
    """The `Requires-Dist` lines of the installed SGLang."""
    installed: Mapping[str, str] = field(default_factory=dict)
    """Versions of the relevant packages by name (lowercase, with dashes)."""
    minimums: Mapping[str, str] = field(default_factory=dict)
    """Minimum versions by package, from `assert_pkg_version` in SGLang's engine.py."""
    torch: Torch | None = None
    has_pip: bool = True
    ninja: bool = False


def read_packages(interpreter: Path) -> Packages:
    """Return the packages of an interpreter's environment.

    Raises LaunchError if the interpreter does not list them, and OSError if it cannot be run.
    """
    try:
        return query_interpreter(interpreter, _PACKAGES_SCRIPT, _packages, _PACKAGES_SECONDS)
    except InterpreterError as error:
        raise LaunchError(f"{interpreter} did not list its packages: {error}") from error


def _packages(found: Any) -> Packages:
    built = found["torch"]
    torch = Torch(built["__version__"], built["cuda"], built["hip"])
    return Packages(
        tuple(found["requires"]),
        dict(found["installed"]),
        dict(found["minimums"]),
        torch if torch.version else None,
        bool(found["pip"]),
        bool(found["ninja"]),
    )


_LIST_SECONDS = 60
_OURS = frozenset({"speclaunch", "pip"})
"""Packages that `read_distributions` omits, because the engine never imports them."""

# Runs in any Python from 3.8 on, so it uses nothing newer.
_LIST_SCRIPT = (
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
    """Lowercase, with dashes."""
    version: str
    hash: str | None = None
    """Digest of the file names and digests in the package's RECORD; None without a RECORD. All
    installations of the same wheel have equal digests."""


def read_distributions(interpreter: Path) -> tuple[str, tuple[InstalledPackage, ...]]:
    """Return an environment's Python version and packages except `_OURS`, sorted by name.

    Raises LaunchError if the interpreter does not list them.
    """

    def read(found: Any) -> tuple[str, tuple[InstalledPackage, ...]]:
        packages = convert(found["packages"], dict[str, tuple[str, str | None]])
        return str(found["python"]), tuple(
            InstalledPackage(name, *packages[name]) for name in sorted(packages.keys() - _OURS)
        )

    try:
        return query_interpreter(interpreter, _LIST_SCRIPT, read, _LIST_SECONDS)
    except (InterpreterError, OSError) as error:
        raise LaunchError(f"{interpreter} did not list its packages: {error}") from error

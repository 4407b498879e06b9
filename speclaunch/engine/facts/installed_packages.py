"""Package versions of an interpreter, from metadata, without importing the packages.

The engine's interpreter runs this module's source, which needs only the standard library.
"""

# For a quick start: no pathlib, no typing.
# ruff: noqa: PLC0415, PTH112, PTH113, PTH117, PTH208
import json
import os
import sys


def installed(names: "tuple[str, ...]", path: "list[str]") -> "dict[str, str]":
    """Return the versions of the packages in `names` that are installed on the search path `path`.

    Imports the metadata reader only on demand, because the import is slow and most interpreters
    have none of these packages.
    """
    beginnings = tuple(name.replace("-", "_") for name in names)
    if not any(_may_hold(folder or os.curdir, beginnings) for folder in path):
        return {}
    import importlib.metadata

    found = {}
    for name in names:
        for distribution in importlib.metadata.Distribution.discover(name=name, path=path):
            found[name] = distribution.version
            break
    return found


def _may_hold(folder: str, beginnings: "tuple[str, ...]") -> bool:
    try:
        inside = os.listdir(folder)
    except OSError:
        return os.path.isfile(folder)  # an archive
    return any(
        name.lower().replace("-", "_").replace(".", "_").startswith(beginnings) for name in inside
    )


def search_path() -> "list[str]":
    """Return the package search path that this interpreter would have without `-I`.

    The directories in PYTHONPATH are read, but no module is imported from them: they may belong to
    an untrusted repository. Relative entries, which mean the current directory, are skipped.
    """
    import site

    found = list(sys.path)
    own_user_site = sys.flags.no_user_site and not os.environ.get("PYTHONNOUSERSITE")
    if own_user_site and sys.base_prefix in (sys.prefix, *site.PREFIXES):
        user = site.getusersitepackages()
        if os.path.isabs(user) and os.path.isdir(user) and user not in found:
            site.addsitedir(user)  # its .pth files, as in a normal start
            added = [entry for entry in sys.path if entry not in found]
            places = [found.index(folder) for folder in site.getsitepackages() if folder in found]
            found[min(places, default=len(found)) : 0] = added
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in entries if os.path.isabs(entry) and entry not in found] + found


def place(name: str, path: "list[str]") -> "str | None":
    """Return a package's directory, even in a checkout, without importing it; None if absent."""
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec(name, path) or importlib.util.find_spec(name)
    places: list[str] = list((spec and spec.submodule_search_locations) or [])
    return places[0] if places else None


def answer(names: "tuple[str, ...]") -> str:
    """Return this interpreter's version and paths, and the versions of `names`, as JSON."""
    path = search_path()
    facts = {
        "python": sys.version.split()[0],
        "packages": installed(names, path),
        "sglang": place("sglang", path),
        "executable": sys.executable,
        "path": path,
    }
    return json.dumps(facts)

"""The public names of a library, which other libraries may import. They load on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def homes_of(library: str, names: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each public name."""
    return {
        name: f"{library}.{module}".rstrip(".")
        for module, some in names.items()
        for name in some.split()
    }


def front_door(library: str, names: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` for a library's `__init__.py`.

    library: its import name, such as `speclaunch.engine`.
    names: maps each module (`facts.checkpoint`; empty for the library itself) to its public names,
        separated by spaces. A name may be a module.
    """
    homes = homes_of(library, names)

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {library!r} has no attribute {name!r}")
        found = None if home == library else getattr(import_module(home), name, None)
        if found is None:
            found = import_module(f"{home}.{name}")
        setattr(sys.modules[library], name, found)  # the next import finds it there
        return found

    return list(homes), load

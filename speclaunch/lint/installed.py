"""Which engine is on this machine: whose arguments count where a file does not say its version."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from speclaunch import reads

if TYPE_CHECKING:
    from speclaunch.lint.cache import Cache


@cache
def installed_engine() -> str | None:
    """The catalogue of the engine on this machine, looked for once; None: there is none."""
    return remembered_engine(None)


def remembered_engine(kept: Cache | None) -> str | None:
    """The same, looked for only where an earlier lint did not, or something changed since."""
    name = kept.name(b"installed engine") if kept is not None else ""
    if kept is not None:
        said = kept.get(name)
        if isinstance(said, list) and len(said) == 1 and isinstance(said[0], str | None):
            return said[0]
    with reads.aside(kept.shipped if kept is not None else ()) as looked:
        found = _find()
    if kept is not None:
        kept.put(name, [found], looked)
    return found


def _find() -> str | None:
    """The version of the engine on this machine; where it is no release, its own catalogue."""
    from speclaunch.facts.engines import at_hand  # noqa: PLC0415  not needed where it is remembered
    from speclaunch.facts.runtime import NoEngineError, find_runtime  # noqa: PLC0415

    def meanwhile() -> None:
        """Import what is needed next: it takes as long as the interpreters do."""
        for name in ("speclaunch.lint.collect", "speclaunch.lint.run"):
            import_module(name)

    try:
        return at_hand(find_runtime(None, meanwhile=meanwhile))
    except NoEngineError as error:  # the newest is assumed
        for why in error.failed:
            sys.stderr.write(f"note: engine unknown: {why}\n")
        return None
    except Exception:  # an engine without a catalogue: the newest is assumed
        return None

"""What a deployment names on this machine and is not there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from speclaunch.engine.catalogue import Catalogue
from speclaunch.engine.command import RenderedArgs
from speclaunch.engine.paths import local_paths
from speclaunch.record import record


@record
class MissingPath:
    """A path that the engine would be given, and why it would not find it."""

    name: str
    """The argument, by the engine's field."""
    given: str
    """The argument as the recipe calls it."""
    path: str
    why: str
    help: str

    @property
    def message(self) -> str:
        """In a sentence."""
        return f"{self.given}: {self.path} {self.why}"


def missing_paths(
    spelling: RenderedArgs, catalogue: Catalogue, *, made: Iterable[Path] = ()
) -> tuple[MissingPath, ...]:
    """What is not there, seen from the current directory, in which the engine is started, too.

    `made`: directories below which we make what is asked for ourselves.
    """
    own = {str(directory) for directory in made}
    return tuple(
        _missing(argument.name, argument.given or argument.name, path)
        for argument, path in local_paths(spelling, catalogue)
        if not os.path.exists(path) and str(Path(path).parent) not in own  # noqa: PTH110 - as it asks
    )


def _missing(name: str, given: str, path: str) -> MissingPath:
    if path.startswith("~"):
        meant = os.path.expanduser(path)  # noqa: PTH111 - Path's own raises where there is no home
        return MissingPath(
            name, given, path, "does not exist: the engine does not expand ~", f"write {meant}"
        )
    try:
        os.stat(path)  # noqa: PTH116
    except PermissionError:
        return MissingPath(
            name, given, path, "cannot be read by this user", "the engine runs as this user"
        )
    except (OSError, ValueError):
        pass
    nearest = next((str(one) for one in Path(path).absolute().parents if one.exists()), "/")
    where = "" if nearest == "/" else f"; {nearest} exists"
    return MissingPath(
        name, given, path, "does not exist on this machine", f"correct the path{where}"
    )

"""The launches of this machine: read back from their journals, found by name, pruned."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclaunch.errors import InputError, Problem
from speclaunch.home import speclaunch_home
from speclaunch.launch.atomic_files import read_json
from speclaunch.launch.journal import FILE, LaunchState
from speclaunch.launch.locks import Holder, living
from speclaunch.record import record


@record
class Run:
    """One launch. `document` is its journal; empty where it has none that can be read."""

    directory: Path
    document: Mapping[str, Any]
    holder: Holder | None
    """The speclaunch that looks after it, while it lives."""

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.directory.name

    @property
    def state(self) -> LaunchState:
        """Where it is. What was never ended and has nobody who looks after it is lost."""
        with contextlib.suppress(ValueError):
            said = LaunchState(str(self.document.get("state")))
            if said is LaunchState.ENDED or self.holder is not None:
                return said
        return LaunchState.STARTING if self.holder is not None else LaunchState.LOST

    @property
    def recipe(self) -> str:
        """The recipe's name."""
        return str(self.section("recipe").get("name") or self.name)

    @property
    def attempts(self) -> list[Mapping[str, Any]]:
        """Its engine starts."""
        found = self.document.get("attempts")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    @property
    def log(self) -> Path | None:
        """The log of its last engine."""
        name = self.attempts[-1].get("log") if self.attempts else None
        return self.directory / Path(str(name)).name if name else None

    def section(self, name: str) -> Mapping[str, Any]:
        """A part of the journal; empty where it has none."""
        found = self.document.get(name)
        return found if isinstance(found, dict) else {}


def default_directory() -> Path:
    """Where runs are, unless `launch.log_dir` says otherwise."""
    return speclaunch_home() / "runs"


def list_runs(directory: Path | None = None) -> list[Run]:
    """Every launch below a directory, and what lives elsewhere; the oldest first."""
    holders = {Path(holder.run): holder for holder in living()}
    paths = {path for path in holders if directory is None or path.parent == directory}
    base = directory or default_directory()
    if base.is_dir():
        paths |= {path for path in base.iterdir() if _is_run(path)}
    found = [Run(path, read_json(path / FILE) or {}, holders.get(path)) for path in paths]
    return sorted(found, key=lambda run: (str(run.document.get("started", "")), run.name))


def find_run(name: str, directory: Path | None = None, *, alive: bool = False) -> Run:
    """The launch of that name, process id, port or recipe (its newest); `last`: the newest.

    Raises InputError when there is none.
    """
    runs = [run for run in list_runs(directory) if run.holder is not None or not alive]
    for matches in (
        [run for run in runs if run.name == name],
        [run for run in runs if run.holder and name == str(run.holder.pid)],
        [run for run in runs if run.holder and run.holder.address.endswith(f":{name}")],
        [run for run in runs if name in (run.recipe, "last")],
    ):
        if matches:
            return matches[-1]
    if not runs and not alive:
        where = directory or default_directory()
        raise InputError(
            Problem(f"no launch is recorded in {where}", help="speclaunch recipe=NAME launches one")
        )
    what = "no engine of that name is running" if alive else "no launch of that name is recorded"
    from speclaunch.engine.nearest import suggest  # noqa: PLC0415 - for a mistake

    hint = suggest(name, [run.name for run in runs])
    listing = "`speclaunch ps` lists them" if alive else "`speclaunch runs` lists them"
    raise InputError(Problem(f"{name}: {what}", help=hint or listing))


def again(run: Run) -> Run:
    """The same launch as it is now."""
    holders = {Path(holder.run): holder for holder in living()}
    return Run(run.directory, read_json(run.directory / FILE) or {}, holders.get(run.directory))


def prune(keep: int, directory: Path | None = None) -> list[Run]:
    """Remove all launches that ended but the last `keep`; returns them. What lives stays, and what
    has no journal."""
    # Only what has a journal is surely ours to remove.
    over = [run for run in list_runs(directory) if run.holder is None and run.document]
    removed = []
    for run in over[: max(0, len(over) - keep)]:
        with contextlib.suppress(OSError):
            shutil.rmtree(run.directory)
            removed.append(run)
    return removed


def _is_run(path: Path) -> bool:
    """`20261121-100400-name`: a directory that we made."""
    date, _, rest = path.name.partition("-")
    clock, _, name = rest.partition("-")
    stamped = len(date) == 8 and date.isdigit() and len(clock) == 6 and clock.isdigit()
    return bool(stamped and name) and path.is_dir() and not path.is_symlink()

"""Mode of the engine check (`--ask`), and the available judges. Quick to import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.core import distrust, judges_home, speclaunch_home
from speclaunch.engine import EngineCheckMode, SettingsFrom

__all__ = ["EngineCheckMode", "ask_mode", "has_judges"]

if TYPE_CHECKING:
    from speclaunch.checks.engine_check.opinions import EngineQuerier


def ask_mode(
    requested: EngineCheckMode | None, project: SettingsFrom | None = None
) -> EngineCheckMode:
    """Return the mode `requested` by `--ask`, else this directory's project setting, else `auto`.

    Raises InputError for an invalid project file.
    """
    if requested is not None:
        return requested
    configured = (project or SettingsFrom()).of(Path.cwd()).ask
    return EngineCheckMode.AUTO if configured is None else EngineCheckMode(configured.text)


def has_judges() -> bool:
    """True if this user has added a judge, and no other user could have changed it."""
    try:
        found = any(path.name[0] != "." for path in judges_home().iterdir())
    except OSError:
        return False
    if not found:
        return False
    from speclaunch.engine import cpu_engine_home  # noqa: PLC0415  only with judges

    folders = (judges_home(), cpu_engine_home(speclaunch_home()))
    return not any(map(distrust, folders))


def querier_for(
    mode: EngineCheckMode, *, keeps: bool = True, starts: bool = False
) -> EngineQuerier | None:
    """Return an `EngineQuerier`, or None if the mode queries no engine.

    `auto` queries only added judges, because an installed engine takes seconds to load for each
    changed file. `starts`: the engine is about to start, so `auto` queries it, too. `keeps`: store
    answers, and reuse stored answers.
    """
    only_added = mode is EngineCheckMode.AUTO and not starts
    if mode is EngineCheckMode.NEVER or (only_added and not has_judges()):
        return None
    from speclaunch.checks.engine_check.installed_judges import find_added_judge, find_judge  # noqa: PLC0415
    from speclaunch.checks.engine_check.opinions import EngineQuerier, opened  # noqa: PLC0415  only for queries

    return EngineQuerier(
        mode, opened(enabled=keeps), find_added_judge if only_added else find_judge
    )


def identity(asker: EngineQuerier | None) -> tuple[str, ...]:
    """Return the mode and judges of an engine check, for cache keys; empty if `asker` is None."""
    if asker is None:
        return ()
    from speclaunch.checks.engine_check.installed_judges import all_judges  # noqa: PLC0415

    return (asker.mode.value, *(f"{judge.release} {judge.digest}" for judge in all_judges()))


def interpreter(python: str | None) -> Path | None:
    """Return `python` as a path; None if it is a bare name or not set."""
    return Path(python) if python is not None and "/" in python else None

"""When an engine is asked for its opinion: what `--ask` says, and what is quick to know."""

from __future__ import annotations

from pathlib import Path

from speclaunch.facts.project_settings import Ask, SettingsFrom
from speclaunch.home import distrust, judges_home, speclaunch_home

__all__ = ["Ask", "ask_mode", "has_judges"]


def ask_mode(given: Ask | None, project: SettingsFrom | None = None) -> Ask:
    """As `--ask` has it, else the project's file that counts in this directory.

    Raises InputError for a file with a mistake.
    """
    if given is not None:
        return given
    said = (project or SettingsFrom()).of(Path.cwd()).ask
    return Ask.AUTO if said is None else Ask(said.text)


def has_judges() -> bool:
    """True if any judge was added, by this user."""
    try:
        found = any(path.name[0] != "." for path in judges_home().iterdir())
    except OSError:
        return False
    if not found:
        return False
    from speclaunch.cpu.environment import cpu_engine_home  # noqa: PLC0415  with judges alone

    folders = (judges_home(), cpu_engine_home(speclaunch_home()))
    return not any(map(distrust, folders))

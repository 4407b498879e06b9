"""When an engine is asked for its opinion: what `--ask` says, and what is quick to know."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.home import judges_home

if TYPE_CHECKING:
    from speclaunch.facts.project_settings import SettingsFrom


class Ask(StrEnum):
    """The values of `--ask`."""

    AUTO = "auto"
    """Where one of exactly that release is at hand."""
    ALWAYS = "always"
    """It must be at hand."""
    NEVER = "never"


def ask_mode(given: Ask | None, project: SettingsFrom | None = None) -> Ask:
    """As `--ask` has it, else the project's file that counts in this directory.

    Raises InputError for a file with a mistake.
    """
    if given is not None:
        return given
    if project is None:
        from speclaunch.facts.project_settings import SettingsFrom  # noqa: PLC0415

        project = SettingsFrom()
    said = project.of(Path.cwd()).ask
    return Ask.AUTO if said is None else Ask(said.text)


def has_judges() -> bool:
    """Whether any judge was added."""
    try:
        return any(path.name[0] != "." for path in judges_home().iterdir())
    except OSError:
        return False

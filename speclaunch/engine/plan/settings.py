"""The settings of one engine version: the interface through which topics read a plan.

Implemented by finished plans and by plans that are being resolved (`resolution/working.py`).
"""

from __future__ import annotations

from typing import Any, Protocol

from speclaunch.engine.facts.facts import Facts, UnknownValueError

__all__ = ["NoSuchArgumentError", "Settings", "UnknownValueError"]


class NoSuchArgumentError(KeyError):
    """A bug in speclaunch: code requested an argument or variable that no release has."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"no SGLang release has an argument or variable {self.name!r}"


class Settings(Protocol):
    """The arguments, variables and facts of one deployment under one engine version.

    Each method raises UnknownValueError for an unknown value, and NoSuchArgumentError for a name
    that no release has.
    """

    @property
    def facts(self) -> Facts:
        """Known facts about the checkpoints and the hardware."""

    @property
    def algorithm(self) -> str | None:
        """The effective algorithm, uppercase, with aliases resolved; None without speculation."""

    @property
    def device(self) -> str:
        """The device type, without an index: cuda, cpu, npu, xpu, …."""

    def in_versions(self, specifier: str) -> bool:
        """True if the engine version is within a specifier set (`>=0.5.7,<0.5.11`)."""

    def value(self, name: str) -> Any:
        """Return the value resolved so far, else the user's value, else the parser's default."""

    def user_value(self, name: str) -> Any:
        """Return the user's value; None if not set."""

    def is_set(self, name: str) -> bool:
        """True if the user set the argument, to any value."""

    def env(self, name: str) -> str | None:
        """Return the value of an engine environment variable; None if it is not set."""

    def env_flag(self, name: str, default: bool = False) -> bool:
        """Return an environment variable as a boolean; `default` if unset or not a boolean."""

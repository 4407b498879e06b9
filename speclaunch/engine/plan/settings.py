"""What one engine version was asked for: the side of a Plan that the topics look at.

A plan has it when it is finished, and while it is being resolved (`resolution/working.py`).
"""

from __future__ import annotations

from typing import Any, Protocol

from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.unknown import UnknownValueError

__all__ = ["NoSuchArgumentError", "Settings", "UnknownValueError"]


class NoSuchArgumentError(KeyError):
    """Somebody asked a Plan for an argument or a variable that no release has: a bug of ours."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"no release of SGLang has an argument or a variable {self.name!r}"


class Settings(Protocol):
    """The arguments, the variables and the facts of one deployment under one engine version.

    Each of the methods raises UnknownValueError for what nobody can tell, and NoSuchArgumentError
    for what no release has.
    """

    @property
    def facts(self) -> Facts:
        """What is known of the checkpoints and the hardware."""

    @property
    def algorithm(self) -> str | None:
        """The effective algorithm, upper case, aliases resolved; None without speculation."""

    @property
    def device(self) -> str:
        """cuda, cpu, npu, xpu, …, without a number."""

    def in_versions(self, specifier: str) -> bool:
        """Whether the engine version is within a specifier set (`>=0.5.7,<0.5.11`)."""

    def value(self, name: str) -> Any:
        """The effective value: as resolved so far, else given, else the parser's default."""

    def given(self, name: str) -> Any:
        """The value that the user set; None when not set."""

    def is_given(self, name: str) -> bool:
        """Whether the user set the argument, to whatever value."""

    def env(self, name: str) -> str | None:
        """An environment variable of the engine; None when not set."""

    def env_flag(self, name: str, default: bool = False) -> bool:
        """A switch among the variables."""

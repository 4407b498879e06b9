"""What a render target is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from speclaunch.engine.command import Spelling
from speclaunch.record import record


@record
class Rendering:
    """A deployment to be written down for one engine version."""

    name: str
    description: str
    program: tuple[str, ...]
    """The engine's entry point, e.g. `python3 -m sglang.launch_server`."""
    spelling: Spelling
    env: Mapping[str, str | None]
    """Environment of the engine; None takes a variable away."""

    @property
    def title(self) -> str:
        """One line that says what this is."""
        text = f"{self.name} for SGLang {self.spelling.version}"
        return f"{text}: {self.description}" if self.description else text


class Renderer(ABC):
    """Writes a deployment in the language of one tool."""

    target: ClassVar[str]
    """The name after `--to`."""

    @abstractmethod
    def render(self, deployment: Rendering) -> str:
        """The text, ready to be used as it is. Secrets are asked for, never written."""

"""The commands of docs/tutorial.md, with the output that it shows."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from tests.support import TESTS

PAGE = TESTS.parent / "docs" / "tutorial.md"
LEFT_OUT = "…"
"""A line that stands for lines that the page does not show."""


@dataclass(frozen=True)
class Step:
    """A command of the page and the lines shown below it."""

    text: str
    shown: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The arguments behind `speclaunch`."""
        return shlex.split(self.text)[1:]

    @property
    def on_the_engine(self) -> bool:
        """True for what the reader runs on the CPU engine."""
        return "laptop.yaml" in self.text or self.words[0] in ("engine", "ps", "stop")

    def missing(self, output: str) -> list[str]:
        """Return the shown lines that `output` lacks; runs of blanks count as one."""
        lines = {" ".join(line.split()) for line in output.splitlines()}
        return [one for one in self.shown if one != LEFT_OUT and " ".join(one.split()) not in lines]


def steps() -> list[Step]:
    """Return the commands in order: `bash` blocks, and the lines after `$` of `console` blocks."""
    found = []
    for kind, text in re.findall(r"^```(bash|console)\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        lines = [f"$ {line}" for line in text.splitlines()] if kind == "bash" else text.splitlines()
        for line in lines:
            if line.startswith("$ "):
                found.append(Step(line[2:]))
            else:
                found[-1] = Step(found[-1].text, (*found[-1].shown, line))
    return found

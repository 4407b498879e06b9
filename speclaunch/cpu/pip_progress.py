"""What pip is doing, told while it is silent: it prints nothing for the minutes of a download."""

import re
import time
from pathlib import Path

from speclaunch.cpu.steps import Say
from speclaunch.heartbeat import Growth, announced_bytes, duration

_DOING = ("Collecting", "Downloading", "Using cached", "Processing", "Building", "Installing")
_AFTER_NAME = re.compile(r"[^\w.-].*|-\d.*")
"""The rest of a package's name: its version, a file's other fields."""


def _package(line: str) -> str:
    """Return what pip does and the package, without versions, places and lists."""
    verb, _, rest = line.strip().partition(" ")
    if verb == "Installing":
        return "Installing packages"
    if rest.startswith("cached "):
        verb, rest = "Using cached", rest.removeprefix("cached ")
    name = rest.split(" ", 1)[0].rpartition("/")[2]
    return f"{verb} {_AFTER_NAME.sub('', name)}".strip()


class PipProgress:
    """Passes on pip's lines, and between them what came into ``scratch`` and how fast.

    ``scratch`` is the folder that pip has for its TMPDIR: what it downloads lies there until all
    of it is installed. With ``single``, one package comes, so that what pip announces is all.
    """

    def __init__(self, scratch: Path, say: Say, *, single: bool) -> None:
        self._growth = Growth(scratch, suffix=".whl")  # pip's cache has copies there meanwhile
        self._say = say
        self._single = single
        self._doing = "starting pip"
        self._began = time.monotonic()

    def line(self, line: str) -> None:
        """A line of pip; those that tell what it is doing are passed on."""
        if not line.strip().startswith(_DOING):
            return
        if self._single and (announced := announced_bytes(line)) is not None:
            self._growth.expected = announced
        self._doing = _package(line)
        self._say(self._doing)

    def tick(self) -> None:
        """A second has passed."""
        downloading = "" if self._doing.startswith("Installing") else f"{self._growth.text()}; "
        self._say(f"{downloading}{duration(time.monotonic() - self._began)}; {self._doing}")

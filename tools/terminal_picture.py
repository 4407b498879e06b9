"""A picture of a real terminal session: python tools/terminal_picture.py OUT.svg COMMAND…

Runs the command in tmux and writes its last screen, with colors, as an SVG that loads nothing
else. PICTURE_SIZE (`80x24`) is the size of the terminal; PICTURE_SECONDS takes the picture of a
command that does not end after that time.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH, HEIGHT = map(int, os.environ.get("PICTURE_SIZE", "100x40").split("x"))
LIMIT_SECONDS = float(os.environ.get("PICTURE_SECONDS", "180"))
SESSION = f"speclaunch-picture-{os.getpid()}"


def tmux(*words: str) -> str:
    done = subprocess.run(["tmux", *words], capture_output=True, text=True, check=True)
    return done.stdout


def capture(command: list[str]) -> str:
    """The final screen of a command, as text with ANSI colours."""
    tmux("new-session", "-d", "-s", SESSION, "-x", str(WIDTH), "-y", str(HEIGHT), "sh")
    try:
        line = f"clear; {shlex.join(command)}; echo SESSION-OVER; sleep 60"
        tmux("send-keys", "-t", SESSION, line, "Enter")
        deadline = time.monotonic() + LIMIT_SECONDS
        screen = ""
        while time.monotonic() < deadline and "SESSION-OVER\n" not in screen:
            time.sleep(0.5)
            screen = tmux("capture-pane", "-p", "-t", SESSION)
        return tmux("capture-pane", "-e", "-p", "-t", SESSION)
    finally:
        tmux("kill-session", "-t", SESSION)


def main() -> int:
    target, command = Path(sys.argv[1]), sys.argv[2:]
    shown = Text.from_ansi(f"\x1b[1m$ {shlex.join(command)}\x1b[0m\n")
    screen = capture(command).split("SESSION-OVER")[0].rstrip()
    for known in (os.environ.get("SPECLAUNCH_HOME"), str(Path.home())):
        if known:  # a picture for everybody, not of this machine
            screen = screen.replace(known, "~")
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(shown, Text.from_ansi(screen), sep="")
    svg = console.export_svg(title="speclaunch")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    target.write_text(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main())

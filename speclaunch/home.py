"""Where speclaunch keeps what it makes: the CPU engine, tiny models, logs of runs."""

from __future__ import annotations

import os
from pathlib import Path


def speclaunch_home() -> Path:
    """`SPECLAUNCH_HOME`, else the user's cache directory. Not created here."""
    chosen = os.environ.get("SPECLAUNCH_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    # The XDG base directory specification; platformdirs would say the same, and its import alone
    # takes longer than reading a catalogue.
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "speclaunch"


JUDGE_RECORD = "judge.json"
"""The file of a judge that says what it is."""


def judges_home() -> Path:
    """Where the judges are that were added, a folder each. Not created here."""
    return speclaunch_home() / "judges"

"""Where speclaunch keeps what it makes: the CPU engine, tiny models, logs of runs."""

from __future__ import annotations

import os
from pathlib import Path


def speclaunch_home() -> Path:
    """`SPECLAUNCH_HOME`, else the user's cache directory. Not created here."""
    chosen = os.environ.get("SPECLAUNCH_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs  # noqa: PLC0415 - not needed where the home is named

    return Path(platformdirs.user_cache_dir("speclaunch", appauthor=False))

"""A question to a release's own validation, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct


class EngineQuestion(Struct, frozen=True):
    """One command, as it would be started."""

    words: tuple[str, ...]
    """The server's arguments, as argv words; paths of models as they are given."""
    env: tuple[tuple[str, str], ...]
    """Environment of the deployment."""
    machine: str
    """The hardware to pretend, as it is declared: `h200:8`, `cpu`."""
    folder: Path | None
    """Against which relative paths are read; an empty one where it is None."""
    configs: tuple[tuple[str, str], ...] = ()
    """Model id as written, text of its config.json: models that are known without being on disk."""


class EngineAnswer(Struct, frozen=True):
    """What the release says to one command."""

    accepted: bool | None
    """None: not judged; `why` says the reason (no config.json, hang, death, garbage, …)."""
    release: str
    """The version that was asked."""
    why: str
    """The engine's own words (the last exception's text, the parser's error), or why there are
    none."""
    kind: str
    """The exception's class; `SystemExit` for the parser."""
    place: str
    """`srt/server_args.py:1234`, the line that refused, relative to the sglang package; of an error
    of the parser the argument, `--tp-size`."""
    resolved: Mapping[str, Any] = {}
    """The values after resolution, by SGLang's names; empty where it refused."""
    line: str = ""
    """The line of source that refused, where it can be read."""

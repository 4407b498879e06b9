"""Question to a release's own validation, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct


class EngineQuestion(Struct, frozen=True):
    """Command to validate, exactly as it would be started."""

    words: tuple[str, ...]
    """Server arguments as argv tokens; model paths as written."""
    env: tuple[tuple[str, str], ...]
    """Environment of the deployment."""
    machine: str
    """Declared hardware to emulate: `h200:8`, `cpu`."""
    folder: Path | None
    """Root of relative paths; None: an empty folder."""
    configs: tuple[tuple[str, str], ...] = ()
    """Id, as written, and config.json text of each known model that is not on disk."""


class EngineAnswer(Struct, frozen=True):
    """Verdict of the release on one command."""

    accepted: bool | None
    """None: no verdict, with the reason in `why` (no config.json, hang, crash, invalid answer)."""
    release: str
    """Release that was queried."""
    why: str
    """The engine's message (the last exception's text, the parser's error), or why there is
    none."""
    kind: str
    """Class name of the exception; `SystemExit` for a parser error."""
    place: str
    """Source line of the refusal, relative to the sglang package: `srt/server_args.py:1234`. For a
    parser error, the argument: `--tp-size`."""
    resolved: Mapping[str, Any] = {}
    """Resolved values, by SGLang's names; empty after a refusal."""
    line: str = ""
    """Text of the refusing source line, if readable."""

"""Documents on disk: small files, written atomically and read completely."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclaunch.reads.bounded import read_regular

_MAX_BYTES = 64 << 20


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document, readable by this user only. Raises OSError; the old file is then
    as it was."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    data = json.dumps(document, indent=1, default=str).encode() + b"\n"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:  # an interrupt, too
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """The document of a file; None when there is none, or it is no JSON object."""
    try:
        document = json.loads(read_regular(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def write_private(path: Path, text: str) -> None:
    """Write a new file that this user alone may read, in the place of an old one."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)

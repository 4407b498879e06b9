"""Writes the facts of a checkpoint: the same bytes for the same facts, the file whole or not."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from speclaunch.facts.checkpoint_file import (
    FORMAT,
    MOST_BYTES_OF_FILE,
    CheckpointFile,
    file_of,
    read_file,
)
from speclaunch.facts.repository_facts import refuse_a_way_out
from speclaunch.facts.shorten_layers import shortened
from speclaunch.reads.safe_json import UnreadableFileError

_WIDE = 100


def text_of(found: CheckpointFile) -> str:
    """The file: keys in the order of the format, those of objects sorted, ASCII, one line feed at
    the end. What is not known is left out."""
    weights: dict[str, Any] = {}
    if found.weight_bytes is not None:
        weights = {"bytes": found.weight_bytes, "exact": found.weights_exact}
        weights |= _known({"source": found.weights_source})
    said = {
        "format": FORMAT,
        "model": found.model,
        "kind": found.kind,
        "source": found.source,
        "also": list(found.also),
        "read": found.read,
        "confidence": found.confidence,
        "revision": found.revision,
        "config": shortened(found.config),
        "unread": sorted(found.unread),
        "quantization_file": shortened(found.quantization_file),
        "weights": weights,
        "mtp_weights": found.mtp_weights,
        "has_token_map": found.has_token_map,
        "gated": found.gated,
        "tokenizer": _known({"tokens": found.tokenizer_size, "digest": found.tokenizer_digest}),
        "tensors": found.tensors,
        "draft": found.draft,
    }
    return _text(_known(said), 0) + "\n"


def keep(folder: Path, found: CheckpointFile) -> tuple[Path, bool]:
    """Write the facts below a folder; the path, and whether the file is another one than before.

    A file that differs in nothing but the day on which it was read stays. What is written is read
    back before it takes its place. Raises UnreadableFileError and OSError; the old file is then as
    it was, and nothing is written outside of the folder.
    """
    path = file_of(folder, found.model)
    if path is None:
        raise UnreadableFileError(f"{found.model!r} is not a name of the form ORGANISATION/NAME")
    refuse_a_way_out(folder, path)
    with contextlib.suppress(UnreadableFileError):
        before = read_file(path, found.model)
        if replace(before, read=found.read) == found:
            return path, False
    data = text_of(found).encode("ascii")
    if len(data) > MOST_BYTES_OF_FILE:
        raise UnreadableFileError(
            f"the facts of {found.model} have {len(data)} bytes, more than {MOST_BYTES_OF_FILE}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    refuse_a_way_out(folder, path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        temporary.unlink()
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        if read_file(temporary, found.model) != found:
            raise UnreadableFileError(
                f"the facts of {found.model} do not read as they were written"
            )
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return path, True


def _known(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if value not in (None, [], {})}


def _text(value: Any, depth: int) -> str:
    compact = json.dumps(value, sort_keys=depth > 0)
    if not isinstance(value, Mapping) or (depth > 0 and len(compact) + depth <= _WIDE):
        return compact
    inside = " " * (depth + 1)
    items = sorted(value.items()) if depth else value.items()
    lines = (f"{inside}{json.dumps(key)}: {_text(inner, depth + 1)}" for key, inner in items)
    return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"

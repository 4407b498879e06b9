"""What released engines set by the memory of a GPU, as tools/auto_memory.py asked them."""

from __future__ import annotations

import json
from typing import Any

from tests.support import TESTS

DATA = TESTS / "engine" / "plan" / "auto_memory.json"
FIELDS = ("chunked_prefill_size", "max_bs", "bs", "prefill", "prefill_bs", "mem_fraction_static")


def document() -> dict[str, Any]:
    """The file as it is: `gpus`, `lists`, `releases`."""
    found: dict[str, Any] = json.loads(DATA.read_text())
    return found


def records() -> dict[str, list[dict[str, Any]]]:
    """The cells of each release, with the lists in them."""
    data = document()
    lists, releases = data["lists"], data["releases"]
    found: dict[str, list[dict[str, Any]]] = {}
    for version, table in releases.items():
        rows = releases[table] if isinstance(table, str) else table
        found[version] = [
            _cell(gpu, key, row, lists) for gpu, keys in rows.items() for key, row in keys.items()
        ]
    return found


def _cell(gpu: str, key: str, row: list[Any], lists: list[list[int]]) -> dict[str, Any]:
    tp, _, algorithm = key.partition(" ")
    named = dict(zip(FIELDS, row, strict=True))
    named |= {"bs": lists[named["bs"]], "prefill_bs": lists[named["prefill_bs"]]}
    said = None if algorithm == "none" else algorithm
    return {"gpu": gpu, "tp": int(tp), "algorithm": said, **named}

"""The stored configurations, checkpoints and verdicts, written by tools/engine_verdicts.py.

`configurations.json` holds the configurations and the configs of the checkpoints that they name;
`verdicts/<version>.jsonl.xz` what that engine said of each, on each machine it was asked for.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.support import TESTS

HERE = TESTS / "conformance"
CONFIGURATIONS = HERE / "configurations.json"
VERDICTS = HERE / "verdicts"

MACHINES: dict[str, dict[str, Any]] = {
    "h200": {
        "name": "NVIDIA H200",
        "device": "cuda",
        "count": 8,
        "memory_mib": 143771,
        "capability": 90,
    },
    "b200": {
        "name": "NVIDIA B200",
        "device": "cuda",
        "count": 8,
        "memory_mib": 183359,
        "capability": 100,
    },
    "cpu": {"name": "cpu", "device": "cpu", "count": 0, "memory_mib": None, "capability": None},
}
"""What the engine is told that it runs on."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one engine said of one configuration on one machine."""

    id: str
    engine: str
    machine: str
    words: tuple[str, ...]
    """The command line, after `sglang serve`."""
    env: Mapping[str, str]
    verdict: str
    """accepted, refused, usage_error; artefact: the pretence failed, nothing was learnt."""
    stage: str = ""
    error: str = ""
    message: str = ""
    where: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Of an accepted one: the engine's fields after resolution, by its own names."""

    @property
    def accepts(self) -> bool:
        return self.verdict == "accepted"


def versions() -> list[str]:
    """The engines with stored verdicts."""
    from packaging.version import Version

    return sorted((p.name.removesuffix(".jsonl.xz") for p in VERDICTS.glob("*.xz")), key=Version)


@lru_cache(maxsize=1)
def models() -> dict[str, dict[str, Any]]:
    """The `config.json` of each checkpoint, by the path that configurations name it with."""
    found = json.loads(CONFIGURATIONS.read_text())["models"]
    return {f"models/{name}": config for name, config in found.items()}


def configurations() -> list[dict[str, Any]]:
    """The records of the configurations."""
    found: list[dict[str, Any]] = json.loads(CONFIGURATIONS.read_text())["configurations"]
    return found


@lru_cache(maxsize=2)
def load(version: str) -> tuple[Said, ...]:
    """Everything that an engine said."""
    text = lzma.decompress((VERDICTS / f"{version}.jsonl.xz").read_bytes()).decode()
    return tuple(
        Said(
            record["id"],
            version,
            machine,
            tuple(record["words"]),
            record.get("env", {}),
            **said,
        )
        for record in map(json.loads, text.splitlines())
        for machine, said in record["said"].items()
    )


def store(version: str, records: Iterable[Mapping[str, Any]]) -> Path:
    """Write the verdicts of one engine; the same records are the same bytes."""
    lines = [json.dumps(record, sort_keys=True, separators=(",", ":")) for record in records]
    VERDICTS.mkdir(exist_ok=True)
    path = VERDICTS / f"{version}.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode() + b"\n", preset=9))
    return path

"""What finally served: remembered for the same recipe on the same engine and hardware."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclaunch.engine.canonical import canonical
from speclaunch.engine.command import is_secret_argument, is_secret_variable
from speclaunch.facts.hardware import Hardware
from speclaunch.home import speclaunch_home
from speclaunch.launch.files import read_json, write_json
from speclaunch.recipe.schema import Deployment

_NOT_MEMORY = frozenset({"host", "port", "served_model_name", "nccl_port"})
"""Server arguments that do not decide whether the memory is enough."""


@dataclass(frozen=True, slots=True)
class LastGood:
    """Changes against the recipe with which it served, when, and in which launch."""

    changes: Mapping[str, Any]
    since: float
    run: str
    tokens: int | None = None


def key(deployment: Deployment, version: str, hardware: Hardware | None) -> str:
    """What a memory is for: the recipe's settings as composed, the engine version, the hardware.

    Any other argument or variable gives another key: a changed recipe begins anew. Secrets and
    addresses do not count.
    """
    args = {
        canonical(name): value
        for name, value in deployment.args.items()
        if canonical(name) not in _NOT_MEMORY and not is_secret_argument(name)
    }
    env = {n: v for n, v in deployment.engine.env.items() if not is_secret_variable(n)}
    machine: list[Any] = []
    if hardware is not None:
        gpus = [(gpu.name, gpu.memory_bytes) for gpu in hardware.gpus]
        machine = [hardware.name, hardware.count, hardware.memory_mib, gpus]
    text = json.dumps([deployment.name, args, env, version, machine], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def recall(name: str) -> LastGood | None:
    """What served under a key; None when nothing is known."""
    document = read_json(_path(name))
    if document is None:
        return None
    changes, since = document.get("changes"), document.get("since")
    if not isinstance(changes, dict) or not changes or not isinstance(since, int | float):
        return None
    tokens = document.get("tokens")
    run = str(document.get("run", ""))
    return LastGood(changes, float(since), run, tokens if isinstance(tokens, int) else None)


def remember(name: str, changes: Mapping[str, Any], run: str, tokens: int | None) -> None:
    """Note what served; without changes the recipe served as it is, and nothing is kept.

    A disk that cannot be written is no reason to stop: the next launch walks the ladder again.
    """
    if not changes:
        forget(name)
        return
    document = {
        "version": 1,
        "changes": dict(changes),
        "since": time.time(),
        "run": run,
        "tokens": tokens,
    }
    with contextlib.suppress(OSError):
        _path(name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(_path(name), document)


def forget(name: str) -> None:
    """It did not serve after all."""
    with contextlib.suppress(OSError):
        _path(name).unlink()


def _path(name: str) -> Path:
    return speclaunch_home() / "state" / "last-good" / f"{name}.json"

"""Where checkpoints are on this machine: directories, and the cache of the hub."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from speclaunch.doctor.machine_facts import Hub, Model
from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.find_checkpoint import expanded, hub_cache, hub_home
from speclaunch.facts.hub_client import OFFLINE, TRUE
from speclaunch.reads.bounded import read_regular

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def read_hub(env: Mapping[str, str], home: Path) -> Hub:
    """The hub as a process with `env` would use it (huggingface_hub constants.py)."""
    return Hub(
        hub_cache(env, home),
        _token(env, hub_home(env, home)),
        next((name for name in OFFLINE if _is_true(env.get(name))), None),
        _is_true(env.get("SGLANG_USE_MODELSCOPE")),
    )


def read_model(
    role: str, name: str, hub: Hub, made: Path, known: Checkpoint | UnknownFact | None = None
) -> Model:
    """What of a checkpoint is here. `made`: where the tiny models are made; `known`: its facts."""
    model = Model(
        role,
        name,
        checkpoint=known if isinstance(known, Checkpoint) else None,
        unknown=known if isinstance(known, UnknownFact) else None,
    )
    if "://" in name:
        return replace(model, is_url=True)
    try:
        path = _as_path(model, expanded(name, Path()), made)
    except OSError:  # there, and not ours to look into
        return replace(model, is_path=True, readable=False)
    return path or _in_cache(model, hub.cache / f"models--{name.replace('/', '--')}")


def _as_path(model: Model, path: Path, made: Path) -> Model | None:
    """A model that is a directory or a file; None for a name on the hub. Raises OSError."""
    found = replace(model, is_path=True)
    if path.is_file():  # one file of GGUF
        return replace(found, present=True, weight_files=True)
    if path.is_dir():
        has_config = (path / "config.json").is_file()
        return replace(found, present=has_config, weight_files=_weights(path))
    if path.parent == made:
        return replace(found, generated=True)
    means_path = model.name.startswith(("/", "~", "./", "../")) or model.name.count("/") > 1
    return found if means_path else None


def _in_cache(model: Model, folder: Path) -> Model:
    """A model of the hub's cache; `snapshots` holds links to the files of each revision."""
    unfinished, size = _unfinished(folder)
    model = replace(model, unfinished=unfinished, unfinished_bytes=size)
    try:
        snapshots = [file.parent for file in folder.glob("snapshots/*/config.json")]
        whole = any(_weights(snapshot) for snapshot in snapshots)
    except OSError:
        return replace(model, readable=False)
    # with a configuration alone somebody looked at it, and nobody downloaded it
    return replace(model, present=whole, weight_files=whole if snapshots else None)


def _weights(directory: Path) -> bool:
    return any(file.name.endswith(_WEIGHTS) for file in directory.iterdir())


def _token(env: Mapping[str, str], base: Path) -> str | None:
    """Where a token is; the hub's library looks in this order."""
    for name in _TOKENS:
        if env.get(name, "").strip():
            return name
    chosen = env.get("HF_TOKEN_PATH")
    path = expanded(chosen, base) if chosen else base / "token"
    with contextlib.suppress(OSError):
        if read_regular(path).strip():
            return str(path)
    return None


def _unfinished(folder: Path) -> tuple[int, int]:
    """Downloads that were begun: how many, and how much of them is there."""
    sizes: list[int] = []
    with contextlib.suppress(OSError):
        for file in folder.glob("blobs/*.incomplete"):
            sizes.append(file.stat().st_size)
    return len(sizes), sum(sizes)


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in TRUE

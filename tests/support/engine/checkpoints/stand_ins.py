"""Stand-ins for the tiny drafts where there is no torch to write them: the same names and shapes,
the same config and token maps, other numbers."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import TESTS

from . import safetensors_bytes
from .safetensors_bytes import Model, Tensor

FILE = TESTS / "engine" / "checkpoints" / "stand_ins.json"


def describe(models: Mapping[str, Path]) -> dict[str, Any]:
    """What stand_ins.json says of each tiny model."""
    found: dict[str, Any] = {}
    for name, folder in sorted(models.items()):
        model = safetensors_bytes.read(folder)
        found[name] = {
            "config": model.config,
            "tensors": {key: [one.dtype, one.shape] for key, one in model.tensors.items()},
        }
        if "d2t" in model.tensors:
            found[name]["d2t"] = model.tensors["d2t"].numbers()
        zeros = [key for key, one in model.tensors.items() if not any(one.data)]
        found[name]["zeros"] = zeros
    return found


def write_all(folder: Path) -> dict[str, Path]:
    """All of them below a folder."""
    said = json.loads(FILE.read_text())
    for name, one in said.items():
        stand_in(one).write(folder / name)
    return {name: folder / name for name in said}


def stand_in(said: Mapping[str, Any]) -> Model:
    """One of them."""
    noise = random.Random(7)
    tensors = {}
    for name, (dtype, shape) in said["tensors"].items():
        tensors[name] = _tensor(dtype, shape, noise, said, name)
    return Model(said["config"], tensors, {"tokenizer.json": _tokenizer()})


def _tensor(
    dtype: str, shape: list[int], noise: random.Random, said: Mapping[str, Any], name: str
) -> Tensor:
    count = 1
    for size in shape:
        count *= size
    if name == "d2t":
        return Tensor(dtype, shape, struct.pack(f"<{count}q", *said["d2t"]))
    if name == "t2d":
        known = {token + at for at, token in enumerate(said["d2t"])}
        return Tensor(dtype, shape, bytes(token in known for token in range(count)))
    if name in said["zeros"]:
        return Tensor(dtype, shape, bytes(4 * count))
    some = struct.pack("<64f", *(noise.uniform(-1, 1) for _ in range(64)))
    return Tensor(dtype, shape, (some * (count // 64 + 1))[: 4 * count])


def _tokenizer() -> bytes:
    vocabulary = {f"token{number}": number for number in range(512)}
    return json.dumps({"model": {"type": "BPE", "vocab": vocabulary}}).encode()

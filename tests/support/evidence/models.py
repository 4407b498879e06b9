"""Tiny checkpoints of the cases: a healthy one, changed. Written without torch, the same each time.

The healthy ones are those of the CPU engine, or, where it is not installed, stand-ins of the same
config, names and shapes (tests/engine/checkpoints/stand_ins.json): the rules see no difference.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.engine.checkpoints import safetensors_bytes, stand_ins
from tests.support.engine.checkpoints.safetensors_bytes import Model, Tensor

Change = Callable[[Model], None]
Healthy = Callable[[str], Model]


@dataclass(frozen=True)
class Made:
    """A checkpoint: a healthy one with other fields in its config (None removes one)."""

    base: str
    config: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = False
    """Its weights are made anew, of the shapes that its config gives."""
    bare: bool = False
    """It has no weights: for `load_format: dummy`, which invents them."""
    change: Change | None = None
    """What else is changed; None for nothing."""


def from_engine(folder: Path) -> Healthy:
    """The healthy checkpoints of an installed CPU engine."""
    return lambda name: safetensors_bytes.read(folder / name)


def from_stand_ins() -> Healthy:
    """The same where no engine is installed."""
    said = json.loads(stand_ins.FILE.read_text())
    return lambda name: stand_ins.stand_in(said[name])


def make(made: Made, healthy: Healthy) -> Model:
    """The checkpoint in memory."""
    model = copy.deepcopy(healthy(made.base))
    for name, value in made.config.items():
        if value is None:
            model.config.pop(name, None)
        else:
            model.config[name] = value
    if made.fresh:
        model.tensors = fresh(model.config)
    if made.change is not None:
        made.change(model)
    if made.bare:
        model.tensors = {}
    return model


def write(made: Made, healthy: Healthy, folder: Path) -> None:
    """The checkpoint on disk."""
    model = make(made, healthy)
    model.write(folder)
    if made.bare:
        (folder / "model.safetensors").unlink()


def fingerprint(made: Made, healthy: Healthy) -> str:
    """A short hash of the config and of the names, types and shapes of the tensors."""
    model = make(made, healthy)
    shapes = {name: [one.dtype, one.shape] for name, one in sorted(model.tensors.items())}
    told = json.dumps([model.config, shapes, model.shards], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def fresh(config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Small random weights of the three Llama classes, of the shapes that a config gives."""
    name = config["architectures"][0]
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    vocabulary = config["vocab_size"]
    eagle, eagle3 = name == "LlamaForCausalLMEagle", name == "LlamaForCausalLMEagle3"
    shapes: dict[str, list[int]] = {}
    if eagle:
        shapes |= {"fc.weight": [hidden, 2 * hidden], "fc.bias": [hidden]}
    if eagle3:
        wide = config.get("target_hidden_size") or hidden
        rows = config.get("draft_vocab_size") or vocabulary
        shapes |= {"fc.weight": [hidden, 3 * wide], "lm_head.weight": [rows, hidden]}
        if wide != hidden or config.get("own_embedding"):
            shapes["embed_tokens.weight"] = [vocabulary, hidden]
    if not eagle and not eagle3:
        shapes["model.embed_tokens.weight"] = [vocabulary, hidden]
        shapes["lm_head.weight"] = [vocabulary, hidden]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"{'' if eagle else 'model.'}layers.{layer}."
        if eagle3:
            prefix = "midlayer." if config["num_hidden_layers"] == 1 else f"midlayer.{layer}."
        inputs = 2 * hidden if eagle3 else hidden
        shapes |= {
            prefix + "self_attn.q_proj.weight": [queries, inputs],
            prefix + "self_attn.k_proj.weight": [keys, inputs],
            prefix + "self_attn.v_proj.weight": [keys, inputs],
            prefix + "self_attn.o_proj.weight": [hidden, queries],
            prefix + "mlp.gate_proj.weight": [inner, hidden],
            prefix + "mlp.up_proj.weight": [inner, hidden],
            prefix + "mlp.down_proj.weight": [hidden, inner],
            prefix + "post_attention_layernorm.weight": [hidden],
        }
        if not eagle:
            shapes[prefix + "input_layernorm.weight"] = [hidden]
        if eagle3:
            shapes[prefix + "hidden_norm.weight"] = [hidden]
    if not eagle:
        shapes["norm.weight" if eagle3 else "model.norm.weight"] = [hidden]
    noise = random.Random(11)
    found = {key: _numbers(shape, noise, key) for key, shape in shapes.items()}
    if eagle3 and config.get("draft_vocab_size"):
        found["d2t"] = Tensor("I64", [rows], bytes(8 * rows))
        marks = bytes(token < rows for token in range(vocabulary))
        found["t2d"] = Tensor("BOOL", [vocabulary], marks)
    return found


def _numbers(shape: list[int], noise: random.Random, name: str) -> Tensor:
    count = 1
    for size in shape:
        count *= size
    if "norm" in name:
        return Tensor("F32", shape, struct.pack(f"<{count}f", *[1.0] * count))
    some = [noise.uniform(-0.1, 0.1) for _ in range(509)]  # a prime: no two rows are alike
    numbers = (some * (count // 509 + 1))[:count]
    return Tensor("F32", shape, struct.pack(f"<{count}f", *numbers))

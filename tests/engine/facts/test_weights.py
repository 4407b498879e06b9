"""What is told from the names of weights, in the ways that models name their draft layers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from speclaunch.engine.facts.weight_files import CheckpointWeights, read_weights
from tests.support.loops import rows

LAYERS = 4
TARGET = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(LAYERS)]


@rows(
    "name",
    [
        "model.layers.4.eh_proj.weight",  # DeepSeek, GLM, Step, Bailing: the layer behind the last
        "model.layers.4.mlp.experts.0.up_proj.weight_scale",
        "model.layers.4.self_attn.q_proj.weight",
        "model.language_model.layers.4.enorm.weight",  # GLM-5 with vision
        "language_model.model.layers.4.enorm.weight",
        "mtp.layers.0.mlp.up_proj.weight",  # Qwen3-Next, Qwen3.5, Nemotron
        "language_model.mtp.layers.0.mlp.up_proj.weight",
        "mtp.fc.weight",
        "mtp.0.e_proj.weight",  # DeepSeek V4
        "model.mtp_layers.0.input_proj.weight",  # MiMo
        "model.mtp.layers.0.eh_proj.weight",  # LongCat, MiMo V2
        "model.mtp_block.0.self_attn.q_proj.weight",  # Ernie 4.5
        "model.mtp_emb_norm.0.weight",
        "model.layers.0.shared_head.norm.weight",  # a separate copy of the layer counts from 0
    ],
)
def test_the_names_of_draft_layers(name: str) -> None:
    assert CheckpointWeights(frozenset([*TARGET, name])).has_mtp(LAYERS) is True


@rows(
    "name",
    [
        "model.layers.3.mlp.down_proj.weight",
        "vision_tower.encoder.layers.26.mlp.fc1.weight",  # deeper than the language model
        "model.visual.layers.26.mlp.fc1.weight",
        "model.layers.4.embed_tokens.weight",  # the engine skips these copies
        "model.layers.4.shared_head.head.weight",
        "model.layers." + "9" * 5000 + ".mlp.weight",
        "model.smtp.weight",
        "lm_head.weight",
    ],
)
def test_the_names_of_other_layers(name: str) -> None:
    assert CheckpointWeights(frozenset([*TARGET, name])).has_mtp(LAYERS) is False


def test_without_the_number_of_layers_only_a_name_of_its_own_tells() -> None:
    assert CheckpointWeights(frozenset(TARGET)).has_mtp(None) is None
    assert CheckpointWeights(frozenset([*TARGET, "mtp.fc.weight"])).has_mtp(None) is True
    assert CheckpointWeights().has_mtp(LAYERS) is None


@rows(
    "names, there",
    [(["d2t"], True), (["model.d2t", "t2d"], True), (["t2d", "midlayer.x"], False), ([], False)],
)
def test_the_map_of_a_reduced_vocabulary(names: list[str], there: bool) -> None:
    assert CheckpointWeights(frozenset(names)).has_token_map() is there
    assert CheckpointWeights().has_token_map() is None


def safetensors(path: Path, names: list[str], size: int = 8) -> int:
    header = json.dumps({"__metadata__": {}, **{name: {} for name in names}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * size)
    return path.stat().st_size


def index(directory: Path, value: Any) -> None:
    (directory / "model.safetensors.index.json").write_text(json.dumps(value))


def test_files_without_an_index_are_taken_together(tmp_path: Path) -> None:
    whole = safetensors(tmp_path / "a.safetensors", ["x"])
    whole += safetensors(tmp_path / "b.safetensors", ["d2t"])
    found = read_weights(tmp_path)
    assert found == CheckpointWeights(frozenset({"x", "d2t"}), whole)


def test_an_index_goes_before_the_files(tmp_path: Path) -> None:
    size = safetensors(tmp_path / "a.safetensors", ["x"])
    index(tmp_path, {"weight_map": {"y": "a.safetensors"}})
    assert read_weights(tmp_path) == CheckpointWeights(frozenset({"y"}), size)
    index(tmp_path, {"metadata": {"total_size": 7.0}, "weight_map": {"y": "a.safetensors"}})
    assert read_weights(tmp_path).total_bytes == 7
    index(tmp_path, {"weight_map": {"y": "b.safetensors", "z": "a.safetensors"}})
    assert read_weights(tmp_path) == CheckpointWeights(
        frozenset({"y", "z"}), None, ("b.safetensors",)
    )


@pytest.mark.parametrize(
    "value",
    [
        [],
        1,
        None,
        {},
        {"weight_map": []},
        {"weight_map": {"x": 1}, "metadata": {"total_size": "1"}},
    ],
)
def test_an_odd_index(tmp_path: Path, value: Any) -> None:
    index(tmp_path, value)
    found = read_weights(tmp_path)
    assert found.total_bytes is None
    assert found.missing_files == ()


def test_many_missing_files_are_not_all_named(tmp_path: Path) -> None:
    safetensors(tmp_path / "a.safetensors", [])
    index(tmp_path, {"weight_map": {str(i): f"{i}.safetensors" for i in range(5000)}})
    assert len(read_weights(tmp_path).missing_files) == 100


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\xff" * 8,
        struct.pack("<Q", 1 << 62),
        struct.pack("<Q", 1 << 20) + b"{}",  # longer than the file
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b"\xff{}}",
        struct.pack("<Q", 100_000) + b"[" * 100_000,
    ],
)
def test_a_broken_head_tells_no_names(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    assert read_weights(tmp_path) == CheckpointWeights(None, len(data) or None)

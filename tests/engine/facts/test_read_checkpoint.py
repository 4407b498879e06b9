"""Facts of a checkpoint from its files, however odd they are."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.engine.facts.facts import Checkpoint, PartialConfig, UnknownFact, UnknownValueError
from speclaunch.engine.facts.read_checkpoint import from_config, read_checkpoint
from tests.support.loops import rows

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
    },
}


def write(directory: Path, name: str, value: Any) -> Path:
    (directory / name).write_text(json.dumps(value))
    return directory


def read(directory: Path, **options: bool) -> Checkpoint:
    found = read_checkpoint("m", directory, **options)
    assert isinstance(found, Checkpoint), found
    return found


def test_a_dense_model(tmp_path: Path) -> None:
    found = read(write(tmp_path, "config.json", LLAMA))
    assert found.architecture == "LlamaForCausalLM"
    assert found.dtype == "bfloat16"
    assert found.context_length == 131072
    assert (found.hidden_size, found.num_key_value_heads, found.vocab_size) == (4096, 8, 128256)
    assert found.mtp_layers is None
    assert found.mtp_weights is None
    assert found.quantization is None
    assert found.is_moe is False
    assert found.is_eagle3 is False


@rows(
    "changes, length",
    [
        ({"rope_scaling": None}, 131072),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 262144),
        ({"rope_scaling": {"factor": 4, "original_max_position_embeddings": 1}}, 131072),
        ({"max_sequence_length": 2048, "rope_scaling": None}, 2048),
        ({"seq_length": 1000, "max_seq_len": 5, "rope_scaling": {"factor": 2}}, 2000),
        ({"max_position_embeddings": None}, None),
        ({"max_position_embeddings": "many"}, None),
        ({"rope_scaling": {"factor": "8"}}, None),
        ({"rope_scaling": ["llama3"]}, 131072),
    ],
)
def test_the_context_is_derived_as_the_engine_does(
    changes: dict[str, Any], length: int | None
) -> None:
    assert from_config("m", {**LLAMA, **changes}).context_length == length


def test_nested_configurations() -> None:
    inner = {"hidden_size": 5, "num_attention_heads": 2, "dtype": "float16", "vocab_size": 9}
    for key in ("text_config", "llm_config", "language_config", "thinker_config"):
        found = from_config("m", {"architectures": ["X"], "torch_dtype": "bfloat16", key: inner})
        assert (found.hidden_size, found.vocab_size, found.dtype) == (5, 9, "float16")
    deep = {"thinker_config": {"text_config": inner}, "text_config": {"hidden_size": 1}}
    assert from_config("m", deep).hidden_size == 5
    outer = {"torch_dtype": "torch.bfloat16", "text_config": {"hidden_size": 7}}
    assert from_config("m", outer).dtype == "bfloat16"


def test_drafts() -> None:
    eagle3 = from_config(
        "m",
        {
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": 32000,
            "target_hidden_size": 4096,
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 17, 33]},
        },
    )
    assert eagle3.is_eagle3
    assert eagle3.draft_vocab_size == 32000
    assert eagle3.target_hidden_size == 4096
    assert eagle3.aux_hidden_layers == (1, 17, 33)
    dflash = from_config(
        "m",
        {
            "architectures": ["DFlashDraftModel"],
            "block_size": 16,
            "dflash_config": {"target_layer_ids": [1, 9]},
        },
    )
    assert dflash.block_size == 16
    assert dflash.aux_hidden_layers == (1, 9)


@rows(
    "config, method",
    [
        ({"quantization_config": {"quant_method": "FP8"}}, "fp8"),
        ({"text_config": {"quantization_config": {"quant_method": "awq"}}}, "awq"),
        ({"compression_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
        ({"quantization_config": "awq"}, None),
    ],
)
def test_quantization(config: dict[str, Any], method: str | None) -> None:
    assert from_config("m", config).quantization == method


def test_modelopt_says_it_in_a_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "config.json", LLAMA)
    write(tmp_path, "hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}})
    assert read(tmp_path).quantization == "modelopt_fp4"


@pytest.mark.parametrize(
    ("names", "there"),
    [
        (["model.layers.0.mlp.up", "model.layers.1.mlp.up"], False),
        (["model.layers.0.mlp.up", "model.layers.2.mlp.up"], True),
        (["model.layers.0.mlp.up", "mtp.layers.0.mlp.up"], True),
        (["model.layers.0.mlp.up", "model.mtp_layers.0.input_proj"], True),
        (["model.layers.0.eh_proj.weight"], True),
    ],
)
def test_whether_the_mtp_weights_are_in_the_index(
    tmp_path: Path, names: list[str], there: bool
) -> None:
    write(tmp_path, "config.json", {**LLAMA, "num_hidden_layers": 2, "num_nextn_predict_layers": 1})
    index = {"metadata": {"total_size": 123}, "weight_map": dict.fromkeys(names, "a.safetensors")}
    write(tmp_path, "model.safetensors.index.json", index)
    found = read(tmp_path)
    assert found.mtp_layers == 1
    assert found.mtp_weights is there
    assert found.weight_bytes == 123
    assert found.missing_files == ()
    (tmp_path / "b.safetensors").write_bytes(b"")
    assert read(tmp_path).missing_files == ("a.safetensors",)


def test_without_an_index_the_header_of_the_file_is_read(tmp_path: Path) -> None:
    write(tmp_path, "config.json", {**LLAMA, "num_hidden_layers": 1})
    header = json.dumps({"__metadata__": {}, "d2t": {}, "midlayer.x": {}}).encode()
    data = struct.pack("<Q", len(header)) + header + b"\0" * 50
    (tmp_path / "model.safetensors").write_bytes(data)
    found = read(tmp_path)
    assert found.has_token_map is True
    assert found.mtp_weights is False
    assert found.weight_bytes == len(data)


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\xff" * 100, struct.pack("<Q", 5) + b"{{{{{"])
def test_a_broken_weight_file_tells_nothing(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, "config.json", LLAMA)
    (tmp_path / "model.safetensors").write_bytes(data)
    assert read(tmp_path).mtp_weights is None


def test_vocabularies(tmp_path: Path) -> None:
    write(tmp_path, "config.json", LLAMA)
    words = {"a": 0, "b": 1}
    write(tmp_path, "tokenizer.json", {"model": {"vocab": words}, "added_tokens": []})
    plain = read(tmp_path, tokenizer=True)
    added = [{"content": "<s>", "id": 2}]
    write(tmp_path, "tokenizer.json", {"model": {"vocab": words}, "added_tokens": added})
    more = read(tmp_path, tokenizer=True)
    (tmp_path / "tokenizer.json").unlink()
    write(tmp_path, "vocab.json", words)
    same = read(tmp_path, tokenizer=True)
    assert (plain.tokenizer_size, more.tokenizer_size) == (2, 3)
    assert plain.tokenizer_digest == same.tokenizer_digest != more.tokenizer_digest
    assert read(tmp_path).tokenizer_digest is None
    unigram = {"model": {"vocab": [["a", -1.0], ["b", -2.0]]}}
    write(tmp_path, "tokenizer.json", unigram)
    assert read(tmp_path, tokenizer=True).tokenizer_digest == plain.tokenizer_digest


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "does not contain an object"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
        (b'{"a": "' + b"x" * (9 << 20) + b'"}', "bytes, more than"),
    ],
)
def test_a_hostile_config_is_an_unknown_fact(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "config.json").write_bytes(data)
    found = read_checkpoint("m", tmp_path)
    assert isinstance(found, UnknownFact)
    assert said in found.why


@pytest.mark.thorough
def test_fifty_megabytes_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"a": "' + b"x" * (50 << 20) + b'"}')
    tracemalloc.start()
    assert isinstance(read_checkpoint("m", tmp_path), UnknownFact)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20 << 20


def test_no_file_at_all(tmp_path: Path) -> None:
    assert isinstance(read_checkpoint("m", tmp_path), UnknownFact)
    (tmp_path / "config.json").mkdir()
    assert isinstance(read_checkpoint("m", tmp_path), UnknownFact)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                *LLAMA,
                "text_config",
                "eagle_config",
                "dflash_config",
                "quantization_config",
                "num_nextn_predict_layers",
                "sliding_window",
                "block_size",
                "num_experts",
            ]
        ),
        ANY,
    )
)
def test_nothing_in_a_config_makes_it_stumble(config: dict[str, Any]) -> None:
    found = from_config("m", {**LLAMA, **config})
    for field in ("hidden_size", "context_length", "vocab_size", "block_size", "mtp_layers"):
        value = getattr(found, field)
        assert value is None or (type(value) is int and 0 <= value <= 1 << 50)
    assert all(isinstance(name, str) for name in found.architectures)


def test_a_config_whose_class_nobody_read_is_still_a_checkpoint() -> None:
    config = PartialConfig("o/n", {"hidden_size": 64}, ["architectures", "text_config", "dtype"])
    found = from_config("o/n", config)
    assert found.hidden_size == 64
    with pytest.raises(UnknownValueError):
        _ = found.architectures

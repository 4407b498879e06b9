"""tools/model_index.py: every entry that ships holds, and what makes an entry is as it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.core.resources import models_dir
from speclaunch.engine.facts.checkpoint_file import LONG, SHORT, expanded
from speclaunch.engine.facts.record_checkpoint import ranges
from tests.support.loops import rows

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import model_index  # noqa: E402
from model_indexing import checking, comparing, entries, evidence, parameters, unread  # noqa: E402

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
}
BYTES = 2 * (2 * 1000 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 64)


def line(model: str, config: dict[str, Any], kind: str = "verbatim", **more: Any) -> dict[str, Any]:
    found = {"model": model, "role": "target", "source": "a/b@c:d", "source_kind": kind}
    found |= {"config": config, "confidence": "high", **more}
    if kind == "verbatim":
        found.setdefault("whole", config)
    return found


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


@pytest.mark.thorough
def test_every_entry_that_ships_holds() -> None:
    index = entries.read_all(models_dir())
    assert list(checking.problems_of(index, models_dir())) == []
    assert len(index) >= 400


@pytest.mark.thorough
def test_whole_config_has_nothing_unread() -> None:
    index = evidence.build([line("a/whole", LLAMA)], {})
    assert "unread" not in index["a/whole"]


@pytest.mark.thorough
def test_keys_that_peers_have_and_a_document_lacks_are_unread() -> None:
    stated = without(LLAMA, "attention_bias", "vocab_size")
    index = evidence.build([line("a/whole", LLAMA), line("a/said", stated, "stated in docs")], {})
    assert index["a/said"]["unread"] == ["attention_bias", "vocab_size"]


@pytest.mark.thorough
def test_a_key_that_is_null_wherever_it_stands_is_not_missed() -> None:
    stated = without(LLAMA, "rope_scaling")
    index = evidence.build([line("a/whole", LLAMA), line("a/said", stated, "stated in docs")], {})
    assert "unread" not in index["a/said"]


@pytest.mark.thorough
def test_peers_are_those_of_the_outer_architecture() -> None:
    outer = {"architectures": ["LlavaForConditionalGeneration"], "text_config": LLAMA}
    outer |= {"vision_config": {"hidden_size": 8}}
    lines = [
        line("a/whole", LLAMA),
        line("a/other", outer),
        line("a/said", LLAMA, "stated in docs"),
    ]
    assert "unread" not in evidence.build(lines, {})["a/said"]


@pytest.mark.thorough
def test_keys_that_no_peer_has_are_known_to_be_absent() -> None:
    other = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16}
    lines = [
        line("a/whole", LLAMA),
        line("a/other", other),
        line("a/said", LLAMA, "stated in docs"),
    ]
    assert "unread" not in evidence.build(lines, {})["a/said"]


def test_without_peers_every_key_of_any_config_may_be_there() -> None:
    stated = {"architectures": ["UnheardForCausalLM"], "hidden_size": 64}
    index = evidence.build([line("a/whole", LLAMA), line("a/said", stated, "stated in docs")], {})
    assert {"vocab_size", "torch_dtype", "intermediate_size"} <= set(index["a/said"]["unread"])


def test_two_names_of_one_key_are_one_key() -> None:
    stated = {**without(LLAMA, "torch_dtype"), "dtype": "bfloat16"}
    index = evidence.build([line("a/whole", LLAMA), line("a/said", stated, "stated in docs")], {})
    assert "unread" not in index["a/said"]


def test_entry_without_a_config_says_that_nothing_was_read() -> None:
    index = evidence.build([line("a/said", {}, "stated in docs", role="draft")], {})
    assert index["a/said"]["unread"] == ["config"]


def test_sibling_has_the_keys_of_its_base() -> None:
    base = {**LLAMA, "auto_map": {"AutoConfig": "x.Y"}}
    said = line("a/tuned", LLAMA, "derivative", base="a/whole")
    lines = [line("a/whole", LLAMA, whole=base), said]
    found = evidence.build(lines, {})["a/tuned"]
    assert found["config"] == base
    assert "unread" not in found


def test_quantised_sibling_does_not_keep_dtype_and_quantisation() -> None:
    said = line("a/fp8", {}, "derivative", base="a/whole", unread=["quantization_config"])
    found = evidence.build([line("a/whole", LLAMA), said], {})["a/fp8"]
    assert "quantization_config" in found["unread"]
    assert "torch_dtype" in found["unread"] and "torch_dtype" not in found["config"]


def test_sibling_by_the_whole_config_of_a_fine_tune_has_nothing_unread() -> None:
    stated = without(LLAMA, "attention_bias", "vocab_size")
    said = line("a/tuned", stated, "derivative", absent=["*"])
    assert "unread" not in evidence.build([line("a/whole", LLAMA), said], {})["a/tuned"]


def test_size_of_the_shapes_proves_that_nothing_is_quantised() -> None:
    quantised = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    lines = [line("a/whole", quantised), line("a/said", LLAMA, "stated in docs")]
    assert evidence.build(lines, {})["a/said"]["unread"] == ["quantization_config"]
    lines[1] |= {"weights_bytes": BYTES, "weights_source": "index"}
    found = evidence.build(lines, {})["a/said"]
    assert found["absent"] == ["quantization_config"]
    assert found["parameters_check"] == "exact"
    assert "unread" not in found


@pytest.mark.parametrize(
    ("size", "check"), [(BYTES, "exact"), (BYTES * 1.009, "exact"), (BYTES * 1.02, "unchecked")]
)
def test_exact_size_is_met_within_one_per_cent(size: float, check: str) -> None:
    entry = evidence.build([line("a/b", LLAMA, weights_bytes=round(size))], {})["a/b"]
    assert parameters.parameters_of(entry).found == entry["parameters_check"] == check


@pytest.mark.parametrize(("off", "check"), [(400, "rounded"), (1500, "unchecked")])
def test_rounded_size_is_met_within_its_rounding(off: int, check: str) -> None:
    said = line("a/b", LLAMA, weights_bytes_approx=BYTES + off, rounding=500)
    assert evidence.build([said], {})["a/b"]["parameters_check"] == check


@pytest.mark.parametrize(
    ("said", "rounding"),
    [("14.96Gi (rounded to 0.01 GiB)", round(0.005 * 2**30)), ("5.11 GB", 5_000_000)],
)
def test_rounding_is_as_the_source_writes_it(said: str, rounding: int) -> None:
    found = evidence.build([line("a/b", LLAMA, weights_bytes_approx=1, weights_source=said)], {})
    assert found["a/b"]["weights"]["rounding"] == rounding


def test_sources_keep_no_address_and_no_number_of_a_store() -> None:
    text = evidence.source_text(
        "https://huggingface.co/a/b/blob/main/config.json (HF page in the docs corpus); "
        "stored public file id 123 (the index names no repository for it)"
    )
    assert text == "hub: a/b (main/config.json); published file, repository not recorded"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model": "a/other"}, "set it to the file's place"),
        ({"kind": "guess"}, "kind guess"),
        ({"revision": "main"}, "is not a commit"),
        ({"read": "yesterday"}, "read on yesterday"),
        ({"surprise": 1}, "unknown keys surprise"),
        ({"parameters_check": "exact"}, "parameters_check is unchecked"),
        ({"config": {**LLAMA, "architectures": ["Unheard"]}}, "unknown architecture Unheard"),
        ({"source": "https://example.org"}, "remove the address"),
        ({"base": "no/such"}, "no entry"),
    ],
)
def test_check_names_what_is_wrong(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    index = evidence.build([line("a/b", LLAMA)], {})
    index["a/b"] |= change
    path = entries.place("a/b", tmp_path)
    path.parent.mkdir()
    path.write_text(entries.text_of(index["a/b"]))
    assert any(problem in found for found in checking.problems_of(index, tmp_path))


def test_check_notices_a_key_that_is_unread_and_not_said(tmp_path: Path) -> None:
    stated = line("a/said", without(LLAMA, "vocab_size"), "stated in docs")
    index = evidence.build([line("a/whole", LLAMA), stated], {})
    del index["a/said"]["unread"]
    for entry in index.values():
        entries.write(entry, tmp_path)
    (found,) = checking.problems_of(index, tmp_path)
    assert "unread is not up to date (vocab_size)" in found


def test_check_refuses_a_file_written_by_hand(tmp_path: Path) -> None:
    index = evidence.build([line("a/b", LLAMA)], {})
    entries.write(index["a/b"], tmp_path)
    assert list(checking.problems_of(index, tmp_path)) == []
    path = entries.place("a/b", tmp_path)
    path.write_text(json.dumps(index["a/b"]))
    assert any("as the tool writes it" in found for found in checking.problems_of(index, tmp_path))


@rows(
    "change, problem",
    [
        ({"hidden_size": 32}, "hidden size"),
        ({"vocab_size": 999}, "vocabulary"),
        ({"num_target_layers": 3}, "target layers"),
        ({"dflash_config": {"target_layer_ids": [0, 2]}}, "reads layers"),
    ],
)
def test_draft_that_does_not_fit_its_target_is_a_problem(
    change: dict[str, Any], problem: str
) -> None:
    draft = {"config": {**LLAMA, **change}, "draft": {"for": ["a/b"], "algorithm": "DFLASH"}}
    found = list(checking.pair_problems(draft, {"model": "a/b", "config": LLAMA}))
    assert len(found) == 1 and problem in found[0]


def test_compare_names_every_field_that_differs(tmp_path: Path) -> None:
    index = evidence.build([line("a/b", LLAMA)], {})
    (tmp_path / "a--b.json").write_text(json.dumps({**LLAMA, "vocab_size": 1}))
    (tmp_path / "a--c.json").write_text("{}")
    found = dict(comparing.with_configs(index, tmp_path))
    assert found["a/b config"].differ == ["vocab_size"]
    assert found["a/c"].differ == ["no entry"]


def test_second_source_is_compared_key_by_key_and_by_the_cache() -> None:
    entry = evidence.build([line("a/b", LLAMA)], {})["a/b"]
    same = {"hidden_size": 64, "num_attention_heads": 4, "dtype": "bfloat16", "unknown": 1}
    assert comparing.with_source(entry, same) == (3, [])
    whole = comparing.with_source(entry, {**LLAMA, "num_key_value_heads": 4})
    assert whole.differ == [
        "num_key_value_heads: 2, the other says 4",
        "KV elements a token: 128 and 256",
    ]


def test_only_another_repository_that_agrees_is_a_second_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models, lines = tmp_path / "models", tmp_path / "lines.jsonl"
    first = line("a/b", LLAMA, also=["liar/c@1:x", "near/c@1:x"])
    entries.write(evidence.build([first], {})["a/b"], models)
    said = [
        {"model": "a/b", "source": "a/b@1:other", "config": {"hidden_size": 1}},
        {"model": "a/b", "source": "liar/c@2:y", "config": {"hidden_size": 1}},
        {"model": "a/b", "source": "good/c@2:y", "config": {"hidden_size": 64}},
        {"model": "a/b", "source": "good/c@2:z", "config": {"hidden_size": 64}},
        {"model": "a/b", "source": "mute/c@2:y", "config": {"unknown": 1}},
    ]
    lines.write_text("".join(json.dumps(one) + "\n" for one in said))
    assert model_index.main(["--models", str(models), "second", str(lines), "--write"]) == 1
    assert entries.read_all(models)["a/b"]["also"] == ["good/c@2:y", "near/c@1:x"]
    told = capsys.readouterr().out
    assert "1 entries and 3 fields compared, 1 differ" in told
    assert "1 lines passed over" in told


def test_elements_of_latent_attention_are_those_of_its_rank() -> None:
    config = {"num_hidden_layers": 3, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert comparing.key_value_elements(config) == 3 * 576


def test_keys_that_the_product_reads_are_its_literals() -> None:
    read = unread.read_keys()
    assert {"rope_scaling", "kv_lora_rank", "auto_map", "num_experts"} <= read
    assert "initializer_range" not in read


NAMES = st.dictionaries(
    st.from_regex(r"[a-z]{1,2}(\.([0-9]|1[0-9]|[a-z]{1,2}%?)){0,3}", fullmatch=True),
    st.sampled_from([{"quant_algo": "FP8"}, {"quant_algo": "NVFP4", "group_size": 16}]),
    min_size=1,
)


@pytest.mark.thorough
@given(NAMES)
def test_ranges_stand_for_exactly_the_names(table: dict[str, Any]) -> None:
    short = {"x": {SHORT: ranges(table)}}
    assert expanded(short) == {"x": {LONG: table}}


def test_a_long_table_becomes_short() -> None:
    table = {
        f"model.layers.{layer}.mlp.experts.{expert}.up_proj": {"quant_algo": "FP8"}
        for layer in range(3, 60)
        for expert in range(128)
    }
    assert list(ranges(table)) == ["model.layers.[3-59].mlp.experts.[0-127].up_proj"]


def test_ranges_without_an_end_are_refused() -> None:
    hostile = {SHORT: {"a.[0-99999].b.[0-99999]": {}}}
    with pytest.raises(ValueError, match="more than 100000 layers"):
        expanded(hostile)


def test_building_twice_writes_the_same(tmp_path: Path) -> None:
    index = evidence.build([line("a/b", LLAMA)], {})
    assert entries.write(index["a/b"], tmp_path)
    again = evidence.refresh(entries.read_all(tmp_path))
    assert not entries.write(again["a/b"], tmp_path)

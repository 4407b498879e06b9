"""A checkpoint's facts as a file: what is kept says what the directory says, and nothing else."""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.core.reads.safe_json import UnreadableFileError, parse_object
from speclaunch.core.resources import models_dir
from speclaunch.engine.facts.checkpoint_file import FOLDER, CheckpointFile, checkpoint_of, read_file
from speclaunch.engine.facts.facts import Checkpoint, FactSource, Origin
from speclaunch.engine.facts.read_checkpoint import read_checkpoint
from speclaunch.engine.facts.record_checkpoint import publishable, store_facts, text_of
from speclaunch.engine.facts.record_checkpoint import recorded as facts_of
from speclaunch.engine.facts.tensors import stored_tensors
from speclaunch.measure.advice.checkpoints import FACTS, fact_value
from tests.support.loops import rows

CONFIG = {"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 2}
HERE = Origin(FactSource.REPOSITORY, "here")


def checkpoint(folder: Path, config: Mapping[str, Any] = CONFIG, **files: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {"config": config, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def weights(path: Path, header: Mapping[str, Any], body: int = 0) -> None:
    data = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(data)) + data + bytes(body))


def recorded(folder: Path) -> CheckpointFile:
    return facts_of(folder, "org/name", source="directory", read="2026-11-22")


def tensor(kind: str, shape: list[int], start: int, end: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [start, end]}


def same(folder: Path, kept: Path) -> None:
    """What the file says is what the directory says, fact by fact."""
    here = read_checkpoint("org/name", folder, tokenizer=True)
    _, path = kept, store_facts(kept, recorded(folder))[0]
    there = checkpoint_of(read_file(path, "org/name"), "org/name", HERE)
    assert isinstance(here, Checkpoint) and isinstance(there, Checkpoint)
    for fact in FACTS:
        if fact not in ("missing_files", "has_dspark_folder"):  # of the directory itself
            assert fact_value(there, fact) == fact_value(here, fact), fact


@pytest.mark.thorough
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.thorough)])
def test_every_published_config_is_kept_as_it_is(tmp_path: Path, step: int) -> None:
    entries = sorted(models_dir().glob("*/*.json"))
    assert len(entries) > 300
    seen = 0
    entries = entries[::step]
    for at, path in enumerate(entries):
        found = read_file(path, f"{path.parent.name}/{path.stem}")
        if found.is_read:
            seen += 1
            beside = {"hf_quant_config": found.quantization_file} if found.quantization_file else {}
            same(
                checkpoint(tmp_path / str(at), found.config, **beside), tmp_path / "kept" / str(at)
            )
    assert seen > len(entries) / 2


def test_weights_and_vocabulary_are_kept(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "a", tokenizer={"model": {"vocab": {"a": 0, "b": 1}}})
    header = {"__metadata__": {}, "d2t": tensor("I64", [4], 0, 32)}
    weights(folder / "model.safetensors", header | {"fc": tensor("BF16", [2, 3], 32, 44)}, 44)
    found = recorded(folder)
    assert (found.has_token_map, found.tokenizer_size) == (True, 2)
    assert found.weight_bytes == (folder / "model.safetensors").stat().st_size
    assert found.weights_source == "size of the files"
    assert found.tensors["shapes"] == {"d2t": ["I64", [4]], "fc": ["BF16", [2, 3]]}
    same(folder, tmp_path / "kept")


def test_an_index_is_kept_by_its_totals(tmp_path: Path) -> None:
    index = {
        "metadata": {"total_size": 16060522496},
        "weight_map": {"model.layers.2.eh_proj.weight": "model-00001-of-00002.safetensors"},
    }
    folder = checkpoint(tmp_path / "a", **{"model.safetensors.index": index})
    found = recorded(folder)
    assert (found.weight_bytes, found.mtp_weights) == (16060522496, True)
    assert found.weights_source == "total_size of the index"
    same(folder, tmp_path / "kept")


@pytest.mark.parametrize(
    "header",
    [
        {"t": 1},
        {"t": {"dtype": "F32"}},
        {"t": tensor("F32", [1], 8, 4)},
        {"t": tensor("F32", [1], -8, 4)},
        {"t": tensor("F32", [1], 0, 1 << 80)},
        {"t": {"dtype": 3, "shape": [1], "data_offsets": [0, 4]}},
        {"t": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}},
        {"t": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}},
        {"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}},
        {"t": {"dtype": "F32", "shape": [1], "data_offsets": {"a": 1}}},
    ],
)
def test_a_header_that_cannot_be_says_nothing_of_tensors(tmp_path: Path, header: Any) -> None:
    folder = checkpoint(tmp_path / "a")
    weights(folder / "model.safetensors", header)
    assert recorded(folder).tensors == {}


def test_very_many_tensors_are_counted_only(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "a")
    one = '"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    data = ("{" + ",".join(one % at for at in range(3000)) + "}").encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(data)) + data)
    found = recorded(folder)
    assert (found.tensors, found.has_token_map) == ({"count": 3000, "bytes": {"F32": 0}}, False)


def test_the_tensors_of_a_draft_are_known_without_its_files(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "a")
    header = {"d2t": tensor("I64", [4], 0, 32), "fc.weight": tensor("BF16", [2, 3], 32, 44)}
    weights(folder / "model.safetensors", header, 44)
    path, _ = store_facts(tmp_path / "kept", recorded(folder))
    there = checkpoint_of(read_file(path, "org/name"), "org/name", HERE)
    here = read_checkpoint("org/name", folder)
    assert isinstance(here, Checkpoint) and isinstance(there, Checkpoint)
    assert here.tensors is not None and there.tensors is not None

    def shapes(found: Checkpoint) -> Any:
        assert found.tensors is not None
        return {n: (t.dtype, t.shape) for n, t in found.tensors.headers.tensors.items()}

    assert shapes(here) == shapes(there)
    assert there.tensors.contents(["d2t"]) == {}
    assert there.tensors.integers("d2t") is None and there.tensors.row("fc.weight", 0) is None


@rows(
    "shapes",
    [
        {},
        [],
        {"a": 1},
        {"a": ["F32"]},
        {"a": ["X", [1]]},
        {"a": ["F32", "x"]},
        {"a": ["F32", [-1]]},
        {"a": ["F32", [1 << 49] * 40]},
        {"a": ["F32", [True]]},
        {"a": ["F32", [1] * 40]},
        {str(at): ["F32", [1]] for at in range(300)},
    ],
)
def test_tensors_that_cannot_be_are_not_known(shapes: Any) -> None:
    assert stored_tensors({"shapes": shapes}) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("_name_or_path", "meta-llama/x"),
        ("draft_path", "/home/me/draft"),
        ("cache", "~/models"),
        ("where", "C:\\models"),
        ("url", "https://me:pw@host/x"),
        ("api_key", "abc"),
        ("hub_token", "abc"),
        ("anything", "hf_abcdefghijklmnopqrstuv"),
        ("things", ["fine", "/not/fine"]),
    ],
)
def test_what_is_nobodys_business_is_left_out_and_said_to_be(
    tmp_path: Path, key: str, value: Any
) -> None:
    config = CONFIG | {"text_config": {key: value, "kept": 1}}
    kept, left = publishable(config)
    assert kept == CONFIG | {"text_config": {"kept": 1}}
    assert left == {key}
    text = text_of(recorded(checkpoint(tmp_path / "a", config)))
    assert str(value) not in text and f'"unread": ["{key}"]' in text
    assert str(tmp_path) not in text


@rows(
    "key, value",
    [
        ("mask_token", "<|MASK|>"),
        ("num_key_value_heads", 8),
        ("auto_map", {"AutoModel": "modeling_x.Model"}),
        ("auto_map", {"AutoModel": "org/repo--modeling_x.Model"}),
        ("eos_token_id", [1, 2]),
        ("rope_scaling", {"type": "yarn", "factor": 4.0}),
    ],
)
def test_what_rules_read_is_kept(key: str, value: Any) -> None:
    assert publishable({key: value}) == ({key: value}, set())


def test_the_same_facts_are_the_same_bytes(tmp_path: Path) -> None:
    one = checkpoint(tmp_path / "a", {"b": 1, "a": {"z": 1, "y": [2, 1]}})
    other = checkpoint(tmp_path / "b", {"a": {"y": [2, 1], "z": 1}, "b": 1})
    assert text_of(recorded(one)) == text_of(recorded(other))
    assert text_of(recorded(one)).endswith("}\n")


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "\ud800", "é\u202e\x1b[2J", 1 << 200])
def test_odd_values_read_as_they_were_written(tmp_path: Path, odd: Any) -> None:
    found = recorded(checkpoint(tmp_path / "a", {"x": odd}))
    path, new = store_facts(tmp_path / "kept", found)
    assert new and path.read_bytes().isascii()
    assert store_facts(tmp_path / "kept", found) == (path, False)


def test_another_day_alone_is_no_change(tmp_path: Path) -> None:
    found = recorded(checkpoint(tmp_path / "a"))
    path, _ = store_facts(tmp_path, found)
    before = path.read_bytes()
    assert store_facts(tmp_path, replace(found, read="2030-01-01")) == (path, False)
    assert path.read_bytes() == before
    assert store_facts(tmp_path, replace(found, read="2030-01-01", gated=True)) == (path, True)
    assert b"2030" in path.read_bytes()


def test_a_file_that_cannot_be_read_is_written_again(tmp_path: Path) -> None:
    found = recorded(checkpoint(tmp_path / "a"))
    path, _ = store_facts(tmp_path, found)
    path.write_text("{")
    assert store_facts(tmp_path, found) == (path, True)
    assert read_file(path, "org/name") == found


def test_others_may_read_it_and_no_draft_of_it_stays(tmp_path: Path) -> None:
    path, _ = store_facts(tmp_path / "kept", recorded(checkpoint(tmp_path / "a")))
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["../out", "org/../../out", "/tmp/out", "org/.git", "a/b/c", ""])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    found = replace(recorded(checkpoint(tmp_path / "a")), model=name)
    with pytest.raises(UnreadableFileError, match="ORGANIZATION/NAME"):
        store_facts(tmp_path / "deep" / "kept", found)
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize(
    "link", [".speclaunch", ".speclaunch/models", ".speclaunch/models/org", "file"]
)
def test_nothing_is_written_through_a_link_out_of_the_folder(tmp_path: Path, link: str) -> None:
    found = recorded(checkpoint(tmp_path / "a"))
    outside = tmp_path / "outside"
    (outside / "models" / "org").mkdir(parents=True)
    (outside / "name.json").write_text("precious")
    at = tmp_path / "repo" / (".speclaunch/models/org/name.json" if link == "file" else link)
    at.parent.mkdir(parents=True)
    at.symlink_to(outside / ("name.json" if link == "file" else ""))
    before = sorted(outside.rglob("*"))
    with pytest.raises(UnreadableFileError, match="links outside"):
        store_facts(tmp_path / "repo" / FOLDER, found)
    assert sorted(outside.rglob("*")) == before
    assert (outside / "name.json").read_text() == "precious"


def test_a_draft_that_waits_as_a_link_is_not_followed(tmp_path: Path) -> None:
    found = recorded(checkpoint(tmp_path / "a"))
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "kept" / "org").mkdir(parents=True)
    (tmp_path / "kept" / "org" / f".name.json.{os.getpid()}").symlink_to(victim)
    store_facts(tmp_path / "kept", found)
    assert victim.read_text() == "precious"


@pytest.mark.thorough
@pytest.mark.parametrize("one", [b"{},", b"[],", b'"a",', b"1,"])
def test_millions_of_values_are_not_parsed(one: bytes) -> None:
    with pytest.raises(UnreadableFileError, match="has more than 6000000 values"):
        parse_object(b'{"a":[' + one * 6_000_001 + b"1]}", "x.json")


@pytest.mark.parametrize(
    "config",
    [
        "[" * 5000 + "]" * 5000,
        '{"a":' * 60 + "1" + "}" * 60,
        '{"a": "' + "x" * (2 << 20) + '"}',
        "[]",
        "",
    ],
)
def test_a_hostile_config_is_refused_and_leaves_nothing(tmp_path: Path, config: str) -> None:
    folder = checkpoint(tmp_path / "a")
    (folder / "config.json").write_text(config)
    with pytest.raises(UnreadableFileError):
        store_facts(tmp_path / "kept", recorded(folder))
    assert not list((tmp_path / "kept").rglob("*.json*"))


def test_a_table_of_layers_that_ranges_cannot_say_stays_as_it_is(tmp_path: Path) -> None:
    for at, odd in enumerate(("{}", "a.[0-3].b", "a.007.b", "{0.__class__}", "%d")):
        table = {f"model.layers.{n}.mlp": {"quant_algo": "FP8"} for n in range(50)} | {odd: {}}
        config = CONFIG | {"quantization_config": {"quantized_layers": table}}
        found = recorded(checkpoint(tmp_path / str(at), config))
        path, _ = store_facts(tmp_path / "kept" / str(at), found)
        assert read_file(path, "org/name").config == config


@pytest.mark.thorough
@pytest.mark.parametrize(
    "ranges",
    [
        {"a.[0-999999].[0-999999].[0-999999]": 1},
        {f"a{at}.[0-99]": 1 for at in range(2000)},
    ],
)
def test_ranges_that_stand_for_too_much_are_refused(tmp_path: Path, ranges: Any) -> None:
    text = {"quantized_layer_ranges": ranges}
    for config in (text, {f"part{at}": {"x": text} for at in range(3)}):
        path, _ = store_facts(tmp_path, recorded(checkpoint(tmp_path / "a")))
        said = json.loads(path.read_text()) | {"config": config}
        path.write_text(json.dumps(said))
        with pytest.raises(UnreadableFileError, match="more than 100000 layers"):
            read_file(path, "org/name")


def test_tables_of_ranges_have_one_limit_together(tmp_path: Path) -> None:
    part = {"quantized_layer_ranges": {"a.[0-59999]": 1}}
    path, _ = store_facts(tmp_path, recorded(checkpoint(tmp_path / "a")))
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"config": {"one": part}}))
    assert read_file(path, "org/name")
    path.write_text(json.dumps(said | {"config": {"one": part, "other": part}}))
    with pytest.raises(UnreadableFileError, match="more than 100000 layers"):
        read_file(path, "org/name")


def test_what_does_not_read_as_it_was_written_does_not_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recorded(checkpoint(tmp_path / "a"))
    path, _ = store_facts(tmp_path / "kept", found)
    before = path.read_bytes()
    wrong = text_of(replace(found, gated=False))
    monkeypatch.setattr("speclaunch.engine.facts.record_checkpoint.text_of", lambda _: wrong)
    with pytest.raises(UnreadableFileError, match="change when they are read back"):
        store_facts(tmp_path / "kept", replace(found, gated=True))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]

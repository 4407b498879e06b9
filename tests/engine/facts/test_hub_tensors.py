"""Headers by requests for ranges, from a real server behind HF_ENDPOINT that may lie."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from speclaunch.engine.facts.hub import HubRefusedError, fetch_tensors
from tests.engine.facts.test_hub import drip, pour
from tests.engine.facts.test_safetensors_header import ONE, packed
from tests.support.hub_server import HubServer


def sized(**sizes: int) -> dict[str, Any]:
    return {"siblings": [{"rfilename": name, "size": size} for name, size in sizes.items()]}


def test_one_file(hub: HubServer) -> None:
    hub.answers["model.safetensors"] = packed(ONE)
    found = fetch_tensors("org/name")
    assert found.headers.tensors["a"].shape == (2, 3)
    assert found.headers.broken == ()
    assert found.contents(["a"]) == {}
    assert found.integers("a") is found.row("a", 0) is None


@pytest.mark.thorough
def test_a_long_header_is_asked_for_again(hub: HubServer) -> None:
    many = {f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(4000)}
    hub.answers["model.safetensors"] = packed(many, 4000)
    assert len(fetch_tensors("org/name").headers.tensors) == 4000
    assert hub.files.count("model.safetensors") == 2


def test_shards(hub: HubServer) -> None:
    shard = {"b": ONE["a"]}
    hub.answers |= {
        "model.safetensors.index.json": {
            "weight_map": {"a": "x-1.safetensors", "b": "x-2.safetensors"}
        },
        "x-1.safetensors": packed(ONE),
        "x-2.safetensors": packed(shard),
    }
    assert fetch_tensors("org/name").headers.tensors.keys() == {"a", "b"}


@pytest.mark.parametrize(
    "file", ["../../etc/passwd", "/etc/passwd.safetensors", "a/../b.safetensors", "x.bin", "a\nb"]
)
def test_an_index_that_names_other_files(file: str, hub: HubServer) -> None:
    hub.answers["model.safetensors.index.json"] = {"weight_map": {"a": file}}
    with pytest.raises(HubRefusedError, match="not a weight file"):
        fetch_tensors("org/name")
    assert hub.files == ["model.safetensors.index.json"]


def test_an_index_of_many_files(hub: HubServer) -> None:
    where = {str(i): f"{i}.safetensors" for i in range(300)}
    hub.answers["model.safetensors.index.json"] = {"weight_map": where}
    with pytest.raises(HubRefusedError, match="names 300 files"):
        fetch_tensors("org/name")


def test_a_size_that_is_not_the_headers(hub: HubServer) -> None:
    data = packed(ONE)
    hub.answers |= {
        "model.safetensors": data,
        "api": sized(**{"model.safetensors": len(data) + 5}),
    }
    assert "its header describes" in fetch_tensors("org/name").headers.broken[0]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (struct.pack("<Q", 1 << 62), "more than the format allows"),
        (struct.pack("<Q", 5000) + b"{}", "shorter than its header"),
        (packed(None, 0, b"<html>"), "not JSON"),
        (b"", "too short"),
    ],
)
def test_a_broken_file(data: bytes, why: str, hub: HubServer) -> None:
    hub.answers["model.safetensors"] = data
    assert why in fetch_tensors("org/name").headers.broken[0]


def test_a_long_header_is_not_fetched(hub: HubServer) -> None:
    hub.answers["model.safetensors"] = struct.pack("<Q", 90 << 20) + bytes(100)
    with pytest.raises(HubRefusedError, match="too large to read"):
        fetch_tensors("org/name")


def test_a_server_that_sends_all_there_is(hub: HubServer) -> None:
    hub.answers["model.safetensors"] = pour
    assert "broken" in str(fetch_tensors("org/name").headers)


@pytest.mark.thorough
def test_a_server_that_drips(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speclaunch.engine.facts.hub._TENSOR_SECONDS", 0.6)
    hub.answers["model.safetensors"] = drip
    with pytest.raises(HubRefusedError, match="did not respond"):
        fetch_tensors("org/name")


def test_no_weights(hub: HubServer) -> None:
    with pytest.raises(HubRefusedError, match=r"no model\.safetensors"):
        fetch_tensors("org/name")

"""Headers of safetensors files: what they say, and what one made to hurt can do."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from speclaunch.core.reads.safe_json import UnreadableFileError
from speclaunch.engine.facts.tensors import read_tensors
from speclaunch.engine.facts.weight_files import (
    MOST_TENSORS,
    BrokenHeaderError,
    TensorHeader,
    read_header,
)

ONE = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}


def packed(header: Any, body: int = 24, text: bytes | None = None) -> bytes:
    data = json.dumps(header).encode() if text is None else text
    return struct.pack("<Q", len(data)) + data + bytes(body)


def written(tmp_path: Path, data: bytes) -> Path:
    file = tmp_path / "model.safetensors"
    file.write_bytes(data)
    return file


def test_what_a_header_says(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        **ONE,
        "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]},
        "c": {"dtype": "F4", "shape": [4], "data_offsets": [26, 28]},
        "empty": {"dtype": "I64", "shape": [0, 7], "data_offsets": [28, 28]},
    }
    data = packed(header, 28)
    at = len(data) - 28
    found = read_header(written(tmp_path, data))
    assert found["a"] == TensorHeader("F32", (2, 3), at, at + 24)
    assert found["b"] == TensorHeader("BF16", (), at + 24, at + 26)
    assert found["b"].elements == 1
    assert found["empty"].elements == 0
    assert found.keys() == {"a", "b", "c", "empty"}


def changed(**values: Any) -> dict[str, Any]:
    return {"a": {**ONE["a"], **values}}


BROKEN = {
    "nothing": (b"", "too short"),
    "seven bytes": (bytes(7), "too short"),
    "no header": (struct.pack("<Q", 100) + b"{}", "shorter than its header"),
    "huge": (struct.pack("<Q", 1 << 63) + b"{}", "more than the format allows"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "more than the format allows"),
    "no JSON": (packed(None, 0, b"{not"), "not JSON"),
    "deep": (packed(None, 0, b'{"a":' * 100_000), "not JSON"),
    "a list": (packed([]), "does not contain an object"),
    "a number": (packed({"a": 1}), "is not an object"),
    "no type": (packed({"a": {"shape": [], "data_offsets": [0, 24]}}), "unknown type"),
    "other type": (packed(changed(dtype="Q3")), "unknown type Q3"),
    "negative offset": (packed(changed(data_offsets=[-24, 0])), "invalid offsets"),
    "offsets backwards": (packed(changed(data_offsets=[24, 0])), "invalid offsets"),
    "three offsets": (packed(changed(data_offsets=[0, 24, 24])), "invalid offsets"),
    "one offset": (packed(changed(data_offsets=[24])), "invalid offsets"),
    "offsets as text": (packed(changed(data_offsets=["0", "24"])), "invalid offsets"),
    "offsets true": (packed(changed(data_offsets=[False, True])), "invalid offsets"),
    "huge offset": (packed(changed(data_offsets=[0, 1 << 70])), "invalid offsets"),
    "negative shape": (packed(changed(shape=[-2, -3])), "an invalid shape"),
    "huge shape": (packed(changed(shape=[1 << 60])), "an invalid shape"),
    "many dimensions": (packed(changed(shape=[1] * 10_000)), "an invalid shape"),
    "other size": (packed(changed(shape=[2, 4])), "does not match its shape and type"),
    "behind the end": (packed(ONE, 23), "its header describes"),
    "more than told": (packed(ONE, 25), "its header describes"),
    "overlap": (packed({**ONE, "b": {**ONE["a"], "data_offsets": [12, 36]}}, 36), "overlap at b"),
    "gap": (packed(changed(data_offsets=[8, 32]), 32), "leave a gap at a"),
    "the same place": (packed({**ONE, "b": ONE["a"]}), "overlap"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file(name: str, tmp_path: Path) -> None:
    data, why = BROKEN[name]
    with pytest.raises(BrokenHeaderError, match=why):
        read_header(written(tmp_path, data))


def test_a_million_tensors(tmp_path: Path) -> None:
    entry = b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
    text = b"{" + b"".join(entry % number for number in range(MOST_TENSORS + 1))[:-1] + b"}"
    tracemalloc.start()
    with pytest.raises(UnreadableFileError, match=f"more than {MOST_TENSORS} tensors"):
        read_header(written(tmp_path, packed(None, 0, text)))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 80 << 20


def test_a_long_header_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", 90 << 20))
        stream.truncate(1 << 30)
    tracemalloc.start()
    with pytest.raises(UnreadableFileError, match="too large to read"):
        read_header(file)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    assert read_tensors(tmp_path) is None


def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    secret = tmp_path / "secret"
    secret.write_bytes(packed(ONE))
    (tmp_path / "model" / "model.safetensors").symlink_to(secret)
    tensors = read_tensors(tmp_path / "model")
    assert tensors is not None
    assert not tensors.headers.tensors
    assert "links outside its directory" in str(tensors.headers.unread)


def test_the_links_of_a_hub_cache_are_followed(tmp_path: Path) -> None:
    blobs = tmp_path / "models--org--name" / "blobs"
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "0123").write_bytes(packed(ONE))
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs/0123"))
    tensors = read_tensors(snapshot)
    assert tensors is not None
    assert tensors.headers.tensors.keys() == {"a"}
    assert tensors.headers.unread is None

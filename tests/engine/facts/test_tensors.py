"""What is in tensors: zeros, numbers that are none, maps; of large ones a part is read."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import pytest

from speclaunch.engine.facts import tensors as module
from speclaunch.engine.facts.tensors import TensorsOnDisk, read_tensors
from tests.support.engine.checkpoints.safetensors_bytes import Model, Tensor


def on_disk(tmp_path: Path, **tensors: Tensor) -> TensorsOnDisk:
    Model({}, tensors, {}).write(tmp_path / "m")
    found = read_tensors(tmp_path / "m")
    assert found is not None
    return found


def bf16(number: float) -> bytes:
    return struct.pack("<f", number)[2:]


WRITTEN = {
    "F64": lambda number: struct.pack("<d", number),
    "F32": lambda number: struct.pack("<f", number),
    "F16": lambda number: struct.pack("<e", number),
    "BF16": bf16,
}
LARGEST = {"F64": 1.7e308, "F32": 3.4e38, "F16": 65504.0, "BF16": 3.3e38}


@pytest.mark.parametrize("dtype", WRITTEN)
@pytest.mark.parametrize("place", [0, 5, 11])
@pytest.mark.parametrize("number", [math.nan, -math.nan, math.inf, -math.inf, None, 0.0])
def test_a_number_that_is_none(
    dtype: str, place: int, number: float | None, tmp_path: Path
) -> None:
    write = WRITTEN[dtype]
    numbers = [0.5, -0.25, LARGEST[dtype], -LARGEST[dtype], 0.0, 1e-5] * 2
    if number is not None:
        numbers[place] = number
    tensor = Tensor(dtype, [12], b"".join(map(write, numbers)))
    found = on_disk(tmp_path, a=tensor).contents(["a"])["a"]
    assert found.not_finite == (number is not None and not math.isfinite(number))
    assert not found.all_zero
    assert found.all_read


@pytest.mark.parametrize(
    ("dtype", "byte", "expected"),
    [
        ("F8_E4M3", 0x7E, False),
        ("F8_E4M3", 0x7F, True),
        ("F8_E4M3", 0xFF, True),
        ("F8_E5M2", 0x7B, False),
        ("F8_E5M2", 0x7C, True),
        ("F8_E5M2", 0xFD, True),
    ],
)
def test_eight_bits(dtype: str, byte: int, expected: bool, tmp_path: Path) -> None:
    tensor = Tensor(dtype, [4], bytes([0x10, byte, 0x20, 0x30]))
    assert on_disk(tmp_path, a=tensor).contents(["a"])["a"].not_finite is expected


def test_zeros(tmp_path: Path) -> None:
    found = on_disk(
        tmp_path,
        zero=Tensor("F32", [8], bytes(32)),
        one=Tensor("F32", [8], bytes(31) + b"\1"),
        empty=Tensor("F32", [0], b""),
        whole=Tensor("I64", [2], bytes(16)),
    )
    contents = found.contents(["zero", "one", "empty", "whole", "other"])
    assert contents.keys() == {"zero", "one"}
    assert contents["zero"].all_zero
    assert not contents["one"].all_zero


@pytest.mark.parametrize("where", ["start", "middle", "end"])
def test_of_a_large_one_three_parts_are_read(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_PER_TENSOR", 300)
    data = bytearray(struct.pack("<f", 0.5) * 10_000)
    at = {"start": 0, "middle": 20_000, "end": 40_000 - 4}[where]
    data[at : at + 4] = struct.pack("<f", math.nan)
    found = on_disk(tmp_path, a=Tensor("F32", [10_000], bytes(data))).contents(["a"])["a"]
    assert found.not_finite
    assert not found.all_read


def test_the_more_are_asked_for_the_less_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BUDGET", 1000)
    some = {f"t{i}": Tensor("F32", [100], bytes(400)) for i in range(5)}
    found = on_disk(tmp_path, **some)
    assert found.contents(["t0", "t1"])["t0"].all_read
    assert not found.contents(some)["t0"].all_read


@pytest.mark.parametrize(
    ("dtype", "code", "numbers"),
    [("I64", "q", (-3, 2**40)), ("I32", "i", (-3, 7)), ("BOOL", "?", (1, 0)), ("U8", "B", (9, 0))],
)
def test_integers(dtype: str, code: str, numbers: tuple[int, ...], tmp_path: Path) -> None:
    tensor = Tensor(dtype, [2], struct.pack(f"<2{code}", *numbers))
    assert on_disk(tmp_path, a=tensor).integers("a") == numbers


def test_what_is_no_map(tmp_path: Path) -> None:
    found = on_disk(tmp_path, a=Tensor("F32", [2], bytes(8)))
    assert found.integers("a") is None
    assert found.integers("b") is None


def test_a_row(tmp_path: Path) -> None:
    tensor = Tensor("F32", [3, 2], struct.pack("<6f", 1, 2, 0, 0, 0, math.nan))
    found = on_disk(tmp_path, a=tensor, b=Tensor("F32", [2], bytes(8)))
    rows = [found.row("a", number) for number in range(3)]
    assert [row and (row.all_zero, row.not_finite) for row in rows] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert found.row("a", 3) is None
    assert found.row("b", 0) is None
    assert found.row("c", 0) is None


def test_a_file_that_is_cut_after_its_header_was_read(tmp_path: Path) -> None:
    found = on_disk(tmp_path, a=Tensor("F32", [8], bytes(32)), b=Tensor("I64", [1], bytes(8)))
    assert found.headers.tensors
    file = tmp_path / "m" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-20])
    assert found.contents(["a", "b"]) == {}
    assert found.integers("b") is None


def test_only_the_files_of_an_index_count(tmp_path: Path) -> None:
    model = Model({}, {"a": Tensor("F32", [1], bytes(4))}, {}, shards=[["a"]])
    model.write(tmp_path / "m")
    (tmp_path / "m" / "consolidated.safetensors").write_bytes(b"other")
    found = read_tensors(tmp_path / "m")
    assert found is not None
    assert (found.headers.tensors.keys(), found.headers.broken) == ({"a"}, ())
    index = tmp_path / "m" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": []}))
    assert read_tensors(tmp_path / "m").headers.tensors == {}  # type: ignore[union-attr]


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_disk(tmp_path, a=Tensor("F32", [1], bytes(4)))
    monkeypatch.setattr(module, "_MOST_FILES", 0)
    assert "1 weight files" in str(found.headers.unread)
    monkeypatch.undo()
    monkeypatch.setattr(module, "_MOST_TENSORS", 0)
    again = read_tensors(tmp_path / "m")
    assert "more than 0 tensors" in str(again.headers.unread)  # type: ignore[union-attr]

"""Changes of a checkpoint in memory that more than its config is about."""

from __future__ import annotations

import json
import struct

from tests.support.engine.checkpoints.safetensors_bytes import Model, Tensor

from .models import Change


def without(*ends: str) -> Change:
    """Without the tensors whose names end so."""

    def change(model: Model) -> None:
        gone = [name for name in model.tensors if name.endswith(ends)]
        assert gone, ends
        for name in gone:
            del model.tensors[name]

    return change


def without_layer(number: int) -> Change:
    """Without all of a layer, in a file that an index names."""

    def change(model: Model) -> None:
        without_it = {
            name: one for name, one in model.tensors.items() if f"layers.{number}." not in name
        }
        assert len(without_it) < len(model.tensors)
        model.tensors, model.shards = without_it, [list(without_it)]

    return change


def cut(name: str, columns: int) -> Change:
    """The matrix `name` with its first columns only."""

    def change(model: Model) -> None:
        old = model.tensors[name]
        rows = [row[: columns * old.width] for row in old.rows()]
        model.tensors[name] = Tensor(old.dtype, [len(rows), columns], b"".join(rows))

    return change


def widened(name: str, columns: int) -> Change:
    """The matrix `name` with its first columns once more, as its last ones."""

    def change(model: Model) -> None:
        old = model.tensors[name]
        rows = [row + row[: columns * old.width] for row in old.rows()]
        shape = [len(rows), old.shape[1] + columns]
        model.tensors[name] = Tensor(old.dtype, shape, b"".join(rows))

    return change


def shortened(name: str, rows: int) -> Change:
    """The tensor `name` with its first rows only."""

    def change(model: Model) -> None:
        model.tensors[name] = model.tensors[name].of_rows(model.tensors[name].rows()[:rows])

    return change


def lengthened(name: str, rows: int) -> Change:
    """The tensor `name` with its first rows once more, as its last ones."""

    def change(model: Model) -> None:
        old = model.tensors[name].rows()
        model.tensors[name] = model.tensors[name].of_rows([*old, *old[:rows]])

    return change


def turned(name: str) -> Change:
    """The matrix `name` transposed."""

    def change(model: Model) -> None:
        model.tensors[name] = model.tensors[name].transposed()

    return change


def mapped(distance: int, share: int | None = None) -> Change:
    """The last token of the draft, or one in `share` of all, is `distance` further away in `d2t`."""

    def change(model: Model) -> None:
        numbers = model.tensors["d2t"].numbers()
        for at in range(len(numbers) - 1, -1, -share) if share else [len(numbers) - 1]:
            numbers[at] += distance
        model.tensors["d2t"] = model.tensors["d2t"].with_numbers(numbers)

    return change


def absolute(model: Model) -> None:
    """`d2t` holds the tokens themselves, not distances."""
    numbers = [token + at for at, token in enumerate(model.tensors["d2t"].numbers())]
    model.tensors["d2t"] = model.tensors["d2t"].with_numbers(numbers)


def spoiled(name: str) -> Change:
    """One number of the tensor `name` is none (NaN)."""

    def change(model: Model) -> None:
        old = model.tensors[name]
        data = struct.pack("<f", float("nan")) + old.data[4:]
        model.tensors[name] = Tensor(old.dtype, old.shape, data)

    return change


def zeroed(name: str) -> Change:
    """The tensor `name` is all zeros."""

    def change(model: Model) -> None:
        old = model.tensors[name]
        model.tensors[name] = Tensor(old.dtype, old.shape, bytes(len(old.data)))

    return change


def broken_off(model: Model) -> None:
    """The file of weights ends in its middle."""
    model.after = lambda data: data[: len(data) // 2]


def shard_missing(model: Model) -> None:
    """The index names a second file that is not there."""
    names = list(model.tensors)
    model.shards = [names]
    model.index_extra = {"somewhere.else.weight": "model-00002-of-00002.safetensors"}


def other_tokens(model: Model) -> None:
    """Two tokens of the tokenizer have each other's id."""
    said = json.loads(model.files["tokenizer.json"])
    vocabulary = said["model"]["vocab"]
    one, other = sorted(vocabulary, key=vocabulary.__getitem__)[100:102]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    model.files["tokenizer.json"] = json.dumps(said).encode()


def as_bfloat16(model: Model) -> None:
    """All weights of float32 in bfloat16, and the config says so."""
    _as(model, "BF16", "bfloat16")


def as_float16(model: Model) -> None:
    """All weights of float32 in float16, and the config says so."""
    _as(model, "F16", "float16")


def _as(model: Model, dtype: str, name: str) -> None:
    for key, one in model.tensors.items():
        if one.dtype == "F32":
            model.tensors[key] = one.with_numbers(one.numbers(), dtype)
    model.config["torch_dtype"] = name

"""Changes of the tiny drafts that change nothing of what they propose."""

from __future__ import annotations

import random
from collections.abc import Iterator

from .mutants import MTP_LAYER, Change, Mutant, _drop, _rename
from .safetensors_bytes import Model


def harmless(base: str, model: Model) -> Iterator[Mutant]:
    """Ways to write the same checkpoint."""
    for name, change in _ways(base, model):
        yield Mutant(base, name, "harmless", change, harmless=True)


def _ways(base: str, model: Model) -> Iterator[tuple[str, Change]]:
    for dtype in ("F16", "BF16", "F64"):
        yield f"dtype:{dtype}", _cast(dtype)
    yield "dtype:mixed", _cast("BF16", every=2)
    yield "torch_dtype:bfloat16-in-config", _config(torch_dtype="bfloat16")
    yield "dtype-key", _config(torch_dtype=None, dtype="float32")
    for seed in range(4):
        yield f"order:{seed}", _reordered(seed)
    yield "metadata:none", _metadata(None)
    yield "metadata:empty", _metadata({})
    yield "metadata:more", _metadata({"format": "pt", "made_by": "a test", "step": "12000"})
    yield "padding", _padded(4000)
    for count in (2, 3, 5):
        yield f"shards:{count}", _sharded(count)
        yield f"shards-odd:{count}", _sharded(count, seed=count)
    yield "shards:one-each", _sharded(len(model.tensors))
    yield "shards:one", _sharded(1)
    for name in ("rotary_emb.inv_freq", "model.rotary_emb.inv_freq"):
        yield f"extra:{name}", _extra(name)
    yield "extra-file", _file("README.md", b"# a model\n")
    yield "extra-config-keys", _config(transformers_version="4.57.0", use_cache=True, _name="x")
    yield "generation-config", _file("generation_config.json", b'{"temperature": 0.6}')
    if base == "eagle3":
        yield "without-t2d", _drop("t2d")
        yield "layers.0-for-midlayer", _renamed("midlayer.", "layers.0.")
        yield "model-prefix", _renamed_all("model.", but=("lm_head.weight", "d2t", "t2d"))
        yield "d2t-as-int32", _int32("d2t")
        ids = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True}
        yield "layer-ids-said", _config(eagle_config=ids)
        yield "own-embedding", _copied("embed_tokens.weight", 512)
    if base == "eagle":
        yield "own-embedding", _copied("embed_tokens.weight", 512)
        yield "own-head", _copied("lm_head.weight", 512)
        yield "input-layernorm", _extra("layers.0.input_layernorm.weight")
    if base == "mtp":
        yield "without-its-embedding", _drop(MTP_LAYER + "embed_tokens.weight")
        yield "without-its-head", _drop(MTP_LAYER + "shared_head.head.weight")


def _cast(dtype: str, every: int = 1) -> Change:
    def change(model: Model) -> None:
        for place, (name, tensor) in enumerate(list(model.tensors.items())):
            if tensor.dtype == "F32" and place % every == 0:
                model.tensors[name] = tensor.with_numbers(tensor.numbers(), dtype)

    return change


def _config(**values: object) -> Change:
    def change(model: Model) -> None:
        merged = model.config | values
        model.config = {key: value for key, value in merged.items() if value is not None}

    return change


def _reordered(seed: int) -> Change:
    def change(model: Model) -> None:
        names = sorted(model.tensors)
        random.Random(seed).shuffle(names)
        model.tensors = {name: model.tensors[name] for name in names}

    return change


def _metadata(said: dict[str, str] | None) -> Change:
    def change(model: Model) -> None:
        model.metadata = said

    return change


def _padded(spaces: int) -> Change:
    def change(model: Model) -> None:
        model.padding = spaces

    return change


def _sharded(count: int, seed: int | None = None) -> Change:
    def change(model: Model) -> None:
        names = list(model.tensors)
        if seed is not None:
            random.Random(seed).shuffle(names)
        model.shards = [names[part::count] for part in range(count)]

    return change


def _extra(name: str) -> Change:
    def change(model: Model) -> None:
        like = next(one for one in model.tensors.values() if len(one.shape) == 1)
        model.tensors[name] = like

    return change


def _file(name: str, data: bytes) -> Change:
    def change(model: Model) -> None:
        model.files[name] = data

    return change


def _renamed(old: str, new: str) -> Change:
    def change(model: Model) -> None:
        for name in list(model.tensors):
            if old in name:
                _rename(name, name.replace(old, new))(model)

    return change


def _renamed_all(prefix: str, but: tuple[str, ...]) -> Change:
    def change(model: Model) -> None:
        for name in list(model.tensors):
            if name not in but:
                _rename(name, prefix + name)(model)

    return change


def _int32(name: str) -> Change:
    def change(model: Model) -> None:
        tensor = model.tensors[name]
        model.tensors[name] = tensor.with_numbers(tensor.numbers(), "I32")

    return change


def _copied(name: str, rows: int) -> Change:
    """A tensor that the engine takes from the target instead."""

    def change(model: Model) -> None:
        square = next(one for one in model.tensors.values() if one.shape[1:] == [64])
        row = square.data[: 64 * square.width]
        model.tensors[name] = square.of_rows([row] * rows)

    return change

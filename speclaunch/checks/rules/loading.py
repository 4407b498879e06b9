"""Tensors that the engine loads from a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from speclaunch.core import size
from speclaunch.engine import Checkpoint, TensorHeader


class Dimensions(Struct, frozen=True):
    """Sizes as the engine's classes read them from the config."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    layers: int
    tied: bool


_HEAD_DIM = {"qwen3": 128}
"""Default head size in transformers by model type; for other types, hidden_size / heads."""


def dimensions(checkpoint: Checkpoint) -> Dimensions | None:
    """Return the sizes of a checkpoint; None if its config lacks one."""
    config = checkpoint.config
    sizes = known(
        checkpoint.hidden_size,
        checkpoint.num_attention_heads,
        checkpoint.vocab_size,
        size(config.get("num_hidden_layers"), least=0),
        size(config.get("intermediate_size")),
    )
    if sizes is None:
        return None
    hidden, heads, vocabulary, layers, inner = sizes
    usual = _HEAD_DIM.get(str(checkpoint.model_type), hidden // heads)
    return Dimensions(
        hidden,
        heads,
        checkpoint.num_key_value_heads or heads,
        checkpoint.head_dim or usual,
        inner,
        vocabulary,
        layers,
        is_tied(checkpoint),
    )


def known(*numbers: int | None) -> list[int] | None:
    """Return all the numbers; None if any is unknown."""
    found = [number for number in numbers if number is not None]
    return found if len(found) == len(numbers) else None


def is_tied(checkpoint: Checkpoint) -> bool:
    """True if the output layer is the embedding. The default is False, as in LlamaConfig."""
    return checkpoint.config.get("tie_word_embeddings") is True


def flag(config: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    """Return the value of a switch in a config; `default` if it is not a boolean."""
    value = config.get(key)
    return value if isinstance(value, bool) else default


def attention(
    at: str, sizes: Dimensions, inputs: int, *, qkv_bias: bool, o_bias: bool
) -> dict[str, ExpectedTensor]:
    """Return the tensors of grouped-query attention by name.

    `at` is the prefix of `self_attn`, and `inputs` the number of input features.
    """
    rows = {
        "q_proj": sizes.heads * sizes.head_dim,
        "k_proj": sizes.kv_heads * sizes.head_dim,
        "v_proj": sizes.kv_heads * sizes.head_dim,
    }
    own = f"{at}self_attn."
    found = {f"{own}{name}.weight": ExpectedTensor((count, inputs)) for name, count in rows.items()}
    if qkv_bias:
        found |= {f"{own}{name}.bias": ExpectedTensor((count,)) for name, count in rows.items()}
    found[f"{own}o_proj.weight"] = ExpectedTensor((sizes.hidden, sizes.heads * sizes.head_dim))
    if o_bias:
        found[f"{own}o_proj.bias"] = ExpectedTensor((sizes.hidden,))
    return found


def mlp(at: str, hidden: int, width: int) -> dict[str, ExpectedTensor]:
    """Return the tensors of a gated MLP; `at` is the prefix of its projections."""
    return {
        f"{at}gate_proj.weight": ExpectedTensor((width, hidden)),
        f"{at}up_proj.weight": ExpectedTensor((width, hidden)),
        f"{at}down_proj.weight": ExpectedTensor((hidden, width)),
    }


def norms(at: str, width: int, *names: str) -> dict[str, ExpectedTensor]:
    """Return the weights of the norms `names` under the prefix `at`, each of size `width`."""
    return {f"{at}{name}.weight": ExpectedTensor((width,)) for name in names}


Shape = tuple[int, ...]


class ExpectedTensor(Struct, frozen=True):
    """A tensor that a class loads.

    `needed`: the class computes with it and has no substitute. Otherwise the class loads it if
    present (and refuses a different shape), else uses the target's tensor or an initial value.
    `used`: the class computes with it if present.
    """

    shape: Shape
    needed: bool = True
    used: bool = True


class Loader(Struct, frozen=True):
    """The tensors that a model class loads, by name.

    `place` returns a file tensor's name in `expected`; None if the tensor is skipped on purpose, or
    belongs to another model. The engine silently drops a tensor that is not in `expected`.
    `layers`: the number of layers that the class builds, under `layers.N.`.
    """

    name: str
    source: str
    expected: Mapping[str, ExpectedTensor]
    place: Callable[[str], str | None]
    layers: int | None = None
    has_offset_norms: bool = False
    """True if norm weights are stored minus 1 (`GemmaRMSNorm`), so zeros are normal."""


class Misshapen(Struct, frozen=True):
    """A tensor whose shape differs from what its class expects."""

    name: str
    found: Shape
    expected: Shape

    @property
    def is_transposed(self) -> bool:
        return self.found == self.expected[::-1]


class TensorComparison(Struct, frozen=True):
    """Comparison of a file's tensors with a model class.

    `missing`: expected names that the file lacks, each with the tensor that may be meant, or None.
    `unread`: tensors that the class drops. `own`: those that it loads, with their expected names.
    """

    missing: Mapping[str, str | None] = {}
    misshapen: tuple[Misshapen, ...] = ()
    unread: tuple[str, ...] = ()
    own: Mapping[str, str] = {}


_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Projections that a file may store fused, as the engine does (layers/linear.py)."""
_IN_ALL = {"weight", "model", "layers", "proj", "0"}
"""Parts of names that do not identify a tensor."""
_MOST_COMPARED = 500
_QUANTIZED = ("qweight", "weight_packed")
"""Names of quantized matrices in AWQ and GPTQ, and in compressed-tensors."""


def compare(
    loader: Loader, headers: Mapping[str, TensorHeader], *, plain: bool = True
) -> TensorComparison:
    """Compare a file's tensors with those that a loader expects.

    `plain` is False for quantized matrices, which have other names and shapes.
    """
    own: dict[str, str] = {}
    unread: list[str] = []
    covered: set[str] = set()
    for name in headers:
        place = loader.place(name)
        if place is None:
            continue
        if place in loader.expected:
            own[name] = place
            covered.add(place)
        elif parts := _parts(place, loader.expected):
            own[name] = place
            covered.update(parts)
        else:
            unread.append(name)
            if not plain:
                covered.update(_quantized(place))
    misshapen = [
        Misshapen(name, headers[name].shape, shape)
        for name, place in own.items()
        if headers[name].shape != (shape := _shape(place, loader.expected))
        and (plain or len(shape) < 2)
    ]
    missing = [
        name for name, tensor in loader.expected.items() if tensor.needed and name not in covered
    ]
    near = _near(missing, unread, loader, headers)
    return TensorComparison(near, tuple(misshapen), tuple(unread), own)


def _shape(place: str, expected: Mapping[str, ExpectedTensor]) -> Shape:
    if place in expected:
        return expected[place].shape
    shapes = [expected[part].shape for part in _parts(place, expected)]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _parts(place: str, expected: Mapping[str, ExpectedTensor]) -> tuple[str, ...]:
    for fused, parts in _FUSED.items():
        if f".{fused}." in place:
            names = tuple(place.replace(fused, part) for part in parts)
            return names if all(name in expected for name in names) else ()
    return ()


def _quantized(place: str) -> list[str]:
    module, _, last = place.rpartition(".")
    return [f"{module}.weight"] if last in _QUANTIZED else []


def _near(
    missing: list[str], unread: list[str], loader: Loader, headers: Mapping[str, TensorHeader]
) -> dict[str, str | None]:
    """Return, for each missing tensor, the most similar unread tensor of equal shape, or None."""
    left = {name: _words(name) for name in unread[:_MOST_COMPARED]}
    found: dict[str, str | None] = {}
    for name in missing:
        shape, target = loader.expected[name].shape, _words(name)
        fitting = [
            (len(words & target) / len(words | target), other)
            for other, words in left.items()
            if headers[other].shape == shape and words & target - _IN_ALL
        ]
        found[name] = near = max(fitting)[1] if fitting else None
        if near is not None:
            del left[near]
    return found


def _words(name: str) -> set[str]:
    return set(re.split(r"[._]", name))

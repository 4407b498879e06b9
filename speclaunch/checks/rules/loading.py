"""What the engine loads of a checkpoint's tensors."""

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
"""What transformers takes where a config does not say it; hidden_size / heads otherwise."""


def dimensions(checkpoint: Checkpoint) -> Dimensions | None:
    """The sizes of a checkpoint; None where its config lacks one."""
    config = checkpoint.config
    said = known(
        checkpoint.hidden_size,
        checkpoint.num_attention_heads,
        checkpoint.vocab_size,
        size(config.get("num_hidden_layers"), least=0),
        size(config.get("intermediate_size")),
    )
    if said is None:
        return None
    hidden, heads, vocabulary, layers, inner = said
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


def known(*said: int | None) -> list[int] | None:
    """The numbers, all of them; None where one is not known."""
    found = [one for one in said if one is not None]
    return found if len(found) == len(said) else None


def is_tied(checkpoint: Checkpoint) -> bool:
    """Whether the output layer is the embedding. The classes' own default is not (LlamaConfig)."""
    return checkpoint.config.get("tie_word_embeddings") is True


def flag(config: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    """A switch of a config."""
    value = config.get(key)
    return value if isinstance(value, bool) else default


def attention(
    at: str, sizes: Dimensions, inputs: int, *, qkv_bias: bool, o_bias: bool
) -> dict[str, ExpectedTensor]:
    """Grouped-query attention: `at` is the name in front of `self_attn`."""
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
    """A gated MLP; `at` is the name in front of its projections."""
    return {
        f"{at}gate_proj.weight": ExpectedTensor((width, hidden)),
        f"{at}up_proj.weight": ExpectedTensor((width, hidden)),
        f"{at}down_proj.weight": ExpectedTensor((hidden, width)),
    }


def norms(at: str, width: int, *names: str) -> dict[str, ExpectedTensor]:
    """Norms of one width."""
    return {f"{at}{name}.weight": ExpectedTensor((width,)) for name in names}


Shape = tuple[int, ...]


class ExpectedTensor(Struct, frozen=True):
    """One tensor that a class loads.

    `needed`: the class computes with it, and has nothing else where it is missing. Otherwise it
    loads it (and refuses another shape), and takes the target's, or starts from a good value.
    `used`: it computes with it where it is there.
    """

    shape: Shape
    needed: bool = True
    used: bool = True


class Loader(Struct, frozen=True):
    """What a class does with tensors by their names.

    `place` gives the name under which `expected` has a tensor of the file; None: skipped on
    purpose, or another model's. A name that `expected` does not have is one that the engine drops
    silently. `layers`: how many layers it builds, under `layers.N.`.
    """

    name: str
    source: str
    expected: Mapping[str, ExpectedTensor]
    place: Callable[[str], str | None]
    layers: int | None = None
    zero_is_one: bool = False
    """Norms are written less 1 (`GemmaRMSNorm`), so that zeros are ordinary."""


class Misshapen(Struct, frozen=True):
    """A tensor of another shape than the class has."""

    name: str
    found: Shape
    expected: Shape

    @property
    def is_transposed(self) -> bool:
        """Whether it only stands the other way round."""
        return self.found == self.expected[::-1]


class TensorComparison(Struct, frozen=True):
    """What a file holds, against what the class takes.

    `missing`: by the name that the class has, the tensor of the file that may be meant for it.
    `unread`: tensors that the class drops. `own`: the tensors that it loads.
    """

    missing: Mapping[str, str | None] = {}
    misshapen: tuple[Misshapen, ...] = ()
    unread: tuple[str, ...] = ()
    own: Mapping[str, str] = {}


_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
"""A file may hold them in one, as the engine itself does (layers/linear.py)."""
_IN_ALL = {"weight", "model", "layers", "proj", "0"}
"""Words that say nothing of what a tensor is."""
_MOST_COMPARED = 500
_QUANTIZED = ("qweight", "weight_packed")
"""How the numbers of a quantised matrix are called: by AWQ and GPTQ, by compressed-tensors."""


def compare(
    loader: Loader, headers: Mapping[str, TensorHeader], *, plain: bool = True
) -> TensorComparison:
    """Compare; `plain` False: quantised, so that names and shapes of matrices are others."""
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
        name for name, said in loader.expected.items() if said.needed and name not in covered
    ]
    near = _near(missing, unread, loader, headers)
    return TensorComparison(near, tuple(misshapen), tuple(unread), own)


def _shape(place: str, expected: Mapping[str, ExpectedTensor]) -> Shape:
    if place in expected:
        return expected[place].shape
    shapes = [expected[part].shape for part in _parts(place, expected)]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _parts(place: str, expected: Mapping[str, ExpectedTensor]) -> tuple[str, ...]:
    """The tensors that a fused one stands for."""
    for fused, parts in _FUSED.items():
        if f".{fused}." in place:
            names = tuple(place.replace(fused, part) for part in parts)
            return names if all(name in expected for name in names) else ()
    return ()


def _quantized(place: str) -> list[str]:
    """The tensor that a part of a quantised one stands for."""
    module, _, last = place.rpartition(".")
    return [f"{module}.weight"] if last in _QUANTIZED else []


def _near(
    missing: list[str], unread: list[str], loader: Loader, headers: Mapping[str, TensorHeader]
) -> dict[str, str | None]:
    """For each missing tensor the one of its shape that shares the most words with it, if any."""
    left = {name: _words(name) for name in unread[:_MOST_COMPARED]}
    found: dict[str, str | None] = {}
    for name in missing:
        shape, wanted = loader.expected[name].shape, _words(name)
        fitting = [
            (len(words & wanted) / len(words | wanted), one)
            for one, words in left.items()
            if headers[one].shape == shape and words & wanted - _IN_ALL
        ]
        found[name] = near = max(fitting)[1] if fitting else None
        if near is not None:
            del left[near]
    return found


def _words(name: str) -> set[str]:
    return set(re.split(r"[._]", name))

"""What a model class of the engine takes from a checkpoint's files, and what it makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field

from speclaunch.facts.safetensors_header import TensorHeader
from speclaunch.record import record

Shape = tuple[int, ...]


@record
class Expected:
    """One tensor that a class loads.

    `needed`: the class computes with it, and has nothing else where it is missing. Otherwise it
    loads it (and refuses another shape), and takes the target's, or starts from a good value.
    `used`: it computes with it where it is there.
    """

    shape: Shape
    needed: bool = True
    used: bool = True


@record
class Loader:
    """What a class does with tensors by their names.

    `place` gives the name under which `expected` has a tensor of the file; None: skipped on
    purpose, or another model's. A name that `expected` does not have is one that the engine drops
    silently. `layers`: how many layers it builds, under `layers.N.`.
    """

    name: str
    source: str
    expected: Mapping[str, Expected]
    place: Callable[[str], str | None]
    layers: int | None = None
    zero_is_one: bool = False
    """Norms are written less 1 (`GemmaRMSNorm`), so that zeros are ordinary."""


@record
class Misshapen:
    """A tensor of another shape than the class has."""

    name: str
    found: Shape
    expected: Shape

    @property
    def is_transposed(self) -> bool:
        """Whether it only stands the other way round."""
        return self.found == self.expected[::-1]


@record
class Comparison:
    """What a file holds, against what the class takes.

    `missing`: by the name that the class has, the tensor of the file that may be meant for it.
    `unread`: tensors that the class drops. `own`: the tensors that it loads.
    """

    missing: Mapping[str, str | None] = field(default_factory=dict)
    misshapen: tuple[Misshapen, ...] = ()
    unread: tuple[str, ...] = ()
    own: Mapping[str, str] = field(default_factory=dict)


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
) -> Comparison:
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
    return Comparison(near, tuple(misshapen), tuple(unread), own)


def _shape(place: str, expected: Mapping[str, Expected]) -> Shape:
    if place in expected:
        return expected[place].shape
    shapes = [expected[part].shape for part in _parts(place, expected)]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _parts(place: str, expected: Mapping[str, Expected]) -> tuple[str, ...]:
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

"""The tensors of a checkpoint as a file of facts keeps them: names, types, shapes, no numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from speclaunch.facts.safetensors_header import BITS, TensorHeader, checked
from speclaunch.facts.tensor_values import Content
from speclaunch.facts.tensors import Headers
from speclaunch.reads.safe_json import UnreadableFileError
from speclaunch.record import record

_MOST_SHAPES = 256
"""Of drafts; a checkpoint of more tells how many there are, and their bytes."""


@record
class KeptTensors:
    """What rules ask about tensors, as far as it is told without the files."""

    headers: Headers

    def contents(self, names: Iterable[str]) -> Mapping[str, Content]:
        """Nothing: no numbers are kept."""
        del names
        return {}

    def integers(self, name: str) -> tuple[int, ...] | None:
        """None: no numbers are kept."""
        del name
        return None

    def fingerprint(self, name: str) -> bytes | None:
        """None: no numbers are kept."""
        del name
        return None

    def row(self, name: str, number: int) -> Content | None:
        """None: no numbers are kept."""
        del name, number
        return None


def described(tensors: Mapping[str, TensorHeader]) -> dict[str, Any]:
    """What a file keeps: how many, bytes by type, and type and shape of each where they are few."""
    if not tensors:
        return {}
    held: Counter[str] = Counter()
    for one in tensors.values():
        held[one.dtype] += one.end - one.start
    facts: dict[str, Any] = {"count": len(tensors), "bytes": dict(sorted(held.items()))}
    if len(tensors) <= _MOST_SHAPES:
        shapes = {name: [one.dtype, list(one.shape)] for name, one in sorted(tensors.items())}
        facts["shapes"] = shapes
    return facts


def kept_tensors(said: Mapping[str, Any]) -> KeptTensors | None:
    """The tensors that a file describes; None where it does not, or not as it should."""
    shapes = said.get("shapes")
    if not isinstance(shapes, dict) or not 0 < len(shapes) <= _MOST_SHAPES:
        return None
    raw, at = {}, 0
    for name, told in shapes.items():
        match told:
            case [str(dtype), list(shape)] if dtype in BITS:
                bits = BITS[dtype]
            case _:
                return None
        for count in shape:
            if type(count) is not int or not 0 <= count < 1 << 50 or bits > 1 << 60:
                return None
            bits *= count
        raw[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + bits // 8]}
        at += bits // 8
    try:
        return KeptTensors(Headers(checked(raw, 0, at, "tensors")))
    except UnreadableFileError:
        return None

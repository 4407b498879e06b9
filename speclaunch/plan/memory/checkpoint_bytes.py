"""Bytes of a checkpoint, and of its parts, from its config alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.memory.draft_models import draft_model, is_draft_model
from speclaunch.plan.memory.language import language_model, mtp_layers
from speclaunch.plan.memory.matrices import Matrix, Role
from speclaunch.plan.memory.model_config import ELEMENT_BYTES, ModelConfig
from speclaunch.plan.memory.quantized import Quantised, quantised
from speclaunch.plan.memory.vision import vision_tower

_USUAL = 2
"""Bytes of an element where the config does not say the dtype: bfloat16 or float16."""


@dataclass(frozen=True)
class Counted:
    """The matrices of a checkpoint and how it stores them."""

    matrices: tuple[Matrix, ...]
    stored: Quantised
    element: int
    """Bytes of an element that is not quantised."""

    def bytes(self, roles: Iterable[Role] | None = None) -> int:
        """Of all matrices, or of those of some roles."""
        sizes = self.by_role
        return round(sum(sizes.values() if roles is None else (sizes[role] for role in roles)))

    @cached_property
    def by_role(self) -> dict[Role, float]:
        """Bytes of the matrices of each role."""
        found = dict.fromkeys(Role, 0.0)
        for matrix in self.matrices:
            found[matrix.role] += size_of(matrix, self.stored, self.element)
        return found

    @property
    def parameters(self) -> int:
        """Elements of all matrices."""
        return sum(matrix.parameters for matrix in self.matrices)


_recent: dict[int, tuple[Checkpoint, Counted]] = {}
"""The checkpoints asked for last: a search for settings that fit asks for the same ones often."""
_MOST_RECENT = 8


def counted(checkpoint: Checkpoint) -> Counted:
    """What the config says the files of a checkpoint hold. Raises UnknownValueError."""
    known = _recent.get(id(checkpoint))
    if known is not None and known[0] is checkpoint:
        return known[1]
    found = _count(checkpoint)
    if len(_recent) >= _MOST_RECENT:
        _recent.clear()
    _recent[id(checkpoint)] = (checkpoint, found)
    return found


def _count(checkpoint: Checkpoint) -> Counted:
    config = ModelConfig.of(checkpoint)
    element = ELEMENT_BYTES.get(checkpoint.dtype or "", _USUAL)
    return Counted(tuple(_matrices(checkpoint, config)), quantised(checkpoint), element)


def size_of(matrix: Matrix, stored: Quantised, element: int) -> float:
    """Bytes of a matrix, all copies."""
    scheme = stored.scheme_of(matrix)
    if scheme is None:
        return matrix.parameters * (matrix.bytes or element)
    return scheme.bytes(matrix.rows, matrix.columns) * matrix.copies


def _matrices(checkpoint: Checkpoint, config: ModelConfig) -> Iterator[Matrix]:
    if is_draft_model(config.architecture):
        yield from draft_model(checkpoint, config)
        return
    yield from language_model(config)
    if checkpoint.mtp_weights is not False:  # where no one can tell: as the config declares
        yield from mtp_layers(config)
    yield from vision_tower(config)

"""The weights of a model as matrices: how large, how many, how they are divided among ranks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from speclaunch.plan.memory.ranks import Ranks


class Shard(Enum):
    """Among which ranks a weight is divided."""

    TENSOR = auto()
    ATTENTION = auto()
    """Heads: among the ranks that share a batch's attention."""
    DENSE = auto()
    """MLPs of the dense layers of a mixture of experts."""
    EXPERT = auto()
    """Whole experts to some ranks, the rest of the division within each."""
    SHARED_EXPERT = auto()
    EMBEDDING = auto()
    HEAD = auto()
    WHOLE = auto()
    """Every rank has it."""


class Role(Enum):
    """What a weight belongs to."""

    BODY = auto()
    EMBEDDING = auto()
    HEAD = auto()
    VISION = auto()
    MTP = auto()
    """Multi-token-prediction layers, which the target does not load."""
    MTP_COPY = auto()
    """Copies of embedding and head in those layers, which nobody loads."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """`copies` weights of `rows` outputs and `columns` inputs.

    `name` is the module's in the checkpoint (of the first copy): what is not quantised is said by
    names. `linear` is False for what no method quantises: norms, biases, embeddings. `most` is the
    number of parts that it can be divided into at the most (KV heads). `bytes` is the size of an
    element that has a dtype of its own.
    """

    name: str
    rows: int
    columns: int = 1
    shard: Shard = Shard.WHOLE
    role: Role = Role.BODY
    copies: int = 1
    linear: bool = True
    most: int | None = None
    bytes: int | None = None
    layer: int | None = None
    """The layer it is in; None: the first stage has it, or the last (the head)."""

    @property
    def parameters(self) -> int:
        """The number of elements, of all copies."""
        return self.rows * self.columns * self.copies

    def parts(self, ranks: Ranks) -> float:
        """Into how many parts it is divided."""
        found: float = {
            Shard.TENSOR: ranks.tensor,
            Shard.ATTENTION: ranks.attention,
            Shard.DENSE: ranks.dense,
            Shard.EXPERT: ranks.tensor,
            Shard.SHARED_EXPERT: ranks.shared_expert,
            Shard.EMBEDDING: ranks.embedding,
            Shard.HEAD: ranks.head,
            Shard.WHOLE: 1,
        }[self.shard]
        if self.most is not None:
            found = min(found, max(1, self.most))
        if self.shard is Shard.EXPERT and ranks.redundant_experts and self.copies:
            found *= self.copies / (self.copies + ranks.redundant_experts)
        return found


def vector(name: str, size: int, *, role: Role = Role.BODY, element: int | None = None) -> Matrix:
    """A norm or a bias, that every rank has."""
    return Matrix(name, size, role=role, linear=False, bytes=element)

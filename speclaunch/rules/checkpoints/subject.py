"""Which checkpoint the rules look into: the draft's; without speculation the target's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.drafts import own_path
from speclaunch.record import record

if TYPE_CHECKING:  # most lints have no tensors at hand, and need none of these
    from collections.abc import Mapping

    from speclaunch.facts.checkpoint import Checkpoint
    from speclaunch.facts.safetensors_header import TensorHeader
    from speclaunch.facts.tensors import TensorFacts
    from speclaunch.rules.checkpoints.loader import Comparison, Loader

_SAME_SHAPES = (None, "fp8")
"""How a checkpoint may be quantised and keep the shapes of its matrices."""
_FROM_DRAFT = ("EAGLE", "EAGLE3", "STANDALONE", "DFLASH")


@record
class Subject:
    """The checkpoint, and the argument that names it."""

    checkpoint: Checkpoint
    argument: str
    tensors: TensorFacts
    loader: Loader | None
    """None where the class is not one of those whose loader is known."""

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        """Names and shapes. Raises UnknownValueError where not all could be read."""
        headers = self.tensors.headers
        if headers.unread is not None:
            raise UnknownValueError(f"{self.checkpoint.name}: {headers.unread}")
        return headers.tensors

    @property
    def is_whole(self) -> bool:
        """Whether all files are there, and are what they should be."""
        return not (self.tensors.headers.broken or self.checkpoint.missing_files)

    def compared(self) -> Comparison | None:
        """The files against the class; None where either is not known, or the files are broken."""
        if self.loader is None or not self.is_whole:
            return None
        from speclaunch.rules.checkpoints.loader import compare  # noqa: PLC0415

        plain = self.checkpoint.quantization in _SAME_SHAPES
        return compare(self.loader, self.headers, plain=plain)

    def loaded(self) -> list[str]:
        """The tensors that the class computes with; all, where it is not known."""
        if self.loader is None:
            return list(self.headers)
        compared = self.compared()
        own = {} if compared is None else compared.own
        return [
            name
            for name, place in own.items()
            if place not in self.loader.expected or self.loader.expected[place].used
        ]


def examined(plan: Plan) -> tuple[Subject, Loader, Comparison] | None:
    """What is looked into, its loader, and the two compared; None where there is nothing to
    compare. Raises UnknownValueError."""
    found = subject(plan)
    if found is None:
        return None
    loader, compared = found.loader, found.compared()
    if loader is None or compared is None:
        return None
    return found, loader, compared


def subject(plan: Plan) -> Subject | None:
    """What is looked into; None where no files are at hand. Raises UnknownValueError."""
    algorithm = plan.algorithm
    if algorithm is None:
        return _subject(plan, plan.facts.target, "model_path", drafts=False)
    if algorithm not in _FROM_DRAFT:
        return None
    if own_path(plan) is None:
        return _subject(plan, plan.facts.target, "model_path", drafts=True)
    return _subject(plan, plan.facts.draft, "speculative_draft_model_path", drafts=True)


def _subject(
    plan: Plan, checkpoint: Checkpoint | None, argument: str, *, drafts: bool
) -> Subject | None:
    if checkpoint is None or checkpoint.tensors is None:
        return None
    from speclaunch.rules.checkpoints.loaders import find_loader  # noqa: PLC0415

    find = find_loader(checkpoint, argument, drafts=drafts)
    if drafts and argument == "model_path" and find is None:
        return None  # the whole target, of which it is not known what drafts
    loader = None if find is None else find(checkpoint, plan.request.version)
    return Subject(checkpoint, argument, checkpoint.tensors, loader)

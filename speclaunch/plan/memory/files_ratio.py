"""Whether the files of a checkpoint hold what its config describes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.memory.matrices import WeightRole

_FAR = 0.25
"""Where count and files differ by more, the config does not describe the files."""


def ratio_to_files(
    checkpoint: Checkpoint, counted: Mapping[WeightRole, int], head: int, *, is_draft: bool
) -> float | None:
    """The files' bytes by the config's; 1 without files, None where they are of something else.

    Files may lack or repeat what the config does not tell: a head that is tied (`head`: its bytes,
    0 where it is counted), the embedding of a draft, MTP layers and their copies. The nearest of
    these is what they hold.
    """
    total = checkpoint.weight_bytes
    if total is None:
        return 1.0
    sizes = dict(counted)
    sizes[WeightRole.BODY] += sizes.pop(WeightRole.VISION)
    optional = [sizes[WeightRole.MTP_COPY], head]
    if checkpoint.mtp_weights is None:
        optional.append(sizes[WeightRole.MTP])
    if is_draft:
        optional += [sizes[WeightRole.EMBEDDING], sizes[WeightRole.HEAD]]
    fixed = sum(sizes.values()) + head - sum(optional)
    choices = [
        fixed + sum(size for size, taken in zip(optional, chosen, strict=True) if taken)
        for chosen in product((True, False), repeat=len(optional))
    ]
    nearest = min(choices, key=lambda size: abs(size - total))
    if nearest <= 0:
        return None
    ratio = total / nearest
    return ratio if abs(ratio - 1) <= _FAR else None

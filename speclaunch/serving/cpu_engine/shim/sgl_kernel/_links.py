"""First child and next sibling of the nodes of a draft tree."""

import torch


def child_and_sibling(parent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``(first child, next sibling)`` for ``parent`` ``[bs, n]``, -1 if there is none.

    ``parent[b, i]`` is the index of node ``i``'s parent, less than ``i``, or -1 for a root. Both
    results are ``[bs, n]`` int64. Of several candidates, the smallest index is returned:
    verification tries branches in this order.
    """
    n = parent.shape[1]
    index = torch.arange(n)
    later = index[None, None, :] > index[None, :, None]
    is_child = parent[:, None, :] == index[None, :, None]
    is_sibling = (parent[:, None, :] == parent[:, :, None]) & later & (parent[:, :, None] >= 0)
    return _first_true(is_child), _first_true(is_sibling)


def _first_true(candidates: torch.Tensor) -> torch.Tensor:
    place = candidates.int().argmax(-1)  # of equal values, torch returns the first on a CPU
    return torch.where(candidates.any(-1), place, -1)

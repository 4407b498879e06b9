"""Reconstruction of NGRAM's draft trees from their masks."""

import torch

from sgl_kernel.tree import child_and_sibling


def reconstruct_indices_from_tree_mask(
    tree_mask: torch.Tensor,
    verified_seq_len: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Derive the positions and links of draft trees from their masks.

    ``tree_mask`` ``[bs * n * n]``: element ``i, j`` is true when node ``j`` is an ancestor of node
    ``i``; ancestors have smaller indices, and the largest is the parent. ``verified_seq_len``
    is ``[bs]``. Writes ``positions`` and ``retrive_*``, int64, ``bs * n`` elements each. Called by
    ``kernels/ops/speculative/reconstruct_tree.py``, whose docstring is the contract.
    """
    batch, n = int(batch_size), int(draft_token_num)
    mask = tree_mask.reshape(-1)
    if mask.numel() < batch * n * n:
        raise ValueError(
            f"a mask of {mask.numel()} elements is too small for {batch} trees of {n} nodes"
        )
    ancestors = mask[: batch * n * n].view(batch, n, n).bool().tril(-1)
    index = torch.arange(n)
    parent = torch.where(ancestors, index, -1).amax(-1)
    level = ancestors.sum(-1)
    next_token, next_sibling = child_and_sibling(parent)
    _write(positions, level + verified_seq_len[:batch, None])
    _write(retrive_index, torch.arange(batch * n))
    _write(retrive_next_token, next_token)
    _write(retrive_next_sibling, next_sibling)


def _write(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copy ``values`` to the beginning of ``target``; their shapes may differ."""
    target.view(-1)[: values.numel()] = values.reshape(-1).to(target.dtype)

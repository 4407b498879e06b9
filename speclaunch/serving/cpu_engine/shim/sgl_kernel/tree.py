"""Construction and greedy verification of draft trees.

A tree has ``n = draft_token_num`` nodes per request. Node 0 is the last accepted token; node
``t > 0`` is the draft token at ``selected_index[:, t - 1]``. Called by
``kernels/ops/speculative/spec_tree.py`` for EAGLE, EAGLE3, STANDALONE and NGRAM.
"""

import torch

QLEN_ONLY = 1
"""``TreeMaskMode.QLEN_ONLY``, a mask of the draft tokens alone: the only mode on a CPU
(``default_tree_mask_mode`` in ``srt/speculative/eagle_utils.py``)."""


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Derive mask, positions and links of each tree from the draft's choices.

    Read: ``parent_list`` int64 ``[bs, p]`` (``p`` is 0 for one draft step), the draft index of the
    parent of each group of ``topk`` candidates; ``selected_index`` int64 ``[bs, n - 1]``, the
    selected draft indices, ascending; ``verified_seq_len`` ``[bs]``.
    Written: ``tree_mask`` bool ``[bs * n * n]`` (node ``i`` sees node ``j``), ``positions`` int64
    ``[bs * n]``, and ``retrieve_*`` int64 ``[bs, n]``.
    """
    if int(tree_mask_mode) != QLEN_ONLY:
        raise NotImplementedError(
            f"tree mask mode {int(tree_mask_mode)}: SGLang builds only QLEN_ONLY masks on a CPU"
        )
    batch, n = verified_seq_len.numel(), draft_token_num
    parent = _parents(parent_list.reshape(batch, -1), selected_index.reshape(batch, -1), topk, n)

    sees = torch.eye(n, dtype=torch.bool).repeat(batch, 1, 1)
    requests = torch.arange(batch)
    for node in range(1, n):
        sees[:, node] |= sees[requests, parent[:, node]]
    level = sees.sum(-1) - 1
    if batch and int(level.max()) > depth:
        raise ValueError(f"a draft tree has {int(level.max())} levels after {depth} draft steps")

    tree_mask.view(-1)[: batch * n * n] = sees.view(-1).to(tree_mask.dtype)
    positions.view(batch, n).copy_(verified_seq_len[:, None] + level)
    retrieve_index.view(batch, n).copy_(torch.arange(batch * n).view(batch, n))
    next_token, next_sibling = child_and_sibling(parent)
    retrieve_next_token.view(batch, n).copy_(next_token)
    retrieve_next_sibling.view(batch, n).copy_(next_sibling)


def _parents(parent_list: torch.Tensor, selected: torch.Tensor, topk: int, n: int) -> torch.Tensor:
    """Return the parent node of each node, ``[bs, n]`` int64, -1 for node 0."""
    batch = selected.shape[0]
    parent = torch.full((batch, n), -1, dtype=torch.int64)
    selected = selected[:, : n - 1]
    group = torch.div(selected, topk, rounding_mode="floor")
    if group.numel() and int(group.max()) > 0:
        candidates = parent_list.gather(1, group)
        matches = selected[:, None, :] == candidates[:, :, None]  # [bs, node, candidate parent]
        found = matches.any(-1) | (group == 0)
        earlier = matches.int().argmax(-1) < torch.arange(n - 1)
        if not bool((found & (earlier | (group == 0))).all()):
            raise ValueError(
                "a draft token was selected without its parent: the draft's scores are not a"
                " proper ranking (NaN in its logits?)"
            )
        parent[:, 1:] = torch.where(group == 0, 0, matches.int().argmax(-1) + 1)
    else:
        parent[:, 1:] = 0
    return parent


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Follow each tree from its root while a child matches the target's prediction.

    Read: ``candidates`` ``[bs, n]`` the tokens of the nodes, ``retrive_*`` int64 ``[bs, n]`` the
    links, ``target_predict`` ``[bs * n]`` the target's choice after each node. Written:
    ``accept_index`` ``[bs, s]`` the indices of the accepted nodes, root first, other entries remain
    -1; ``accept_token_num`` ``[bs]`` their count without the root; ``predicts`` ``[bs * n]`` the
    target's choice at each accepted node. The spelling ``retrive`` follows the call in
    ``kernels/ops/speculative/spec_tree.py``.
    """
    tokens, place = candidates.tolist(), retrive_index.tolist()
    child, sibling = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    choice = target_predict.reshape(-1).tolist()
    most = accept_index.shape[1]
    for request in range(candidates.shape[0]):
        path = [0]
        while len(path) < most:
            predicted = choice[place[request][path[-1]]]
            node = child[request][path[-1]]
            while node != -1 and tokens[request][node] != predicted:
                follower = sibling[request][node]
                if follower != -1 and follower <= node:
                    raise ValueError(f"siblings {node} -> {follower} are out of order")
                node = follower
            if node == -1:
                break
            path.append(node)
        for step, node in enumerate(path):
            where = place[request][node]
            accept_index[request, step] = where
            predicts[where] = choice[where]
        accept_token_num[request] = len(path) - 1


def child_and_sibling(parent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``(first child, next sibling)`` for ``parent`` ``[bs, n]``, -1 if there is none.

    ``parent[b, i]`` is the index of node ``i``'s parent, less than ``i``, or -1 for a root. Both
    results are ``[bs, n]`` int64. Of several candidates, the smallest index is returned, because
    verification tries branches in index order.
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

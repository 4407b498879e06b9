"""Attention over a paged KV cache, as the ``intel_amx`` backend calls it.

``srt/layers/attention/intel_amx_backend.py`` gets its two kernels from ``torch.ops.sgl_kernel``.
``q`` is ``[tokens, heads, d]``, ``key_buffer`` ``[slots, kv_heads, d]``, ``value_buffer`` ``[slots,
kv_heads, dv]``, ``o`` ``[tokens, heads, dv]`` (written). ``req_to_token[row]`` lists the slots of a
request. ``req_pool_indices`` ``[bs]`` selects the rows. ``seq_lens`` int64 ``[bs]`` counts the
positions to attend to. Sums are computed in float32 for every cache dtype.

Not supported, and rejected: cross attention, attention sinks, quantized caches, MLA's shared
buffer.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch


def with_optional_scales(kernel: Callable[..., None]) -> Callable[..., None]:
    """Return ``kernel``, wrapped for calls with or without ``k_scale`` and ``v_scale``.

    0.5.20 and later pass them as floats. Earlier calls omit them, so a tensor is at their position.
    """
    place = list(inspect.signature(kernel).parameters).index("k_scale")

    def call(*args: Any) -> None:
        if isinstance(args[place], torch.Tensor):
            args = (*args[:place], 1.0, 1.0, *args[place:])
        kernel(*args)

    return call


def extend_attention_cpu(
    q: torch.Tensor,
    k: torch.Tensor | None,  # noqa: ARG001  (the backend has stored k and v already)
    v: torch.Tensor | None,  # noqa: ARG001
    o: torch.Tensor,
    key_buffer: torch.Tensor,
    value_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_extend_len: int,  # noqa: ARG001
    scaling: float,
    logit_cap: float,
    is_cross_attn: bool = False,
    sliding_window: int = 0,
    encoder_lens: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    tree_mask: torch.Tensor | None = None,
    is_causal: bool = True,
) -> None:
    """Attend from the last ``extend_seq_lens[i]`` positions of each request to all its positions.

    A request's queries are the rows of ``q`` from ``extend_start_loc[i]`` on. New positions see
    each other causally, or according to ``tree_mask``: ``n * n`` booleans per request, concatenated
    (``TreeMaskMode.QLEN_ONLY``), used while a draft tree is verified.
    """
    _refuse(key_buffer, value_buffer, k_scale, v_scale, is_cross_attn, encoder_lens, sinks)
    if tree_mask is not None and sliding_window > 0:
        raise NotImplementedError(
            "the CPU engine supports no draft tree in layers with a sliding window"
        )
    mask_start = 0
    batch = zip(
        req_pool_indices.tolist(),
        seq_lens.tolist(),
        extend_seq_lens.tolist(),
        extend_start_loc.tolist(),
        strict=True,
    )
    for row, length, new, start in batch:
        if not 0 <= new <= length <= req_to_token.shape[1]:
            raise ValueError(
                f"{length} positions ({new} new) do not fit a table of {req_to_token.shape[1]}"
            )
        if new == 0:
            continue
        prefix = length - new
        visible = torch.ones(new, length, dtype=torch.bool)
        if tree_mask is not None:
            part = tree_mask.reshape(-1)[mask_start : mask_start + new * new]
            if part.numel() != new * new:
                raise ValueError(f"the tree mask is too short for {new} draft tokens")
            visible[:, prefix:] = part.view(new, new)
            mask_start += new * new
        elif is_causal:
            visible = visible.tril(prefix)
        if sliding_window > 0:
            visible = visible.triu(prefix - sliding_window + 1)
        slots = req_to_token[row, :length].to(torch.int64)
        o[start : start + new] = _attend(
            q[None, start : start + new],
            key_buffer[slots][None],
            value_buffer[slots][None],
            visible[None],
            scaling,
            logit_cap,
        )[0]


def decode_attention_cpu(
    q: torch.Tensor,
    key_buffer: torch.Tensor,
    value_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    o: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    loc: torch.Tensor,
    attn_logits: torch.Tensor,  # noqa: ARG001  (scratch space of the compiled kernel)
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    scaling: float,
    logit_cap: float,
    is_cross_attn: bool = False,
    sliding_window: int = 0,
    encoder_lens: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> None:
    """Store the new ``k`` and ``v`` at the slots ``loc``, then attend from one query per request.

    ``k`` and ``v`` are None if already stored. A request of length 0, as in an idle batch,
    yields zeros.
    """
    _refuse(key_buffer, value_buffer, k_scale, v_scale, is_cross_attn, encoder_lens, sinks)
    if k is not None and v is not None:
        key_buffer[loc] = k.reshape(-1, *key_buffer.shape[1:]).to(key_buffer.dtype)
        value_buffer[loc] = v.reshape(-1, *value_buffer.shape[1:]).to(value_buffer.dtype)
    longest = int(seq_lens.max()) if seq_lens.numel() else 0
    if longest > req_to_token.shape[1]:
        raise ValueError(f"{longest} positions do not fit a table of {req_to_token.shape[1]}")
    if longest == 0:
        o.zero_()
        return
    position = torch.arange(longest)
    visible = position < seq_lens[:, None]
    if sliding_window > 0:
        visible &= position >= seq_lens[:, None] - sliding_window
    slots = req_to_token[req_pool_indices, :longest].to(torch.int64)
    # beyond a request's end the table has old slots, perhaps of rows never written: NaN there would
    # survive a weight of 0, so read the request's first row instead
    slots = torch.where(position < seq_lens[:, None], slots, slots[:, :1])
    result = _attend(
        q[:, None], key_buffer[slots], value_buffer[slots], visible[:, None], scaling, logit_cap
    )[:, 0]
    o.copy_(torch.where((seq_lens > 0)[:, None, None], result, 0))


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor,
    scaling: float,
    logit_cap: float,
) -> torch.Tensor:
    """Return the attention of ``q`` ``[b, lq, heads, d]`` to ``k``, ``v`` ``[b, lk, kv_heads, d]``.

    ``visible`` is ``[b, lq, lk]``. A KV head serves ``heads / kv_heads`` consecutive query heads.
    """
    batch, length, heads, dim = q.shape
    kv_heads = k.shape[2]
    grouped = q.float().view(batch, length, kv_heads, heads // kv_heads, dim)
    scores = torch.einsum("bqhgd,bkhd->bhgqk", grouped, k.float()) * scaling
    if logit_cap > 0:
        scores = logit_cap * torch.tanh(scores / logit_cap)
    scores = scores.masked_fill(~visible[:, None, None], float("-inf"))
    mixed = torch.einsum("bhgqk,bkhd->bqhgd", torch.softmax(scores, -1), v.float())
    return mixed.reshape(batch, length, heads, v.shape[3]).to(q.dtype)


def _refuse(
    key_buffer: torch.Tensor,
    value_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    is_cross_attn: bool,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    if is_cross_attn or encoder_lens is not None:
        raise NotImplementedError("the CPU engine does not support cross attention")
    if sinks is not None:
        raise NotImplementedError("the CPU engine does not support attention sinks")
    if k_scale != 1.0 or v_scale != 1.0 or not key_buffer.dtype.is_floating_point:
        raise NotImplementedError("the CPU engine does not support a quantized KV cache")
    if key_buffer.dtype.itemsize == 1:
        raise NotImplementedError(
            f"the CPU engine does not support a KV cache of {key_buffer.dtype}"
        )
    if key_buffer.data_ptr() == value_buffer.data_ptr():
        raise NotImplementedError(
            "the CPU engine does not support MLA (keys and values in one buffer)"
        )


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """Return a table with one row per branch of each request's draft, ``[bs * topk, pool_len]``.

    A row contains the request's slots up to ``seq_lens[i]``, then the branch's ``num_steps`` slots,
    which ``req_to_token`` stores branch by branch, then zeros. Called by
    ``IntelAMXMultiStepDraftBackend.init_forward_metadata``.
    """
    batch = seq_lens.numel()
    table = torch.zeros(batch, topk, pool_len, dtype=req_to_token.dtype)
    longest = int(seq_lens.max()) if batch else 0
    if longest + topk * num_steps > req_to_token.shape[1]:
        raise ValueError(
            f"{topk} branches of {num_steps} slots after position {longest} do not fit a table of"
            f" {req_to_token.shape[1]}"
        )
    width = longest + num_steps
    column = torch.arange(width)
    length = seq_lens.to(torch.int64)[:, None, None]
    in_draft = (column >= length) & (column < length + num_steps)
    branch_start = torch.arange(topk)[None, :, None] * num_steps
    source = torch.where(in_draft, column + branch_start, column)
    rows = req_to_token[req_pool_indices, : longest + topk * num_steps]
    rows = rows[:, None].expand(-1, topk, -1)
    table[:, :, :width] = torch.where(column < length + num_steps, rows.gather(2, source), 0)
    return table.view(batch * topk, pool_len)

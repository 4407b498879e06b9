"""The request-to-token table and the KV rows that it points to.

``req_to_token`` is ``[requests, pool_len]`` int32: the KV slot of every position of a request.
``req_pool_indices`` ``[bs]`` selects the batch's rows; ``start_offset`` and ``end_offset`` ``[bs]``
bound a range of positions in each. Concatenated slots (``out_cache_loc``) are int64.
"""

import ctypes

import torch


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write the slots ``out_cache_loc`` into the table, ``end - start`` of them per request.

    Called by ``srt/mem_cache/allocation.py`` (``assign_req_to_token_pool_func``).
    """
    rows, columns = ragged_columns(req_pool_indices, start_offset, end_offset, pool_len)
    slots = _first(out_cache_loc, rows.numel(), "out_cache_loc")
    req_to_token[rows, columns] = slots.to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Copy the slots of the ranges from the table to the beginning of ``out_cache_loc``.

    Called by ``kernels/ops/speculative/cache_locs.py`` (``assign_extend_cache_locs_func``,
    ``fill_front_out_cache_loc_func``).
    """
    rows, columns = ragged_columns(req_pool_indices, start_offset, end_offset, pool_len)
    target = _first(out_cache_loc, rows.numel(), "out_cache_loc")
    target.copy_(req_to_token[rows, columns])


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Copy to ``out_cache_loc`` the ``topk * num_steps`` slots after each request's ``seq_lens``.

    Called by ``kernels/ops/speculative/cache_locs.py``.
    """
    assign_extend_cache_locs_cpu(
        req_pool_indices,
        req_to_token,
        seq_lens,
        seq_lens + topk * num_steps,
        out_cache_loc,
        pool_len,
    )


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor,
    strides: torch.Tensor,
    tgt_loc: torch.Tensor,
    src_loc: torch.Tensor,
) -> None:
    """Copy the rows ``src_loc`` onto the rows ``tgt_loc`` in the K and V buffers of every layer.

    ``data_ptrs`` uint64 ``[buffers]`` contains the buffers' addresses, ``strides`` ``[buffers]``
    the bytes of a row. All rows are read before any is written, so the lists may overlap. Called by
    ``kernels/ops/kvcache/cache_move.py`` when accepted tree branches are made contiguous.
    """
    targets, sources = tgt_loc.tolist(), src_loc.tolist()
    if len(targets) != len(sources):
        raise ValueError(f"{len(sources)} source rows do not match {len(targets)} target rows")
    if any(row < 0 for row in targets + sources):
        raise ValueError(f"negative KV row in {sources} -> {targets}")
    for address, size in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(address + row * size, size) for row in sources]
        for row, content in zip(targets, rows, strict=True):
            ctypes.memmove(address + row * size, content, size)


def _first(tensor: torch.Tensor, count: int, name: str) -> torch.Tensor:
    if tensor.numel() < count:
        raise ValueError(f"{name} has {tensor.numel()} slots, but {count} are needed")
    return tensor.view(-1)[:count]


def ragged_columns(
    rows: torch.Tensor, start: torch.Tensor, end: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows and the columns of the cells ``rows[i], start[i]:end[i]``, in order.

    ``rows``, ``start``, ``end`` are ``[n]``; both results are int64 ``[sum(end - start)]``. A range
    beyond ``width`` columns raises ``ValueError``.
    """
    start, end = start.to(torch.int64), end.to(torch.int64)
    lengths = end - start
    if lengths.numel() and (
        int(lengths.min()) < 0 or int(start.min()) < 0 or int(end.max()) > width
    ):
        raise ValueError(
            f"column ranges {start.tolist()}..{end.tolist()} do not fit a table of {width} columns"
        )
    first_cell = torch.cumsum(lengths, 0) - lengths
    cells = torch.arange(int(lengths.sum()))
    return (
        rows.to(torch.int64).repeat_interleave(lengths),
        cells + (start - first_cell).repeat_interleave(lengths),
    )

"""Updates of token ids and slots between a verification and the next draft."""

import torch


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    accept_stride: int,
) -> None:
    """Write the last accepted token of each request into ``bonus_tokens`` ``[bs]``.

    ``accept_tokens`` has ``accept_stride`` entries per request. The first ``accept_lens[i]`` are
    filled (at least 1, because they include the bonus token). Called by
    ``kernels/ops/speculative/eagle.py``.
    """
    lengths = accept_lens.to(torch.int64)
    if lengths.numel() and not 1 <= int(lengths.min()) <= int(lengths.max()) <= accept_stride:
        raise ValueError(f"accept_lens {lengths.tolist()} are not all in 1..{accept_stride}")
    last = torch.arange(lengths.numel()) * accept_stride + lengths - 1
    bonus_tokens[: lengths.numel()] = accept_tokens.reshape(-1)[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor,
    out_cache_loc: torch.Tensor,
    accept_out_cache_loc: torch.Tensor,
) -> None:
    """Pack the accepted draft tokens' slots at the start of ``accept_out_cache_loc``.

    ``accept_index`` contains indices into ``out_cache_loc``; entries of -1 are skipped. Called
    by ``kernels/ops/speculative/eagle.py``.
    """
    accepted = accept_index.reshape(-1)
    accepted = accepted[accepted > -1].to(torch.int64)
    packed = accept_out_cache_loc.view(-1)
    if packed.numel() < accepted.numel():
        raise ValueError(f"{accepted.numel()} accepted slots do not fit in {packed.numel()} slots")
    packed[: accepted.numel()] = out_cache_loc.reshape(-1)[accepted].to(packed.dtype)


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None = None,
) -> None:
    """Shift each request's ids left by one and put its newly drafted token at the end.

    Request ``i`` has ``extend_seq_lens[i]`` ids from ``extend_start_loc[i]`` on; a request without
    ids is unchanged. With ``select_index``, the new token is put at that index instead.
    Called by ``kernels/ops/speculative/multi_layer_eagle.py``.
    """
    drafted = topk_index.reshape(-1).to(input_ids.dtype)
    bounds = zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)
    for request, (start, length) in enumerate(bounds):
        if length <= 0:
            continue
        last = start + length - 1
        input_ids[start:last] = input_ids[start + 1 : last + 1].clone()
        place = last if select_index is None else int(select_index[request])
        input_ids[place] = drafted[request]

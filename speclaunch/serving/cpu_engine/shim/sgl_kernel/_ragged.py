"""Index helpers for a table with one range of columns per row; the ranges are concatenated."""

import torch


def ragged_columns(
    rows: torch.Tensor, start: torch.Tensor, end: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``(row, column)`` of every cell of ``rows[i], start[i]:end[i]``, in order.

    ``rows``, ``start``, ``end`` are ``[n]``; the results ``[sum(end - start)]``, int64. ``width``
    is the number of columns; a range beyond them raises ``ValueError``.
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

"""Certificates: speed-ups at each concurrency, the claims they support, and each side's memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

import psutil
from msgspec import convert

from speclaunch.core import json_value, masked, read_json
from speclaunch.measure.bench.measurement import (
    ERROR_RATE,
    LEAST_PAIRS,
    At,
    Bound,
    Interval,
    Objection,
    Round,
    SpeedClaim,
    accepted_by_position,
    cells_of,
    good,
    goodput,
    interval,
    rounds_of,
    steps_by_accepted,
)
from speclaunch.measure.bench.schema import (
    CellRecord,
    CertificateDocument,
    GoodputRecord,
    MeasuredRecord,
    NumbersRecord,
    SideMemory,
    SideRecord,
    SingleCellRecord,
    SingleDocument,
    StopRecord,
    memory_of,
)
from speclaunch.serving import unfinished_work

Ratio = Callable[[Sequence[float], Sequence[float]], Interval]
QUANTILES = (0.0, *(number / 20 for number in range(1, 20)), 0.99, 1.0)
"""Quantiles of the request times in a certificate: enough to draw a distribution."""
SINGLE_SENTENCE = (
    "Only one server was measured. To show whether its speculation pays, compare it (--against)."
)
_NOT_PAYING = ("does not pay", "not shown")
Line = list[CellRecord]
"""Cells of a workload in order of concurrency or of context length."""


def certificate(
    candidate: str,
    baseline: str,
    rounds: Sequence[Round],
    objections: Sequence[Objection],
    *,
    simulated: Mapping[str, str] | None = None,
    goodput_within: Sequence[Bound] = (),
    memory: Iterable[SideMemory] = (),
    starts: int = 1,
    sides: Sequence[SideRecord] = (),
    measured: str | None = None,
    hardware: str | None = None,
) -> CertificateDocument:
    """Return the certificate of a measurement; it has no cells if there are objections.

    `simulated`: variable that simulates acceptance, by side. A simulated candidate is never claimed
    to pay; a simulated baseline supports no claim. `starts`: engine starts per side; the rounds
    alternate among them. Secrets in engine messages are masked.
    """
    made_up = simulated or {}
    cells: list[CellRecord] = []
    if not objections:
        at = cells_of(rounds)
        confidence = 1 - ERROR_RATE / max(len(at) * (2 if goodput_within else 1), 1)
        ratio = partial(interval, confidence=confidence, starts=starts)
        withheld = {SpeedClaim.PAYS} if candidate in made_up else set()
        if baseline in made_up:
            withheld = {SpeedClaim.PAYS, SpeedClaim.DOES_NOT_PAY}
        least = max(LEAST_PAIRS, starts)
        for point in at:
            ours, theirs = rounds_of(rounds, candidate, point), rounds_of(rounds, baseline, point)
            pairs = min(len(ours), len(theirs))
            if pairs < least:
                message = f"{pairs} pairs of rounds are too few; {least} are needed"
                objections = (Objection("pairs", message),)
                cells = []
                break
            cells.append(
                _cell(point, ours[:pairs], theirs[:pairs], ratio, goodput_within, withheld)
            )
    claims = {cell.claim for cell in cells}
    costs = {usage.side: usage for usage in memory}
    return convert(
        {
            "candidate": candidate,
            "baseline": baseline,
            "counts": not objections,
            "objections": [
                Objection(objection.kind, masked(objection.message)) for objection in objections
            ],
            "claim": None
            if objections
            else (claims.pop() if len(claims) == 1 else SpeedClaim.NOT_SHOWN.value),
            "sentence": "The measurement does not count." if objections else sentence(cells),
            "error_rate": ERROR_RATE,
            "measured": measured,
            "hardware": hardware,
            "sides": sides,
            "caveats": _caveats([candidate, baseline], made_up),
            "stops_paying": stops(cells),
            "memory": [costs[name] for name in (candidate, baseline) if name in costs],
            "goodput_within": {bound.metric: bound.most for bound in goodput_within},
            "starts": starts,
            "quantiles": QUANTILES,
            "cells": cells,
        },
        CertificateDocument,
    )


def single(
    side: str,
    rounds: Sequence[Round],
    objections: Sequence[Objection],
    *,
    simulated: Mapping[str, str],
    goodput_within: Sequence[Bound] = (),
    memory: Iterable[SideMemory] = (),
) -> SingleDocument:
    """Return the measurements of a single server, without a claim."""
    cells = []
    for at in cells_of(rounds) if not objections else ():
        own = rounds_of(rounds, side, at)
        rate = fmean(goodput(r, goodput_within) for r in own) if goodput_within else None
        numbers = convert({**_numbers(own), "goodput": rate}, MeasuredRecord)
        cells.append(
            SingleCellRecord(
                workload=at.workload,
                context=at.context,
                concurrency=at.concurrency,
                candidate=numbers,
            )
        )
    return SingleDocument(
        candidate=side,
        counts=not objections,
        objections=tuple(objections),
        sentence=SINGLE_SENTENCE,
        caveats=_caveats([side], simulated),
        memory=tuple(usage for usage in memory if usage.side == side),
        goodput_within={bound.metric: float(bound.most) for bound in goodput_within},
        cells=tuple(cells),
    )


def _caveats(sides: Iterable[str], simulated: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{side}: {simulated[side]} simulates acceptance; outputs are invalid"
        for side in sides
        if side in simulated
    )


def _cell(
    at: At,
    ours: Sequence[Round],
    theirs: Sequence[Round],
    ratio: Ratio,
    within: Sequence[Bound],
    withheld: Container[SpeedClaim],
) -> CellRecord:
    """Return the record of a cell; the claim is based on throughput.

    At a fixed concurrency, throughput and latency are two views of the same measurement.
    """
    speed_up = ratio([r.throughput for r in ours], [r.throughput for r in theirs])
    claim = SpeedClaim.NOT_SHOWN if speed_up.claim in withheld else speed_up.claim
    rates = _goodput(ours, theirs, ratio, within) if within else None
    return CellRecord(
        workload=at.workload,
        context=at.context,
        concurrency=at.concurrency,
        claim=claim.value,
        speed_up=speed_up,
        latency_ratio=ratio([r.latency for r in theirs], [r.latency for r in ours]),
        candidate=_side(ours, None if rates is None else rates.candidate),
        baseline=_side(theirs, None if rates is None else rates.baseline),
        goodput=rates,
    )


def _goodput(
    ours: Sequence[Round], theirs: Sequence[Round], ratio: Ratio, within: Sequence[Bound]
) -> GoodputRecord:
    mine = [goodput(r, within) for r in ours]
    others = [goodput(r, within) for r in theirs]
    is_ratio = min(*mine, *others) > 0
    return GoodputRecord(
        candidate=fmean(mine),
        baseline=fmean(others),
        candidate_share=_share(ours, within),
        baseline_share=_share(theirs, within),
        ratio=ratio(mine, others) if is_ratio else None,
    )


def _share(rounds: Sequence[Round], within: Sequence[Bound]) -> float:
    requests = sum(len(r.requests) for r in rounds)
    return sum(good(r, within) for r in rounds) / requests if requests else 0.0


def _side(rounds: Sequence[Round], goodput: float | None) -> NumbersRecord:
    requests = [request for each in rounds for request in each.requests]
    times = {
        "latency": quantiles([request.latency for request in requests]),
        "time_to_first_token": quantiles([request.first_token for request in requests]),
        "time_per_output_token": quantiles(
            [request.per_token for request in requests if request.per_token is not None]
        ),
    }
    return convert(
        {
            **_numbers(rounds),
            "goodput": goodput,
            "rounds": [r.throughput for r in rounds],
            "quantiles": times,
        },
        NumbersRecord,
    )


def _numbers(rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the `MeasuredRecord` fields except goodput, from one or more rounds of a cell.

    Throughput is the median over the rounds. Times are medians over all requests. Acceptance
    covers all verify steps.
    """
    requests = [request for each in rounds for request in each.requests]
    per_token = [request.per_token for request in requests if request.per_token is not None]
    steps = sum(request.verify_steps for request in requests)
    verified = sum(request.tokens or 0 for request in requests if request.verify_steps)
    lengths = [r.accept_length for r in requests if r.accept_length is not None]
    return {
        "requests": len(requests),
        "output_tokens_per_second": median(r.throughput for r in rounds),
        "latency": median(request.latency for request in requests),
        "time_to_first_token": median(request.first_token for request in requests),
        "time_per_output_token": median(per_token) if per_token else None,
        "prompt_tokens": median(request.prompt for request in requests),
        "accept_length": verified / steps if steps else None,
        "accepted_by_position": accepted_by_position(requests),
        "accept_length_per_request": fmean(lengths) if lengths else None,
        "verify_steps_by_accepted": steps_by_accepted(requests),
    }


def quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """Return the values at `QUANTILES`, interpolated linearly as in numpy; empty for no values."""
    ordered = sorted(values)
    if not ordered:
        return ()
    found = []
    for share in QUANTILES:
        at = share * (len(ordered) - 1)
        low = min(int(at), len(ordered) - 1)
        high = min(low + 1, len(ordered) - 1)
        found.append(ordered[low] + (ordered[high] - ordered[low]) * (at - low))
    return tuple(accumulate(found, max))  # rounding must not break the order


def stops(cells: Sequence[CellRecord]) -> tuple[StopRecord, ...]:
    """Return the points at which speculation stops paying, by workload.

    Each point is a measured cell. The search runs along concurrency, and along context length
    if there are several lengths.
    """
    found: list[StopRecord] = []
    for _, contexts, concurrencies in _workloads(cells):
        for line in contexts:
            found += _stops(line, "concurrency")
        for line in concurrencies:
            found += _stops(line, "context")
    return tuple(found)


def _workloads(cells: Sequence[CellRecord]) -> Iterator[tuple[str, list[Line], list[Line]]]:
    """Yield each workload with two lists of lines.

    The first has one line per context length, ordered by concurrency. The second has one line per
    concurrency, ordered by prompt tokens; it is empty for a single length.
    """
    for workload in dict.fromkeys(cell.workload for cell in cells):
        own = [cell for cell in cells if cell.workload == workload]
        lengths = dict.fromkeys(cell.context for cell in own)
        contexts = [
            sorted((cell for cell in own if cell.context == length), key=lambda c: c.concurrency)
            for length in lengths
        ]
        concurrencies = [
            sorted(
                (cell for cell in own if cell.concurrency == concurrency),
                key=lambda c: c.candidate.prompt_tokens,
            )
            for concurrency in sorted({cell.concurrency for cell in own})
        ]
        yield workload, contexts, concurrencies if len(lengths) > 1 else []


def _stops(line: Line, along: Literal["concurrency", "context"]) -> Iterator[StopRecord]:
    """Yield the points from which a line is not shown to pay, and from which it does not pay."""
    first, shown = _tail(line, _NOT_PAYING), _tail(line, ("does not pay",))
    for start in dict.fromkeys((first, shown)):
        if start < len(line):
            at = line[start]
            yield StopRecord(
                workload=at.workload,
                along=along,
                context=at.context if along == "concurrency" else None,
                concurrency=at.concurrency if along == "context" else None,
                start=at.concurrency if along == "concurrency" else at.context,
                claim="does not pay" if start == shown else "not shown",
            )


def _tail(line: Line, claims: Sequence[str]) -> int:
    start = len(line)
    while start and line[start - 1].claim in claims:
        start -= 1
    return start


def sentence(cells: Sequence[CellRecord]) -> str:
    """Return the verdict on all cells as text."""
    sentences: list[str] = []
    for workload, contexts, concurrencies in _workloads(cells):
        for line in contexts:
            context = line[0].context
            is_only = len(contexts) == 1 and not context
            name = workload if is_only else f"{workload}, {_prompts(context)}"
            sentences.append(f"{name}: {_claims(line)}.")
            if ends := _ends(line, "concurrency"):
                sentences.append(f"{ends.capitalize()}.")
        for line in concurrencies:
            if ends := _ends(line, "context"):
                sentences.append(f"At concurrency {line[0].concurrency}, {ends}.")
    return " ".join(sentences)


def _claims(line: Line) -> str:
    parts = []
    for claim, what in (
        ("pays", "it pays"),
        ("does not pay", "it does not pay"),
        ("not shown", "a difference is not shown"),
    ):
        which = [str(cell.concurrency) for cell in line if cell.claim == claim]
        if which:
            parts.append(f"{what} at concurrency {', '.join(which)}")
    return "; ".join(parts)


def _ends(line: Line, along: Literal["concurrency", "context"]) -> str:
    """Return the value at which a paying line stops paying, as text; empty if there is none."""
    if not any(cell.claim == "pays" for cell in line):
        return ""
    return " and ".join(
        f"it {'does not pay' if stop.claim == 'does not pay' else 'is not shown to pay'} from"
        f" {f'concurrency {stop.start}' if along == 'concurrency' else _prompts(stop.start)} upward"
        for stop in _stops(line, along)
    )


def _prompts(context: int) -> str:
    return f"prompts of {context} tokens" if context else "unchanged prompts"


FILE = "memory.json"
ENGINE, RESIDENT = "engine", "resident"


def cost_of(side: str, info: Mapping[str, Any], pid: int | None) -> SideMemory:
    """Return a side's memory, from its `/server_info`.

    `pid`: ID of the local engine process, or None. On a CPU, the process's resident memory is used.
    """
    resident = _resident(pid) if info.get("device") == "cpu" and pid is not None else None
    size = resident if resident is not None else _engine_bytes(info)
    measured = RESIDENT if resident is not None else ENGINE if size is not None else None
    return SideMemory(
        side=side, max_total_num_tokens=_tokens(info), bytes=size, bytes_measured=measured
    )


def _usage(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the memory usage of each data-parallel rank; older releases report one entry.

    Source: 0.5.23 managers/scheduler_components/memory_usage.py `build_memory_usage`.
    """
    states = info.get("internal_states")
    some = states if isinstance(states, list) else [states]
    found = [state.get("memory_usage") for state in some if isinstance(state, dict)]
    return [entry for entry in found if isinstance(entry, dict)]


def _tokens(info: Mapping[str, Any]) -> int | None:
    """Return the KV cache capacity of one rank in tokens, as logged; None if unknown.

    Source: 0.5.23 managers/scheduler.py `get_init_info`.
    """
    sizes = [
        info.get("max_total_num_tokens"),
        *(usage.get("token_capacity") for usage in _usage(info)),
    ]
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _engine_bytes(info: Mapping[str, Any]) -> int | None:
    """Return the memory of all ranks in bytes; None if no rank reports any.

    Ranks report GiB. Older releases report one number for all graphs, or none.
    """
    total = 0.0
    for usage in _usage(info):
        graph = usage.get("graph")
        parts = [usage.get("weight"), usage.get("kvcache")]
        parts += graph.values() if isinstance(graph, dict) else [graph]
        total += sum(part for part in parts if isinstance(part, int | float))
    return round(total * (1 << 30)) or None


def _resident(pid: int) -> int | None:
    """Return the PSS of a process tree in bytes, or RSS if there is no PSS; None if unreadable."""
    total = 0
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                full = process.memory_full_info()
                total += int(getattr(full, "pss", 0) or full.rss)
    return total or None


def write(folder: Path, costs: Iterable[SideMemory]) -> None:
    """Update the sides' memory costs in `folder`. Raises InputError."""
    by_side = {usage.side: usage for usage in (*read(folder), *costs)}
    unfinished_work.write(folder / FILE, {"memory": json_value(tuple(by_side.values()))})


def read(folder: Path) -> tuple[SideMemory, ...]:
    """Return the sides' stored memory costs in `folder`; empty if there are none."""
    return memory_of(read_json(folder / FILE) or {})

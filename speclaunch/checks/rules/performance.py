"""Rules about slow speculation, CUDA graphs and memory."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.values import attention_backends, number, runs_on_cpu
from speclaunch.engine import (
    DECODE_BACKEND,
    DECODE_SWITCH,
    RUNNING,
    WHEN_SPECULATING,
    Fit,
    MemoryBudget,
    Plan,
    UnknownValueError,
    attention_ranks,
    gpu,
)


def decodes_without_graphs(plan: Plan) -> bool:
    """True if decoding runs without CUDA graphs, by the user's choice or for lack of a GPU."""
    try:
        off = plan.value(gpu.GRAPHS_SWITCH)
    except UnknownValueError:  # a few backends have no graphs, and the backend is unknown
        off = plan.user_value(gpu.GRAPHS_SWITCH)
    return bool(off) or gpu.decode_alone_is_off(plan) or runs_on_cpu(plan)


def running_requests(plan: Plan) -> int:
    """Return each scheduler's share of `max_running_requests`.

    The engine does not start if the share is 0 (0.5.23 managers/tp_worker.py:420).
    """
    requested = number(plan, RUNNING)
    total = WHEN_SPECULATING if requested is None else requested
    return total // attention_ranks(plan)


def capture_sizes(plan: Plan) -> tuple[int, ...] | None:
    """Return the batch sizes to capture, ascending; None if they are neither set nor resolved.

    On unknown hardware, they may be for CPU graphs (see `runs_on_cpu`).
    """
    try:
        sizes = plan.value(gpu.SIZES)
    except UnknownValueError:
        sizes = plan.user_value(gpu.SIZES)
    if not isinstance(sizes, list | tuple):
        return None
    return tuple(sorted(int(size) for size in sizes))


def largest_capture(plan: Plan) -> int | None:
    """Return the largest batch size to capture; None if neither sizes nor a maximum are set."""
    sizes = capture_sizes(plan)
    if sizes:
        return sizes[-1]
    explicit = plan.user_value(gpu.MOST)
    return int(explicit) if explicit is not None else number(plan, gpu.MOST)


def sizing_arguments(plan: Plan) -> tuple[str, ...]:
    """Return the arguments with which the user set the sizes to capture."""
    names = (gpu.SIZES, gpu.MOST)
    return tuple(name for name in names if plan.is_set(name))


_FEW = 4
"""SPL701 warns if graphs cover less than the set `max_running_requests` divided by this."""


@rule("SPL701")
def graph_coverage(plan: Plan) -> Iterator[Verdict]:
    """Report more running requests than the CUDA graphs cover."""
    sizing = sizing_arguments(plan)
    if not sizing or decodes_without_graphs(plan):
        return
    largest, running = largest_capture(plan), running_requests(plan)
    if largest is None or largest >= running:
        return
    explicit = plan.is_set(RUNNING)
    listed = plan.is_set(gpu.SIZES)
    yield Verdict(
        f"CUDA graphs cover {largest} requests, but up to {running} run at a time",
        at=(*sizing, RUNNING),
        why="target and draft decode larger batches without a graph"
        if explicit
        else f"max_running_requests is {WHEN_SPECULATING} when speculating; larger batches are "
        "decoded without a graph",
        fix=Fix(f"add sizes up to {running} to the list, or lower max_running_requests")
        if listed
        else Fix(
            f"set {plan.written_name(gpu.MOST)} to {running}, or lower max_running_requests",
            set={gpu.MOST: running},
        ),
        severity=Severity.WARNING if explicit and largest * _FEW < running else Severity.INFO,
    )


@rule("SPL702")
def dropped_graph_sizes(plan: Plan) -> Iterator[Verdict]:
    """Report graph sizes above the running requests; they are not captured."""
    sizing = sizing_arguments(plan)
    if not sizing or decodes_without_graphs(plan):
        return
    largest, running = largest_capture(plan), running_requests(plan)
    if largest is None or largest <= running:
        return
    explicit, ranks = plan.is_set(RUNNING), attention_ranks(plan)
    yield Verdict(
        f"CUDA graphs are requested for up to {largest} requests, but at most {running} run at "
        "once",
        at=sizing,
        why=f"each of {ranks} ranks runs its share of max_running_requests; larger sizes are not "
        "captured"
        if ranks > 1
        else "sizes above max_running_requests are not captured"
        if explicit
        else f"max_running_requests becomes {plan.value(RUNNING)} when speculating, and larger "
        "sizes are not captured",
        fix=None
        if explicit
        else Fix(f"set {RUNNING} to {largest * ranks}", set={RUNNING: largest * ranks}),
        severity=Severity.INFO if explicit else Severity.WARNING,
    )


_DENSE = 32
"""Largest batch size that slime's workaround for padding captures, with every size from 1."""


@rule("SPL703")
def padded_draft_graphs(plan: Plan) -> Iterator[Verdict]:
    """Report draft batches that FlashInfer pads to the next captured size."""
    if decodes_without_graphs(plan) or attention_backends(plan)[1] != "flashinfer":
        return
    sizes = capture_sizes(plan)
    missing = _padded(sizes, running_requests(plan)) if sizes else None
    if missing == []:
        return
    shown = "a size" if missing is None else f"a size (such as {missing[0]})"
    yield Verdict(
        f"FlashInfer pads batches of {shown} that has no CUDA graph",
        at=("attention_backend", "decode_attention_backend", gpu.SIZES),
        why="before 0.5.3 padded draft batches cause illegal memory accesses (sglang issues "
        "#9888, #9521)",
        fix=Fix(
            "use fa3 or triton, or capture every size from 1 to 32",
            set={"attention_backend": "triton", "decode_attention_backend": None},
        ),
    )


def _padded(sizes: tuple[int, ...], running: int) -> list[int]:
    """Return the batch sizes, up to `_DENSE`, that are padded.

    Batches above the largest size run without a graph. `running`, if below that size, is also
    captured (0.5.2 model_executor/cuda_graph_runner.py:193).
    """
    largest = min(sizes[-1], running)
    return [size for size in range(1, min(_DENSE + 1, largest)) if size not in sizes]


_SWITCH = "disable_cuda_graph_padding"


@rule("SPL704")
def padding_switch(plan: Plan) -> Iterator[Verdict]:
    """Report `disable_cuda_graph_padding`, which adds no graph sizes for speculation."""
    if not plan.value(_SWITCH) or plan.is_set(gpu.SIZES):
        return
    yield Verdict(
        "disable_cuda_graph_padding adds no graph sizes for speculation",
        at=(_SWITCH,),
        why="before 0.5.3 it does not change the sizes for speculation, so batches of other "
        "sizes are decoded without a graph",
        fix=Fix(
            f"list the sizes in {plan.written_name(gpu.SIZES)}, and remove this switch",
            set={_SWITCH: None},
        ),
    )


_SWITCHES = (gpu.GRAPHS_SWITCH, DECODE_SWITCH)


@rule("SPL705")
def no_graphs(plan: Plan) -> Iterator[Verdict]:
    """Report speculation without CUDA graphs."""
    found = [name for name in _SWITCHES if plan.user_value(name)]
    if plan.user_value(DECODE_BACKEND) == "disabled":
        found.append(DECODE_BACKEND)
    if not found or runs_on_cpu(plan):
        return
    yield Verdict(
        f"{plan.algorithm} runs without CUDA graphs ({found[0]})",
        at=tuple(found),
        why="drafting runs many small forward passes; without graphs their launches cost more "
        "than speculation saves",
        fix=Fix(
            f"remove {' and '.join(found)}; to save memory, capture only a few small sizes",
            set=dict.fromkeys(found),
        ),
    )


_VARIABLE = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
_DEFAULT = 128
_LIMIT = 1024


@rule("SPL709")
def deepep_dispatch(plan: Plan) -> Iterator[Verdict]:
    """Report a DeepEP buffer that is smaller than a speculative batch."""
    if plan.value("moe_a2a_backend") != "deepep":
        return
    text = plan.env(_VARIABLE) or str(_DEFAULT)
    if not text.strip().isdigit():
        return
    room = int(text)
    if room > _LIMIT and plan.in_versions(">=0.5.2"):
        yield Verdict(
            f"{_VARIABLE} is {room}, above DeepEP's limit of {_LIMIT}",
            at=(_VARIABLE,),
            why="the engine asserts that it is at most 1024",
            fix=Fix(f"set it to {_LIMIT} or less", env={_VARIABLE: str(_LIMIT)}),
            severity=Severity.ERROR,
        )
    elif plan.value("deepep_mode") != "normal":  # the variable sizes the low-latency buffer
        yield from _too_small(plan, room)


def _too_small(plan: Plan, room: int) -> Iterator[Verdict]:
    largest, tokens = largest_capture(plan), number(plan, "speculative_num_draft_tokens")
    if decodes_without_graphs(plan) or largest is None or tokens is None:
        return
    if attention_ranks(plan) != number(plan, "tp_size"):
        return  # ranks that share attention share its tokens
    batch = min(largest, running_requests(plan))
    needed = batch * tokens
    if needed <= room:
        return
    yield Verdict(
        f"a batch of {batch} requests with {tokens} draft tokens has {needed} tokens; DeepEP "
        f"accepts {room} per rank",
        at=(_VARIABLE, gpu.MOST, gpu.SIZES, "moe_a2a_backend"),
        why="capturing that size fails with a DeepEP assertion",
        fix=Fix(
            f"set {_VARIABLE} to {needed} (at most {_LIMIT}), or capture smaller batches",
            env={_VARIABLE: str(min(needed, _LIMIT))},
        ),
    )


_FRACTION = "mem_fraction_static"
_PERCENT = 100
_LEAST_PERCENT = 2
"""Smallest `mem_fraction_static` treated as a percentage; 1.5 is probably a different typo."""


@rule("SPL710")
def memory_fraction(plan: Plan) -> Iterator[Verdict]:
    """Report a mem_fraction_static that is not a fraction."""
    value = plan.user_value(_FRACTION)
    if value is None or 0 < float(value) < 1:
        return
    number = float(value)
    percent = number / _PERCENT
    slip = _LEAST_PERCENT <= number < _PERCENT
    yield Verdict(
        f"mem_fraction_static is {number:g}, but must be a fraction of GPU memory, between 0 and 1",
        at=(_FRACTION,),
        why="no memory is left for the KV cache"
        if number <= 0
        else "the engine takes all GPU memory or more, and the next allocation fails",
        fix=Fix(f"set it to {percent:g} if {number:g}% is meant", set={_FRACTION: percent})
        if slip
        else Fix("remove it: the engine chooses a value", set={_FRACTION: None}),
        severity=Severity.WARNING if number == 1 else None,
    )


@rule("SPL711")
def does_not_fit(plan: Plan) -> Iterator[Verdict]:
    """Report weights or a KV cache that do not fit into memory."""
    if plan.facts.hardware is None:
        return
    from speclaunch.engine import memory_verdict  # noqa: PLC0415  all of memory/

    found = memory_verdict(plan)
    if found.phase is None:  # it fits, the memory is unknown, or ranks have no GPU (SPL506)
        return
    yield Verdict(
        f"the deployment does not fit into GPU memory: {found.why}",
        at=(_FRACTION, "model_path"),
        why=f"the start fails at '{found.phase.value}'"
        + (f"; the engine's message: {found.message}" * bool(found.message)),
        fix=_fix(plan, found),
        severity=Severity.ERROR if found.impossible else None,
    )


@rule("SPL712")
def tight_memory(plan: Plan) -> Iterator[Verdict]:
    """Report a deployment that fits into memory only in the best case."""
    if plan.facts.hardware is None:
        return
    from speclaunch.engine import memory_verdict  # noqa: PLC0415  all of memory/

    found = memory_verdict(plan)
    if found.fit is not Fit.TIGHT:
        return
    yield Verdict(
        f"the deployment may run out of GPU memory: {found.why}",
        at=(_FRACTION, "model_path"),
        why="startup, CUDA graph capture or a long prompt may fail",
        fix=_fix(plan, found),
    )


def _fix(plan: Plan, found: MemoryBudget) -> Fix:
    if found.impossible:
        return Fix(
            "use more GPUs (a larger tp_size), larger GPUs, or a quantized model; "
            "`speclaunch plan --fit` searches for settings that fit"
        )
    from speclaunch.engine import margins  # noqa: PLC0415

    choices = margins(plan)
    if choices is not None and choices.likely is not None:
        return Fix(f"set {_FRACTION}: {choices.summary}", set={_FRACTION: choices.likely.fraction})
    if found.fit is Fit.TIGHT:
        fraction = f"no value of {_FRACTION} is likely to work"
    elif choices is None:
        fraction = f"no value of {_FRACTION} helps"
    else:  # a borderline value is no remedy: SPL712 would warn of it
        fraction = f"{_FRACTION}={choices.summary}"
    return Fix(
        f"try `speclaunch plan --fit`, more GPUs (tp_size), or a quantized model; {fraction}"
    )

"""Which batch sizes of decode get a CUDA graph."""

from __future__ import annotations

from speclaunch.plan.plan import Plan
from speclaunch.plan.resolution.working import Working, counted
from speclaunch.plan.topics.graphs import MOST, SIZES, span
from speclaunch.plan.topics.parallel import attention_ranks


def resolve_sizes(working: Working) -> None:
    """The list of sizes and the largest, once a default for the largest is set."""
    with working.deciding(SIZES, MOST):
        if working.in_versions("<0.5.3"):
            source = (
                "sglang 0.5.2 model_executor/cuda_graph_runner.py:165, "
                "0.4.6 model_executor/cuda_graph_runner.py:127"
            )
            found = _by_the_runner(working)
            working.set(SIZES, found, _told(found, "the runner's own list"), source)
            return
        given = working.given(SIZES)
        on_cpu = working.in_versions(">=0.5.10") and working.device == "cpu"
        if on_cpu:
            _for_a_cpu(working)
        elif given is not None:
            source = "sglang 0.5.23 arg_groups/memory_hook.py:207, 0.5.3 server_args.py:712"
            working.set(MOST, max(given), "the largest of the list that is given", source)
        else:
            found = _listed(working, working.number(MOST))
            source = (
                "sglang 0.5.23 arg_groups/cuda_graph_hook.py:500, 0.5.10 server_args.py:1344, "
                "0.5.3 server_args.py:767"
            )
            how = "the list without speculation"
            if working.given("speculative_algorithm") is not None:
                how = "the list for speculation, finer for small batches"
            if working.value("disable_cuda_graph_padding"):
                how = "every size, as padding is off"
            working.set(SIZES, found, _told(found, how), source)


def _told(sizes: list[int], how: str) -> str:
    """How many sizes, where the list comes from and where it ends."""
    return f"{counted(len(sizes), 'size')} up to {max(sizes)}: {how}" if sizes else f"none: {how}"


def _listed(working: Working, most: int) -> list[int]:
    """`_generate_decode_cuda_graph_batch_sizes` (0.5.3 and later).

    With an algorithm there is less padding for small batches; whatever the word is.
    """
    if working.value("disable_cuda_graph_padding"):
        sizes = span(1, most)
    elif working.given("speculative_algorithm") is None:
        sizes = [1, 2, 4, 8, 12, *span(16, 256, 8), *span(272, 511, 16), *span(512, most, 32)]
    else:
        middle = span(40, 64 if working.in_versions(">=0.5.4.post2") else 60, 4)
        sizes = [*span(1, 8), *span(10, 32, 2), *middle, *span(72, 256, 8)]
        sizes += span(272, most, 16)
    sizes = [size for size in sizes if size <= most]
    if working.in_versions(">=0.5.10") and most not in sizes:
        sizes.append(most)
    return sizes


def _for_a_cpu(working: Working) -> None:
    """A graph of a CPU is compiled: torch_compile_max_bs limits it (0.5.10 and later)."""
    given = working.given(SIZES)
    if given is not None:
        most = max(given)
    else:
        most = int(working.value("torch_compile_max_bs") or working.number(MOST))
        if working.value("disable_cuda_graph_padding"):
            sizes = span(1, most)
        else:
            sizes = [*span(1, 16), *span(18, 30, 2), *span(32, 80, 4), *span(84, most, 8), most]
        found = sorted({size for size in sizes if size <= most})
        source = "sglang 0.5.23 arg_groups/cuda_graph_hook.py:535, 0.5.10 server_args.py:1377"
        working.set(SIZES, found, _told(found, "the list of a CPU"), source)
    why = "a graph of a CPU is compiled, and has the limit of torch_compile"
    source = "sglang 0.5.23 arg_groups/memory_hook.py:219, 0.5.10 server_args.py:1240"
    for name in ("torch_compile_max_bs", MOST):
        working.set(name, most, why, source)


def _by_the_runner(working: Working) -> list[int]:
    """Up to 0.5.2 the runner has the list (cuda_graph_runner.py: get_batch_sizes_to_capture)."""
    given, most = working.given(SIZES), working.value(MOST)
    sizes: list[int] = list(given) if given is not None else _runner_default(working)
    if most:
        sizes = [size for size in sizes if size <= most]
        if sizes and max(sizes) < most:
            sizes.extend(span(max(sizes), most, 16))
    return sorted(set(sizes))


def _runner_default(working: Working) -> list[int]:
    old = working.in_versions("<0.4.7")
    if working.algorithm is not None:
        end = span(40, 160, 16) if old else [*span(40, 63, 8), *span(80, 160, 16)]
        sizes = [*span(1, 8), *span(10, 32, 2), *end]
    elif working.value("disable_cuda_graph_padding"):
        sizes = [*span(1, 32), *span(40 if old else 48, 160, 16)]
    else:
        sizes = [1, 2, 4, 8, *span(16, 160, 8)]
    memory = working.gpu_memory
    if memory is not None and memory > (96 if old else 90) * 1024:
        sizes += span(160, 256, 8)
    if memory is not None and not old and memory > 160 * 1000:
        sizes += span(256, 512, 16)
    return sizes


def captured_sizes(plan: Plan) -> tuple[int, ...]:
    """The batch sizes that are captured in the end: no more than requests can run, and where
    ranks share a batch, only what divides among them. Raises UnknownValueError.

    0.5.23 model_executor/runner/base_cuda_graph_runner.py:65.
    """
    working = Working.of(plan)
    sizes = list(plan.value(SIZES) or ())
    running = plan.value("max_running_requests")
    if not sizes or running is None:
        return tuple(sizes)
    ranks = attention_ranks(working)
    most = max(1, int(running) // ranks)
    base, width = _alignment(working, ranks)
    if working.in_versions(">=0.5.10"):
        most = -(-most // base) * base
    if max(sizes) > most:
        sizes.append(most)
        if working.in_versions("<0.4.7"):
            sizes.append(most - 1)
    kept = {size for size in sizes if 0 < size <= most and size * width % base == 0}
    return tuple(sorted(kept))


def _alignment(working: Working, ranks: int) -> tuple[int, int]:
    """What a batch must divide by, and the tokens that each request brings."""
    if working.in_versions("<0.4.10"):
        return 1, 1
    base, width = 1, 1
    if working.in_versions(">=0.5.8"):
        width = working.number("speculative_num_draft_tokens", 1)
    if working.value("enable_two_batch_overlap"):
        base, width = 2, 1
    context = working.number("attn_cp_size", 1)
    if ranks > 1:  # ranks of attention gather their batches
        base *= max(1, working.number("tp_size", 1) // ranks // context)
    if working.in_versions(">=0.5.9") and base % context != 0:
        base *= context
    return base, max(1, width)

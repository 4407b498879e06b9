"""Rules about parallelism: sizes, and the placement and division of a model on GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import hardware_of, number
from speclaunch.engine import (
    ATTENTION_RANKS,
    HEAD,
    HEAD_ALONE,
    NO_RANKS,
    NODES,
    OWN_ARGUMENT,
    REPLICAS,
    REPLICAS_TOO,
    KnownRefusal,
    Plan,
    UnknownValueError,
    Vendor,
    architectures,
    attention_ranks,
    beyond_the_gpus,
    gpu_ranks,
    parallel,
    replicas,
    visible_gpus,
)

if TYPE_CHECKING:
    from speclaunch.engine import Undivided


@rule("SPL211")
def ngram_dp_attention(plan: Plan) -> Iterator[Verdict]:
    """Report NGRAM with DP attention."""
    return _without_dp_attention(plan, "NGRAM", parallel.NGRAM)


@rule("SPL212")
def standalone_dp_attention(plan: Plan) -> Iterator[Verdict]:
    """Report STANDALONE with DP attention."""
    return _without_dp_attention(plan, "STANDALONE", parallel.STANDALONE)


def _without_dp_attention(plan: Plan, algorithm: str, refusal: KnownRefusal) -> Iterator[Verdict]:
    if refusal.holds(plan):
        ranks = attention_ranks(plan)
        yield Verdict(
            f"{algorithm} speculation does not support DP attention ({ranks} ranks)",
            at=("enable_dp_attention", "attn_dp_size", "speculative_algorithm"),
            why=f"the engine refuses: {refusal.message}",
            fix=Fix(
                "remove enable_dp_attention, or use EAGLE or EAGLE3, which support it",
                set={"enable_dp_attention": None, "attn_dp_size": None},
            ),
        )


_OWN_RULES = ("DFLASH", "DSPARK", "UNO")
_VARIABLE = "SGLANG_ENABLE_PP_SPEC"


@rule("SPL221")
def pipeline_parallel_speculation(plan: Plan) -> Iterator[Verdict]:
    """Report speculation with pipeline parallelism if this version rejects it."""
    stages = number(plan, "pp_size") or 1
    if stages <= 1 or plan.algorithm is None or plan.algorithm in _OWN_RULES:
        return
    refusal = _refusal(plan)
    if refusal is None:
        return
    message, why = refusal
    yield Verdict(
        message.format(algorithm=plan.algorithm, stages=stages, version=plan.request.version),
        at=("pp_size", _VARIABLE, "speculative_algorithm"),
        why=f"the engine stops: AssertionError: {why}",
        fix=Fix(
            "use tensor parallelism (tp_size) instead of pipeline stages", set={"pp_size": None}
        ),
    )


def _refusal(plan: Plan) -> tuple[str, str] | None:
    """Return the problem and the engine's message; None if the engine accepts the plan."""
    if plan.in_versions("<0.5.20") or (plan.in_versions("<0.5.21") and plan.device != "npu"):
        message = (
            "Pipeline parallelism is not compatible with overlap schedule, speculative decoding"
        )
        if plan.in_versions("<0.5.11"):
            message += ", mixed chunked prefill."
        return (
            "{algorithm} speculation does not run with pp_size {stages} in SGLang {version}",
            message,
        )
    if plan.algorithm != "EAGLE" or plan.value("enable_multi_layer_eagle"):
        return (
            "only single-layer EAGLE supports speculation with pp_size {stages}, not {algorithm} "
            "as configured",
            "Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative "
            "decoding",
        )
    prefill = plan.value("disaggregation_mode") == "prefill"
    if plan.in_versions("<0.5.21") or not plan.env_flag(_VARIABLE):
        if prefill:
            return None
        return (
            "speculation with pp_size {stages} runs only on prefill servers, or with "
            f"{_VARIABLE}=1",
            "PP + speculative decoding (MTP) is only supported on prefill nodes "
            "(disaggregation-mode=prefill)",
        )
    for refused, name in (
        (plan.value("disaggregation_mode") != "null", "--disaggregation-mode"),
        (bool(plan.value("speculative_adaptive")), "--speculative-adaptive"),
        (attention_ranks(plan) > 1, "attention DP (--attn-dp-size)"),
    ):
        if refused:
            return (
                f"{_VARIABLE} does not work with {name}",
                f"{_VARIABLE} is not compatible with {name}",
            )
    return None


@rule("SPL222")
def pipeline_parallel_features(plan: Plan) -> Iterator[Verdict]:
    """Report pipeline parallelism with mixed chunks or delayed prefills."""
    stages = number(plan, "pp_size") or 1
    if stages <= 1 or plan.algorithm is not None:
        return
    if plan.in_versions("<0.5.11") and plan.value("enable_mixed_chunk"):
        yield Verdict(
            f"enable_mixed_chunk does not work with pp_size {stages} in SGLang "
            f"{plan.request.version}",
            at=("enable_mixed_chunk", "pp_size"),
            why="the engine stops: AssertionError: Pipeline parallelism is not compatible with "
            "overlap schedule, speculative decoding, mixed chunked prefill.",
            fix=Fix("remove enable_mixed_chunk", set={"enable_mixed_chunk": None}, safe=True),
        )
    if plan.in_versions(">=0.5.18") and plan.value("min_free_slots_delay") is not None:
        yield Verdict(
            f"min_free_slots_delay does not work with pp_size {stages}",
            at=("min_free_slots_delay", "pp_size"),
            why="the engine stops: AssertionError: --min-free-slots-delay is not supported with "
            "pipeline parallelism",
            fix=Fix("remove it", set={"min_free_slots_delay": None}, safe=True),
        )


@rule("SPL236")
def decode_context_parallel(plan: Plan) -> Iterator[Verdict]:
    """Report decode context parallelism on an unsupported device, or with speculation on NVIDIA."""
    ranks = number(plan, "dcp_size") or 1
    if ranks <= 1:
        return
    if hardware_of(plan).vendor is Vendor.AMD:
        return
    if plan.device != "cuda":
        yield Verdict(
            f"dcp_size {ranks} needs an AMD or NVIDIA GPU, not {plan.device}",
            at=("dcp_size",),
            why="the engine refuses: Decode context parallel is currently only supported on the "
            "AMD HIP platform",
            fix=Fix("remove it", set={"dcp_size": None}),
        )
    elif plan.algorithm is not None:
        yield Verdict(
            f"dcp_size {ranks} does not work with speculation on NVIDIA GPUs in SGLang "
            f"{plan.request.version}",
            at=("dcp_size", "speculative_algorithm"),
            why="the engine refuses: Decode context parallel on CUDA platform does not support "
            "any speculative algorithm",
            fix=Fix("remove dcp_size, or use SGLang 0.5.17", set={"dcp_size": None}),
        )


@rule("SPL255")
def parallel_sizes(plan: Plan) -> Iterator[Verdict]:
    """Report inconsistent numbers of nodes and ranks."""
    yield from _nodes(plan)
    dense = number(plan, "moe_dense_tp_size")
    allowed = {None, 1}
    if plan.in_versions(">=0.5.13"):
        allowed.add(number(plan, "tp_size"))
    if dense not in allowed:
        yield Verdict(
            f"moe_dense_tp_size {dense} is not supported",
            at=("moe_dense_tp_size",),
            why="the engine stops: AssertionError: moe_dense_tp_size only supports None and 1 "
            "(0.5.13 and later: or tp_size)",
            fix=Fix("set it to 1", set={"moe_dense_tp_size": 1}),
        )


def _nodes(plan: Plan) -> Iterator[Verdict]:
    nodes = number(plan, "nnodes") or 1
    tp, pp = number(plan, "tp_size") or 1, number(plan, "pp_size") or 1
    if (tp * pp) % nodes and plan.value("ep_join_mode") != "scale":
        yield Verdict(
            f"tp_size {tp} times pp_size {pp} is not divisible by {nodes} nodes",
            at=("nnodes", "tp_size"),
            why="the engine stops: AssertionError: tp_size must be divisible by number of nodes. "
            "tp_size times pp_size is the number of ranks on all nodes",
            fix=Fix(
                f"run the same number of ranks on every node, for example with tp_size {tp * nodes}"
            ),
        )
    if NODES.applies(plan):
        yield Verdict(
            f"{plan.value('dp_size')} replicas (dp_size) do not run on {nodes} nodes without DP "
            "attention",
            at=("dp_size", "nnodes"),
            why=f"the engine stops: AssertionError: {NODES.message}",
            fix=Fix("start one server per node behind a router, or use DP attention"),
        )


_AT = (ATTENTION_RANKS, parallel.SWITCH, REPLICAS, "tp_size")


@rule("SPL256")
def dp_attention_sizes(plan: Plan) -> Iterator[Verdict]:
    """Report DP attention with inconsistent sizes."""
    ranks = attention_ranks(plan)
    tp = number(plan, "tp_size") or 1
    if ranks > 1 and tp % ranks:
        yield Verdict(
            f"{ranks} ranks of DP attention do not divide tp_size {tp}",
            at=(ATTENTION_RANKS, REPLICAS, "tp_size"),
            why="the engine requires tp_size % dp_size == 0 and stops with an AssertionError "
            "without a message. The attention ranks are part of tp_size",
            fix=Fix(f"set tp_size to a multiple of {ranks}"),
        )
    if NO_RANKS.applies(plan):
        yield Verdict(
            f"enable_dp_attention needs a dp_size above 1 in SGLang {plan.request.version}",
            at=_AT,
            why=f"the engine stops: AssertionError: {NO_RANKS.message}",
            fix=Fix("remove enable_dp_attention", set={parallel.SWITCH: None}, safe=True),
        )
    if REPLICAS_TOO.applies(plan):
        yield Verdict(
            "replicas of a server with DP attention are not supported (dp_size "
            f"{plan.user_value(REPLICAS)}, attn_dp_size {plan.user_value(ATTENTION_RANKS)})",
            at=(REPLICAS, ATTENTION_RANKS),
            why=f"the engine refuses: {REPLICAS_TOO.message}",
            fix=Fix("remove dp_size", set={REPLICAS: None}),
        )
    if HEAD_ALONE.applies(plan):
        yield Verdict(
            "enable_dp_lm_head needs DP attention",
            at=(HEAD,),
            why=f"the engine stops: AssertionError: {HEAD_ALONE.message}",
            fix=Fix("remove it", set={HEAD: None}, safe=True),
        )


@rule("SPL258")
def requests_per_rank(plan: Plan) -> Iterator[Verdict]:
    """Report a request limit below the number of DP attention ranks."""
    limit = plan.user_value("max_running_requests")
    ranks = attention_ranks(plan)
    if limit is not None and limit < ranks:
        yield Verdict(
            f"max_running_requests {limit} leaves less than one request for each of {ranks} DP "
            "ranks",
            at=("max_running_requests",),
            why=f"the limit is divided by the ranks: {limit} // {ranks} = 0, and the engine stops "
            "with AssertionError: max_running_request is zero",
            fix=Fix(
                f"set it to at least {ranks}, one request per rank",
                set={"max_running_requests": ranks},
            ),
        )


_CONTEXT = "attn_cp_size"
_MOE = "moe_dp_size"
_SAME = ">=0.5.11"
_CHOSEN_BY = {
    "enable_dsa_prefill_context_parallel": "",
    "enable_prefill_context_parallel": ">=0.5.13",
    "enable_prefill_cp": "",
}
"""Switches that make the engine set `attn_cp_size` itself for DeepSeek's models, and the releases
in which they do (0.5.9 server_args.py:1216, 0.5.13 :1907 and :1992, 0.5.14 :3585 and :3670)."""


@rule("SPL265")
def context_parallel_sizes(plan: Plan) -> Iterator[Verdict]:
    """Report context-parallel or MoE data-parallel sizes that do not divide `tp_size`."""
    ranks = number(plan, "tp_size") or 1
    context, moe = number(plan, _CONTEXT) or 1, number(plan, _MOE) or 1
    if context > 1 and not _is_chosen(plan):
        # earlier releases also count replicas, which have their own attention
        own = plan.in_versions(OWN_ARGUMENT)
        replicas = attention_ranks(plan) if own else number(plan, "dp_size") or 1
        if ranks % (replicas * context):
            yield Verdict(
                f"{replicas} data-parallel times {context} context-parallel ranks do not divide "
                f"tp_size {ranks}",
                at=(_CONTEXT, "tp_size"),
                why="the engine stops: AssertionError: tp_size must be divisible by attn_cp_size",
                fix=Fix("choose sizes whose product divides tp_size"),
            )
    if moe > 1 and ranks % moe:
        yield Verdict(
            f"moe_dp_size {moe} does not divide tp_size {ranks}",
            at=(_MOE, "tp_size"),
            why="the engine stops: AssertionError: tp_size must be divisible by moe_dp_size",
            fix=Fix("choose a moe_dp_size that divides tp_size"),
        )
    if moe > 1 and int(plan.value("pp_size")) > 1:
        yield Verdict(
            "moe_dp_size does not work with pipeline parallelism",
            at=(_MOE, "pp_size"),
            why="the engine stops: AssertionError: PP is not supported with context parallelism",
            fix=Fix("remove pp_size", set={"pp_size": None}),
        )
    if moe > 1:
        yield from _moe_conflicts(plan, ranks, context, moe)


def _moe_conflicts(plan: Plan, ranks: int, context: int, moe: int) -> Iterator[Verdict]:
    """Report expert-parallel or context-parallel sizes that conflict with `moe_dp_size`."""
    experts = int(plan.value("ep_size"))
    own = plan.value("moe_a2a_backend") == "none"  # another backend sets ep_size to tp_size
    if own and experts > 1 and experts * moe != ranks:
        yield Verdict(
            f"ep_size {experts} times moe_dp_size {moe} does not equal tp_size {ranks}",
            at=("ep_size", _MOE),
            why="the engine stops: AssertionError: ep_size * moe_dp_size must be equal to tp_size",
            fix=Fix(f"remove {_MOE}", set={_MOE: None}),
        )
    if context != moe and not _is_chosen(plan) and plan.in_versions(_SAME):
        yield Verdict(
            f"moe_dp_size {moe} differs from attn_cp_size {context}",
            at=(_MOE,),
            why="the engine stops: AssertionError: attn_cp_size != moe_dp_size is only supported "
            "when moe_dp_size == 1",
            fix=Fix(f"remove {_MOE}", set={_MOE: None}),
        )


def _is_chosen(plan: Plan) -> bool:
    """True if the engine may set `attn_cp_size` itself.

    It does not if the target is known to lack latent attention and is not DeepSeek V4.
    """
    if not any(plan.value(name) and plan.in_versions(since) for name, since in _CHOSEN_BY.items()):
        return False
    target = plan.facts.target
    if target is None or str(target.architecture).startswith("DeepseekV4"):
        return True
    return architectures(plan.request.version).uses_mla(target) is not False


def _undivided(
    plan: Plan,
    what: Literal["undivided_heads", "undivided_experts", "undivided_widths"],
    at: tuple[str, ...],
    instead: str,
) -> Iterator[Verdict]:
    """Yield a verdict for each model size that does not divide evenly among the ranks.

    `what`: the function in `engine/plan/division.py` to call. `at`: the arguments to show.
    `instead`: the remedy if no size works.
    """
    if gpu_ranks(plan).tensor < 2:  # same either way: division.py checks it again
        return
    from speclaunch.engine import division  # noqa: PLC0415  it counts weights

    for undivided in getattr(division, what)(plan):
        yield _verdict_of_undivided(undivided, at, instead)


def _verdict_of_undivided(undivided: Undivided, at: tuple[str, ...], instead: str) -> Verdict:
    plural = (
        "do" if undivided.what.endswith("heads") or undivided.what.endswith("experts") else "does"
    )
    return Verdict(
        f"{undivided.what} of the {undivided.whose} {undivided.model} {plural} not divide evenly "
        f"among {undivided.ranks} {undivided.of}",
        at=at,
        why=f"the engine stops while it builds the model: {undivided.engine}",
        fix=_fix_of_common(undivided, instead),
    )


def _fix_of_common(undivided: Undivided, instead: str) -> Fix:
    if undivided.groups is not None:
        return Fix(f"set ep_size to {undivided.groups}", set={"ep_size": undivided.groups})
    if not undivided.works:
        return Fix(instead)
    return Fix(f"set tp_size to {undivided.works[0]}", set={"tp_size": undivided.works[0]})


_PLACEMENT = ("tp_size", "pp_size", "dp_size", "base_gpu_id")
_FEW_GPUS = 8
"""Number of GPUs per machine in typical multi-node deployments."""


@rule("SPL506")
def ranks_beyond_gpus(plan: Plan) -> Iterator[Verdict]:
    """Report more ranks than the machine has GPUs."""
    why = beyond_the_gpus(plan)
    if why is None:
        return
    yield Verdict(
        why,
        at=_PLACEMENT,
        why="the engine places each rank on its own GPU; a rank without one stops: CUDA error: "
        "invalid device ordinal",
        fix=_fix_of_ranks_beyond_gpus(plan),
    )


def _fix_of_ranks_beyond_gpus(plan: Plan) -> Fix:
    hardware = plan.facts.hardware
    there = hardware.count if hardware is not None else 1
    plain = all(number(plan, name) == 1 for name in ("pp_size", "nnodes", "gpu_id_step"))
    is_simple = plain and not number(plan, "base_gpu_id") and replicas(plan) == 1
    if not is_simple or not _all_visible(plan, there):
        return Fix("reduce the parallel sizes to the machine's GPU count, or use more GPUs")
    fitting = 1 << (there.bit_length() - 1)
    nodes = -(-(number(plan, "tp_size") or 1) // there)
    more = f", or serve on {nodes} machines (nnodes)" if there >= _FEW_GPUS else ""
    return Fix(f"set tp_size to {fitting}{more}", set={"tp_size": fitting})


def _all_visible(plan: Plan, there: int) -> bool:
    """True if `CUDA_VISIBLE_DEVICES` hides none of the machine's `there` GPUs."""
    if plan.env("CUDA_VISIBLE_DEVICES") is None:
        return True
    try:
        return visible_gpus(plan) == there
    except UnknownValueError:
        return False


@rule("SPL507")
def undivided_heads(plan: Plan) -> Iterator[Verdict]:
    """Report attention heads that do not divide evenly among the ranks."""
    return _undivided(
        plan,
        "undivided_heads",
        ("tp_size",),
        "choose tp_size and the DP attention ranks so that their quotient divides the heads",
    )


@rule("SPL508")
def undivided_experts(plan: Plan) -> Iterator[Verdict]:
    """Report experts that do not divide evenly among the ranks."""
    return _undivided(
        plan,
        "undivided_experts",
        ("ep_size", "tp_size"),
        "choose an ep_size that divides the experts, so that tp_size / ep_size divides each expert",
    )


@rule("SPL509")
def undivided_widths(plan: Plan) -> Iterator[Verdict]:
    """Report layer widths that do not divide evenly among the ranks."""
    return _undivided(
        plan, "undivided_widths", ("tp_size",), "use fewer ranks, or another checkpoint"
    )

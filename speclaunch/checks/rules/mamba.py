"""Rules about hybrid models, which store Mamba state next to their KV cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import architecture, hardware_of, number
from speclaunch.engine import (
    AMD_DROPS_CACHE,
    BUFFERED,
    CHOSEN,
    STRATEGY,
    Checkpoint,
    Plan,
    Vendor,
    architectures,
    backend_buffers,
    has_states,
)

_EXTRA_BUFFER = {
    "Qwen3NextForCausalLM": ">=0.5.7",
    "Qwen3_5ForConditionalGeneration": ">=0.5.9",
    "Qwen3_5MoeForConditionalGeneration": ">=0.5.9",
    "InternS2PreviewForConditionalGeneration": ">=0.5.12",
    "MiniCPMV4_6ForConditionalGeneration": ">=0.5.12",
    "BailingMoeV2_5ForCausalLM": ">=0.5.13",
    "FalconH1ForCausalLM": ">=0.5.13",
    "GraniteMoeHybridForCausalLM": ">=0.5.13",
    "JetNemotronForCausalLM": ">=0.5.13",
    "JetVLMForConditionalGeneration": ">=0.5.13",
    "NemotronHForCausalLM": ">=0.5.13",
    "NemotronHPuzzleForCausalLM": ">=0.5.13",
}
"""Targets that support the strategy extra_buffer before `CHOSEN`, each with its first release.
Their calls of `_handle_mamba_radix_cache` leave `support_mamba_cache_extra_buffer` on (0.5.9
server_args.py:1524 to 1660, 0.5.10.post1 server_args.py:1914 to 2060, 0.5.13.post1
server_args.py:2464 to 2594 and arg_groups/nemotron_h_hook.py:58)."""
UNCHECKED = ">=0.5.8,<0.5.9"
"""Releases that do not check Qwen3-Next's extra_buffer, because the check is in Glm4Moe's branch
(0.5.8 and 0.5.8.post1 server_args.py:1541)."""
_HYBRID = {
    **_EXTRA_BUFFER,
    "FalconH1ForCausalLM": ">=0.5.7",
    "GraniteMoeHybridForCausalLM": ">=0.5.9",
    "JetNemotronForCausalLM": ">=0.5.7",
    "JetVLMForConditionalGeneration": ">=0.5.7",
    "Lfm2ForCausalLM": ">=0.5.9",
    "NemotronHForCausalLM": ">=0.5.7",
}
"""Targets whose radix cache is handled as hybrid in releases before `CHOSEN`. Targets without a
radix cache are omitted (0.5.10 server_args.py:1914 to 2060)."""


def is_hybrid(plan: Plan) -> bool:
    """True if the engine stores Mamba state for the target; False if unknown."""
    target = _listed(plan, _HYBRID, "hybrid")
    return target is not None and has_states(target)


def has_extra_buffer(plan: Plan) -> bool:
    """True if the target supports the strategy extra_buffer in this version.

    This depends on the backend for linear attention (0.5.23 arg_groups/overrides.py:446, 0.5.14
    server_args.py:4338).
    """
    target = _listed(plan, _EXTRA_BUFFER, "extra_buffer")
    if target is None or not has_states(target):
        return False
    return not plan.in_versions(CHOSEN) or backend_buffers(plan)


def _listed(plan: Plan, early: Mapping[str, str], listed: str) -> Checkpoint | None:
    target = plan.facts.target
    name = architecture(target)
    if name is None:
        return None
    if plan.in_versions(CHOSEN):
        known: frozenset[str] = getattr(architectures(plan.request.version), listed)
        return target if name in known else None
    return target if name in early and plan.in_versions(early[name]) else None


def takes_extra_buffer(plan: Plan) -> bool:
    """True if the strategy is extra_buffer, supported or not, and the radix cache is on.

    The user sets it, or the engine chooses it (0.5.14 and later). Raises UnknownValueError.
    """
    if plan.user_value("disable_radix_cache"):
        return False
    if not plan.in_versions(CHOSEN):
        return str(plan.user_value(STRATEGY)).startswith("extra_buffer")
    taken = str(plan.value(STRATEGY)).startswith("extra_buffer")
    return taken and not plan.value("disable_radix_cache")


def keeps_extra_buffer(plan: Plan) -> bool:
    """True if the target runs with the strategy extra_buffer. Raises UnknownValueError."""
    return has_extra_buffer(plan) and takes_extra_buffer(plan)


@rule("SPL241")
def mamba_cache(plan: Plan) -> Iterator[Verdict]:
    """Report a hybrid model (Mamba, gated delta net) with an unsuitable cache strategy."""
    if not is_hybrid(plan) or _cache_is_off(plan):
        return
    requested = plan.user_value(STRATEGY)
    if plan.in_versions(CHOSEN):
        if requested == "no_buffer":
            yield from _explicit_no_buffer(plan)
    elif (
        requested not in BUFFERED
        and plan.algorithm is not None
        and not (plan.in_versions(AMD_DROPS_CACHE) and hardware_of(plan).vendor is Vendor.AMD)
    ):
        yield _refused(plan)


def _cache_is_off(plan: Plan) -> bool:
    """True if the prefix cache is off.

    Decode servers have none from 0.5.11 on; 0.5.10 disables it after checking the strategy.
    """
    decode = plan.value("disaggregation_mode") == "decode"
    return bool(plan.user_value("disable_radix_cache")) or (decode and plan.in_versions(">=0.5.11"))


def _refused(plan: Plan) -> Verdict:
    fix = Fix("set disable_radix_cache to true", set={"disable_radix_cache": True}, safe=True)
    if has_extra_buffer(plan):
        fix = Fix(
            "set mamba_scheduler_strategy to extra_buffer (with SGLANG_ENABLE_SPEC_V2=1 in "
            "0.5.10), or disable_radix_cache to true",
            set={STRATEGY: "extra_buffer"},
            safe=True,
        )
    return Verdict(
        f"the radix cache of {architecture(plan.facts.target)} does not work with speculation "
        "under the strategy no_buffer",
        at=(STRATEGY, "speculative_algorithm"),
        why="the engine refuses: Speculative decoding is not compatible with radix cache when "
        "using --mamba-scheduler-strategy no_buffer, which is the default",
        fix=fix,
    )


def _explicit_no_buffer(plan: Plan) -> Iterator[Verdict]:
    if not plan.user_value("disable_overlap_schedule"):  # pipeline stages disable it later
        yield Verdict(
            f"{plan.written_name(STRATEGY)} no_buffer needs disable_overlap_schedule",
            at=(STRATEGY,),
            why="the engine stops: AssertionError: no_buffer do not support overlap schedule. Try "
            "to set disable_overlap_schedule=True.",
            fix=Fix("remove the strategy: the engine chooses a suitable one", set={STRATEGY: None}),
        )
    page = plan.user_value("page_size")
    if page is not None and page != 1:
        yield Verdict(
            f"{plan.written_name(STRATEGY)} no_buffer needs page_size 1, not {page}",
            at=("page_size", STRATEGY),
            why="the engine stops: AssertionError: no_buffer only supports page_size=1.",
            fix=Fix("remove page_size", set={"page_size": None}),
        )


_NAME = "mamba_track_interval"
_LARGEST_CHOSEN_PAGE = 64


@rule("SPL242")
def mamba_track_interval(plan: Plan) -> Iterator[Verdict]:
    """Report a track interval below the draft token count, or not a multiple of the page size."""
    if plan.in_versions(UNCHECKED) or not keeps_extra_buffer(plan):
        return
    interval = int(plan.value(_NAME))
    tokens = plan.user_value("speculative_num_draft_tokens")
    if tokens is not None and interval < tokens:
        yield Verdict(
            f"{_NAME} {interval} is below speculative_num_draft_tokens {tokens}",
            at=(_NAME, "speculative_num_draft_tokens"),
            why="the engine stops: AssertionError: mamba_track_interval must be greater than or "
            "equal to speculative_num_draft_tokens",
            fix=Fix("remove the interval: the default is 256", set={_NAME: None}, safe=True),
        )
    page = plan.user_value("page_size")
    if page is None and interval % _LARGEST_CHOSEN_PAGE and plan.in_versions(">=0.5.14"):
        page = number(plan, "page_size")  # a B200 selects pages of 64 tokens
    if page is not None and interval % page:
        yield Verdict(
            f"{_NAME} {interval} is not a multiple of page_size {page}",
            at=(_NAME, "page_size"),
            why="the engine stops: AssertionError: mamba_track_interval must be divisible by "
            "page_size",
            fix=Fix(
                f"set it to {page * -(-256 // page)}",
                set={_NAME: page * -(-256 // page)},
                safe=True,
            ),
        )


_OWN_PLATFORMS = ("cuda", "npu", "musa", "xpu")


@rule("SPL246")
def mamba_extra_buffer(plan: Plan) -> Iterator[Verdict]:
    """Report the cache strategy extra_buffer if the engine does not support it."""
    target = plan.facts.target
    if target is None or not target.architectures:
        return
    requested = str(plan.user_value(STRATEGY)).startswith("extra_buffer")
    if requested and plan.user_value("disable_radix_cache"):
        if plan.in_versions("<0.5.14") and is_hybrid(plan):
            yield from _without_cache(plan, target.architecture)
        return
    if not takes_extra_buffer(plan):
        return
    if not has_extra_buffer(plan):
        if is_hybrid(plan) or plan.in_versions(">=0.5.21"):
            yield _unsupported(plan, target.architecture)
    elif not plan.in_versions(UNCHECKED) and not _has_platform(plan):
        yield _verdict(
            f"extra_buffer does not run on this platform in SGLang {plan.request.version}",
            "extra_buffer needs CUDA/MUSA/NPU/ROCm/XPU (FLA)",
        )


def _without_cache(plan: Plan, name: str | None) -> Iterator[Verdict]:
    """Report extra_buffer without a radix cache.

    0.5.7 to 0.5.9 check only the target (0.5.9 server_args.py:1723).
    """
    if plan.in_versions(">=0.5.10"):
        yield _verdict(
            "extra_buffer is a strategy of the radix cache, which disable_radix_cache disables",
            "mamba extra_buffer is not compatible with --disable-radix-cache",
        )
    elif not has_extra_buffer(plan):
        yield _unsupported(plan, name)


def _unsupported(plan: Plan, name: str | None) -> Verdict:
    backend = plan.value("linear_attn_backend")
    where = f"in SGLang {plan.request.version}"
    if plan.in_versions(CHOSEN) and backend != "triton":
        where = f"with linear_attn_backend {backend}"
    return _verdict(
        f"{name} has no extra_buffer {where}",
        "extra_buffer is not supported for this model; use no_buffer",
    )


def _has_platform(plan: Plan) -> bool:
    """True if the platform supports snapshots of Mamba state."""
    if plan.device not in _OWN_PLATFORMS:
        return False
    return hardware_of(plan).vendor is not Vendor.AMD or plan.in_versions(">=0.5.16")


def _verdict(message: str, engine_message: str) -> Verdict:
    return Verdict(
        message,
        at=(STRATEGY, "disable_radix_cache"),
        why=f"the engine refuses: {engine_message}",
        fix=Fix(
            "remove the strategy, and set disable_radix_cache to true",
            set={STRATEGY: None, "disable_radix_cache": True},
        ),
    )

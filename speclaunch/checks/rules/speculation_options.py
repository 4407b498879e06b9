"""Rules about speculation options: adaptive steps, verification, token maps, windows, SpecV2."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.values import hardware_of, number
from speclaunch.engine import (
    BLOCKS,
    EAGLE_FAMILY,
    REJECTION,
    VARIABLE,
    Plan,
    UnknownValueError,
    Vendor,
    attention_ranks,
    blocks_need_rejection,
    spec_v2,
    speculation,
)


@rule("SPL108")
def adaptive_dropped(plan: Plan) -> Iterator[Verdict]:
    """Report `speculative_adaptive` if the engine drops it because of another setting."""
    if (
        not plan.user_value("speculative_adaptive") or plan.algorithm is None
    ):  # no algorithm: SPL120
        return
    reason = speculation.adaptive_refusal(plan)
    if reason is not None:
        yield Verdict(
            f"speculative_adaptive is ignored: {reason}",
            at=("speculative_adaptive",),
            why="the engine logs that it falls back to static speculative params, and uses a "
            "fixed number of steps",
            fix=Fix(
                "remove speculative_adaptive, or the conflicting setting",
                set={"speculative_adaptive": None, "speculative_adaptive_config": None},
            ),
        )


@rule("SPL109")
def adaptive_steps(plan: Plan) -> Iterator[Verdict]:
    """Report adaptive speculation that does not start with one of its candidate step counts."""
    steps = number(plan, "speculative_num_steps")
    if steps is None or not plan.user_value("speculative_adaptive"):
        return
    if speculation.adaptive_refusal(plan) is not None:  # dropped before this check
        return
    file = plan.user_value("speculative_adaptive_config")
    if file is not None:
        raise UnknownValueError(f"the candidate steps are in {file}, which is not read")
    candidates = list(speculation.candidate_steps(plan))
    if steps in candidates:
        return
    nearest = min(candidates, key=lambda candidate: (abs(candidate - steps), candidate))
    yield Verdict(
        f"speculative_num_steps {steps} is not one of the candidate steps of adaptive "
        f"speculation: {candidates}",
        at=("speculative_num_steps", "speculative_adaptive"),
        why=f"the engine refuses: --speculative-num-steps={steps} is not in the adaptive config "
        f"candidate_steps {candidates}",
        fix=Fix(
            f"set it to {nearest}, or add {steps} to the candidate_steps of "
            "speculative_adaptive_config",
            set={"speculative_num_steps": nearest, "speculative_num_draft_tokens": None},
        ),
    )


_MAP = "speculative_token_map"
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


@rule("SPL111")
def rejection_sampling(plan: Plan) -> Iterator[Verdict]:
    """Report features that rejection sampling does not support."""
    if not _is_on(plan):
        return
    for message, at, why, edits in _conflicts(plan):
        yield Verdict(
            f"rejection sampling {message}",
            at=(*at, REJECTION, BLOCKS),
            why=f"the engine refuses: {why}",
            fix=Fix("remove rejection sampling, or the conflicting setting", set=edits),
        )
    topk = number(plan, "speculative_eagle_topk")
    if topk != 1:  # also None: steps without a topk (0.5.14 arg_groups/speculative_hook.py:352)
        yield Verdict(
            "rejection sampling needs speculative_eagle_topk 1, "
            f"{'which is not set' if topk is None else f'not {topk}'}",
            at=("speculative_eagle_topk", REJECTION, BLOCKS),
            why="the engine refuses: --speculative-use-rejection-sampling requires "
            "--speculative-eagle-topk=1.",
            fix=Fix(
                "set speculative_eagle_topk to 1, which drafts a chain",
                set={"speculative_eagle_topk": 1, "speculative_num_draft_tokens": None},
            ),
        )


def _is_on(plan: Plan) -> bool:
    return bool(plan.user_value(REJECTION)) or blocks_need_rejection(plan)


_Conflict = tuple[str, tuple[str, ...], str, dict[str, object]]


def _conflicts(plan: Plan) -> Iterator[_Conflict]:
    if plan.algorithm == "STANDALONE":
        yield (
            "does not work with STANDALONE",
            ("speculative_algorithm",),
            "it is only supported for EAGLE / EAGLE3 / NEXTN",
            {REJECTION: None},
        )
    relaxed = [name for name in _THRESHOLDS if plan.value(name) != 1.0]
    if relaxed:
        yield (
            f"does not work with {' and '.join(f'{n} {plan.value(n)}' for n in relaxed)}",
            tuple(relaxed),
            "rejection sampling ignores the accept thresholds, so they cannot be combined",
            dict.fromkeys(relaxed),
        )
    if plan.value("enable_deterministic_inference") and (
        plan.in_versions("<0.5.23") or not plan.device.startswith("cuda")
    ):
        yield (
            "does not work with deterministic inference",
            ("enable_deterministic_inference",),
            "it is incompatible with --enable-deterministic-inference"
            + (" off CUDA" if plan.in_versions(">=0.5.23") else ""),
            {REJECTION: None, BLOCKS: None},
        )
    if plan.in_versions("<0.5.16") and plan.value("enable_multi_layer_eagle"):
        yield (
            "does not work with multi-layer EAGLE",
            ("enable_multi_layer_eagle",),
            "it is not supported with multi-layer EAGLE (--enable-multi-layer-eagle).",
            {REJECTION: None},
        )
    reduced = _reduced_vocabulary(plan)
    if reduced is not None:
        yield (
            f"needs one vocabulary, but the draft has {reduced[0]} of the target's {reduced[1]}",
            ("speculative_draft_model_path",),
            "it requires the draft and target to share one vocab",
            {REJECTION: None, BLOCKS: None},
        )

    if plan.algorithm == "EAGLE" and plan.value(_MAP) is not None:
        yield (
            f"needs one vocabulary, but {_MAP} reduces the draft's",
            (_MAP,),
            "it requires the draft and target to share one vocab",
            {REJECTION: None, BLOCKS: None},
        )


def _reduced_vocabulary(plan: Plan) -> tuple[int, int] | None:
    draft, target = plan.facts.draft, plan.facts.target
    if plan.algorithm != "EAGLE3" or draft is None or target is None:
        return None
    few, many = draft.draft_vocab_size, target.vocab_size
    if few is None or many is None or few == many or draft.has_token_map is False:
        return None
    return few, many


@rule("SPL112")
def block_verification(plan: Plan) -> Iterator[Verdict]:
    """Report block verification with an algorithm or a device that does not support it."""
    if not plan.user_value(BLOCKS):
        return
    if plan.algorithm not in ("EAGLE", "EAGLE3", "DFLASH", "DSPARK"):
        yield Verdict(
            f"{plan.algorithm or 'a server without speculation'} does not support block "
            "verification",
            at=(BLOCKS, "speculative_algorithm"),
            why="the engine refuses: --speculative-use-block-verification only supports EAGLE / "
            "EAGLE3 / NEXTN / DFLASH / DSPARK.",
            fix=Fix(f"remove {BLOCKS}", set={BLOCKS: None}),
        )
    elif plan.device != "cuda":
        yield Verdict(
            f"block verification does not work on {plan.device}",
            at=(BLOCKS, "device"),
            why="the engine refuses: --speculative-use-block-verification only supports CUDA or "
            "ROCm.",
            fix=Fix(f"remove {BLOCKS}", set={BLOCKS: None}),
        )


@rule("SPL113")
def token_map_ignored(plan: Plan) -> Iterator[Verdict]:
    """Report a token map with EAGLE3, which ignores it."""
    if plan.user_value("speculative_token_map") is not None:
        yield Verdict(
            "speculative_token_map is ignored with EAGLE3",
            at=("speculative_token_map",),
            why="an EAGLE-3 draft has its own map: the engine logs that it ignores this map",
            fix=Fix("remove speculative_token_map", set={"speculative_token_map": None}, safe=True),
        )


@rule("SPL114")
def token_map_sharded(plan: Plan) -> Iterator[Verdict]:
    """Report a token map that reads rows of the output layer on another GPU."""
    if plan.user_value("speculative_token_map") is None:
        return
    parts = int(plan.value("tp_size") or 1)
    if plan.value("enable_dp_lm_head"):  # then only the ranks of one attention group share it
        parts //= attention_ranks(plan)
    if parts > 1:
        yield Verdict(
            f"speculative_token_map does not work with an output layer on {parts} GPUs",
            at=("speculative_token_map", "tp_size"),
            why="the engine looks up the map's token ids in one GPU's share of the vocabulary, "
            "where some are out of bounds",
            fix=Fix(
                "remove speculative_token_map, or serve on one GPU",
                set={"speculative_token_map": None},
            ),
        )


_WINDOW = "speculative_draft_window_size"


@rule("SPL115")
def draft_window_ignored(plan: Plan) -> Iterator[Verdict]:
    """Report a draft window with an algorithm that ignores it."""
    if plan.user_value(_WINDOW) is None or plan.algorithm is None:  # no algorithm: SPL120
        return
    readers = ["DFLASH"]
    readers += ["EAGLE3"] if plan.in_versions(">=0.5.12") else []
    readers += ["EAGLE"] if plan.in_versions(">=0.5.21") else []
    if plan.algorithm not in readers:
        yield Verdict(
            f"{plan.written_name(_WINDOW)} has no effect with {plan.algorithm}",
            at=(_WINDOW,),
            why=f"SGLang {plan.version} reads it for {', '.join(readers)}; the draft attends to "
            "the complete context",
            fix=Fix("remove it", set={_WINDOW: None}, safe=True),
        )


_SINK = "speculative_draft_sink_size"


@rule("SPL116")
def draft_window_size(plan: Plan) -> Iterator[Verdict]:
    """Report a draft window or sink of an invalid size, or a sink without a window."""
    window, sink = plan.user_value(_WINDOW), plan.user_value(_SINK)
    looked_at = plan.in_versions(">=0.5.13") or plan.algorithm == "DFLASH"
    if looked_at and window is not None and int(window) <= 0:
        yield Verdict(
            f"{plan.written_name(_WINDOW)} {window} is not positive",
            at=(_WINDOW,),
            why="the engine refuses a size below 1",
            fix=Fix("remove it: the draft then attends to the entire context", set={_WINDOW: None}),
        )
    if sink is not None and int(sink) < 0:
        yield Verdict(
            f"{_SINK} {sink} is negative",
            at=(_SINK,),
            why="the engine refuses a negative size",
            fix=Fix("remove it", set={_SINK: None}),
        )
    elif sink is not None and window is None:
        yield Verdict(
            f"{_SINK} {sink} needs {_WINDOW}",
            at=(_SINK,),
            why="the engine refuses: --speculative-draft-sink-size requires "
            "--speculative-draft-window-size.",
            fix=Fix(f"set {_WINDOW} as well, or remove {_SINK}", set={_SINK: None}),
        )


_AWAY = Fix("remove the watermark", set={"enable_watermark": None, "watermark_config": None})


@rule("SPL117")
def watermark(plan: Plan) -> Iterator[Verdict]:
    """Report watermarking with speculation settings that it does not support."""
    if not plan.user_value("enable_watermark") or plan.algorithm is None:
        return
    if plan.algorithm not in ("NGRAM", "EAGLE", "EAGLE3"):
        yield Verdict(
            f"watermarking does not work with {plan.algorithm}",
            at=("enable_watermark", "speculative_algorithm"),
            why="the engine refuses: --enable-watermark supports speculative algorithms NGRAM, "
            f"EAGLE, and EAGLE3, got '{plan.algorithm}'",
            fix=_AWAY,
        )
    stages = int(plan.value("pp_size") or 1)
    if stages > 1:
        yield Verdict(
            f"watermarking does not work with speculation over {stages} pipeline stages",
            at=("enable_watermark", "pp_size"),
            why="the engine refuses: --enable-watermark is not supported with pipeline-parallel "
            "speculative decoding",
            fix=_AWAY,
        )
    if _is_on(plan):
        yield Verdict(
            "watermarking does not work with rejection sampling",
            at=("enable_watermark", REJECTION, BLOCKS),
            why="the engine refuses: --enable-watermark is incompatible with "
            "--speculative-use-rejection-sampling",
            fix=_AWAY,
        )


_SKIP_SWITCH = "speculative_skip_dp_mlp_sync"


@rule("SPL118")
def skip_mlp_sync(plan: Plan) -> Iterator[Verdict]:
    """Report `speculative_skip_dp_mlp_sync` without EAGLE."""
    if plan.user_value(_SKIP_SWITCH) and plan.algorithm != "EAGLE":
        yield Verdict(
            f"{plan.algorithm or 'a server without speculation'} does not support {_SKIP_SWITCH}",
            at=(_SKIP_SWITCH, "speculative_algorithm"),
            why="the engine refuses: --speculative-skip-dp-mlp-sync is only supported with "
            f"speculative_algorithm == EAGLE, got {plan.algorithm}.",
            fix=Fix(f"remove {_SKIP_SWITCH}", set={_SKIP_SWITCH: None}),
        )


_DRAFT_MOE_RUNNER_NAME = "speculative_moe_runner_backend"


@rule("SPL119")
def draft_moe_runner(plan: Plan) -> Iterator[Verdict]:
    """Report a draft MoE runner that the release refuses."""
    requested = plan.user_value(_DRAFT_MOE_RUNNER_NAME)
    drafts = plan.user_value("speculative_algorithm") is not None
    if str(requested).startswith("lora_") and drafts:
        yield Verdict(
            f"{requested} serves adapters, but a draft has none",
            at=(_DRAFT_MOE_RUNNER_NAME,),
            why="the engine refuses this runner: the LoRA MoE runner serves adapter traffic on "
            "the target model",
            fix=Fix(
                "remove it: the engine then chooses a runner", set={_DRAFT_MOE_RUNNER_NAME: None}
            ),
        )
    if requested == "flashinfer_trtllm" and plan.in_versions(">=0.5.7,<0.5.12"):
        yield Verdict(
            f"SGLang {plan.version} refuses flashinfer_trtllm for the draft",
            at=(_DRAFT_MOE_RUNNER_NAME,),
            why="the engine asserts that the speculative MoE runner backend is not "
            "flashinfer_trtllm, which gave wrong results with some drafts",
            fix=Fix("use triton, or let the engine choose", set={_DRAFT_MOE_RUNNER_NAME: "triton"}),
        )


_SAMPLES_GREEDILY = EAGLE_FAMILY | {"NGRAM"}
"""Algorithms that verify with `eagle_sample` (0.5.23 speculative/eagle_utils.py:483), and before
0.5.14 with kernels that AMD builds lack."""


@rule("SPL125")
def greedy_verification_on_amd(plan: Plan) -> Iterator[Verdict]:
    """Report speculation that ignores temperature and top_p on AMD GPUs."""
    if plan.algorithm not in _SAMPLES_GREEDILY:
        return
    if hardware_of(plan).vendor is not Vendor.AMD:
        return
    if plan.in_versions("<0.5.10") and spec_v2.runs(plan):
        return  # this verification needs a kernel that AMD builds lack
    if plan.in_versions(">=0.5.21") and plan.value(REJECTION):
        return
    fixable = plan.in_versions(">=0.5.21") and plan.algorithm == "EAGLE"
    remedy = (
        "set speculative_eagle_topk to 1: without a token map, relaxed thresholds and "
        "deterministic inference the engine then uses rejection sampling"
        if fixable
        else "serve sampled requests without speculation, or send temperature 0"
    )
    yield Verdict(
        f"{plan.algorithm} on AMD GPUs ignores temperature and top_p: every answer is greedy",
        at=("speculative_algorithm", "speculative_eagle_topk"),
        why="the build for AMD has no kernel that samples during verification, so the engine "
        "accepts the most likely tokens"
        + ("; the engine does not log this" if plan.in_versions(">=0.5.14") else ""),
        fix=Fix(remedy),
    )


_SPEC_V2_AT = ("speculative_eagle_topk", spec_v2.VARIABLE, spec_v2.SWITCH)
_ONLY_CHAINS = (
    "the engine refuses: Spec v2 currently only supports topk = 1 for speculative decoding."
)
_UNCHECKED = (
    "the engine does not check it: the worker treats the first tokens of the tree as the "
    "accepted path; the output is gibberish, or the server stops with `Sizes of tensors must "
    "match`"
)


@rule("SPL201")
def spec_v2_topk(plan: Plan) -> Iterator[Verdict]:
    """Report SpecV2 with a tree. Up to 0.5.12 it verifies only chains."""
    topk = plan.user_value("speculative_eagle_topk")
    if topk is None or topk <= 1 or not spec_v2.would_run(plan):
        return
    if plan.in_versions(spec_v2.BY_DEFAULT):
        yield _fallback(plan, topk)
        return
    switched = plan.in_versions(spec_v2.BY_SWITCH)
    own = "set speculative_eagle_topk to 1: the target enables SpecV2"
    fix = Fix(own, set={"speculative_eagle_topk": 1, "speculative_num_draft_tokens": None})
    if switched or plan.env_flag(spec_v2.VARIABLE):  # same either way: only the remedy differs
        fix = Fix(
            "set speculative_eagle_topk to 1, or disable SpecV2 to draft a tree",
            set={spec_v2.SWITCH: None},
            env={spec_v2.VARIABLE: None},
            safe=True,
        )
    # reported for 0.5.3, but not certain
    yield Verdict(
        f"SpecV2 of SGLang {plan.request.version} needs speculative_eagle_topk 1, not {topk}",
        at=_SPEC_V2_AT,
        why=_ONLY_CHAINS if plan.in_versions(">=0.5.7") else _UNCHECKED,
        severity=Severity.WARNING if plan.in_versions("<0.5.4") else Severity.ERROR,
        fix=fix,
    )


def _fallback(plan: Plan, topk: int) -> Verdict:
    return Verdict(
        f"speculative_eagle_topk {topk} makes SGLang {plan.request.version} fall back from "
        "SpecV2: it runs without the overlap schedule",
        at=_SPEC_V2_AT,
        why="the engine logs: Spec v1 is used for eagle/eagle3/standalone speculative decoding "
        "because spec v2 currently only supports topk = 1.",
        severity=Severity.WARNING,
        fix=Fix(
            "set speculative_eagle_topk to 1, or keep the tree with disable_overlap_schedule: "
            "true; SpecV2 verifies trees from 0.5.13"
        ),
    )


@rule("SPL202")
def spec_v2_auto_topk(plan: Plan) -> Iterator[Verdict]:
    """Report SpecV2 with a tree that the engine chose. Up to 0.5.12 it verifies only chains."""
    if plan.is_set("speculative_eagle_topk"):
        return
    if not spec_v2.would_run(plan):
        return
    topk = number(plan, "speculative_eagle_topk")
    if topk in (None, 1):
        return
    steps = int(plan.value("speculative_num_steps"))  # the engine chooses both
    yield Verdict(
        f"the engine chooses speculative_eagle_topk {topk} for this target, and SpecV2 of SGLang "
        f"{plan.request.version} verifies only topk 1",
        at=("speculative_algorithm", spec_v2.VARIABLE),
        why="the engine checks topk before it chooses this value, so it accepts the tree; the "
        "worker treats the first tokens of the tree as the accepted path",
        fix=Fix(
            f"set {steps} steps, topk 1 and {steps + 1} draft tokens",
            set={
                "speculative_num_steps": steps,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": steps + 1,
            },
            safe=True,
        ),
    )


@rule("SPL203")
def spec_v2_without_effect(plan: Plan) -> Iterator[Verdict]:
    """Report a request for SpecV2 that has no effect in this version or for this algorithm."""
    if plan.value(spec_v2.SWITCH) and not spec_v2.has_worker(plan):
        yield _no_worker(plan, spec_v2.SWITCH, Fix("remove it", set={spec_v2.SWITCH: None}))
    if plan.env(VARIABLE) is None:
        return
    away = Fix("remove it", env={VARIABLE: None}, safe=True)
    if plan.in_versions(spec_v2.ONLY_WORKERS):
        on = plan.env_flag(VARIABLE)
        if not on:  # same either way: only the remedy differs
            away = Fix(
                "remove it, and set disable_overlap_schedule for the synchronous worker",
                set={"disable_overlap_schedule": True},
                env={VARIABLE: None},
            )
        yield Verdict(
            f"{VARIABLE} has no effect in SGLang {plan.request.version}, which always runs SpecV2",
            at=(VARIABLE,),
            why="0.5.14 removed the variable and the old workers",
            fix=away,
            severity=Severity.INFO if on else Severity.WARNING,
        )
    elif plan.in_versions(spec_v2.BY_SWITCH):
        since = spec_v2.FIRST_BY_VARIABLE
        yield Verdict(
            f"SGLang {plan.request.version} has no {VARIABLE}: {since} introduced it",
            at=(VARIABLE,),
            why="the release does not read it; speculation runs without the overlap schedule",
            fix=away,
        )
    elif (
        not plan.in_versions(spec_v2.BY_DEFAULT)
        and plan.env_flag(VARIABLE)
        and plan.algorithm is not None
        and not spec_v2.has_worker(plan)
    ):
        yield _no_worker(plan, VARIABLE, away)


def _no_worker(plan: Plan, name: str, fix: Fix) -> Verdict:
    able = "before 0.5.8 only EAGLE and EAGLE3 have such a worker"
    if plan.in_versions(spec_v2.STANDALONE_TOO):
        able = "only EAGLE, EAGLE3 and STANDALONE have such a worker"
    return Verdict(
        f"{plan.algorithm or 'a server without speculation'} has no SpecV2 worker in SGLang "
        f"{plan.request.version}, but {name} requests one",
        at=(name,),
        why=able,
        fix=fix,
    )

"""Rules about DSPARK and UNO, which draft a block of tokens in one step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.model_values import known_drafts
from speclaunch.engine import (
    CONTEXT,
    DSPARK_CONTEXT,
    DSPARK_HEAD,
    HEAD,
    PHASES,
    Checkpoint,
    Plan,
    UnknownValueError,
    attention_ranks,
    counted,
    drafts,
    dspark_is_spread,
)

_RAGGED_MODE = "SGLANG_RAGGED_VERIFY_MODE"
_COORDINATION = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"
_DP = ("enable_dp_attention", "attn_dp_size")


@rule("SPL622")
def dspark_dp_attention(plan: Plan) -> Iterator[Verdict]:
    """Report DSPARK with DP attention if a requirement is missing."""
    ranks = attention_ranks(plan)
    if not dspark_is_spread(plan):
        return
    if DSPARK_HEAD.holds(plan):
        yield Verdict(
            f"DSPARK with DP attention ({counted(ranks, 'rank')}) needs enable_dp_lm_head",
            at=_DP,
            why=f"the engine refuses: {DSPARK_HEAD.message}",
            fix=Fix("set enable_dp_lm_head", set={HEAD: True}, safe=True),
        )
    if DSPARK_CONTEXT.holds(plan):
        parts = plan.value(CONTEXT)
        yield Verdict(
            f"DSPARK with DP attention does not support context parallelism (attn_cp_size {parts})",
            at=(CONTEXT, *_DP),
            why=f"the engine refuses: {DSPARK_CONTEXT.message.format(parts)}",
            fix=Fix("remove attn_cp_size", set={CONTEXT: None}),
        )
    if plan.in_versions("<0.5.18") or plan.device != "npu":
        yield from _experts(plan, str(plan.value("moe_a2a_backend")))


def _experts(plan: Plan, backend: str) -> Iterator[Verdict]:
    fits = ["none"]
    fits += ["megamoe"] if plan.in_versions(">=0.5.18") else []
    fits += ["mori"] if plan.in_versions(">=0.5.21") else []
    if backend not in fits:
        yield Verdict(
            f"DSPARK with DP attention does not work with moe_a2a_backend {backend}",
            at=("moe_a2a_backend", *_DP),
            why=f"the engine refuses: moe_a2a_backend must be {' or '.join(fits)}, got {backend!r}",
            fix=Fix("remove moe_a2a_backend", set={"moe_a2a_backend": None}),
        )
    mode = plan.env(_RAGGED_MODE) or "static"
    spread = backend != "none" and plan.in_versions(">=0.5.18")
    coordinated = plan.env_flag(_COORDINATION) and plan.in_versions(">=0.5.22")
    if (spread or coordinated) and mode != "static":
        yield Verdict(
            f"DSPARK with DP attention needs {_RAGGED_MODE} static here, not {mode}",
            at=(_RAGGED_MODE,),
            why=(
                "the engine refuses another mode if experts are distributed over the ranks, or "
                "their prefill is coordinated"
            ),
            fix=Fix("remove it: static is the default", env={_RAGGED_MODE: None}),
        )
    drafts = plan.user_value("speculative_moe_a2a_backend")
    if drafts not in (None, backend):
        yield Verdict(
            f"speculative_moe_a2a_backend {drafts} differs from the target's {backend}",
            at=("speculative_moe_a2a_backend",),
            why="the engine refuses: DSpark ignores --speculative-moe-a2a-backend; with dp "
            f"attention it must match the target moe_a2a_backend={backend!r}",
            fix=Fix("remove it", set={"speculative_moe_a2a_backend": None}, safe=True),
        )


_VARIABLE = "SGLANG_ENABLE_PP_SPEC"


@rule("SPL623")
def dspark_pipeline_parallel(plan: Plan) -> Iterator[Verdict]:
    """Report DSPARK with pipeline parallelism, which only prefill servers support."""
    stages = int(plan.value("pp_size") or 1)
    prefill = plan.value("disaggregation_mode") == "prefill" and plan.in_versions(">=0.5.21")
    if stages == 1:
        return
    if prefill and plan.env_flag(_VARIABLE):
        yield Verdict(
            f"{_VARIABLE} does not work with DSPARK on a prefill server",
            at=(_VARIABLE, "pp_size"),
            why="the engine asserts: SGLANG_ENABLE_PP_SPEC does not support DSPARK PD prefill",
            fix=Fix("unset the variable", env={_VARIABLE: None}, safe=True),
        )
    if not prefill:
        yield Verdict(
            f"DSPARK does not support pipeline parallelism here (pp_size {stages})",
            at=("pp_size", "speculative_algorithm"),
            why="the engine refuses: pp_size must be 1; from 0.5.21 on, a prefill server may "
            "have more stages",
            fix=Fix("distribute the model with tp_size instead", set={"pp_size": None}),
        )


@rule("SPL624")
def dspark_draft_path(plan: Plan) -> Iterator[Verdict]:
    """Report DSPARK without a draft: a separate checkpoint, or part of the target's."""
    if plan.user_value("speculative_draft_model_path") is not None:
        return
    target = plan.facts.target
    if target is None or not target.config:
        raise UnknownValueError("unknown whether the target includes a draft")
    if drafts.bundles_dspark(target.config):
        return
    if target.has_dspark_folder and plan.in_versions(drafts.DSPARK_FOLDER):
        return
    if plan.in_versions(drafts.DSPARK_FOLDER) and _may_have_a_folder(target):
        raise UnknownValueError("unknown whether the target has a folder `dspark`")
    yield Verdict(
        "DSPARK without speculative_draft_model_path, and the target includes no draft",
        at=("speculative_algorithm",),
        why="the engine refuses: DSpark dense speculative decoding requires setting "
        "--speculative-draft-model-path.",
        fix=Fix(f"set it to a DSPARK draft made for this target{known_drafts(plan)}"),
    )


def _may_have_a_folder(target: Checkpoint) -> bool:
    """True if it is unknown whether the target has a DSPARK folder.

    It is known only if the target is named by its local directory.
    """
    return target.has_dspark_folder is None or target.path != Path(target.name)


_BLOCK = "speculative_dspark_block_size"
_TOKENS = "speculative_num_draft_tokens"


@rule("SPL625")
def dspark_block_size(plan: Plan) -> Iterator[Verdict]:
    """Report a DSPARK draft token count that differs from the block size + 1."""
    block, tokens = plan.user_value(_BLOCK), plan.user_value(_TOKENS)
    if block is not None and int(block) <= 0:
        yield Verdict(
            f"{_BLOCK} {block} is not positive",
            at=(_BLOCK,),
            why="the engine refuses: DSpark requires --speculative-dspark-block-size to be "
            f"positive, got {block}.",
            fix=Fix("remove it: the draft's config sets it", set={_BLOCK: None}),
        )
        return
    if tokens is None:
        return
    if int(tokens) < 2:
        yield Verdict(
            f"DSPARK needs {_TOKENS} of at least 2, not {tokens}",
            at=(_TOKENS,),
            why="one token is the target's own, and at least one is drafted",
            fix=Fix("remove it: the block size sets it", set={_TOKENS: None}),
        )
        return
    drafted = _block(plan)
    if drafted is not None and int(tokens) != drafted + 1:
        yield Verdict(
            f"{_TOKENS} {tokens} is not one more than the block of {drafted} tokens",
            at=(_TOKENS, _BLOCK),
            why="the engine refuses: DSpark speculative_num_draft_tokens must equal gamma + 1 "
            f"(= {drafted + 1} for gamma={drafted}), but got "
            f"speculative_num_draft_tokens={tokens}.",
            fix=Fix(f"remove it: it defaults to {drafted + 1}", set={_TOKENS: None}),
        )


def _block(plan: Plan) -> int | None:
    """Return the block size set by the user, else the draft's; None if neither exists."""
    explicit = plan.user_value(_BLOCK)
    if explicit is not None:
        return int(explicit)
    draft = drafts.draft_of(plan)
    size = draft.config.get("dspark_block_size") or draft.block_size
    return None if size is None else int(size)


_ALIGN = "speculative_dspark_align_verify_tokens_to_graph_tier"
_TABLE = "speculative_dspark_sps_table_path"


@rule("SPL626")
def dspark_ragged_options(plan: Plan) -> Iterator[Verdict]:
    """Report an option of DSPARK's ragged verification without that mode."""
    mode = plan.env(_RAGGED_MODE) or "static"
    idle = {
        _ALIGN: bool(plan.user_value(_ALIGN)) and mode != "compact",
        _TABLE: bool(plan.user_value(_TABLE)) and mode == "static",
    }
    for name in (name for name, is_idle in idle.items() if is_idle):
        yield Verdict(
            f"{name} has no effect with {_RAGGED_MODE} {mode}",
            at=(name, _RAGGED_MODE),
            why="the engine logs that it will be a no-op",
            fix=Fix(
                f"remove it, or set {_RAGGED_MODE} to compact",
                set={name: None},
                safe=True,
            ),
        )


_PATH = "speculative_draft_model_path"


@rule("SPL641")
def uno_model(plan: Plan) -> Iterator[Verdict]:
    """Report UNO with a draft model, without its LoRA, or without CUDA."""
    path = plan.value(_PATH)
    if path is not None:
        yield Verdict(
            f"UNO accepts no draft model, but {path} is set",
            at=(_PATH,),
            why="the engine refuses: UNO reuses the target model and does not accept "
            "--speculative-draft-model-path.",
            fix=Fix("remove it; set uno_lora_path to its LoRA", set={_PATH: None}),
        )
    if plan.value("uno_lora_path") is None:
        yield Verdict(
            "UNO without uno_lora_path",
            at=("speculative_algorithm",),
            why="the engine refuses: UNO requires --uno-lora-path.",
            fix=Fix("set uno_lora_path to the LoRA that drafts"),
        )
    if not plan.device.startswith("cuda"):
        yield Verdict(
            f"UNO does not run on {plan.device}",
            at=("device", "speculative_algorithm"),
            why="the engine refuses: UNO only supports CUDA.",
            fix=Fix(
                "serve without speculation on this device", set={"speculative_algorithm": None}
            ),
        )


_ALWAYS = (
    "enable_deterministic_inference",
    "enable_strict_thinking",
    "enable_lora",
    "lora_paths",
    "speculative_use_rejection_sampling",
)
_TREE = ("enable_pdmux", "enable_two_batch_overlap")
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


@rule("SPL642")
def uno_features(plan: Plan) -> Iterator[Verdict]:
    """Report features that UNO does not support."""
    names = [name for name in _ALWAYS if plan.user_value(name)]
    if int(plan.user_value("speculative_eagle_topk") or 1) > 1:
        names += [name for name in _TREE if plan.user_value(name)]
        names += [name for name in _THRESHOLDS if plan.user_value(name) not in (None, 1.0)]
    for name in names:
        yield Verdict(
            f"UNO does not work with {plan.written_name(name)}",
            at=(name,),
            why="the engine rejects the combination while it parses its arguments",
            fix=Fix("remove it", set={name: None}),
        )


@rule("SPL643")
def uno_parallelism(plan: Plan) -> Iterator[Verdict]:
    """Report UNO on more than one GPU."""
    sizes = {name: int(plan.value(name) or 1) for name in ("tp_size", "pp_size", "attn_cp_size")}
    spread: dict[tuple[str, ...], int] = {(name,): size for name, size in sizes.items()}
    spread[("attn_dp_size", "enable_dp_attention", "dp_size")] = attention_ranks(plan)
    for names, size in spread.items():
        if size != 1:
            yield Verdict(
                f"UNO runs on one GPU, not with {names[0]} {size}",
                at=names,
                why="the engine refuses: UNO requires TP=PP=1, and does not support DP attention "
                "or context parallelism.",
                fix=Fix("remove it", set=dict.fromkeys(names)),
            )


_TOPK = "speculative_eagle_topk"
_STEPS = "speculative_num_steps"
_MOST_TOKENS = 128
_MOST_SLOTS = 2048


@rule("SPL644")
def uno_width(plan: Plan) -> Iterator[Verdict]:
    """Report a UNO draft width or tree that the engine refuses."""
    values = {name: plan.user_value(name) for name in (_TOKENS, _TOPK, _STEPS)}
    tokens, steps = int(values[_TOKENS] or 0), values[_STEPS]
    topk = 1 if values[_TOPK] is None else int(values[_TOPK])
    message = _line(tokens, topk)
    if message is None and topk > 1:
        message = _tree(tokens, topk, None if steps is None else int(steps))
    if message is not None:
        yield Verdict(
            f"UNO {message}",
            at=(_TOKENS, _TOPK, _STEPS, "speculative_algorithm"),
            why="the engine rejects it while it parses its arguments",
            fix=Fix(f"choose another width; without {_TOPK} UNO drafts a chain of any width"),
        )


def _line(tokens: int, topk: int) -> str | None:
    """Return the error of the width in any mode; None if it is valid."""
    if tokens < 1:
        return f"needs a positive {_TOKENS}"
    if topk < 1:
        return f"needs a {_TOPK} of at least 1, not {topk}"
    return None


def _tree(tokens: int, topk: int, steps: int | None) -> str | None:
    """Return the error of a tree; None if it is valid."""
    if steps is None or steps < 1:
        return f"drafts a tree ({_TOPK} {topk}) and needs a positive {_STEPS}"
    capacity = sum(topk**depth for depth in range(min(steps, _MOST_TOKENS) + 1))
    limits = {
        f"{steps} steps need at least {steps + 1}": tokens > steps,
        f"a tree has at most {_MOST_TOKENS}": tokens <= _MOST_TOKENS,
        f"with topk {topk} at most {_MOST_SLOTS // topk} fit": tokens * topk <= _MOST_SLOTS,
        f"{steps} steps with topk {topk} make {capacity}": tokens <= capacity,
        f"{steps} steps with topk {topk} keep {topk * (steps - 1) + 2}": tokens - 1
        <= topk * (steps - 1) + 1,
    }
    broken = next((limit for limit, holds in limits.items() if not holds), None)
    return None if broken is None else f"cannot verify a tree of {tokens} tokens: {broken}"


@rule("SPL645")
def uno_attention(plan: Plan) -> Iterator[Verdict]:
    """Report UNO without FlashAttention 3 for prefill and decode."""
    for name in PHASES:
        backend = plan.value(name) or plan.value("attention_backend")
        if backend is None:
            raise UnknownValueError("the attention backend is unknown")
        if backend != "fa3":
            yield Verdict(
                f"UNO needs fa3, and {name} is {backend}",
                at=(name, "attention_backend", "speculative_algorithm"),
                why="the engine refuses: UNO requires FA3 for both prefill and decode attention",
                fix=Fix(
                    "set attention_backend to fa3",
                    set={**dict.fromkeys(PHASES), "attention_backend": "fa3"},
                ),
            )

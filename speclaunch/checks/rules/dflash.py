"""Rules about DFLASH and DSPARK, which draft a block of tokens in one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.ngram import on_device
from speclaunch.checks.rules.values import DELEGATING, known_drafts
from speclaunch.core import mapping
from speclaunch.engine import (
    CONTEXT,
    DFLASH,
    DFLASH_CONTEXT,
    DFLASH_HEAD,
    DRAFT,
    DRAFT_PATH,
    DSPARK_CONTEXT,
    DSPARK_HEAD,
    HEAD,
    Checkpoint,
    KnownRefusal,
    Plan,
    UnknownValueError,
    algorithm_names,
    architectures,
    attention_ranks,
    counted,
    dspark_is_spread,
    merged,
    speculation,
)


def block_tokens(plan: Plan) -> int:
    """Return the number of tokens in a DFLASH block. Raises UnknownValueError."""
    return int(plan.value("speculative_num_draft_tokens"))


def dflash_config(plan: Plan) -> Mapping[str, Any]:
    """Return the draft's config with `dflash_config` merged over it; empty if the draft is unknown.

    The engine reads most fields this way (parse_dflash_draft_config).
    """
    draft = plan.facts.draft
    return {} if draft is None else merged(draft.config, mapping(draft.config.get("dflash_config")))


def outer_and_nested(plan: Plan, name: str) -> tuple[Any, Any]:
    """Return a field's values in the draft's config, outside and inside `dflash_config`."""
    draft = plan.facts.draft
    config = {} if draft is None else draft.config
    nested = config.get("dflash_config")
    return config.get(name), nested.get(name) if isinstance(nested, Mapping) else None


def captured_layers(plan: Plan) -> tuple[int, ...]:
    """Return the target layers that the draft declares it reads (resolve_target_layer_ids).

    Empty if it declares none, or the draft is unknown.
    """
    config = dflash_config(plan)
    names: tuple[str, ...] = ("target_layer_ids",)
    if plan.algorithm == "DSPARK":
        names = ("dspark_target_layer_ids", *names)
    found = next((config[name] for name in names if config.get(name)), ())
    return tuple(layer for layer in found if isinstance(layer, int))


@rule("SPL601")
def dflash_device(plan: Plan) -> Iterator[Verdict]:
    """Report DFLASH on a device that it does not support."""
    return on_device(plan, "DFLASH", {"cuda": "", "npu": ">=0.5.17", "xpu": ">=0.5.20"})


@rule("SPL621")
def dspark_device(plan: Plan) -> Iterator[Verdict]:
    """Report DSPARK on a device that it does not support."""
    return on_device(plan, "DSPARK", {"cuda": "", "npu": ">=0.5.18", "xpu": ">=0.5.23"})


@rule("SPL602")
def dflash_draft_path(plan: Plan) -> Iterator[Verdict]:
    """Report DFLASH without a draft model."""
    if plan.value(DRAFT_PATH) is None:
        yield Verdict(
            "DFLASH needs speculative_draft_model_path",
            at=("speculative_algorithm",),
            why="the engine refuses: DFLASH speculative decoding requires setting "
            "--speculative-draft-model-path.",
            fix=Fix(f"use a DFLASH draft made for this target{known_drafts(plan)}"),
        )


@rule("SPL603")
def dflash_pipeline_parallel(plan: Plan) -> Iterator[Verdict]:
    """Report DFLASH with pipeline parallelism."""
    stages = int(plan.value("pp_size") or 1)
    if stages != 1:
        yield Verdict(
            f"DFLASH does not support pipeline parallelism (pp_size {stages})",
            at=("pp_size", "speculative_algorithm"),
            why="the engine refuses: Currently DFLASH speculative decoding only supports pp_size "
            "== 1.",
            fix=Fix("distribute the model with tp_size instead", set={"pp_size": None}),
        )


_DP = ("enable_dp_attention", "attn_dp_size")


@rule("SPL604")
def dflash_dp_attention(plan: Plan) -> Iterator[Verdict]:
    """Report DFLASH with DP attention if it is refused, or if a requirement is missing."""
    if DFLASH.holds(plan):
        yield Verdict(
            f"DFLASH does not support DP attention ({attention_ranks(plan)} ranks) before 0.5.23",
            at=_DP,
            why=f"the engine refuses: {DFLASH.message}",
            fix=Fix(
                "disable DP attention, or use EAGLE or EAGLE3, which support it",
                set={"enable_dp_attention": None, "attn_dp_size": None},
            ),
        )
    yield from _unmet_by_ranks(plan, "DFLASH", DFLASH_HEAD, DFLASH_CONTEXT)


def _unmet_by_ranks(
    plan: Plan, algorithm: str, head: KnownRefusal, context: KnownRefusal
) -> Iterator[Verdict]:
    """Report DP attention without `enable_dp_lm_head`, or with context parallelism."""
    if head.holds(plan):
        ranks = counted(attention_ranks(plan), "rank")
        yield Verdict(
            f"{algorithm} with DP attention ({ranks}) needs enable_dp_lm_head",
            at=_DP,
            why=f"the engine refuses: {head.message}",
            fix=Fix("set enable_dp_lm_head", set={HEAD: True}, safe=True),
        )
    if context.holds(plan):
        parts = plan.value(CONTEXT)
        yield Verdict(
            f"{algorithm} with DP attention does not support context parallelism "
            f"(attn_cp_size {parts})",
            at=(CONTEXT, *_DP),
            why=f"the engine refuses: {context.message.format(parts)}",
            fix=Fix("remove attn_cp_size", set={CONTEXT: None}),
        )


_BLOCK = "speculative_dflash_block_size"
_TOKENS = "speculative_num_draft_tokens"


@rule("SPL605")
def dflash_block_size(plan: Plan) -> Iterator[Verdict]:
    """Report a DFLASH block size that is not positive, or differs between its two names."""
    block, tokens = plan.user_value(_BLOCK), plan.user_value(_TOKENS)
    for name, value in ((_BLOCK, block), (_TOKENS, tokens)):
        if value is not None and int(value) <= 0:
            yield Verdict(
                f"{name} {value} is not a valid size",
                at=(name,),
                why="DFLASH requires a positive number of tokens per block",
                fix=Fix(f"remove {name}; the draft's config sets it", set={name: None}),
            )
            return
    if block is not None and tokens is not None and int(block) != int(tokens):
        yield Verdict(
            f"{_TOKENS} {tokens} and {_BLOCK} {block} differ",
            at=(_BLOCK, _TOKENS),
            why="the engine refuses: For DFLASH they must match.",
            fix=Fix(f"set only {_BLOCK}", set={_TOKENS: None}),
        )


_WINDOW = "speculative_draft_window_size"


@rule("SPL606")
def dflash_draft_window(plan: Plan) -> Iterator[Verdict]:
    """Report a DFLASH draft window that is smaller than a block."""
    window = plan.user_value(_WINDOW)
    if window is None or int(window) <= 0:  # reported by SPL116
        return
    tokens = block_tokens(plan)
    if int(window) < tokens:
        yield Verdict(
            f"{plan.written_name(_WINDOW)} {window} is less than a block of {tokens} draft tokens",
            at=(_WINDOW, _TOKENS, _BLOCK),
            why="the engine refuses: --speculative-draft-window-size must be >= "
            f"--speculative-num-draft-tokens (block_size). window_size={window}, "
            f"block_size={tokens}.",
            fix=Fix(f"widen the window to at least {tokens}", set={_WINDOW: tokens}),
        )


@rule("SPL607")
def dflash_block_mismatch(plan: Plan) -> Iterator[Verdict]:
    """Report a block size that differs from the DFLASH draft's training block size."""
    draft, tokens = plan.facts.draft, block_tokens(plan)
    trained = None if draft is None else draft.block_size
    if trained is None or tokens in (trained, 0):
        return
    yield Verdict(
        f"DFLASH uses blocks of {tokens} tokens; the draft was trained with {trained}",
        at=(_BLOCK, _TOKENS),
        why="the engine logs a block size mismatch and continues, but accepts fewer drafted "
        "tokens for the same work",
        fix=Fix(
            f"remove the block size; the draft sets {trained}", set={_BLOCK: None, _TOKENS: None}
        ),
    )


@rule("SPL608")
def dflash_draft_backend(plan: Plan) -> Iterator[Verdict]:
    """Report a draft attention backend that DFLASH does not support and the engine replaces."""
    backend = plan.user_value(DRAFT)
    if backend is None or speculation.dflash_drafts_on(plan, backend):
        return
    supported = speculation.dflash_backends(plan)
    yield Verdict(
        f"{DRAFT} {backend} is replaced; DFLASH drafts need {' or '.join(supported)}",
        at=(DRAFT,),
        why="the engine logs that the DFLASH draft worker does not support it, and falls back to "
        "flashinfer (to triton on ROCm and XPU)",
        fix=Fix(f"remove {DRAFT}", set={DRAFT: None}, safe=True),
    )


@rule("SPL609")
def domino_checkpoint(plan: Plan) -> Iterator[Verdict]:
    """Report a Domino draft whose config the engine rejects."""
    config = dflash_config(plan)
    if config.get("projector_type") != "domino":
        return
    outer, nested = outer_and_nested(plan, "emb_dim")
    prefix, label = config.get("pure_draft_prefix_len"), config.get("shift_label")
    block, tokens = getattr(plan.facts.draft, "block_size", None), block_tokens(plan)
    wrong = {
        f"emb_dim {nested} in dflash_config, but {outer} at the top level": None
        not in (outer, nested)
        and outer != nested,
        f"shift_label {label!r}, which must be true or false": not isinstance(label, bool),
        f"pure_draft_prefix_len {prefix}, which must be 1": prefix != 1,
        "no gru_hidden_dim": config.get("gru_hidden_dim") is None,
        "no emb_dim": config.get("emb_dim") is None,
        f"blocks of {min(size for size in (block, tokens, 2) if size is not None)} token": 1
        in (block, tokens),
    }
    for what in (what for what, holds in wrong.items() if holds):
        yield Verdict(
            f"the Domino draft has {what}",
            at=(DRAFT_PATH,),
            why="the engine rebuilds the head from this config when it loads the draft, and fails",
            fix=Fix("use another draft, or another number of draft tokens"),
        )


_MOST = 16
_POSITIVE = (
    "candidate_topk",
    "num_layers",
    "num_heads",
    "mlp_ratio",
    "factor_dim",
    "vector_eps",
    "logit_scale",
)


@rule("SPL610")
def lilicorr_checkpoint(plan: Plan) -> Iterator[Verdict]:
    """Report a LiLiCorr draft whose config the engine rejects."""
    draft = plan.facts.draft
    if draft is None or draft.architecture != "LiLiCorrDraftModel" or not draft.config:
        return
    for what in _wrong(plan):
        yield Verdict(
            f"the LiLiCorr draft has {what}",
            at=(DRAFT_PATH,),
            why="the engine rebuilds the head from these fields when it loads the draft, and has "
            "no defaults for them",
            fix=Fix("use another draft"),
        )


def _wrong(plan: Plan) -> Iterator[str]:
    fields: dict[str, Any] = {
        name: outer_and_nested(plan, f"lilicorr_{name}")[1] for name in (*_POSITIVE, "hidden_size")
    }
    yield from (f"no lilicorr_{name}" for name, value in fields.items() if value is None)
    topk = fields["candidate_topk"]
    if topk is not None and (int(topk) & (int(topk) - 1) or int(topk) > _MOST):
        yield f"lilicorr_candidate_topk {topk}, which must be a power of two up to {_MOST}"
    for name in _POSITIVE:
        value = fields[name]
        if value is not None and float(value) <= 0:
            yield f"lilicorr_{name} {value}, which must be positive"


@rule("SPL611")
def dflash_dp_heads(plan: Plan) -> Iterator[Verdict]:
    """Report Domino and LiLiCorr drafts with DP attention."""
    draft, ranks = plan.facts.draft, attention_ranks(plan)
    if ranks <= 1 or draft is None or plan.device == "npu":
        return
    domino = dflash_config(plan).get("projector_type") == "domino"
    if domino or draft.architecture == "LiLiCorrDraftModel":
        yield Verdict(
            f"a {'Domino' if domino else 'LiLiCorr'} draft does not work with DP attention "
            f"({ranks} ranks)",
            at=("attn_dp_size", "enable_dp_attention", DRAFT_PATH),
            why="the engine refuses: DFLASH with dp attention supports plain DFlash and DFlash2 "
            "drafts",
            fix=Fix(
                "disable DP attention, or use a plain DFLASH draft",
                set={"attn_dp_size": None, "enable_dp_attention": None},
            ),
        )


_DSPARK_HOOKS = {
    "DeepseekV4ForCausalLM": ">=0.5.16",
    "KimiK3ForConditionalGeneration": ">=0.5.17",
    "KimiLinearForCausalLM": ">=0.5.17",
    "BailingMoeV3ForCausalLM": ">=0.5.19",
    "KimiK3LinearForCausalLM": ">=0.5.19",
}
"""Target classes with a separate hook for DSPARK, and the versions that have it. Classes with a
DFLASH hook need none."""


@rule("SPL612")
def dflash_target_hook(plan: Plan) -> Iterator[Verdict]:
    """Report a target class that does not pass its hidden states to a DFLASH or DSPARK draft."""
    target = plan.facts.target
    name = None if target is None else target.architecture
    if plan.algorithm not in algorithm_names(plan):  # reported by SPL101
        return
    known = architectures(plan.request.version)
    hooks = {*known.dflash_hooks, *(n for n in known.registered if n.startswith(DELEGATING))}
    if plan.algorithm == "DSPARK":
        hooks |= {n for n, since in _DSPARK_HOOKS.items() if plan.in_versions(since)}
    # External packages may register another class under the name.
    if name not in known.registered - hooks or plan.env("SGLANG_EXTERNAL_MODEL_PACKAGE"):
        return
    yield Verdict(
        f"{name} cannot be the target of {plan.algorithm} in SGLang {plan.version}",
        at=("speculative_algorithm", "model_path"),
        why="its class has no set_dflash_layers_to_capture; the engine loads the target, then "
        "stops",
        fix=Fix("use a newer engine, or another algorithm"),
    )


@rule("SPL613")
def dflash_target_layers(plan: Plan) -> Iterator[Verdict]:
    """Report a draft that reads layers the target lacks."""
    target = plan.facts.target
    if target is None or target.num_hidden_layers is None:
        return
    loops = int(target.config.get("num_loops") or 1)
    layers = target.num_hidden_layers * loops
    missing = [layer for layer in captured_layers(plan) if not 0 <= layer < layers]
    if missing:
        yield Verdict(
            f"the draft reads layer {max(missing)} of a target with {layers} layers",
            at=(DRAFT_PATH, "model_path"),
            why="the draft was trained for a deeper target; the engine refuses: DFLASH "
            "target_layer_ids contains an out-of-range layer id.",
            fix=Fix(f"use the draft that was made for this target{known_drafts(plan)}"),
        )


_POOL = "speculative_domino_candidate_pool_size"


@rule("SPL614")
def domino_runtime(plan: Plan) -> Iterator[Verdict]:
    """Report a Domino draft with an unsupported device, dtype, vocabulary or pool."""
    if dflash_config(plan).get("projector_type") != "domino":
        return
    for what, name, value in _unmet(plan):
        yield Verdict(
            f"a Domino draft needs {what}",
            at=(name, DRAFT_PATH),
            why="the engine checks this after loading both models, and stops",
            fix=Fix(f"correct {name}, or use a plain DFLASH draft", set=value),
        )


def _unmet(plan: Plan) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield each unmet requirement, its argument, and the edit that fixes it."""
    target, draft = plan.facts.target, plan.facts.draft
    pool = int(plan.value(_POOL))
    if pool < 0:
        yield f"a {_POOL} of at least 0, not {pool}", _POOL, {_POOL: None}
    dtype = plan.user_value("dtype")
    if dtype in (None, "auto") and target is not None and target.dtype != "float32":
        dtype = target.dtype  # the result for float32 depends on the model
    if dtype in ("half", "float16", "float", "float32"):
        yield f"bfloat16 weights, not {dtype}", "dtype", {"dtype": "bfloat16"}
    sizes = [None if model is None else model.vocab_size for model in (target, draft)]
    if None not in sizes and sizes[0] != sizes[1]:
        yield f"the target's vocabulary of {sizes[0]} tokens, not {sizes[1]}", DRAFT_PATH, {}
    if not plan.device.startswith("cuda"):
        yield f"CUDA, not {plan.device}", "device", {}


_RAGGED_MODE = "SGLANG_RAGGED_VERIFY_MODE"
_COORDINATION = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"


@rule("SPL622")
def dspark_dp_attention(plan: Plan) -> Iterator[Verdict]:
    """Report DSPARK with DP attention if a requirement is missing."""
    if not dspark_is_spread(plan):
        return
    yield from _unmet_by_ranks(plan, "DSPARK", DSPARK_HEAD, DSPARK_CONTEXT)
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
            f"DSPARK with DP attention requires {_RAGGED_MODE}=static, not {mode}",
            at=(_RAGGED_MODE,),
            why="the engine refuses other modes if experts are distributed across ranks or "
            "prefill is coordinated across ranks",
            fix=Fix(f"unset {_RAGGED_MODE}; the default is static", env={_RAGGED_MODE: None}),
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
            fix=Fix(f"unset {_VARIABLE}", env={_VARIABLE: None}, safe=True),
        )
    if not prefill:
        yield Verdict(
            f"DSPARK does not support pipeline parallelism (pp_size {stages})",
            at=("pp_size", "speculative_algorithm"),
            why="the engine refuses: pp_size must be 1; from 0.5.21 on, a prefill server may "
            "have more stages",
            fix=Fix("distribute the model with tp_size instead", set={"pp_size": None}),
        )


@rule("SPL624")
def dspark_draft_path(plan: Plan) -> Iterator[Verdict]:
    """Report DSPARK with neither a separate draft nor one in the target's checkpoint."""
    if plan.user_value(DRAFT_PATH) is not None:
        return
    target = plan.facts.target
    if target is None or not target.config:
        raise UnknownValueError("unknown whether the target includes a draft")
    if speculation.bundles_dspark(target.config):
        return
    if target.has_dspark_folder and plan.in_versions(speculation.DSPARK_FOLDER):
        return
    if plan.in_versions(speculation.DSPARK_FOLDER) and _may_have_a_folder(target):
        raise UnknownValueError("unknown whether the target has a folder `dspark`")
    yield Verdict(
        "DSPARK needs speculative_draft_model_path, because the target includes no draft",
        at=("speculative_algorithm",),
        why="the engine refuses: DSpark dense speculative decoding requires setting "
        "--speculative-draft-model-path.",
        fix=Fix(f"set it to a DSPARK draft made for this target{known_drafts(plan)}"),
    )


def _may_have_a_folder(target: Checkpoint) -> bool:
    """True unless the target is known to have no DSPARK folder.

    Only a target named by its local directory can be checked.
    """
    return target.has_dspark_folder is None or target.path != Path(target.name)


_DSPARK_BLOCK = "speculative_dspark_block_size"


@rule("SPL625")
def dspark_block_size(plan: Plan) -> Iterator[Verdict]:
    """Report a DSPARK draft token count that differs from the block size + 1."""
    block, tokens = plan.user_value(_DSPARK_BLOCK), plan.user_value(_TOKENS)
    if block is not None and int(block) <= 0:
        yield Verdict(
            f"{_DSPARK_BLOCK} {block} is not positive",
            at=(_DSPARK_BLOCK,),
            why="the engine refuses: DSpark requires --speculative-dspark-block-size to be "
            f"positive, got {block}.",
            fix=Fix("remove it: the draft's config sets it", set={_DSPARK_BLOCK: None}),
        )
        return
    if tokens is None:
        return
    if int(tokens) < 2:
        yield Verdict(
            f"DSPARK needs {_TOKENS} of at least 2, not {tokens}",
            at=(_TOKENS,),
            why="DSPARK drafts at least one token, and verifies one more",
            fix=Fix("remove it: the block size sets it", set={_TOKENS: None}),
        )
        return
    drafted = _block(plan)
    if drafted is not None and int(tokens) != drafted + 1:
        yield Verdict(
            f"{_TOKENS} {tokens} is not one more than the block of {drafted} tokens",
            at=(_TOKENS, _DSPARK_BLOCK),
            why="the engine refuses: DSpark speculative_num_draft_tokens must equal gamma + 1 "
            f"(= {drafted + 1} for gamma={drafted}), but got "
            f"speculative_num_draft_tokens={tokens}.",
            fix=Fix(f"remove it: it defaults to {drafted + 1}", set={_TOKENS: None}),
        )


def _block(plan: Plan) -> int | None:
    explicit = plan.user_value(_DSPARK_BLOCK)
    if explicit is not None:
        return int(explicit)
    draft = speculation.draft_of(plan)
    size = draft.config.get("dspark_block_size") or draft.block_size
    return None if size is None else int(size)


_ALIGN = "speculative_dspark_align_verify_tokens_to_graph_tier"
_TABLE = "speculative_dspark_sps_table_path"


@rule("SPL626")
def dspark_ragged_options(plan: Plan) -> Iterator[Verdict]:
    """Report an option of DSPARK's ragged verification that the current mode ignores."""
    mode = plan.env(_RAGGED_MODE) or "static"
    idle = {
        _ALIGN: bool(plan.user_value(_ALIGN)) and mode != "compact",
        _TABLE: bool(plan.user_value(_TABLE)) and mode == "static",
    }
    for name in (name for name, is_idle in idle.items() if is_idle):
        yield Verdict(
            f"{name} has no effect with {_RAGGED_MODE} {mode}",
            at=(name, _RAGGED_MODE),
            why="the engine ignores it and logs a warning",
            fix=Fix(f"remove it, or set {_RAGGED_MODE} to compact", set={name: None}, safe=True),
        )

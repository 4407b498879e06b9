"""Rules about models: whether the engine can load them, and whether the target can speculate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.values import (
    OVERWRITE,
    PLUGINS,
    architecture,
    context_of,
    context_overwritten,
    drafts_for_itself,
    has_no_class,
    known_drafts,
    lacks_eagle3,
    llama_like,
    number,
    pair,
)
from speclaunch.core import mapping
from speclaunch.engine import (
    NAME,
    Plan,
    UnknownValueError,
    counted,
    method_of,
    own_path,
    speculation,
    target_of,
)

_ARCHITECTURES = ("DeepseekV4ForCausalLM",)
_NAME = "speculative_eagle_topk"


@rule("SPL243")
def deepseek_v4_algorithm(plan: Plan) -> Iterator[Verdict]:
    """Report DeepSeek-V4 with speculation other than DSPARK or EAGLE with topk 1."""
    target = plan.facts.target
    written = plan.user_value("speculative_algorithm")
    if target is None or target.architecture not in _ARCHITECTURES or written is None:
        return
    allowed = ("EAGLE", "DSPARK") if plan.in_versions(">=0.5.16") else ("EAGLE",)
    if written not in allowed:
        yield Verdict(
            f"{target.architecture} speculates only with {' or '.join(allowed)}, not {written}",
            at=("speculative_algorithm",),
            why="the engine stops: AssertionError: Only EAGLE … supported for this model; "
            "the engine checks this before it replaces NEXTN with EAGLE",
            fix=Fix(
                f"set speculative_algorithm to EAGLE, and {_NAME} to 1",
                set={"speculative_algorithm": "EAGLE", _NAME: 1},
            ),
        )
    elif written == "EAGLE" and plan.user_value(_NAME) != 1:
        steps = int(plan.user_value("speculative_num_steps") or 3)
        yield Verdict(
            f"{target.architecture} needs an explicit {_NAME} of 1, not {plan.user_value(_NAME)}",
            at=(_NAME, "speculative_algorithm"),
            why="the engine stops: AssertionError: Only EAGLE speculative algorithm with topk == "
            "1 is supported; the engine checks this before it chooses a topk",
            fix=Fix(
                f"set {_NAME} to 1, with {steps} steps and {steps + 1} draft tokens",
                set={
                    _NAME: 1,
                    "speculative_num_steps": steps,
                    "speculative_num_draft_tokens": None,
                },
                safe=True,
            ),
        )


@rule("SPL244")
def gemma4_draft(plan: Plan) -> Iterator[Verdict]:
    """Report a Gemma 4 assistant draft with EAGLE3."""
    draft = plan.facts.draft
    name = None if draft is None else speculation.gemma4_assistant(plan, draft)
    if name is not None:
        yield Verdict(
            f"a {name} draft needs NEXTN or EAGLE, not EAGLE3",
            at=("speculative_algorithm", "speculative_draft_model_path"),
            why="the engine refuses: Gemma4AssistantForCausalLM draft requires "
            "--speculative-algorithm NEXTN or EAGLE",
            fix=Fix(
                "set speculative_algorithm to NEXTN",
                set={"speculative_algorithm": "NEXTN"},
                safe=True,
            ),
        )


@rule("SPL412")
def mtp_weights_missing(plan: Plan) -> Iterator[Verdict]:
    """Report a declared multi-token-prediction layer without weights."""
    target = plan.facts.target
    if own_path(plan) is not None or target is None:
        return
    if not target.mtp_layers or target.mtp_weights is not False:
        return
    yield Verdict(
        f"the config declares {counted(target.mtp_layers, 'multi-token-prediction layer')}, but "
        "the weight index contains none",
        at=("model_path", "speculative_algorithm"),
        why="the engine does not log missing weights: the draft's layer remains uninitialized "
        "and its tokens are rejected",
        fix=Fix("set model_path or speculative_draft_model_path to a checkpoint with the layer"),
    )


_ONE_LAYER = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "Glm4MoeForCausalLM",
    "Glm4MoeLiteForCausalLM",
)


@rule("SPL413")
def mtp_layers_missing(plan: Plan) -> Iterator[Verdict]:
    """Report a target without exactly one multi-token-prediction layer."""
    target = plan.facts.target
    if own_path(plan) is not None or target is None:
        return
    name = target.architecture
    if name not in _ONE_LAYER or not drafts_for_itself(name, plan):
        return
    if target.mtp_layers in (None, 1):
        return
    yield Verdict(
        f"the config declares {target.mtp_layers} multi-token-prediction layers; {name} drafts "
        "with one",
        at=("speculative_algorithm", "model_path"),
        why="the engine fails while it loads the draft: Only 1 nextn layer is supported",
        fix=Fix("use a separate draft, or NGRAM"),
    )


@rule("SPL415")
def eagle3_target(plan: Plan) -> Iterator[Verdict]:
    """Report a target whose hidden states this version cannot capture for EAGLE3."""
    name = architecture(plan.facts.target)
    if not lacks_eagle3(name, plan) or plan.env(PLUGINS):
        return
    if own_path(plan) is None:
        return
    draft = plan.facts.draft
    own = draft.config.get("eagle_config") if draft is not None else None
    if isinstance(own, dict) and own.get("use_aux_hidden_state") is False:
        return
    yield Verdict(
        f"{name} cannot be the target of EAGLE3 in SGLang {plan.version}",
        at=("speculative_algorithm", "model_path"),
        why="its class has no set_eagle3_layers_to_capture; the engine fails at startup",
        fix=Fix("use a newer engine, or another algorithm"),
    )


_GPT_OSS = ("GptOssForCausalLM",)
_BEHIND_THE_LAST: tuple[tuple[tuple[str, ...], str], ...] = (
    (("Gemma3", "Gemma4"), ">=0.5.12"),  # same either way: before, they have no hook
    (_GPT_OSS, ">=0.5.17"),
    (("MiniMaxM3Sparse",), ">=0.5.23"),
)
"""Prefixes of the classes that also capture the last layer's output, with their releases (0.5.12
models/gemma3_causal.py:662, 0.5.17 models/gpt_oss.py:736, 0.5.23 models/minimax_m3.py:1962)."""
_FROM_THE_FIRST = ("Deepseek", "KimiK25", "MistralLarge3", "Glm4MoeLite", "GlmMoeDsa")
"""Prefixes of the classes that use the draft's layer numbers unchanged, unless the first number is
1 (deepseek_v2.py)."""
_EAGLE3_CAPTURED_LAYERS_SINCE = ">=0.5.13"


@rule("SPL416")
def eagle3_captured_layers(plan: Plan) -> Iterator[Verdict]:
    """Report an EAGLE-3 draft that reads layers that its target does not capture."""
    both = pair(plan)
    if both is None:
        return
    target, draft = both
    if lacks_eagle3(target.architecture, plan):
        return  # reported by SPL415
    layers = target.num_hidden_layers
    named = draft.aux_hidden_layers
    if layers is None or not named or not draft.is_eagle3:
        return
    last = _last_captured(plan, target.architecture, layers, named)
    beyond = [layer for layer in named if layer > last]
    if not beyond:
        return
    several = " and ".join(f"layer {layer}" for layer in beyond)
    has = f"but the target has {layers} layers"
    if max(beyond) < layers:
        has = f"but the last of the target's {layers} layers (number {layers - 1}) is not captured"
    yield Verdict(
        f"the draft reads target {several}, {has}",
        at=("speculative_draft_model_path", "model_path"),
        why="the engine captures fewer hidden states than the draft reads, and the first prefill "
        "fails",
        fix=Fix(f"use a draft made for this target{known_drafts(plan)}"),
    )


def _last_captured(plan: Plan, model: str | None, layers: int, named: Sequence[int]) -> int:
    """Return the last layer (counted from 0) whose output a target's model class captures.

    The output of layer i is captured at the start of layer i + 1, so most classes do not capture
    the last layer's. Raises UnknownValueError if the result depends on an unknown architecture.
    """
    strict, behind = layers - 2, layers - 1
    if model is None:
        if strict < max(named) <= layers:
            raise UnknownValueError("the architecture of the target is unknown")
        return strict
    if model in _GPT_OSS and plan.in_versions(">=0.5.17") and max(named) == layers:
        return layers
    for names, versions in _BEHIND_THE_LAST:
        if model.startswith(names) and plan.in_versions(versions):
            return behind
    if (
        model.startswith(_FROM_THE_FIRST)
        and plan.in_versions(_EAGLE3_CAPTURED_LAYERS_SINCE)
        and named[0] != 1
    ):
        return behind
    return strict


@rule("SPL417")
def eagle3_small_target(plan: Plan) -> Iterator[Verdict]:
    """Report a target with too few layers for EAGLE3."""
    both = pair(plan)
    if both is None:
        return
    target, draft = both
    layers = target.num_hidden_layers
    if layers is None or draft.aux_hidden_layers:
        return
    captured = {2, layers // 2, layers - 3} & set(range(layers))
    if len(captured) == len((2, layers // 2, layers - 3)):
        return
    fails = len(captured) > 1
    yield Verdict(
        f"EAGLE3 needs three different target layers, but captures {len(captured)} of {layers}",
        at=("model_path", "speculative_algorithm"),
        why="the draft receives too few hidden states and the first prefill fails"
        if fails
        else "the draft skips the layer that combines hidden states, so its proposals are noise",
        fix=Fix("use a target with at least seven layers"),
        severity=Severity.ERROR if fails else Severity.WARNING,
    )


@rule("SPL418")
def context_beyond_model(plan: Plan) -> Iterator[Verdict]:
    """Report a context length above the target's own."""
    requested, own = plan.user_value("context_length"), context_of(plan.facts.target, plan)
    if requested is None or own is None or int(requested) <= own:
        return
    goes_on = context_overwritten(plan)
    yield Verdict(
        f"context_length is {requested}, but the model's is {own}",
        at=("context_length", OVERWRITE),
        why=(
            "the engine continues; positions beyond the trained length cause wrong outputs or "
            "CUDA errors"
        )
        if goes_on
        else "the engine refuses: User-specified context_length is greater than the derived "
        "context_length",
        fix=Fix(f"set context_length to {own} or less", set={"context_length": own}),
        severity=Severity.WARNING if goes_on else None,
    )


_SWITCH = "enable_multi_layer_eagle"
_LAYERED = {
    "MiMoV2FlashForCausalLM": ">=0.5.7",
    "MiMoV2ForCausalLM": ">=0.5.11",
    "MiMoV2MTP": ">=0.5.7",
    "Step3p5ForCausalLM": ">=0.5.9",
    "Step3p5MTP": ">=0.5.9",
    "Step3p7ForConditionalGeneration": ">=0.5.13",
    "InklingForConditionalGeneration": ">=0.5.16",
    "InklingForConditionalGenerationMTP": ">=0.5.16",
    "GigaChat35ForCausalLM": ">=0.5.21",
    "GigaChat35ForCausalLMNextN": ">=0.5.21",
}
"""Architectures whose draft class accepts `draft_model_idx`, and the first release of each."""


@rule("SPL419")
def multi_layer_target(plan: Plan) -> Iterator[Verdict]:
    """Report multi-layer EAGLE on a model that does not support it."""
    if not plan.user_value(_SWITCH) or plan.env(PLUGINS):
        return
    name = architecture(plan.facts.target if own_path(plan) is None else plan.facts.draft)
    if name is None or plan.in_versions(_LAYERED.get(name, "<0")):
        return
    yield Verdict(
        f"{name} has no layers for multi-layer EAGLE in SGLang {plan.version}",
        at=(_SWITCH,),
        why="the engine fails at startup: the class does not accept draft_model_idx (sglang "
        "issue #36536)",
        fix=Fix(
            f"remove {_SWITCH}: the engine enables it for the models that need it",
            set={_SWITCH: None},
        ),
    )


@rule("SPL423")
def cpu_offload(plan: Plan) -> Iterator[Verdict]:
    """Report speculation with weights offloaded to the CPU."""
    size = plan.value("cpu_offload_gb")
    if not size:
        return
    yield Verdict(
        f"{size} GB of weights are offloaded to the CPU with {plan.algorithm} speculation",
        at=("cpu_offload_gb",),
        why="every forward pass of target and draft copies them; hybrid models crash on the first "
        "request (sglang issue #23150)",
        fix=Fix("remove cpu_offload_gb, or disable speculation", set={"cpu_offload_gb": None}),
    )


_TOKENS = "speculative_num_draft_tokens"
_TOPK = "speculative_eagle_topk"


@rule("SPL426")
def multi_layer_tree(plan: Plan) -> Iterator[Verdict]:
    """Report multi-layer EAGLE if the draft token count is not steps + 1."""
    if not plan.value("enable_multi_layer_eagle"):
        return
    tokens, steps = number(plan, _TOKENS), number(plan, "speculative_num_steps")
    if tokens is None or steps is None or tokens == steps + 1:
        return
    yield Verdict(
        f"multi-layer EAGLE with {steps} steps needs {_TOKENS} {steps + 1}, not {tokens}",
        at=(_TOPK, _TOKENS, "enable_multi_layer_eagle"),
        why="the engine stops during startup: multi-layer EAGLE requires "
        f"{_TOKENS} == speculative_num_steps + 1, got {tokens} and {steps}",
        fix=Fix(
            f"set {_TOPK} to 1, and {_TOKENS} to {steps + 1}", set={_TOPK: 1, _TOKENS: steps + 1}
        ),
    )


@rule("SPL427")
def quantization_mismatch(plan: Plan) -> Iterator[Verdict]:
    """Report a `quantization` that differs from the checkpoint's."""
    if plan.user_value(NAME) is None:
        return
    found = method_of(plan)
    if not found.contradicted:
        return
    yield Verdict(
        f"{target_of(plan).name} is quantized as {found.made}, not as {found.used}",
        at=(NAME,),
        why="the engine refuses: Quantization method specified in the model config "
        f"({found.made}) does not match the quantization method specified in the "
        f"`quantization` argument ({found.used})",
        fix=Fix(f"remove {NAME}: the checkpoint's config states the method", set={NAME: None}),
    )


_SPARSE = "deepseek_sparse_attention"


@rule("SPL428")
def config_refused(plan: Plan) -> Iterator[Verdict]:
    """Report a checkpoint whose config the release's transformers refuses to read."""
    target = plan.facts.target
    if target is None:
        return
    message, remedy = _refused(plan, target.raw)
    if message:
        yield Verdict(
            f"SGLang {plan.version} cannot read the config of {target.name}",
            at=("model_path",),
            why=f"its transformers version rejects the config: {message}",
            fix=Fix(remedy),
        )


def _refused(plan: Plan, raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return transformers' error for the config `raw`, and the remedy; both empty if valid."""
    kind = raw.get("model_type")
    inner = mapping(raw.get("text_config")).get("model_type")
    if inner == "ministral3" and kind == "mistral3" and plan.in_versions(">=0.5.3,<0.5.10"):
        return "KeyError: 'ministral3'", "use SGLang 0.5.10 or later"
    layers = raw.get("layer_types") or ()
    if kind == "glm_moe_dsa" and _SPARSE in layers and plan.in_versions(">=0.5.11,<0.5.13"):
        message = "Class validation error for validator 'validate_layer_type'"
        return message, "use SGLang 0.5.13 or later"
    activation = mapping(raw.get("ffn_config")).get("ffn_act_fn")
    if kind == "dbrx" and isinstance(activation, str) and plan.in_versions(">=0.5.11"):
        message = "Validation error for field 'ffn_act_fn': it has to be an object"
        return message, "correct config.json, or use SGLang 0.5.10"
    return "", ""


_DRAFTS = ("EAGLE", "STANDALONE")
"""Algorithms whose draft may be of any class; SPL407 checks EAGLE3's drafts."""
_OWN = (None, "auto", "sglang")
"""Values of `model_impl` with which the engine prefers its own classes; 0.4.6 does not have the
argument."""


@rule("SPL429")
def unknown_class(plan: Plan) -> Iterator[Verdict]:
    """Report a model whose class this version lacks."""
    if plan.env(PLUGINS) or plan.value("model_impl") not in _OWN:
        return
    models = {"model_path": plan.facts.target}
    if plan.algorithm in _DRAFTS and own_path(plan) is not None:
        models["speculative_draft_model_path"] = plan.facts.draft
    for name, checkpoint in models.items():
        if checkpoint is not None and has_no_class(checkpoint, plan):
            named = " and ".join(checkpoint.architectures)
            yield Verdict(
                f"SGLang {plan.version} has no {named}",
                at=(name,),
                why="neither SGLang nor Transformers has a usable class of that name; the "
                "engine fails while it loads the model",
                fix=Fix(
                    "use an engine with this class, or correct `architectures` in the config.json"
                ),
            )


@rule("SPL430")
def unnamed_class(plan: Plan) -> Iterator[Verdict]:
    """Report a draft whose config.json does not name its class."""
    draft = plan.facts.draft
    if own_path(plan) is None or draft is None or draft.architectures:
        return
    if draft.model_type is None:  # the config is unknown, or transformers refuses it earlier
        return
    yield Verdict(
        f"the config.json of {draft.name} has no `architectures`",
        at=("speculative_draft_model_path",),
        why="the engine reads the model class from it and fails on the draft's config: "
        "`'NoneType' object is not subscriptable`",
        fix=Fix(
            'set `architectures` in that config.json, for example to `["LlamaForCausalLMEagle3"]`'
        ),
    )


_KNOWN = ("default", "linear", "dynamic", "yarn", "deepseek_yarn", "llama3", "longrope")
_LATER = ("proportional",)
_LAYERS_SINCE = ">=0.5.11"
_OLD_NAMES = ("su", "mrope")
"""RoPE types that transformers reads as `longrope` and `default`."""
_NEW_KEY = ">=0.5.10"
"""Releases with transformers 5, whose configs may have `rope_parameters` instead of
`rope_scaling`."""


@rule("SPL431")
def activation(plan: Plan) -> Iterator[Verdict]:
    """Report a model of the Llama family with an activation that the engine lacks."""
    for name, checkpoint in llama_like(plan):
        requested = checkpoint.config.get("hidden_act", "silu")
        if requested != "silu":
            yield Verdict(
                f"{checkpoint.architecture} does not support the activation {requested}",
                at=(name,),
                why=f"the engine stops while it loads {checkpoint.name}: Unsupported activation: "
                f"{requested}. Only silu is supported for now.",
                fix=Fix("use a checkpoint with `hidden_act: silu`"),
            )


@rule("SPL432")
def rope_type(plan: Plan) -> Iterator[Verdict]:
    """Report a model of the Llama family with a RoPE scaling type that the engine lacks."""
    for name, checkpoint in llama_like(plan):
        scaling = mapping(checkpoint.config.get("rope_scaling"))
        if not scaling and plan.in_versions(_NEW_KEY):
            scaling = mapping(checkpoint.config.get("rope_parameters"))
        kind = scaling.get("rope_type", scaling.get("type"))
        known = (*_KNOWN, *_OLD_NAMES, *(_LATER if plan.in_versions(_LAYERS_SINCE) else ()))
        if isinstance(kind, str) and kind not in known:
            yield Verdict(
                f"SGLang {plan.version} does not support the RoPE scaling type `{kind}`",
                at=(name,),
                why=f"the engine stops while it loads {checkpoint.name}: Unknown RoPE scaling type "
                f"{kind}",
                fix=Fix("set `rope_type` in config.json to one of " + ", ".join(_KNOWN)),
            )


@rule("SPL433")
def shared_heads(plan: Plan) -> Iterator[Verdict]:
    """Report a head count that is not a multiple of the KV head count."""
    for name, checkpoint in llama_like(plan):
        heads, shared = checkpoint.num_attention_heads, checkpoint.num_key_value_heads
        if heads and shared and heads % shared:
            yield Verdict(
                f"{checkpoint.name} has {heads} attention heads, not a multiple of its "
                f"{shared} KV heads",
                at=(name,),
                why="each KV head must serve the same number of heads; attention fails on the "
                "first tokens",
                fix=Fix("correct `num_key_value_heads` in the config.json"),
            )

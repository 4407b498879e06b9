"""Cases of drafts and targets that do not fit each other."""

from __future__ import annotations

from typing import Any

from . import changes
from .case import EAGLE, EAGLE3, MTP, NARROW, Case, chain
from .models import Made


def drafts() -> list[Case]:
    four = ("SPL404",)
    return [
        Case(four, "eagle3", "EAGLE3 on Llama without a draft", "error", Made("cycle-8"), None,
             chain("EAGLE3")),
        Case(four, "eagle3-mtp", "EAGLE3 on GLM-4.5 without a draft", "error", *MTP,
             chain("EAGLE3")),
        Case(four, "eagle", "EAGLE on Llama without a draft", "warning", Made("cycle"), None,
             chain("EAGLE")),
        Case(four, "standalone", "STANDALONE without a draft", "warning", Made("cycle"), None,
             chain("STANDALONE")),
        Case(("SPL405", "SPL404"), "mtp", "GLM-4.5 with a copy of itself as its draft", "info",
             Made("glm-mtp"), Made("glm-mtp"), chain("EAGLE")),
        Case(("SPL406",), "eagle3-draft", "EAGLE with an EAGLE-3 draft", "warning", *EAGLE3,
             chain("EAGLE")),
        Case(("SPL407",), "eagle-head", "EAGLE3 with an EAGLE-2 draft", "error", *EAGLE,
             chain("EAGLE3")),
        Case(("SPL407",), "whole-model", "EAGLE3 with a small Llama as its draft", "error",
             Made("cycle-8"), Made("cycle-draft-5"), chain("EAGLE3")),
        Case(("SPL408",), "target-layers", "an EAGLE-3 draft whose config has the target's 8 layers",
             "warning", Made("cycle-8"), Made("llama-eagle3", {"num_hidden_layers": 8}),
             chain("EAGLE3")),
        Case(("SPL420",), "whole-model", "EAGLE with a small Llama as its draft", "warning",
             Made("cycle"), Made("cycle-draft-5"), chain("EAGLE")),
        Case(("SPL425",), "eagle-head", "STANDALONE with an EAGLE-2 draft", "error",
             Made("cycle-8"), Made("llama-eagle"), chain("STANDALONE")),
        Case(("SPL425",), "eagle3-head", "STANDALONE with an EAGLE-3 draft", "error",
             *EAGLE3, chain("STANDALONE")),
        Case(("SPL413",), "two-layers", "GLM-4.5 with two MTP layers", "error",
             Made("glm-mtp", {"num_nextn_predict_layers": 2}), None, chain("EAGLE")),
        Case(("SPL419",), "glm", "enable_multi_layer_eagle with GLM-4.5", "error", *MTP,
             chain("EAGLE") | {"enable_multi_layer_eagle": True}),
        Case(("SPL419",), "eagle3", "enable_multi_layer_eagle with an EAGLE-3 draft", "error",
             *EAGLE3, chain("EAGLE3") | {"enable_multi_layer_eagle": True}),
    ]  # fmt: skip


def sizes() -> list[Case]:
    nine, ten, eleven = ("SPL409",), ("SPL410",), ("SPL411",)
    wide = {"hidden_size": 128, "head_dim": 32}
    return [
        Case(nine, "eagle3-narrow", "target 64, EAGLE-3 draft 32", "error", Made("cycle-8"),
             Made("llama-eagle3", NARROW, fresh=True), chain("EAGLE3")),
        Case(nine, "eagle3-wide", "target 64, EAGLE-3 draft 128", "error", Made("cycle-8"),
             Made("llama-eagle3", wide, fresh=True), chain("EAGLE3")),
        Case(nine, "eagle3-told", "target 64, target_hidden_size 32", "error", Made("cycle-8"),
             Made("llama-eagle3", {"target_hidden_size": 32}, fresh=True), chain("EAGLE3")),
        Case(nine, "eagle3-narrow-told", "target 64, draft 32 with target_hidden_size 64", "",
             Made("cycle-8"), Made("llama-eagle3", NARROW | {"target_hidden_size": 64}, fresh=True),
             chain("EAGLE3")),
        Case(nine, "eagle-narrow", "target 64, EAGLE-2 draft 32", "error", Made("cycle-8"),
             Made("llama-eagle", NARROW, fresh=True), chain("EAGLE")),
        Case(nine, "eagle-wide", "target 64, EAGLE-2 draft 128", "error", Made("cycle-8"),
             Made("llama-eagle", wide, fresh=True), chain("EAGLE")),
        Case(nine, "standalone-narrow", "target 64, STANDALONE draft 32", "", Made("cycle"),
             Made("cycle-draft-5", NARROW, fresh=True), chain("STANDALONE")),
        Case(nine, "eagle3-other-heads", "an EAGLE-3 draft with other heads", "", Made("cycle-8"),
             Made("llama-eagle3", {"num_attention_heads": 2, "num_key_value_heads": 1,
             "head_dim": 32}, fresh=True), chain("EAGLE3")),
        Case(ten, "eagle3-smaller", "target 512 tokens, EAGLE-3 draft 256", "warning",
             Made("cycle-8"), Made("llama-eagle3", {"vocab_size": 256, "draft_vocab_size": 128},
             fresh=True), chain("EAGLE3")),
        Case(ten, "eagle-larger", "target 512 tokens, EAGLE-2 draft 640", "warning",
             Made("cycle-8"), Made("llama-eagle", {"vocab_size": 640}), chain("EAGLE")),
        Case(eleven, "larger", "target 512 tokens, draft 640", "error", Made("cycle"),
             Made("cycle-draft-5", {"vocab_size": 640}, fresh=True), chain("STANDALONE")),
        Case(eleven, "smaller", "target 512 tokens, draft 511", "error", Made("cycle"),
             Made("cycle-draft-5", {"vocab_size": 511}, fresh=True), chain("STANDALONE")),
        Case(eleven, "other-tokens", "two tokens with swapped ids", "warning", Made("cycle"),
             Made("cycle-draft-5", change=changes.other_tokens), chain("STANDALONE")),
    ]  # fmt: skip


def layers() -> list[Case]:
    sixteen, seventeen = ("SPL416",), ("SPL417",)

    def reading(*layers: int) -> Made:
        return Made("llama-eagle3", {"eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(layers), "use_aux_hidden_state": True}})  # fmt: skip

    def of(layers: int) -> Made:
        return Made("cycle-8", {"num_hidden_layers": layers}, fresh=True)

    return [
        Case(sixteen, "beyond", "layers 1, 4, 9 of 8", "error", Made("cycle-8"), reading(1, 4, 9),
             chain("EAGLE3")),
        Case(sixteen, "last", "layers 1, 4, 7 of 8 (0 to 7)", "error", Made("cycle-8"),
             reading(1, 4, 7), chain("EAGLE3")),
        Case(sixteen, "last-but-one", "layers 1, 4, 6 of 8 (0 to 7)", "", Made("cycle-8"),
             reading(1, 4, 6), chain("EAGLE3")),
        Case(seventeen, "two-layers", "a target of 2 layers", "warning", of(2),
             Made("llama-eagle3"), chain("EAGLE3")),
        Case(seventeen, "four-layers", "a target of 4 layers", "error", of(4),
             Made("llama-eagle3"), chain("EAGLE3")),
        Case(seventeen, "five-layers", "a target of 5 layers", "warning", of(5),
             Made("llama-eagle3"), chain("EAGLE3")),
        Case(seventeen, "six-layers", "a target of 6 layers", "error", of(6),
             Made("llama-eagle3"), chain("EAGLE3")),
        Case(seventeen, "seven-layers", "a target of 7 layers", "", of(7),
             Made("llama-eagle3"), chain("EAGLE3")),
        Case(sixteen, "small-target-named", "a target of 4 layers, the draft's config lists 0, 1, 2", "",
             of(4), reading(0, 1, 2), chain("EAGLE3")),
    ]  # fmt: skip


def targets() -> list[Case]:
    """Other classes, with weights that the engine invents."""

    def other(architecture: str, kind: str, **more: Any) -> Made:
        fields = {"architectures": [architecture], "model_type": kind}
        return Made("cycle-8", fields | more, bare=True)

    draft = Made("llama-eagle3", bare=True)
    args = chain("EAGLE3") | {"load_format": "dummy"}
    rules = ("SPL415",)
    head, eagle = Made("llama-eagle", bare=True), chain("EAGLE") | {"load_format": "dummy"}
    return [
        Case(rules, "qwen2", "a Qwen2 target, which has the hook", "",
             other("Qwen2ForCausalLM", "qwen2"), draft, args, modules=("qwen2",)),
        Case(rules, "qwen3", "a Qwen3 target, which has the hook", "",
             other("Qwen3ForCausalLM", "qwen3"), draft, args, modules=("qwen2", "qwen3")),
        Case(rules, "mistral", "a Mistral target, a subclass of Llama's", "",
             other("MistralForCausalLM", "mistral"), draft, args, modules=("mistral",)),
        Case(rules, "olmo2", "an OLMo 2 target", "error",
             other("Olmo2ForCausalLM", "olmo2"), draft, args, modules=("olmo2",)),
        Case(rules, "granite", "a Granite target", "error",
             other("GraniteForCausalLM", "granite", embedding_multiplier=1.0, logits_scaling=1.0,
             residual_multiplier=1.0, attention_multiplier=0.25, mlp_bias=False), draft, args,
             modules=("granite",)),
        Case(rules, "stablelm", "a StableLM target", "error",
             other("StableLmForCausalLM", "stablelm", layer_norm_eps=1e-5, rope_theta=10000,
             use_qkv_bias=False, partial_rotary_factor=0.25), draft, args, modules=("stablelm",)),
        Case(rules, "phi", "a Phi target", "error",
             other("PhiForCausalLM", "phi", layer_norm_eps=1e-5, partial_rotary_factor=0.5,
             hidden_act="gelu_new", qk_layernorm=False, num_key_value_heads=4), draft, args,
             modules=("phi",)),
        Case(("SPL434",), "olmo2", "an OLMo 2 target", "error",
             other("Olmo2ForCausalLM", "olmo2"), head, eagle, modules=("olmo2",)),
        Case(("SPL434",), "granite", "a Granite target", "error",
             other("GraniteForCausalLM", "granite", embedding_multiplier=1.0, logits_scaling=1.0,
             residual_multiplier=1.0, attention_multiplier=0.25, mlp_bias=False), head, eagle,
             modules=("granite",)),
        Case(("SPL434",), "qwen2", "a Qwen2 target, which has the method", "",
             other("Qwen2ForCausalLM", "qwen2"), head, eagle, modules=("qwen2",)),
    ]  # fmt: skip


def classes() -> list[Case]:
    """Classes that are not there, or not named, and what a class does not know."""
    target, head, whole = Made("cycle"), "llama-eagle3", "cycle-draft-5"
    standalone, foo = chain("STANDALONE"), {"architectures": ["FooForCausalLM"]}
    gelu = {"hidden_act": "gelu"}
    spiral = {"rope_scaling": {"rope_type": "spiral", "factor": 2.0}}
    return [
        Case(("SPL429",), "target", "a target of an unknown class", "error",
             Made("cycle", foo), None),
        Case(("SPL429",), "draft", "a STANDALONE draft of an unknown class", "error",
             target, Made(whole, foo), standalone),
        Case(("SPL407",), "eagle3-draft", "an EAGLE-3 draft of another engine's class", "error",
             Made("cycle-8"), Made(head, {"architectures": ["Eagle3LlamaForCausalLM"]}),
             chain("EAGLE3")),
        Case(("SPL430",), "standalone", "a draft without a class in its config", "error", target,
             Made(whole, {"architectures": None}), standalone),
        Case(("SPL431",), "draft", "the draft's hidden_act is gelu", "error", Made("cycle-8"),
             Made(head, gelu), chain("EAGLE3")),
        Case(("SPL432",), "draft", "a draft with an unknown rope_type", "error",
             Made("cycle-8"), Made(head, spiral), chain("EAGLE3")),
        Case(("SPL432",), "target", "a target with an unknown rope_type", "error",
             Made("cycle", spiral), None),
        Case(("SPL433",), "draft", "a draft of 4 heads and 3 KV heads", "error", Made("cycle-8"),
             Made(head, {"num_key_value_heads": 3}, fresh=True), chain("EAGLE3")),
        Case(("SPL431",), "target", "the target's hidden_act is gelu", "error",
             Made("cycle", gelu), None),
    ]  # fmt: skip

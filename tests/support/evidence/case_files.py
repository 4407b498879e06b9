"""Cases of weights and of fields in a draft's config."""

from __future__ import annotations

from typing import Any

from . import changes
from .case import Case, chain
from .models import Made


def files() -> list[Case]:
    eagle3 = chain("EAGLE3")

    def draft(
        rule: str, name: str, about: str, speaks: str, change: Any, *, late: bool = False
    ) -> Case:
        pair = Made("cycle-8"), Made("llama-eagle3", change=change)
        return Case((rule,), name, about, speaks, *pair, eagle3, late=late)

    return [
        draft("SPL951", "no-fc", "an EAGLE-3 draft without fc.weight", "warning",
              changes.without("fc.weight")),
        draft("SPL951", "no-head", "an EAGLE-3 draft without lm_head.weight", "warning",
              changes.without("lm_head.weight")),
        draft("SPL952", "turned", "q_proj of the draft transposed", "error",
              changes.turned("midlayer.self_attn.q_proj.weight")),
        draft("SPL952", "head-rows", "lm_head of 256 rows, draft_vocab_size 448", "error",
              changes.shortened("lm_head.weight", 256)),
        draft("SPL952", "norm", "a norm of 32 values instead of 64", "error",
              changes.shortened("norm.weight", 32)),
        draft("SPL952", "fewer-rows", "gate_proj of 100 rows, intermediate_size 128", "warning",
              changes.shortened("midlayer.mlp.gate_proj.weight", 100)),
        draft("SPL952", "fewer-columns", "down_proj of 100 columns, intermediate_size 128",
              "warning", changes.cut("midlayer.mlp.down_proj.weight", 100)),
        draft("SPL952", "fewer-heads", "q_proj of 48 rows, 4 heads of 16", "warning",
              changes.shortened("midlayer.self_attn.q_proj.weight", 48)),
        draft("SPL952", "more-rows", "q_proj of 80 rows, 4 heads of 16", "warning",
              changes.lengthened("midlayer.self_attn.q_proj.weight", 16)),
        draft("SPL952", "more-columns", "o_proj of 80 columns, 4 heads of 16", "warning",
              changes.widened("midlayer.self_attn.o_proj.weight", 16)),
        draft("SPL953", "outside", "d2t maps one token outside the target's vocabulary, "
              "and no request drafts it", "error", changes.mapped(5000), late=True),
        draft("SPL953", "half-outside", "d2t maps half of the tokens outside the target's vocabulary",
              "error", changes.mapped(5000, share=2)),
        draft("SPL953", "absolute", "d2t holds token ids instead of offsets", "error",
              changes.absolute),
        draft("SPL954", "two-states", "fc.weight for two hidden states of the target", "error",
              changes.cut("fc.weight", 128)),
        draft("SPL956", "nan", "a NaN in fc.weight", "warning", changes.spoiled("fc.weight")),
        draft("SPL957", "broken", "the draft's file is truncated", "error",
              changes.broken_off),
        draft("SPL957", "shard", "the draft's index lists a missing file", "error",
              changes.shard_missing),
        Case(("SPL957",), "target", "the target's file is truncated", "error",
             Made("cycle", change=changes.broken_off), None),
        Case(("SPL951",), "mtp", "GLM-4.5 with an incomplete MTP layer", "warning",
             Made("glm-mtp", change=changes.without("eh_proj.weight", "enorm.weight")), None,
             chain("EAGLE")),
        Case(("SPL412",), "mtp", "GLM-4.5 whose declared MTP layer is not in the index",
             "warning", Made("glm-mtp", change=changes.without_layer(2)), None, chain("EAGLE")),
    ]  # fmt: skip


def blocks() -> list[Case]:
    """What loading makes of DFLASH drafts, where the device would not be refused before.

    Sound ones pass the same checks and then fail for want of flashinfer: they are no cases.
    """
    target = Made("cycle-8", bare=True)
    plain = {"mask_token_id": 2, "target_layer_ids": [1, 3, 5]}
    domino = plain | {"projector_type": "domino", "shift_label": True, "pure_draft_prefix_len": 1,
                      "gru_hidden_dim": 32, "emb_dim": 16}  # fmt: skip
    lilicorr = plain | {f"lilicorr_{name}": value for name, value in {
        "candidate_topk": 8, "num_layers": 1, "num_heads": 4, "mlp_ratio": 2.0, "factor_dim": 16,
        "vector_eps": 0.001, "logit_scale": 1.0, "hidden_size": 0}.items()}  # fmt: skip

    def case(rule: str, name: str, about: str, speaks: str, config: dict[str, Any],
             target: Made = target, architecture: str = "DFlashDraftModel",
             **more: Any) -> Case:  # fmt: skip
        draft = Made(
            "cycle-8",
            {"architectures": [architecture], "model_type": "qwen3", "num_hidden_layers": 2,
             "block_size": 4, "dflash_config": config, **more},
            bare=True,
        )  # fmt: skip
        args = {"speculative_algorithm": "DFLASH", "load_format": "dummy"}
        modules = ("dflash", "lilicorr", "olmo2", "qwen2", "qwen3")
        return Case((rule,), name, about, speaks, target, draft, args, {}, modules, lifted=True)

    def without(config: dict[str, Any], name: str) -> dict[str, Any]:
        return {key: value for key, value in config.items() if key != name}

    olmo2 = Made("cycle-8", {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"},
                 bare=True)  # fmt: skip
    return [
        case("SPL612", "olmo2", "an OLMo 2 target", "error", plain, olmo2),
        case("SPL613", "beyond", "layers 1, 3, 20 of 8", "error",
             plain | {"target_layer_ids": [1, 3, 20]}),
        case("SPL613", "by-one", "layers 1, 3, 8 of 8 (0 to 7)", "error",
             plain | {"target_layer_ids": [1, 3, 8]}),
        case("SPL609", "prefix", "pure_draft_prefix_len 2", "error",
             domino | {"pure_draft_prefix_len": 2}),
        case("SPL609", "no-gru", "a Domino draft without gru_hidden_dim", "error",
             without(domino, "gru_hidden_dim")),
        case("SPL609", "no-label", "a Domino draft without shift_label", "error",
             without(domino, "shift_label")),
        case("SPL614", "vocabulary", "a Domino draft with another vocabulary, on a CPU", "error", domino,
             vocab_size=640),
        case("SPL610", "no-heads", "a LiLiCorr draft without lilicorr_num_heads", "error",
             without(lilicorr, "lilicorr_num_heads"), architecture="LiLiCorrDraftModel"),
        case("SPL610", "no-power", "lilicorr_candidate_topk 12", "error",
             lilicorr | {"lilicorr_candidate_topk": 12}, architecture="LiLiCorrDraftModel"),
        case("SPL610", "negative", "lilicorr_logit_scale -1", "error",
             lilicorr | {"lilicorr_logit_scale": -1.0}, architecture="LiLiCorrDraftModel"),
    ]  # fmt: skip

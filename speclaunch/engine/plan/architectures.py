"""Model architectures that each engine version supports, and the Transformers model classes that
the engine falls back to.

`tools/architectures.py` and `tools/transformers_classes.py` generate the data from released wheels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.releases import argument
from speclaunch.engine.releases.versions import resolve

DATA = Path(__file__).resolve().parent / "data" / "architectures.json"
ANY = "*"
"""Key of the defaults for architectures without their own entry."""
STANDALONE = "STANDALONE"
"""Key of the STANDALONE defaults, which apply to every architecture."""

Parameters = tuple[int, int, int]
"""Values of `speculative_num_steps`, `speculative_eagle_topk` and
`speculative_num_draft_tokens`."""


class Architectures(Struct, frozen=True):
    """The architectures of one release, grouped by property, and their defaults."""

    requested: str
    version: str
    """Release that the data describes."""
    exact: bool
    """True if `version` is the requested release, or the base release of the requested fork."""
    registered: frozenset[str]
    """Architectures that the release implements."""
    mtp_default_draft_path: frozenset[str]
    """Targets that are their own draft if no draft path is set."""
    multi_layer_eagle: frozenset[str]
    multimodal: frozenset[str]
    text_only: frozenset[str]
    """Multimodal models that serve only text by default."""
    no_piecewise: frozenset[str]
    """Models without compiled (piecewise) prefill graphs."""
    multimodal_piecewise: frozenset[str]
    multimodal_breakable: frozenset[str]
    sliding_window: frozenset[str]
    """Models whose sliding-window layers have a separate pool."""
    sparse_attention: frozenset[str]
    """Models that use DeepSeek sparse attention if the config has `index_topk`."""
    hybrid: frozenset[str]
    """Models with linear attention, whose states are cached next to the KV cache."""
    extra_buffer: frozenset[str]
    """Hybrid models whose states may have a separate buffer (0.5.14 and later)."""
    fa3_default: frozenset[str]
    """Models that default to fa3 on Hopper in releases where not all models do."""
    attention_sinks: frozenset[str]
    """Models with attention sinks, which flashinfer does not support."""
    eagle3_hooks: frozenset[str]
    """Targets whose model can pass hidden states to an EAGLE-3 draft."""
    dflash_hooks: frozenset[str]
    shares_embedding: frozenset[str]
    """Targets whose model can share its embedding and output head with a draft."""
    draft_map: Mapping[str, tuple[str, ...]]
    """Names of the model classes that load a draft, by the architecture in the draft's config."""
    latent_attention: Mapping[str, str]
    """Use of latent attention (MLA) by architecture: `always`, `ranked` (only if the config has
    `kv_lora_rank`) or `switched` (unless it sets `use_mla: false`)."""
    attention_overrides: Mapping[str, tuple[str, ...]]
    """Attention backends in the engine's model-specific rules for backends and page sizes, by
    architecture."""
    _automatic: Mapping[str, Parameters]

    def auto_parameters(self, architecture: str, algorithm: str | None = None) -> Parameters:
        """Return the default steps, topk and draft tokens, used if the user sets none of them."""
        if algorithm == STANDALONE and STANDALONE in self._automatic:
            return self._automatic[STANDALONE]
        return self._automatic.get(architecture, self._automatic[ANY])

    def uses_mla(self, checkpoint: Checkpoint) -> bool | None:
        """True if the engine uses latent attention (MLA); None if the architecture is unknown."""
        if not checkpoint.architectures:
            return None
        found = {self.latent_attention.get(name) for name in checkpoint.architectures}
        if "switched" in found:
            return checkpoint.config.get("use_mla") is not False
        return "always" in found or ("ranked" in found and checkpoint.kv_lora_rank is not None)


@lru_cache(maxsize=64)
def architectures(version: str) -> Architectures:
    """Return the architectures of a release, or of the nearest release that has data.

    A fork uses its base release. Raises UnknownVersion.
    """
    data = _data()
    resolved = resolve(version, data["versions"])
    held = resolved.held
    records = argument.select(data, held)

    def having(key: str) -> frozenset[str]:
        return frozenset(name for name, record in records.items() if key in record)

    def values(key: str) -> Iterator[tuple[str, Any]]:
        return ((name, record[key]) for name, record in records.items() if key in record)

    return Architectures(
        requested=version,
        version=held,
        exact=resolved.exact or version.partition("+")[0] == held,
        registered=having("model"),
        mtp_default_draft_path=having("mtp"),
        multi_layer_eagle=having("multi_layer"),
        multimodal=having("multimodal"),
        text_only=having("text_only"),
        no_piecewise=having("no_piecewise"),
        multimodal_piecewise=having("multimodal_piecewise"),
        multimodal_breakable=having("multimodal_breakable"),
        sliding_window=having("sliding_window"),
        sparse_attention=having("sparse"),
        hybrid=having("hybrid"),
        extra_buffer=having("extra_buffer"),
        fa3_default=having("fa3"),
        attention_sinks=having("sinks"),
        eagle3_hooks=having("eagle3"),
        dflash_hooks=having("dflash"),
        shares_embedding=having("embedding"),
        draft_map=MappingProxyType({name: tuple(drafts) for name, drafts in values("draft")}),
        latent_attention=MappingProxyType(dict(values("mla"))),
        attention_overrides=MappingProxyType({k: tuple(v) for k, v in values("backends")}),
        _automatic=MappingProxyType(
            {name: (steps, topk, tokens) for name, (steps, topk, tokens) in values("auto")}
        ),
    )


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_bytes())
    return found


TRANSFORMERS_DATA = Path(__file__).resolve().parent / "data" / "transformers_classes.json"
CLASS_ENDINGS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""Suffixes of the class names in the data file."""


def in_transformers(architecture: str) -> bool | None:
    """True if a Transformers release that SGLang pins has the class; None if its name has no suffix
    of `CLASS_ENDINGS`."""
    if not architecture.endswith(CLASS_ENDINGS):
        return None
    return architecture in _classes()


@lru_cache(maxsize=1)
def _classes() -> frozenset[str]:
    return frozenset(json.loads(TRANSFORMERS_DATA.read_bytes())["classes"])


GROUPED = frozenset(
    {
        "AfmoeForCausalLM",
        "ArceeForCausalLM",
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "DFlashDraftModel",
        "Ernie4_5_ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3ForConditionalGeneration",
        "GemmaForCausalLM",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "GptOssForCausalLM",
        "GraniteForCausalLM",
        "GraniteMoeForCausalLM",
        "InternLM2ForCausalLM",
        "InternLM3ForCausalLM",
        "Llama4ForCausalLM",
        "Llama4ForConditionalGeneration",
        "LlamaForCausalLM",
        "LlamaForCausalLMEagle",
        "LlamaForCausalLMEagle3",
        "MiMoForCausalLM",
        "MiniCPMForCausalLM",
        "MiniMaxM2ForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "Olmo2ForCausalLM",
        "OlmoeForCausalLM",
        "Phi3ForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2ForCausalLMEagle",
        "Qwen2MoeForCausalLM",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "SolarForCausalLM",
    }
)
"""Models that require heads to divide evenly among ranks (`total_num_heads % tp_size`), and KV
heads to be split or replicated evenly (`QKVParallelLinear`, 0.4.6 layers/linear.py, 0.5.23
layers/linear.py:1139). The requirement is the same in 0.4.6.post5, 0.5.3, 0.5.9, 0.5.16 and 0.5.23.
Excludes models whose config counts heads differently, or whose layers differ in head count."""
LATENT = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Eagle3DeepseekV2ForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "KimiK25ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "LongcatFlashForCausalLM",
        "MiniCPM3ForCausalLM",
    }
)
"""Models that require only heads to divide evenly among ranks (`num_heads % attn_tp_size`), because
every rank has the complete latent KV cache (models/deepseek_v2.py and models that build on it)."""
_FULL = ("num_attention_heads", "num_key_value_heads")
_HEADS_ALONE = (("num_attention_heads", None),)
OTHER_HEADS: Mapping[str, tuple[tuple[str, str | None], ...]] = {
    "Gemma3nForCausalLM": (_FULL,),
    "Gemma3nForConditionalGeneration": (_FULL,),
    "Gemma4ForCausalLM": _HEADS_ALONE,
    "Gemma4ForConditionalGeneration": _HEADS_ALONE,
    "Gemma4UnifiedForConditionalGeneration": _HEADS_ALONE,
    "MiMoV2FlashForCausalLM": (_FULL, ("swa_num_attention_heads", "swa_num_key_value_heads")),
    "MiMoV2ForCausalLM": (_FULL, ("swa_num_attention_heads", "swa_num_key_value_heads")),
    "Qwen3_5ForCausalLM": (_FULL,),
    "Qwen3_5ForConditionalGeneration": (_FULL,),
    "Qwen3_5MoeForCausalLM": (_FULL,),
    "Qwen3_5MoeForConditionalGeneration": (_FULL,),
    "Step3VLForConditionalGeneration": _HEADS_ALONE,
    "Step3p5ForCausalLM": (("num_attention_heads", "num_attention_groups"),),
}
"""Models for which only the attention checks were verified, with the config keys of heads and KV
heads for each kind of layer. The second key is None if KV heads are not checked: Step3 has one KV
head for all heads, and Gemma 4's global layers have a separate count. See 0.5.23
models/gemma3n_causal.py:331, gemma4_causal.py:342, mimo_v2.py:691 and :883, qwen3_5.py:1292,
step3_vl.py:197, step3p5.py:297. 0.5.16 and 0.5.9 assert the same for the models that they support;
0.5.3 does so in gemma3n_causal.py:330 and step3_vl.py:198. DeepSeek V4 asserts nothing about its
heads (0.5.23 deepseek_v4.py:1035)."""

"""Which layers of a model keep a whole KV cache, a sliding window of one, or a recurrent state."""

from __future__ import annotations

from speclaunch.plan.architectures import architectures
from speclaunch.plan.memory.model_config import ModelConfig
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.record import record

_INTERVALS = ("Qwen3Next", "Qwen3_5", "InternS2Preview", "InternS2Mobius")
"""Gated delta nets with attention in every `full_attention_interval`-th layer."""
_KIMI = ("KimiLinear", "KimiK3")
_MODEL_DECIDES = ">=0.5.8"
"""The first release with a list of models of sliding windows; before it every model that has a
window has a pool for it (0.4.10 model_runner.py:289 to 0.5.6 :438)."""
_NONE = "<0.4.10"
_NO_OTHERS = ">=0.5.7"
"""0.5.7 has neither: only MiMo-V2 has such a pool."""
_PATTERNS = ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")
_WINDOWED_MODELS = ("GptOss", "Gemma2", "Gemma3", "Olmo2", "Olmo3")
"""Those before 0.5.7 whose attention has windows in some layers
(`get_attention_sliding_window_size` in srt/models)."""
WINDOW_DRAFTS = ("MiMoV2MTP", "Step3p5MTP")
"""Drafts of one layer, which has a window."""
_FULL = ("full_attention", "attention")
_DEFAULT_WINDOW_PATTERN = {"gpt_oss": 2, "gemma2": 2, "gemma3": 6, "gemma3_text": 6}
"""Every so many layers a full one where the config lists none: the defaults of transformers."""


@record
class Layers:
    """Indices of layers by what they keep. `windowed` is whether the sliding ones have a pool of
    their own; where not, they keep every token as the full ones do."""

    full: tuple[int, ...]
    sliding: tuple[int, ...] = ()
    recurrent: tuple[int, ...] = ()
    repeats: int = 1
    """KV layers that one layer stands for (LongCat has two attentions in each)."""

    def within(self, stage: range) -> Layers:
        """Those of one pipeline stage."""
        return Layers(
            tuple(i for i in self.full if i in stage),
            tuple(i for i in self.sliding if i in stage),
            tuple(i for i in self.recurrent if i in stage),
            self.repeats,
        )


def layers_of(plan: Plan, config: ModelConfig) -> Layers:
    """The layers of a target as the plan's version keeps them. Raises UnknownValueError."""
    count = config.layers
    recurrent = _recurrent(config, count)
    if recurrent is not None:
        return recurrent
    if config.architecture.startswith("LongcatFlash"):
        return Layers(tuple(range(count)), repeats=2)
    if _has_window_pool(plan, config):
        sliding = sliding_layers(config, count)
        if sliding:
            rest = sorted(set(range(count)) - set(sliding))
            return Layers(tuple(rest), tuple(sorted(sliding)))
    loops = config.count("loop_num", default=1)
    return Layers(tuple(range(count)), repeats=loops)


def recurrent_layers(config: ModelConfig, count: int) -> frozenset[int]:
    """The layers with a recurrent state. Raises UnknownValueError."""
    found = _recurrent(config, count)
    return frozenset(found.recurrent) if found is not None else frozenset()


def _recurrent(config: ModelConfig, count: int) -> Layers | None:
    """The layers of a model with Mamba or linear attention; None: it has none."""
    name = config.architecture
    if name.startswith("FalconH1"):
        return Layers(tuple(range(count)), recurrent=tuple(range(count)))
    if name.startswith("NemotronH"):
        return _nemotron(config, count)
    if name.startswith(_KIMI) or config.values.get("linear_attn_config"):
        return _split(count, set(range(count)) - _kimi_linear(config))
    types = config.texts("layer_types")[:count]
    if name.startswith(_INTERVALS) and not types:
        every = config.count("full_attention_interval", default=4)
        return _split(count, {i for i in range(count) if (i + 1) % every == 0})
    if name.startswith(("GraniteMoeHybrid", "Lfm2", *_INTERVALS)):
        if not types:
            raise UnknownValueError(f"`layer_types` of {config.name} is not known")
        return _split(count, {i for i, kind in enumerate(types) if kind in _FULL})
    return None


def _kimi_linear(config: ModelConfig) -> set[int]:
    part = config.part("linear_attn_config")
    linear = part.counts("kda_layers") if part is not None else ()
    if not linear:
        raise UnknownValueError(f"`kda_layers` of {config.name} is not known")
    return {layer - 1 for layer in linear}  # counted from 1


def _nemotron(config: ModelConfig, count: int) -> Layers:
    blocks = config.text("hybrid_override_pattern") or config.texts("layers_block_type")
    if not blocks:
        raise UnknownValueError(f"`hybrid_override_pattern` of {config.name} is not known")
    kinds = list(enumerate(blocks[:count]))
    full = tuple(i for i, kind in kinds if kind in ("*", "attention"))
    return Layers(full, recurrent=tuple(i for i, kind in kinds if kind in ("M", "mamba")))


def _split(count: int, full: set[int]) -> Layers:
    rest = tuple(i for i in range(count) if i not in full)
    return Layers(tuple(sorted(full)), recurrent=rest)


def _has_window_pool(plan: Plan, config: ModelConfig) -> bool:
    """`is_hybrid_swa_model` and what came before it."""
    if plan.value("disable_hybrid_swa_memory") or plan.in_versions(_NONE):
        return False
    name = config.architecture
    if not plan.in_versions(_MODEL_DECIDES):
        return _had_window_pool(plan, config)
    known = architectures(plan.request.version).sliding_window
    if name == "LagunaForCausalLM" and not config.optional("sliding_window", least=0):
        return False
    return name in known or config.values.get("is_hybrid_swa") is True


def _had_window_pool(plan: Plan, config: ModelConfig) -> bool:
    name = config.architecture
    if name.startswith("Llama4"):
        if plan.value("hybrid_kvcache_ratio"):  # a formula of its own, with a share to choose
            raise UnknownValueError("the pools of Llama 4 with `hybrid_kvcache_ratio`")
        return False
    if plan.in_versions(_NO_OTHERS):
        return name in ("MiMoV2FlashForCausalLM", "MiMoV2MTP")
    return name.startswith(_WINDOWED_MODELS) and bool(config.optional("sliding_window"))


def sliding_layers(config: ModelConfig, count: int) -> tuple[int, ...]:
    """The layers with a sliding window: `get_hybrid_layer_ids` (0.5.23 configs/model_config.py).

    Raises UnknownValueError where the config does not tell.
    """
    name = config.architecture
    if name.startswith("Llama4"):
        return tuple(i for i in range(count) if (i + 1) % 4)
    if name in WINDOW_DRAFTS:
        return (0,)
    if name.startswith("UnlimitedOCR"):
        return tuple(range(count))
    if name.startswith("Inkling"):
        return tuple(i for i in config.counts("local_layer_ids") if 0 <= i < count)
    pattern = config.counts("hybrid_layer_pattern")
    if pattern and (name in _PATTERNS or config.values.get("is_hybrid_swa") is True):
        return tuple(i for i, kind in enumerate(pattern[:count]) if kind == 1)
    return _of_types(config, count)


def _of_types(config: ModelConfig, count: int) -> tuple[int, ...]:
    types = config.texts("layer_types")
    if types:
        return tuple(i for i, kind in enumerate(types[:count]) if kind == "sliding_attention")
    usual = _DEFAULT_WINDOW_PATTERN.get(config.model_type)
    if usual is None:
        raise UnknownValueError(f"`layer_types` of {config.name} is not known")
    every = config.count("sliding_window_pattern", default=usual)
    return tuple(i for i in range(count) if (i + 1) % every)

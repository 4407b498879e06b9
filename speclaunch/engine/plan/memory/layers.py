"""The cache of each target and draft layer, in bytes per token on one rank.

A layer caches all tokens, a sliding window of tokens, or a recurrent state.
"""

from __future__ import annotations

from msgspec import Struct

from speclaunch.core import mapping
from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.architectures import architectures
from speclaunch.engine.plan.memory.matrices import ELEMENT_BYTES, ModelConfig, serving_dtype
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.topics import speculation
from speclaunch.engine.plan.topics.algorithms import BLOCK_FAMILY, EAGLE_FAMILY
from speclaunch.engine.plan.topics.target import target_of

_FP4 = ("fp4_e2m1", "nvfp4", "fp4_mx_block16")
_FP4_BLOCK = 16
_MX_BLOCK = 32
_SCALED_CACHE = ("modelopt_fp8", "modelopt_fp4", "modelopt", "modelopt_mixed", "w4afp8")
"""Quantization methods whose checkpoints may request an fp8 cache if the dtype is auto (0.5.3 and
later)."""
_SCALED_CACHE_LATER = ("compressed-tensors", "compressed_tensors", "fp8")
"""Quantization methods whose checkpoints may also request an fp8 cache in 0.5.19 and later."""


class Element(Struct, frozen=True):
    """The engine's name for the KV cache dtype, and the size of an element in bytes.

    `halved`: two elements share a byte. `block`: the number of elements that share one scale byte.
    """

    name: str
    bytes: int
    block: int = 0
    halved: bool = False

    @property
    def why(self) -> str:
        return f"{'½' if self.halved else self.bytes} byte{'' if self.bytes == 1 else 's'}"

    @property
    def exact(self) -> bool:
        """True except for fp4, whose scales and buffers depend on the attention backend."""
        return not self.halved

    def of_heads(self, heads: int, keys: int, values: int) -> int:
        """Return the bytes of one token's keys and values in one layer."""
        total = heads * (keys + values) * self.bytes
        if self.halved:
            return total // 2 + heads * keys * 2 * self.bytes // _FP4_BLOCK
        return total + (heads * (keys + values) // self.block if self.block else 0)

    def of_latent(self, size: int) -> int:
        """Return the bytes of one token's latent vector in one layer."""
        total = size * self.bytes
        return total // 2 + size // _FP4_BLOCK * self.bytes if self.halved else total


def element_of(
    plan: Plan, checkpoint: Checkpoint, config: ModelConfig, *, draft: bool, sparse: bool
) -> Element:
    """Return the dtype that `kv_cache_dtype` resolves to. Raises UnknownValueError.

    See `configure_kv_cache_dtype` (0.5.23 mem_cache/kv_cache_dtype.py:34, 0.5.10
    model_runner.py:1902, 0.4.6 :830) and, for sparse attention, `_dsa_kv_cache_dtype_default`
    (0.5.23 arg_groups/overrides.py:491, 0.5.4 server_args.py:1070).
    """
    dtype = str(plan.value("kv_cache_dtype") or "auto")
    if draft:
        dtype = str(plan.value("speculative_draft_kv_cache_dtype") or dtype)
    if sparse and plan.in_versions(">=0.5.3,<0.5.4") and _is_blackwell(plan):
        dtype = "fp8_e4m3"  # regardless of the user's value
    if dtype == "auto":
        if sparse and plan.in_versions(">=0.5.4"):
            sinks = config.values.get("learnable_sink") is True
            dtype = "fp8_e4m3" if _is_blackwell(plan) and not sinks else "bfloat16"
        elif config.architecture.startswith("MuseSpark") or _requires_fp8(plan, checkpoint):
            dtype = "fp8_e4m3"
        else:
            dtype = serving_dtype(checkpoint, plan.value("dtype"))
    if draft and _has_own_dtype(plan):
        dtype = serving_dtype(checkpoint, plan.value("dtype"))
    return _named("bfloat16" if dtype == "bf16" else dtype)


def _named(name: str) -> Element:
    if name in ELEMENT_BYTES:
        return Element(name, ELEMENT_BYTES[name])
    if name in ("fp8_e4m3", "fp8_e5m2"):
        return Element(name, 1)
    if name == "mxfp8":
        return Element(name, 1, block=_MX_BLOCK)
    if name in _FP4:
        return Element(name, 1, block=_FP4_BLOCK, halved=True)
    raise UnknownValueError(f"`kv_cache_dtype` {name} is unknown")


def _has_own_dtype(plan: Plan) -> bool:
    """True if a DFLASH draft uses fa4, which cannot read a quantized cache (0.5.16 and later)."""
    algorithm = plan.algorithm
    if algorithm not in BLOCK_FAMILY or plan.in_versions("<0.5.16"):
        return False
    return bool(plan.value("speculative_draft_attention_backend") == "fa4")


def _is_blackwell(plan: Plan) -> bool:
    hardware = plan.facts.hardware
    if plan.device != "cuda":
        return False
    if hardware is None or hardware.capability is None:
        if hardware is not None and hardware.vendor.value == "amd":
            return False
        raise UnknownValueError("the compute capability of the GPU is unknown")
    return hardware.capability >= 100


def _requires_fp8(plan: Plan, checkpoint: Checkpoint) -> bool:
    """True if the checkpoint requests an fp8 cache (`kv_cache_scheme`, `kv_cache_quant_algo`)."""
    if plan.in_versions("<0.5.3"):
        return False
    method = checkpoint.quantization
    later = plan.in_versions(">=0.5.19") and method in _SCALED_CACHE_LATER
    if method not in _SCALED_CACHE and not later:
        return False
    config = checkpoint.quantization_config
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, str):
        return scheme.strip().upper() in ("FP8", "FLOAT8")
    bits = mapping(scheme)
    if bits:
        return bits.get("type") == "float" and bits.get("num_bits") == 8
    algorithm = config.get("kv_cache_quant_algo")
    return isinstance(algorithm, str) and algorithm.upper() == "FP8"


_QUANTISED_BLOCK = 128
"""Elements per float32 scale in DeepSeek's sparse attention (`quant_block_size`)."""
_UNKNOWN = ("DeepseekV4", "MiniMaxM3", "Qwen4Exp", "Dots3Note")
"""Models with compressed or mixed caches, which are not modeled."""
_OWN_VALUES = ">=0.5.7"
"""Releases that support keys and values of different sizes (0.5.7
model_runner_kv_cache_mixin.py:87)."""


class KvCell(Struct, frozen=True):
    """Bytes of one token in one layer.

    - `full`, `sliding`: allocated in a layer that holds every token, and in a sliding-window layer.
    - `counted`: in the engine's budget for a full layer; less than `full` in some versions.
    - `index`: the keys of the sparse-attention indexer, in addition to `full`.
    """

    full: int
    sliding: int
    counted: int
    index: int = 0
    why: str = ""


def cell_of(
    plan: Plan, checkpoint: Checkpoint, config: ModelConfig, ranks: int, element: Element
) -> KvCell:
    """Return the cell of a checkpoint on one of `ranks` attention ranks. Raises
    UnknownValueError."""
    name = config.architecture
    if name.startswith(_UNKNOWN):
        raise UnknownValueError(f"the KV cache of {name} is not modeled")
    latent = architectures(plan.request.version).uses_mla(checkpoint)
    if latent is None:
        raise UnknownValueError(f"the architecture of {checkpoint.name} is unknown")
    if latent:
        return _latent(plan, config, element)
    if config.latent_rank is not None:
        raise UnknownValueError(
            f"this version's cache for the latent attention of {name} is unknown"
        )
    return _heads(plan, config, ranks, element)


def _heads(plan: Plan, config: ModelConfig, ranks: int, element: Element) -> KvCell:
    heads = _of_rank(config.key_value_heads, ranks)
    dim = config.head_dim
    values = _value_dim(plan, config, dim)
    window_heads, window_dim, window_values = heads, dim, values
    if plan.in_versions(_OWN_VALUES):
        own = config.optional("swa_num_key_value_heads")
        other = config.part("attention_other_setting")  # Step-3.5
        if own is None and other is not None:
            own = other.optional("num_attention_groups")
        window_heads = heads if own is None else _of_rank(own, ranks)
        window_dim = config.count("swa_head_dim", default=dim)
        window_values = config.count("swa_v_head_dim", default=window_dim)
        if config.architecture.startswith(("Gemma4", "DiffusionGemma", "EmbeddingGemma2")):
            # the config's head_dim applies to sliding layers; full layers have global_head_dim
            window_dim = window_values = dim
            window_heads = heads
            dim = values = config.count("global_head_dim", default=dim)
            own = config.optional("num_global_key_value_heads")
            heads = heads if own is None else _of_rank(own, ranks)
    full = element.of_heads(heads, dim, values)
    return KvCell(
        full,
        element.of_heads(window_heads, window_dim, window_values),
        full,
        why=f"{heads} KV heads * ({dim} + {values}) * {element.why}",
    )


def _of_rank(heads: int, ranks: int) -> int:
    return max(1, heads // ranks)


def _value_dim(plan: Plan, config: ModelConfig, dim: int) -> int:
    if not plan.in_versions(_OWN_VALUES):
        return dim
    return config.optional("v_head_dim", least=0) or dim


def _latent(plan: Plan, config: ModelConfig, element: Element) -> KvCell:
    """Return the cell of latent attention, which is the same on every rank."""
    rank = config.count("kv_lora_rank")
    rope = config.count("qk_rope_head_dim", least=0)
    if config.architecture.startswith("BailingMoeV3") and config.values.get("use_mla_nope") is True:
        rope = 0
    plain = element.of_latent(rank + rope)
    why = f"({rank} + {rope}) * {element.why}"
    if not is_sparse(plan, config):
        return KvCell(plain, plain, plain, why=why)
    index = _index_bytes(plan, config)
    why += f" plus {index} for the indexer"
    if not _is_scaled(plan, element):
        return KvCell(plain, plain, plain, index, why)
    scaled = rank + rank // _QUANTISED_BLOCK * 4 + rope * 2
    counted = scaled if plan.in_versions(">=0.5.17") else plain
    return KvCell(
        scaled, scaled, counted, index, f"{scaled} with scales plus {index} for the indexer"
    )


def is_sparse(plan: Plan, config: ModelConfig) -> bool:
    """True if the model runs DeepSeek's sparse attention (`is_deepseek_dsa`)."""
    known = architectures(plan.request.version).sparse_attention
    return config.architecture in known and config.optional("index_topk") is not None


def _index_bytes(plan: Plan, config: ModelConfig) -> int:
    """Return the index-key bytes of one token: one byte per element, plus the scales.

    `index_kpool` tokens share a key (0.5.22 and later).
    """
    dim = config.count("index_head_dim")
    each = dim + dim // _QUANTISED_BLOCK * 4
    pooled = config.count("index_kpool", default=1) if plan.in_versions(">=0.5.22") else 1
    return -(-each // pooled)


def _is_scaled(plan: Plan, element: Element) -> bool:
    """True if sparse-attention cache rows include scales. Raises UnknownValueError.

    See `calculate_mla_kv_cache_dim` (0.5.9 and later) and `NSATokenToKVPool` (0.5.4 to 0.5.8).
    """
    if element.name != "fp8_e4m3" or plan.in_versions("<0.5.4"):
        return False
    if plan.in_versions("<0.5.9"):
        return True
    hardware = plan.facts.hardware
    backends = [plan.value(f"dsa_{phase}_backend") for phase in ("prefill", "decode")]
    if plan.in_versions(">=0.5.10") and None in backends:
        if hardware is None or hardware.capability is None:
            raise UnknownValueError("the compute capability of the GPU is unknown")
        if hardware.capability >= 100:  # `_set_default_dsa_backends`
            return False
    return "trtllm" not in backends and backends != ["tilelang", "tilelang"]


def skips_index(config: ModelConfig, layer: int) -> bool:
    """True for a layer that reuses the previous layer's token selection and has no indexer keys
    (`dsa_layer_skips_topk`, 0.5.18 and later)."""
    types = config.texts("indexer_types")
    if types:
        return layer < len(types) and types[layer] == "shared"
    every = config.count("cli_factor", default=1)
    if every > 1:
        return layer % every != 0
    pattern = config.text("index_topk_pattern")
    if pattern is not None:
        return layer < len(pattern) and pattern[layer] == "S"
    every = config.count("index_topk_freq", default=1)
    offset = config.count("index_skip_topk_offset", default=2, least=0)
    return every > 1 and max(layer - offset + 1, 0) % every != 0


_INTERVALS = ("Qwen3Next", "Qwen3_5", "InternS2Preview", "InternS2Mobius")
"""Models with gated delta nets, and attention in every `full_attention_interval`-th layer."""
_KIMI = ("KimiLinear", "KimiK3")
_MODEL_DECIDES = ">=0.5.8"
"""Releases with a list of sliding-window models. In earlier releases, every model with a sliding
window has a separate pool for it (0.4.10 model_runner.py:289 to 0.5.6 :438)."""
_NONE = "<0.4.10"
_NO_OTHERS = ">=0.5.7"
"""Releases before `_MODEL_DECIDES` in which only MiMo-V2 has a separate pool for its windows."""
_PATTERNS = ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")
_WINDOWED_MODELS = ("GptOss", "Gemma2", "Gemma3", "Olmo2", "Olmo3")
"""Models whose attention has windows in some layers, for releases before 0.5.7
(`get_attention_sliding_window_size` in srt/models)."""
WINDOW_DRAFTS = ("MiMoV2MTP", "Step3p5MTP")
"""Draft models whose only layer has a sliding window."""
_FULL_ATTENTION = ("full_attention", "attention")
_DEFAULT_WINDOW_PATTERN = {"gpt_oss": 2, "gemma2": 2, "gemma3": 6, "gemma3_text": 6}
"""Default interval of full-attention layers by model type (from transformers)."""


class Layers(Struct, frozen=True):
    """Indices of layers by cache kind.

    `sliding`: sliding-window layers with a separate pool. Without such a pool, they hold every
    token and belong to `full`.
    """

    full: tuple[int, ...]
    sliding: tuple[int, ...] = ()
    recurrent: tuple[int, ...] = ()
    repeats: int = 1
    """KV layers per model layer (2 for LongCat, which has two attention blocks in each layer)."""

    def within(self, stage: range) -> Layers:
        return Layers(
            tuple(i for i in self.full if i in stage),
            tuple(i for i in self.sliding if i in stage),
            tuple(i for i in self.recurrent if i in stage),
            self.repeats,
        )


def layers_of(plan: Plan, config: ModelConfig) -> Layers:
    """Return a model's layers by cache kind in the plan's version. Raises UnknownValueError."""
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
    """Return the indices of recurrent layers. Raises UnknownValueError."""
    found = _recurrent(config, count)
    return frozenset(found.recurrent) if found is not None else frozenset()


def _recurrent(config: ModelConfig, count: int) -> Layers | None:
    """Return the layers of a model with Mamba or linear attention; None for other models."""
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
            raise UnknownValueError(f"`layer_types` of {config.name} is unknown")
        return _split(count, {i for i, kind in enumerate(types) if kind in _FULL_ATTENTION})
    return None


def _kimi_linear(config: ModelConfig) -> set[int]:
    part = config.part("linear_attn_config")
    linear = part.counts("kda_layers") if part is not None else ()
    if not linear:
        raise UnknownValueError(f"`kda_layers` of {config.name} is unknown")
    return {layer - 1 for layer in linear}  # counted from 1


def _nemotron(config: ModelConfig, count: int) -> Layers:
    blocks = config.text("hybrid_override_pattern") or config.texts("layers_block_type")
    if not blocks:
        raise UnknownValueError(f"`hybrid_override_pattern` of {config.name} is unknown")
    kinds = list(enumerate(blocks[:count]))
    full = tuple(i for i, kind in kinds if kind in ("*", "attention"))
    return Layers(full, recurrent=tuple(i for i, kind in kinds if kind in ("M", "mamba")))


def _split(count: int, full: set[int]) -> Layers:
    rest = tuple(i for i in range(count) if i not in full)
    return Layers(tuple(sorted(full)), recurrent=rest)


def _has_window_pool(plan: Plan, config: ModelConfig) -> bool:
    """True for a model whose sliding-window layers have a separate pool (`is_hybrid_swa_model` and
    its predecessors)."""
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
        if plan.value("hybrid_kvcache_ratio"):  # another formula, with a configurable share
            raise UnknownValueError(
                "the pools of Llama 4 with `hybrid_kvcache_ratio` are not modeled"
            )
        return False
    if plan.in_versions(_NO_OTHERS):
        return name in ("MiMoV2FlashForCausalLM", "MiMoV2MTP")
    return name.startswith(_WINDOWED_MODELS) and bool(config.optional("sliding_window"))


def sliding_layers(config: ModelConfig, count: int) -> tuple[int, ...]:
    """Return the indices of sliding-window layers. Raises UnknownValueError if not stated.

    See `get_hybrid_layer_ids` (0.5.23 configs/model_config.py).
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
        raise UnknownValueError(f"`layer_types` of {config.name} is unknown")
    every = config.count("sliding_window_pattern", default=usual)
    return tuple(i for i in range(count) if (i + 1) % every)


_SINGLE_LAYER_MODELS = ("MiMoV2MTP", "Step3p5MTP", "InklingForConditionalGenerationMTP")
"""Single-layer models, of which multi-layer EAGLE runs several instances."""
MTP_ENDS = ("NextN", "MTP")
"""Class name suffixes of multi-token-prediction layers."""


class Draft(Struct, frozen=True):
    """A draft model, as the engine loads it.

    `is_mtp`: the engine loads only the multi-token-prediction layers, as the model `loaded_as`.
    `models`: the number of model instances (multi-layer EAGLE).
    """

    checkpoint: Checkpoint
    config: ModelConfig
    is_mtp: bool
    loaded_as: str
    models: int = 1

    @property
    def layers(self) -> int:
        """Number of KV layers in all draft instances together. Raises UnknownValueError.

        See `_compute_model_num_layers` (0.5.23 layer_setup.py:203).
        """
        if self.loaded_as in _SINGLE_LAYER_MODELS:
            return self.models
        declared = self.mtp_layers
        return (declared or 1) if self.is_mtp else (declared or self.config.layers)

    @property
    def mtp_layers(self) -> int | None:
        return self.config.optional("num_nextn_predict_layers", least=0)


def draft_of(plan: Plan) -> Draft | None:
    """Return the draft model; None without speculation or with NGRAM. Raises UnknownValueError."""
    algorithm = plan.algorithm
    if algorithm is None or algorithm not in EAGLE_FAMILY | BLOCK_FAMILY:
        if algorithm not in (None, "NGRAM"):
            raise UnknownValueError(f"the draft of {algorithm} is not modeled")
        return None
    checkpoint = plan.facts.draft
    if checkpoint is None:
        if speculation.own_path(plan, as_configured=False) is not None:
            raise UnknownValueError(speculation.UNKNOWN_DRAFT)
        checkpoint = target_of(plan)
    name = checkpoint.architecture
    if name is None:
        raise UnknownValueError(f"the architecture of the draft {checkpoint.name} is unknown")
    config = ModelConfig.of(checkpoint)
    renamed = architectures(plan.request.version).draft_map.get(name, ())
    if algorithm in BLOCK_FAMILY and renamed:
        raise UnknownValueError(f"the DSPARK draft in {checkpoint.name} is not modeled")
    loaded_as = renamed[-1] if renamed else name
    if not renamed and name == "DeepseekV32ForCausalLM":
        loaded_as = "DeepseekV3ForCausalLMNextN"  # it is loaded as DeepseekV3ForCausalLM
    models = 1
    if plan.value("enable_multi_layer_eagle"):
        models = max(1, int(plan.value("speculative_num_steps") or 1))
    return Draft(checkpoint, config, loaded_as.endswith(MTP_ENDS), loaded_as, models)


def counted_layers(plan: Plan, draft: Draft) -> int:
    """Return the number of draft layers in the engine's memory budget. Raises UnknownValueError.

    See `eagle_draft_num_layers` (0.5.23 spec_aux_hidden_state.py:174, 0.5.14 model_runner.py:446).
    Without a draft path, releases up to 0.5.19 count no layers. Later releases use the number in
    the target's config.
    """
    declared = draft.mtp_layers
    if plan.value("speculative_draft_model_path") is None:
        return 0 if plan.in_versions("<0.5.20") else declared or 0
    if draft.is_mtp and declared is None:
        if draft.loaded_as in _SINGLE_LAYER_MODELS and plan.in_versions("<0.5.18"):
            return draft.config.layers  # the engine counts the target's layers
        return 1
    return declared if declared is not None else draft.config.layers

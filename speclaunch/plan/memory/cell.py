"""Bytes of KV cache that one token takes in one layer of one rank: elements, heads, scales."""

from __future__ import annotations

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.architectures import architectures
from speclaunch.plan.memory.model_config import ELEMENT_BYTES, ModelConfig, serving_dtype
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.algorithms import BLOCK_FAMILY
from speclaunch.reads.safe_json import mapping
from speclaunch.record import record

_FP4 = ("fp4_e2m1", "nvfp4", "fp4_mx_block16")
_FP4_BLOCK = 16
_MX_BLOCK = 32
_SCALED_CACHE = ("modelopt_fp8", "modelopt_fp4", "modelopt", "modelopt_mixed", "w4afp8")
"""Methods whose checkpoints may ask for an fp8 cache where it is auto (0.5.3 and later)."""
_SCALED_CACHE_LATER = ("compressed-tensors", "compressed_tensors", "fp8")
"""From 0.5.19."""


@record
class Element:
    """The dtype of the KV cache by the engine's name, and the bytes of an element.

    `halved` is whether two elements share a byte, `block` how many share a byte of scale.
    """

    name: str
    bytes: int
    block: int = 0
    halved: bool = False

    @property
    def why(self) -> str:
        """In words of a formula."""
        return f"{'½' if self.halved else self.bytes} byte{'' if self.bytes == 1 else 's'}"

    @property
    def exact(self) -> bool:
        """fp4 has scales and buffers that depend on the attention backend."""
        return not self.halved

    def of_heads(self, heads: int, keys: int, values: int) -> int:
        """Bytes of the keys and values of one layer."""
        whole = heads * (keys + values) * self.bytes
        if self.halved:
            return whole // 2 + heads * keys * 2 * self.bytes // _FP4_BLOCK
        return whole + (heads * (keys + values) // self.block if self.block else 0)

    def of_latent(self, size: int) -> int:
        """Bytes of the latent of one layer."""
        whole = size * self.bytes
        return whole // 2 + size // _FP4_BLOCK * self.bytes if self.halved else whole


def element_of(
    plan: Plan, checkpoint: Checkpoint, config: ModelConfig, *, draft: bool, sparse: bool
) -> Element:
    """The dtype that `kv_cache_dtype` comes to. Raises UnknownValueError.

    `configure_kv_cache_dtype` (0.5.23 mem_cache/kv_cache_dtype.py:34, 0.5.10 model_runner.py:1902,
    0.4.6 :830) and, for sparse attention, `_dsa_kv_cache_dtype_default` (0.5.23
    arg_groups/overrides.py:491, 0.5.4 server_args.py:1070).
    """
    said = str(plan.value("kv_cache_dtype") or "auto")
    if draft:
        said = str(plan.value("speculative_draft_kv_cache_dtype") or said)
    if sparse and plan.in_versions(">=0.5.3,<0.5.4") and _is_blackwell(plan):
        said = "fp8_e4m3"  # whatever was given
    if said == "auto":
        if sparse and plan.in_versions(">=0.5.4"):
            sinks = config.values.get("learnable_sink") is True
            said = "fp8_e4m3" if _is_blackwell(plan) and not sinks else "bfloat16"
        elif config.architecture.startswith("MuseSpark") or _asks_for_fp8(plan, checkpoint):
            said = "fp8_e4m3"
        else:
            said = serving_dtype(checkpoint, plan.value("dtype"))
    if draft and _keeps_its_dtype(plan):
        said = serving_dtype(checkpoint, plan.value("dtype"))
    return _named("bfloat16" if said == "bf16" else said)


def _named(name: str) -> Element:
    if name in ELEMENT_BYTES:
        return Element(name, ELEMENT_BYTES[name])
    if name in ("fp8_e4m3", "fp8_e5m2"):
        return Element(name, 1)
    if name == "mxfp8":
        return Element(name, 1, block=_MX_BLOCK)
    if name in _FP4:
        return Element(name, 1, block=_FP4_BLOCK, halved=True)
    raise UnknownValueError(f"`kv_cache_dtype` {name} is not known")


def _keeps_its_dtype(plan: Plan) -> bool:
    """A DFLASH draft that runs on fa4 (0.5.16 and later) cannot read a quantised cache."""
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
        raise UnknownValueError("the compute capability of the GPU is not known")
    return hardware.capability >= 100


def _asks_for_fp8(plan: Plan, checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint was made for an fp8 cache (`kv_cache_quant_algo` is FP8)."""
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
    said = config.get("kv_cache_quant_algo")
    return isinstance(said, str) and said.upper() == "FP8"


_QUANTISED_BLOCK = 128
"""Of DeepSeek's sparse attention: one float32 scale for so many elements (`quant_block_size`)."""
_UNKNOWN = ("DeepseekV4", "MiniMaxM3", "Qwen4Exp", "Dots3Note")
"""Compressed or mixed caches, which this does not work out."""
_OWN_VALUES = ">=0.5.7"
"""Keys and values of different sizes (0.5.7 model_runner_kv_cache_mixin.py:87)."""


@record
class KvCell:
    """Bytes of one token in one layer.

    - `full`, `sliding`: a layer that keeps every token, one with a window, as they are allocated.
    - `counted`: what the engine divides its budget by for a full layer, which is less in some
      versions.
    - `index`: the keys of the indexer of sparse attention, beside `full`.
    """

    full: int
    sliding: int
    counted: int
    index: int = 0
    why: str = ""


def cell_of(
    plan: Plan, checkpoint: Checkpoint, config: ModelConfig, ranks: int, element: Element
) -> KvCell:
    """The cell of a checkpoint on one of `ranks` attention ranks. Raises UnknownValueError."""
    name = config.architecture
    if name.startswith(_UNKNOWN):
        raise UnknownValueError(f"the KV cache of {name} is not modelled")
    latent = architectures(plan.request.version).uses_mla(checkpoint)
    if latent is None:
        raise UnknownValueError(f"the architecture of {checkpoint.name} is not known")
    if latent:
        return _latent(plan, config, element)
    if config.latent_rank is not None:
        raise UnknownValueError(f"how this version caches the latent attention of {name}")
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
            # the config's head_dim is that of its windows, the full layers have another
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
    """Latent attention: the same for every rank."""
    rank = config.count("kv_lora_rank")
    rope = config.count("qk_rope_head_dim", least=0)
    if config.architecture.startswith("BailingMoeV3") and config.values.get("use_mla_nope") is True:
        rope = 0
    plain = element.of_latent(rank + rope)
    why = f"({rank} + {rope}) * {element.why}"
    if not is_sparse(plan, config):
        return KvCell(plain, plain, plain, why=why)
    index = _index_bytes(plan, config)
    why += f" and {index} of the indexer"
    if not _is_scaled(plan, element):
        return KvCell(plain, plain, plain, index, why)
    scaled = rank + rank // _QUANTISED_BLOCK * 4 + rope * 2
    counted = scaled if plan.in_versions(">=0.5.17") else plain
    return KvCell(
        scaled, scaled, counted, index, f"{scaled} with scales and {index} of the indexer"
    )


def is_sparse(plan: Plan, config: ModelConfig) -> bool:
    """Whether the model runs DeepSeek's sparse attention (`is_deepseek_dsa`)."""
    known = architectures(plan.request.version).sparse_attention
    return config.architecture in known and config.optional("index_topk") is not None


def _index_bytes(plan: Plan, config: ModelConfig) -> int:
    """One byte an element, and the scales; `index_kpool` tokens share it (0.5.22 and later)."""
    dim = config.count("index_head_dim")
    each = dim + dim // _QUANTISED_BLOCK * 4
    pooled = config.count("index_kpool", default=1) if plan.in_versions(">=0.5.22") else 1
    return -(-each // pooled)


def _is_scaled(plan: Plan, element: Element) -> bool:
    """Whether rows of sparse attention hold scales: `calculate_mla_kv_cache_dim` (0.5.9 and later),
    `NSATokenToKVPool` (0.5.4 to 0.5.8). Raises UnknownValueError."""
    if element.name != "fp8_e4m3" or plan.in_versions("<0.5.4"):
        return False
    if plan.in_versions("<0.5.9"):
        return True
    hardware = plan.facts.hardware
    backends = [plan.value(f"dsa_{phase}_backend") for phase in ("prefill", "decode")]
    if plan.in_versions(">=0.5.10") and None in backends:
        if hardware is None or hardware.capability is None:
            raise UnknownValueError("the compute capability of the GPU is not known")
        if hardware.capability >= 100:  # `_set_default_dsa_backends`
            return False
    return "trtllm" not in backends and backends != ["tilelang", "tilelang"]


def skips_index(config: ModelConfig, layer: int) -> bool:
    """`dsa_layer_skips_topk`: a layer that takes the choice of the one before it keeps no keys for
    an indexer (0.5.18 and later)."""
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

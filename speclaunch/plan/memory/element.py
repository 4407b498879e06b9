"""What one element of the KV cache takes: its dtype, and the scales beside it."""

from __future__ import annotations

from dataclasses import dataclass

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.safe_json import mapping
from speclaunch.plan.memory.model_config import ELEMENT_BYTES, ModelConfig, serving_dtype
from speclaunch.plan.plan import Plan, UnknownValueError

_FP4 = ("fp4_e2m1", "nvfp4", "fp4_mx_block16")
_FP4_BLOCK = 16
_MX_BLOCK = 32
_SCALED_CACHE = ("modelopt_fp8", "modelopt_fp4", "modelopt", "modelopt_mixed", "w4afp8")
"""Methods whose checkpoints may ask for an fp8 cache where it is auto (0.5.3 and later)."""
_SCALED_CACHE_LATER = ("compressed-tensors", "compressed_tensors", "fp8")
"""From 0.5.19."""


@dataclass(frozen=True, slots=True)
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
    if algorithm not in ("DFLASH", "DSPARK") or plan.in_versions("<0.5.16"):
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

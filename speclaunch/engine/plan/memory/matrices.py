"""A model's weights as matrices, and the config values that determine their sizes.

A model family holds the traits that configs omit. They come from srt/models (0.5.23) and from the
config classes in transformers.

A missing or implausible value raises UnknownValueError, which names the key. Sizes are never
guessed, and no config causes a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import mapping, size, sizes, text, texts
from speclaunch.engine.facts.facts import SHORT_DTYPES, Checkpoint, merged
from speclaunch.engine.plan.placement import Ranks
from speclaunch.engine.plan.plan import UnknownValueError
from speclaunch.engine.plan.topics.target import halved

MOST_LAYERS = 4096
"""Maximum number of layers in a model. Limits the work for implausible configs."""
ROUTED_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
"""Config keys that state the number of routed experts."""
ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

_SWITCHED = ("DeepseekVL2ForCausalLM", "DeepseekOCRForCausalLM")


class ModelConfig(Struct, frozen=True):
    """A checkpoint's flattened config, or a nested part such as `vision_config`."""

    name: str
    """Name of the checkpoint or of the config part, for error messages."""
    values: Mapping[str, Any]
    architecture: str = ""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> ModelConfig:
        """Return a checkpoint's config, overridden by facts that the user may have set."""
        declared = {
            "hidden_size": checkpoint.field_or_none("hidden_size"),
            "vocab_size": checkpoint.field_or_none("vocab_size"),
            "draft_vocab_size": checkpoint.field_or_none("draft_vocab_size"),
            "num_hidden_layers": checkpoint.field_or_none("num_hidden_layers"),
            "num_attention_heads": checkpoint.field_or_none("num_attention_heads"),
            "num_key_value_heads": checkpoint.field_or_none("num_key_value_heads"),
            "head_dim": checkpoint.field_or_none("head_dim"),
            "kv_lora_rank": checkpoint.field_or_none("kv_lora_rank"),
            "model_type": checkpoint.field_or_none("model_type"),
        }
        known = {key: value for key, value in declared.items() if value is not None}
        if "model_type" in checkpoint.config:
            known.pop("model_type", None)  # the outer type would hide the nested part's own type
        return cls(checkpoint.name, merged(checkpoint.config, known), checkpoint.architecture or "")

    def optional(self, *keys: str, least: int = 1) -> int | None:
        """Return the first value set among the keys, or None. Raises UnknownValueError if it is not
        an integer of at least `least`."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            found = size(value, least=least)
            if found is None:
                raise UnknownValueError(f"`{key}` of {self.name} is not a count")
            return found
        return None

    def count(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """Return the first value set among the keys, else `default`. Raises UnknownValueError if
        there is neither."""
        found = self.optional(*keys, least=least)
        if found is not None:
            return found
        if default is None:
            raise UnknownValueError(f"`{keys[0]}` of {self.name} is unknown")
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a key's boolean value, or `default` if it is missing. Raises UnknownValueError for
        other types."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise UnknownValueError(f"`{key}` of {self.name} is neither true nor false")
        return value

    def text(self, key: str) -> str | None:
        """Return the value of a key if it is a non-empty string, else None."""
        return text(self.values.get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings in a key's list; empty if its value is not a list."""
        return texts(self.values.get(key))

    def counts(self, key: str) -> tuple[int, ...]:
        """Return the integers in a key's list; empty if any element is not an integer."""
        return sizes(self.values.get(key))

    def part(self, key: str) -> ModelConfig | None:
        """Return the object under a key; None if it is missing or empty."""
        inner = mapping(self.values.get(key))
        return ModelConfig(f"`{key}` of {self.name}", inner, self.architecture) if inner else None

    @property
    def model_type(self) -> str:
        """`model_type` of the language model, lowercase; empty if missing."""
        return (self.text("model_type") or "").lower()

    @property
    def layers(self) -> int:
        """`num_hidden_layers`, or the length of the layer pattern (Nemotron-H)."""
        pattern = self.text("hybrid_override_pattern")
        if pattern is not None and self.architecture.startswith("NemotronH"):
            return min(len(pattern), MOST_LAYERS)
        found = self.count("num_hidden_layers", "n_layer", "num_layers")
        if found > MOST_LAYERS:
            why = f"`num_hidden_layers` of {self.name} is {found}, more than {MOST_LAYERS}"
            raise UnknownValueError(why)
        return found

    @property
    def heads(self) -> int:
        return self.count("num_attention_heads", "n_head")

    @property
    def hidden(self) -> int:
        return self.count("hidden_size", "n_embd")

    @property
    def head_dim(self) -> int:
        found = self.optional("head_dim")
        return found if found is not None else max(1, self.hidden // self.heads)

    @property
    def latent_rank(self) -> int | None:
        """`kv_lora_rank`; None unless attention is latent (MLA).

        DeepSeek-VL2 and DeepSeek-OCR run plain attention if `use_mla` is false (0.5.23
        models/deepseek_vl2.py:216 and deepseek_ocr.py:1490, 0.4.6 models/deepseek_vl2.py:193).
        """
        if self.architecture in _SWITCHED and not self.flag("use_mla", default=True):
            return None
        return self.optional("kv_lora_rank")

    @property
    def key_value_heads(self) -> int:
        """Number of KV heads: `get_total_num_kv_heads` (0.5.23 configs/model_config.py:1626)."""
        if self.values.get("multi_query") is True:
            return 1
        keys = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num")
        found = self.optional(*keys, "num_attention_groups", least=0)
        return self.heads if found is None else found


def serving_dtype(checkpoint: Checkpoint, dtype: object) -> str:
    """Return the dtype in which a checkpoint is served. Raises UnknownValueError.

    If `dtype` is auto, float32 checkpoints are served in float16, but Gemma's in bfloat16
    (`_get_and_verify_dtype`, 0.5.23 configs/model_config.py:2284).
    """
    resolved = str(dtype or "auto").lower()
    resolved = SHORT_DTYPES.get(resolved, resolved)
    if resolved != "auto":
        if resolved not in ELEMENT_BYTES:
            raise UnknownValueError(f"`dtype` {resolved} is unknown")
        return resolved
    own = checkpoint.dtype
    if own is None and not checkpoint.config:
        raise UnknownValueError(f"the dtype of {checkpoint.name} is unknown")
    if own is None or own == "float32":
        return halved(checkpoint)
    return own


class QkNorm(Enum):
    """Kind of query and key norms."""

    NONE = auto()
    HEAD = auto()
    """Norms with the size of one head."""
    ALL_HEADS = auto()
    """Norms with the combined size of all heads."""


class ModelFamily(Struct, frozen=True):
    """Traits of a family of models."""

    biased: bool | None = None
    """True if queries, keys and values have a bias. None: the config's `attention_bias` decides."""
    biased_output: bool = False
    """True if the output of attention has a bias when queries, keys and values have one."""
    qk_norm: QkNorm = QkNorm.NONE
    qk_norm_key: str | None = None
    norms: int = 2
    """Number of norms in a layer."""
    tied: bool = False
    """True if embedding and head are shared unless the config states otherwise."""
    expert_size: str = "moe_intermediate_size"
    """Config key for the size of an expert."""
    router_bias: bool = False
    """True if the router has a score correction bias."""
    router_offset: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    gated_output: bool = False
    """True if a gate scales the attention output. The query matrix contains the gate's rows."""
    sinks: bool = False
    """True if each head has an attention sink (one number)."""
    mtp_copies: bool = False
    """True if published checkpoints repeat embedding and head in their MTP layers."""


_LLAMA = ModelFamily(biased_output=True)
_QWEN2 = ModelFamily(biased=True)
_QWEN3 = ModelFamily(biased_output=True, qk_norm=QkNorm.HEAD)
_DEEPSEEK = ModelFamily(router_bias=True, mtp_copies=True)
_QWEN35 = ModelFamily(qk_norm=QkNorm.HEAD, gated_output=True, shared_gate=True)
_KIMI = ModelFamily(router_bias=True)

FAMILIES: dict[str, ModelFamily] = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": ModelFamily(biased=False),
    "Mistral3ForConditionalGeneration": ModelFamily(biased=False),
    "Phi3ForCausalLM": ModelFamily(biased=False),
    "InternLM3ForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen2VLForConditionalGeneration": _QWEN2,
    "Qwen2_5_VLForConditionalGeneration": _QWEN2,
    "Qwen2MoeForCausalLM": ModelFamily(biased=True, shared_gate=True),
    "Qwen3ForCausalLM": _QWEN3,
    "Qwen3VLForConditionalGeneration": _QWEN3,
    "Qwen3MoeForCausalLM": _QWEN3,
    "Qwen3VLMoeForConditionalGeneration": _QWEN3,
    "Qwen3NextForCausalLM": _QWEN35,
    "Qwen3_5ForCausalLM": _QWEN35,
    "Qwen3_5MoeForCausalLM": _QWEN35,
    "Qwen3_5ForConditionalGeneration": _QWEN35,
    "Qwen3_5MoeForConditionalGeneration": _QWEN35,
    "MixtralForCausalLM": ModelFamily(biased=False, expert_size="intermediate_size"),
    "GemmaForCausalLM": ModelFamily(tied=True),
    "Gemma2ForCausalLM": ModelFamily(norms=4, tied=True),
    "Gemma3ForCausalLM": ModelFamily(norms=4, tied=True, qk_norm=QkNorm.HEAD),
    "Gemma3ForConditionalGeneration": ModelFamily(norms=4, tied=True, qk_norm=QkNorm.HEAD),
    "GptOssForCausalLM": ModelFamily(
        biased=True,
        biased_output=True,
        expert_size="intermediate_size",
        router_offset=True,
        expert_bias=True,
        sinks=True,
    ),
    "DeepseekV2ForCausalLM": ModelFamily(),
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "DeepseekV32ForCausalLM": _DEEPSEEK,
    "GlmMoeDsaForCausalLM": ModelFamily(router_bias=True),
    "Glm4MoeLiteForCausalLM": _DEEPSEEK,
    "KimiK25ForConditionalGeneration": _KIMI,
    "KimiVLForConditionalGeneration": _KIMI,
    "Glm4ForCausalLM": ModelFamily(norms=4),
    "Glm4MoeForCausalLM": ModelFamily(
        qk_norm=QkNorm.HEAD, qk_norm_key="use_qk_norm", router_bias=True, mtp_copies=True
    ),
    "MiMoForCausalLM": ModelFamily(),
    "MiMoV2FlashForCausalLM": ModelFamily(router_bias=True),
    "MiniMaxM2ForCausalLM": ModelFamily(
        biased=False,
        qk_norm=QkNorm.ALL_HEADS,
        qk_norm_key="use_qk_norm",
        expert_size="intermediate_size",
        router_bias=True,
    ),
    "Llama4ForConditionalGeneration": ModelFamily(expert_size="intermediate_size"),
    "Llama4ForCausalLM": ModelFamily(expert_size="intermediate_size"),
    "DFlashDraftModel": _QWEN3,
}


def family_of(architecture: str) -> ModelFamily:
    """Return the family of an architecture. Raises UnknownValueError."""
    found = FAMILIES.get(architecture)
    if found is None:
        raise UnknownValueError(
            f"the number of weights of {architecture or 'the model'} is unknown"
        )
    return found


class Shard(Enum):
    """The group of ranks that a weight is divided among."""

    __hash__ = object.__hash__  # unique members; the hash of Enum is Python code, and slow

    TENSOR = auto()
    ATTENTION = auto()
    """Heads, divided among the ranks that share a batch's attention."""
    DENSE = auto()
    """MLPs of the dense layers in a mixture of experts."""
    EXPERT = auto()
    """Experts. Each group of ranks holds different experts, and divides each of them within the
    group."""
    SHARED_EXPERT = auto()
    EMBEDDING = auto()
    HEAD = auto()
    REPLICATED = auto()
    """Weights that every rank holds in full."""


class WeightRole(Enum):
    """The part of a model that a weight belongs to."""

    __hash__ = object.__hash__

    BODY = auto()
    EMBEDDING = auto()
    HEAD = auto()
    VISION = auto()
    MTP = auto()
    """Multi-token-prediction layers, which the target does not load."""
    MTP_COPY = auto()
    """Copies of embedding and head in multi-token-prediction layers. These copies are never
    loaded."""


class Matrix(Struct, frozen=True):
    """A set of `copies` weights, each with `rows` outputs and `columns` inputs.

    - `name`: the first copy's module name in the checkpoint; it decides whether the weights are
      quantized.
    - `linear`: False for weights that no method quantizes: norms, biases, embeddings.
    - `most`: the maximum number of parts, such as the number of KV heads.
    - `bytes`: the element size, if not the dtype's.
    """

    name: str
    rows: int
    columns: int = 1
    shard: Shard = Shard.REPLICATED
    role: WeightRole = WeightRole.BODY
    copies: int = 1
    linear: bool = True
    most: int | None = None
    bytes: int | None = None
    layer: int | None = None
    """Layer index in the target; None for other weights, such as the embedding and the head."""

    @property
    def parameters(self) -> int:
        return self.rows * self.columns * self.copies

    def in_layer(self, index: int) -> Matrix:
        return replace(self, layer=index)

    def parts(self, ranks: Ranks) -> float:
        """Return the number of parts that `ranks` split this into; fractional with redundant
        experts."""
        found: float = {
            Shard.TENSOR: ranks.tensor,
            Shard.ATTENTION: ranks.attention,
            Shard.DENSE: ranks.dense,
            Shard.EXPERT: ranks.tensor,
            Shard.SHARED_EXPERT: ranks.shared_expert,
            Shard.EMBEDDING: ranks.embedding,
            Shard.HEAD: ranks.head,
            Shard.REPLICATED: 1,
        }[self.shard]
        if self.most is not None:
            found = min(found, max(1, self.most))
        if self.shard is Shard.EXPERT and ranks.redundant_experts and self.copies:
            found *= self.copies / (self.copies + ranks.redundant_experts)
        return found


def vector(
    name: str, size: int, *, role: WeightRole = WeightRole.BODY, element: int | None = None
) -> Matrix:
    """Return a norm or bias vector, which every rank holds in full."""
    return Matrix(name, size, role=role, linear=False, bytes=element)


FLOAT32 = 4


def attention(
    config: ModelConfig, family: ModelFamily, name: str, *, windowed: bool = False, inputs: int = 0
) -> Iterator[Matrix]:
    """Yield the matrices, biases, norms and sinks of plain attention (not MLA).

    `inputs`: size of the input if it is larger than the hidden state (EAGLE-3).
    """
    hidden = config.hidden
    heads, kv_heads, dim = config.heads, config.key_value_heads, config.head_dim
    values = config.optional("v_head_dim", least=0) or dim
    if windowed:
        heads = config.count("swa_num_attention_heads", default=heads)
        kv_heads = config.count("swa_num_key_value_heads", default=kv_heads)
        dim = config.count("swa_head_dim", default=dim)
        values = config.count("swa_v_head_dim", default=values)
    inputs = inputs or hidden
    queries = heads * dim * (2 if family.gated_output else 1)
    sizes = (("q_proj", queries, heads), ("k_proj", kv_heads * dim, kv_heads))
    for module, rows, most in (*sizes, ("v_proj", kv_heads * values, kv_heads)):
        yield Matrix(f"{name}.{module}", rows, inputs, Shard.ATTENTION, most=most)
    yield Matrix(f"{name}.o_proj", hidden, heads * values, Shard.ATTENTION)
    biased = config.flag("attention_bias") if family.biased is None else family.biased
    if biased:
        yield vector(f"{name}.q_proj.bias", queries + kv_heads * (dim + values))
        if family.biased_output:
            yield vector(f"{name}.o_proj.bias", hidden)
    has_norm = family.qk_norm_key is None or config.flag(family.qk_norm_key)
    if family.qk_norm is QkNorm.HEAD and has_norm:
        yield vector(f"{name}.q_norm", 2 * dim)
    elif family.qk_norm is QkNorm.ALL_HEADS and has_norm:
        yield vector(f"{name}.q_norm", (heads + kv_heads) * dim)
    if family.sinks:
        yield vector(f"{name}.sinks", heads)


def latent_attention(
    config: ModelConfig, name: str, *, inputs: int = 0, indexed: bool = True
) -> Iterator[Matrix]:
    """Yield the matrices of multi-head latent attention, and of its indexer if `indexed`."""
    hidden, heads = config.hidden, config.heads
    inputs = inputs or hidden
    nope, rope = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim", least=0)
    rank, values = config.count("kv_lora_rank"), config.count("v_head_dim")
    low = config.optional("q_lora_rank")
    queries = heads * (nope + rope)
    if low is None:
        yield Matrix(f"{name}.q_proj", queries, inputs, Shard.ATTENTION)
    else:
        yield Matrix(f"{name}.q_a_proj", low, inputs)
        yield vector(f"{name}.q_a_layernorm", low)
        yield Matrix(f"{name}.q_b_proj", queries, low, Shard.ATTENTION)
    yield Matrix(f"{name}.kv_a_proj_with_mqa", rank + rope, inputs)
    yield vector(f"{name}.kv_a_layernorm", rank)
    yield Matrix(f"{name}.kv_b_proj", heads * (nope + values), rank, Shard.ATTENTION)
    yield Matrix(f"{name}.o_proj", hidden, heads * values, Shard.ATTENTION)
    if indexed and config.optional("index_topk") is not None and low is not None:
        index_heads, dim = config.count("index_n_heads"), config.count("index_head_dim")
        yield Matrix(f"{name}.indexer.wq_b", index_heads * dim, low)
        yield Matrix(f"{name}.indexer.wk", dim, hidden)
        yield Matrix(f"{name}.indexer.weights_proj", index_heads, hidden, linear=False)
        yield vector(f"{name}.indexer.k_norm", 2 * dim)


def mlp(
    hidden: int, size: int, name: str, *, shard: Shard = Shard.TENSOR, gated: bool = True
) -> Iterator[Matrix]:
    """Yield the gate, up and down matrices of an MLP; the gate only if `gated`."""
    for module in ("gate_proj", "up_proj") if gated else ("up_proj",):
        yield Matrix(f"{name}.{module}", size, hidden, shard)
    yield Matrix(f"{name}.down_proj", hidden, size, shard)


def experts(config: ModelConfig, family: ModelFamily, name: str) -> Iterator[Matrix]:
    """Yield the matrices of the router, the experts and the shared experts."""
    hidden = config.hidden
    count = expert_count(config)
    size = config.count(family.expert_size)
    yield Matrix(f"{name}.gate", count, hidden, linear=False)
    if family.router_bias:
        yield vector(f"{name}.gate.e_score_correction_bias", count, element=FLOAT32)
    if family.router_offset:
        yield vector(f"{name}.router.bias", count)
    for module, rows, columns in (
        ("gate_proj", size, hidden),
        ("up_proj", size, hidden),
        ("down_proj", hidden, size),
    ):
        yield Matrix(f"{name}.experts.0.{module}", rows, columns, Shard.EXPERT, copies=count)
    if family.expert_bias:
        yield vector(f"{name}.experts.bias", count * (2 * size + hidden))
    shared = _shared_size(config, family, size)
    if shared:
        yield from mlp(hidden, shared, f"{name}.{_shared_name(config)}", shard=Shard.SHARED_EXPERT)
        if family.shared_gate:
            yield Matrix(f"{name}.shared_expert_gate", 1, hidden, linear=False)


def expert_count(config: ModelConfig) -> int:
    """Return the number of routed experts in a layer."""
    return config.count(*ROUTED_EXPERTS)


def _shared_size(config: ModelConfig, family: ModelFamily, size: int) -> int:
    if config.architecture.startswith("Llama4"):
        return size
    own = config.optional("shared_expert_intermediate_size", least=0)
    if own is not None:
        return own if family.shared_gate else 0
    number = config.optional("n_shared_experts", "num_shared_experts", least=0) or 0
    return number * size


def _shared_name(config: ModelConfig) -> str:
    qwen = config.architecture.startswith(("Qwen", "Llama4"))
    return "shared_expert" if qwen else "shared_experts"


def linear_attention(config: ModelConfig, name: str) -> Iterator[Matrix]:
    """Yield the matrices of a gated delta net (Qwen3-Next, Qwen3.5). Raises UnknownValueError for
    other kinds of linear attention."""
    if config.optional("linear_num_value_heads") is None:
        raise UnknownValueError(
            f"the weights of linear attention in {config.architecture} are unknown"
        )
    hidden = config.hidden
    heads, groups = config.count("linear_num_value_heads"), config.count("linear_num_key_heads")
    values, keys = config.count("linear_value_head_dim"), config.count("linear_key_head_dim")
    inner, key_size = heads * values, groups * keys
    kernel = config.count("linear_conv_kernel_dim", default=4)
    rows = 2 * key_size + inner
    yield Matrix(f"{name}.in_proj_qkv", rows, hidden, Shard.ATTENTION)
    yield Matrix(f"{name}.in_proj_z", inner, hidden, Shard.ATTENTION)
    yield Matrix(f"{name}.in_proj_b", 2 * heads, hidden, Shard.ATTENTION, linear=False)
    yield Matrix(f"{name}.conv1d", rows, kernel, Shard.ATTENTION, linear=False)
    yield Matrix(f"{name}.out_proj", hidden, inner, Shard.ATTENTION)
    yield vector(f"{name}.norm", values + 2 * heads)

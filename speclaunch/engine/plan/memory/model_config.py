"""Numbers in a checkpoint's config that determine sizes.

A missing value, or one of an implausible type or size, raises UnknownValueError with the key's
name: sizes are never guessed, and no config causes a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from speclaunch.core import mapping, size, sizes, text, texts
from speclaunch.engine.facts.checkpoint import SHORT_DTYPES, Checkpoint, merged
from speclaunch.engine.plan.plan import UnknownValueError
from speclaunch.engine.plan.topics.target import halved

MOST_LAYERS = 4096
"""Maximum number of layers in a model, to limit the work for an implausible config."""
ROUTED_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
"""Keys that state the number of routed experts."""
ELEMENT_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

_SWITCHED = ("DeepseekVL2ForCausalLM", "DeepseekOCRForCausalLM")


class ModelConfig(Struct, frozen=True):
    """The flat config of a checkpoint, or a nested part of it (`vision_config`)."""

    name: str
    """Name of the checkpoint, for messages."""
    values: Mapping[str, Any]
    architecture: str = ""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> ModelConfig:
        """Return the config, overridden by the checkpoint's facts, which may come from the user."""
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
        """Return the value of the first key that is set, or None. Raises UnknownValueError if the
        value is not a count of at least `least`."""
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
        """Return the value of the first set key, else `default`. Raises UnknownValueError."""
        found = self.optional(*keys, least=least)
        if found is not None:
            return found
        if default is None:
            raise UnknownValueError(f"`{keys[0]}` of {self.name} is unknown")
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean value, or `default` if it is missing. Raises UnknownValueError."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise UnknownValueError(f"`{key}` of {self.name} is neither true nor false")
        return value

    def text(self, key: str) -> str | None:
        """Return a non-empty string, else None."""
        return text(self.values.get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings in a list; empty if the value is not one."""
        return texts(self.values.get(key))

    def counts(self, key: str) -> tuple[int, ...]:
        """Return the numbers in a list; empty if the value is not one."""
        return sizes(self.values.get(key))

    def part(self, key: str) -> ModelConfig | None:
        """Return a non-empty nested object, else None."""
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
            raise UnknownValueError(f"`num_hidden_layers` of {self.name} is {found}")
        return found

    @property
    def heads(self) -> int:
        """`num_attention_heads`."""
        return self.count("num_attention_heads", "n_head")

    @property
    def hidden(self) -> int:
        """`hidden_size`."""
        return self.count("hidden_size", "n_embd")

    @property
    def head_dim(self) -> int:
        """`head_dim`, else the hidden size divided by the heads."""
        found = self.optional("head_dim")
        return found if found is not None else max(1, self.hidden // self.heads)

    @property
    def latent_rank(self) -> int | None:
        """`kv_lora_rank`, if attention is latent (MLA).

        DeepSeek-VL2 and DeepSeek-OCR switch MLA with `use_mla`, and run plain attention without it
        (0.5.23 models/deepseek_vl2.py:216 and deepseek_ocr.py:1490, 0.4.6
        models/deepseek_vl2.py:193).
        """
        if self.architecture in _SWITCHED and not self.flag("use_mla", default=True):
            return None
        return self.optional("kv_lora_rank")

    @property
    def key_value_heads(self) -> int:
        """`get_total_num_kv_heads` (0.5.23 configs/model_config.py:1626)."""
        if self.values.get("multi_query") is True:
            return 1
        keys = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num")
        found = self.optional(*keys, "num_attention_groups", least=0)
        return self.heads if found is None else found


def serving_dtype(checkpoint: Checkpoint, dtype: object) -> str:
    """Return float16, bfloat16 or float32, from `dtype` and the checkpoint. Raises
    UnknownValueError.

    `_get_and_verify_dtype` (0.5.23 configs/model_config.py:2284): with auto, float32 checkpoints
    are served in float16, and Gemma's in bfloat16.
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

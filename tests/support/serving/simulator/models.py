"""The models of the simulated deployments: public configs of real checkpoints, by their figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from speclaunch.engine.facts.facts import Checkpoint


@dataclass(frozen=True)
class Model:
    """A decoder as its config.json has it. Sizes are counts; `parameters` is in billions."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    vocab: int
    context: int
    parameters: float
    architecture: str = "LlamaForCausalLM"
    bytes_each: float = 2.0
    draft_vocab: int | None = None

    @property
    def weight_bytes(self) -> int:
        return int(self.parameters * 1e9 * self.bytes_each)

    def checkpoint(self) -> Checkpoint:
        config: dict[str, Any] = {
            "architectures": [self.architecture],
            "model_type": "llama",
            "torch_dtype": "bfloat16",
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.width,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": False,
            "hidden_act": "silu",
        }
        if self.draft_vocab is not None:
            config["draft_vocab_size"] = self.draft_vocab
        return Checkpoint(
            name=self.name,
            architectures=(self.architecture,),
            model_type="llama",
            dtype="bfloat16",
            context_length=self.context,
            hidden_size=self.hidden,
            vocab_size=self.vocab,
            draft_vocab_size=self.draft_vocab,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            is_moe=False,
            weight_bytes=self.weight_bytes,
            config=config,
        )


TARGETS = (
    Model("llama-3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256, 131072, 3.21),
    Model("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096, 6.74),
    Model("qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064, 32768, 7.62, "Qwen2ForCausalLM"),
    Model("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 8.03),
    Model("qwen2.5-14b", 48, 5120, 40, 8, 128, 13824, 152064, 32768, 14.8, "Qwen2ForCausalLM"),
    Model("qwen2.5-32b", 64, 5120, 40, 8, 128, 27648, 152064, 32768, 32.8, "Qwen2ForCausalLM"),
    Model("llama-3.3-70b", 80, 8192, 64, 8, 128, 28672, 128256, 131072, 70.6),
    Model("qwen2.5-72b", 80, 8192, 64, 8, 128, 29568, 152064, 32768, 72.7, "Qwen2ForCausalLM"),
)
STANDALONE_DRAFTS = (
    Model("llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 1.24),
    Model("qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864, 152064, 32768, 0.49, "Qwen2ForCausalLM"),
    Model("qwen2.5-1.5b", 28, 1536, 12, 2, 128, 8960, 152064, 32768, 1.54, "Qwen2ForCausalLM"),
)


def one_layer_draft(target: Model, *, eagle3: bool) -> Model:
    """An EAGLE or EAGLE-3 draft: one layer of the target's shape, and the projections around it."""
    attention = target.hidden * target.head_dim * 2 * (target.heads + target.kv_heads)
    layer = attention * (2 if eagle3 else 1) + 3 * target.hidden * target.width
    vocab = 32000 if eagle3 else target.vocab
    rest = 3 * target.hidden**2 + vocab * target.hidden
    architecture = "LlamaForCausalLMEagle3" if eagle3 else "LlamaForCausalLMEagle"
    return Model(
        f"{target.name}-eagle{3 if eagle3 else ''}",
        1,
        target.hidden,
        target.heads,
        target.kv_heads,
        target.head_dim,
        target.width,
        target.vocab,
        target.context,
        (layer + rest) / 1e9,
        architecture,
        draft_vocab=32000 if eagle3 else None,
    )

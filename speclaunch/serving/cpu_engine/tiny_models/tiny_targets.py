"""Target models; ``glm-mtp`` includes its own draft layer."""

import torch
from tiny_parts import (
    HIDDEN,
    INTERMEDIATE,
    Config,
    Tensors,
    attention,
    common_config,
    embeddings,
    generator,
    mlp,
    norms,
    output_layer,
    random_weight,
    successor,
)


def llama_model(layers: int, added: float, following: torch.Tensor) -> tuple[Config, Tensors]:
    """Return a Llama whose layers add ``added`` times a random state to each embedding."""
    embedding, noise = embeddings(generator(1)), generator(2)
    tensors = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": output_layer(embedding, following),
        **norms("model.", "norm"),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        tensors |= attention(noise, prefix, HIDDEN, added)
        tensors |= mlp(noise, prefix + "mlp.", INTERMEDIATE, added)
        tensors |= norms(prefix, "input_layernorm", "post_attention_layernorm")
    return common_config("LlamaForCausalLM", "llama", layers), tensors


def cycle() -> tuple[Config, Tensors]:
    """Return the target that always predicts the next token of its cycle."""
    return llama_model(layers=2, added=0.0, following=successor())


def cycle_8() -> tuple[Config, Tensors]:
    """Return ``cycle`` with 8 layers, whose hidden states for EAGLE3 are also embeddings."""
    return llama_model(layers=8, added=0.0, following=successor())


def llama() -> tuple[Config, Tensors]:
    """Return the target with 8 layers."""
    return llama_model(layers=8, added=0.4, following=successor())


def glm_mtp() -> tuple[Config, Tensors]:
    """Return a Glm4Moe with 2 layers, the second with 4 experts, and one nextn layer."""
    layers, experts, expert_width, added = 2, 4, 32, 0.15
    embedding, noise = embeddings(generator(1)), generator(5)
    head = output_layer(embedding, successor())
    tensors = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": head,
        **norms("model.", "norm"),
    }
    for layer in range(layers + 1):
        prefix = f"model.layers.{layer}."
        tensors |= attention(noise, prefix, HIDDEN, added)
        tensors |= norms(prefix, "input_layernorm", "post_attention_layernorm")
        if layer == 0:
            tensors |= mlp(noise, prefix + "mlp.", INTERMEDIATE, added)
            continue
        tensors[prefix + "mlp.gate.weight"] = random_weight(noise, experts, HIDDEN, 1)
        tensors[prefix + "mlp.gate.e_score_correction_bias"] = torch.zeros(experts)
        tensors |= mlp(noise, prefix + "mlp.shared_experts.", expert_width, added)
        for expert in range(experts):
            tensors |= mlp(noise, f"{prefix}mlp.experts.{expert}.", expert_width, added)
    nextn = f"model.layers.{layers}."
    tensors[nextn + "eh_proj.weight"] = torch.cat(
        [torch.eye(HIDDEN), random_weight(noise, HIDDEN, HIDDEN, 1.8)], dim=1
    )
    tensors[nextn + "embed_tokens.weight"] = embedding.clone()
    tensors[nextn + "shared_head.head.weight"] = head.clone()
    tensors |= norms(nextn, "enorm", "hnorm", "shared_head.norm")
    config = common_config("Glm4MoeForCausalLM", "glm4_moe", layers)
    return config | {
        "moe_intermediate_size": expert_width,
        "n_routed_experts": experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "partial_rotary_factor": 0.5,
        "use_qk_norm": False,
        "num_nextn_predict_layers": 1,
    }, tensors

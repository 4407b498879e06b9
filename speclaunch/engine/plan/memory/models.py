"""The matrices of complete models: language models, vision towers and draft models."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.memory.layers import recurrent_layers, skips_index, sliding_layers
from speclaunch.engine.plan.memory.matrices import (
    MOST_LAYERS,
    ROUTED_EXPERTS,
    Matrix,
    ModelConfig,
    ModelFamily,
    Shard,
    WeightRole,
    attention,
    experts,
    family_of,
    latent_attention,
    linear_attention,
    mlp,
    vector,
)
from speclaunch.engine.plan.plan import UnknownValueError

_PADDED_VOCABULARY = 64
"""Multiple to which the rows of a vocabulary are padded (vocab_parallel_embedding.py)."""

_UNSAID_MTP = ("Qwen3NextForCausalLM",)
"""Architectures published with a multi-token-prediction layer that their configs do not mention."""


def language_model(config: ModelConfig) -> Iterator[Matrix]:
    """Yield the matrices of a model's embedding, layers and head. Raises UnknownValueError."""
    family = family_of(config.architecture)
    yield embedding(config)
    recurrent = recurrent_layers(config, config.layers)
    windows = _windows(config)
    for index in range(config.layers):
        name = f"model.layers.{index}"
        if index in recurrent:
            found = linear_attention(config, f"{name}.linear_attn")
        else:
            where = f"{name}.self_attn"
            indexed = not skips_index(config, index)
            found = self_attention(
                config, family, where, windowed=index in windows, indexed=indexed
            )
        yield from _in_layer(found, index)
        yield from _in_layer(feed_forward(config, family, f"{name}.mlp", index), index)
        yield from _in_layer([vector(f"{name}.norms", family.norms * config.hidden)], index)
    yield vector("model.norm", config.hidden)
    if not is_tied(config, family):
        yield head(config)


def embedding(config: ModelConfig) -> Matrix:
    """Return the embedding matrix of the vocabulary."""
    rows = config.count("vocab_size")
    return Matrix(
        "model.embed_tokens",
        rows,
        config.hidden,
        Shard.EMBEDDING,
        WeightRole.EMBEDDING,
        linear=False,
    )


def head(config: ModelConfig, rows: int | None = None) -> Matrix:
    """Return the output layer's matrix. `rows`: the size of a reduced vocabulary, if any."""
    size = config.count("vocab_size") if rows is None else rows
    return Matrix("lm_head", size, config.hidden, Shard.HEAD, WeightRole.HEAD)


def is_tied(config: ModelConfig, family: ModelFamily) -> bool:
    """True if the embedding also serves as the head."""
    return config.flag("tie_word_embeddings", family.tied)


def self_attention(
    config: ModelConfig,
    family: ModelFamily,
    name: str,
    *,
    windowed: bool = False,
    indexed: bool = True,
) -> Iterator[Matrix]:
    """Yield the matrices of plain or latent attention, as the config states."""
    if config.latent_rank is not None:
        return latent_attention(config, name, indexed=indexed)
    return attention(config, family, name, windowed=windowed)


def feed_forward(
    config: ModelConfig, family: ModelFamily, name: str, index: int
) -> Iterator[Matrix]:
    """Yield the matrices of a layer's MLP or mixture of experts."""
    if has_experts(config, index):
        return experts(config, family, name)
    keys = ("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner")
    shard = Shard.DENSE if is_mixture(config) else Shard.TENSOR
    return mlp(config.hidden, config.count(*keys), name, shard=shard)


def is_mixture(config: ModelConfig) -> bool:
    """True if at least one layer has experts."""
    found = config.optional(*ROUTED_EXPERTS, least=0)
    return found is not None and found > 1


def has_experts(config: ModelConfig, index: int) -> bool:
    """True if layer `index` has experts. Raises UnknownValueError."""
    if not is_mixture(config):
        return False
    pattern = config.counts("moe_layer_freq")
    if pattern:  # MiMo-V2: one entry per layer
        return index < len(pattern) and pattern[index] == 1
    if config.architecture.startswith("Llama4"):
        chosen = config.counts("moe_layers")
        if chosen:
            return index in chosen
        return (index + 1) % config.count("interleave_moe_layer_step", default=1) == 0
    if config.optional("decoder_sparse_step", least=0) is not None:
        step = config.count("decoder_sparse_step", least=0)
        dense = config.counts("mlp_only_layers")
        return bool(step) and index not in dense and (index + 1) % step == 0
    first = config.count("first_k_dense_replace", default=0, least=0)
    return index >= first and index % config.count("moe_layer_freq", default=1) == 0


def _windows(config: ModelConfig) -> frozenset[int]:
    """Return the indices of sliding-window layers whose head counts differ from the others'."""
    if config.optional("swa_num_key_value_heads", "swa_num_attention_heads") is None:
        return frozenset()
    return frozenset(sliding_layers(config, config.layers))


def _in_layer(found: Iterator[Matrix] | list[Matrix], index: int) -> Iterator[Matrix]:
    for matrix in found:
        yield matrix.in_layer(index)


def padded(rows: int) -> int:
    """Return the number of vocabulary rows that the engine allocates."""
    return -(-rows // _PADDED_VOCABULARY) * _PADDED_VOCABULARY


def as_mtp(found: Iterator[Matrix] | list[Matrix]) -> Iterator[Matrix]:
    """Yield copies of the matrices with the role `MTP`."""
    for matrix in found:
        yield replace(matrix, role=WeightRole.MTP)


def mtp_layers(config: ModelConfig) -> Iterator[Matrix]:
    """Yield the matrices of a checkpoint's multi-token-prediction layers, including copies of
    embedding and head.

    Raises UnknownValueError.
    """
    family = family_of(config.architecture)
    keys = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
    count = config.optional(*keys, least=0)
    if count is None:
        count = int(config.architecture in _UNSAID_MTP)
    if count > config.layers:
        what = "layers of multi-token prediction, more than its other layers"
        raise UnknownValueError(f"{config.name} has {count} {what}")
    hidden = config.hidden
    for index in range(count):
        last = config.layers + index
        qwen = config.architecture.startswith("Qwen")
        name = f"mtp.layers.{index}" if qwen else f"model.layers.{last}"
        yield from as_mtp(self_attention(config, family, f"{name}.self_attn", windowed=True))
        found = feed_forward(config, family, f"{name}.mlp", config.layers - 1)
        if config.architecture.startswith("MiMo"):  # dense, even if the model's layers are not
            found = mlp(hidden, config.count("intermediate_size"), f"{name}.mlp")
        yield from as_mtp(found)
        yield Matrix(f"{name}.eh_proj", hidden, 2 * hidden, role=WeightRole.MTP, linear=False)
        yield vector(f"{name}.norms", (family.norms + 3) * hidden, role=WeightRole.MTP)
        if family.mtp_copies:
            for matrix in (embedding(config), head(config)):
                yield replace(matrix, role=WeightRole.MTP_COPY, linear=False)


_GATED = ("Qwen2_5_VL",)


def vision_tower(config: ModelConfig) -> Iterator[Matrix]:
    """Yield the matrices of a vision transformer and its projector; nothing if there is none.

    Exact for Qwen. For other models, only the blocks are exact; they contain nearly all weights.
    Raises UnknownValueError if the config has a tower but does not state its size.
    """
    tower = config.part("vision_config")
    if tower is None:
        return
    depth = tower.count("depth", "num_hidden_layers", "vt_num_hidden_layers")
    if depth > MOST_LAYERS:
        raise UnknownValueError(f"{tower.name} has {depth} layers, more than {MOST_LAYERS}")
    hidden = _hidden(tower, config)
    inner = _inner(tower, hidden)
    ups = 2 if config.architecture.startswith(_GATED) else 1
    name = "visual.blocks.0"

    yield _matrix(f"{name}.attn.qkv", 3 * hidden, hidden, depth)
    yield _matrix(f"{name}.attn.proj", hidden, hidden, depth)
    yield _matrix(f"{name}.mlp.up", ups * inner, hidden, depth)
    yield _matrix(f"{name}.mlp.down", hidden, inner, depth)
    vectors = 3 * hidden + hidden + ups * inner + hidden + 4 * hidden
    yield _matrix(f"{name}.vectors", vectors, 1, depth)
    patch = tower.count("patch_size", default=14)
    frames = tower.count("temporal_patch_size", default=1)
    yield _matrix("patch_embed", hidden, 3 * patch * patch * frames)
    if not config.architecture.startswith("Qwen2"):
        yield _matrix("patch_embed.bias", hidden, 1)
    positions = tower.optional("num_position_embeddings")
    if positions is not None:
        yield _matrix("pos_embed", positions, hidden)
    yield from _mergers(config, tower, hidden)


def _matrix(module: str, rows: int, columns: int, copies: int = 1) -> Matrix:
    shard = Shard.TENSOR if columns > 1 else Shard.REPLICATED
    return Matrix(f"visual.{module}", rows, columns, shard, WeightRole.VISION, copies)


def _hidden(tower: ModelConfig, config: ModelConfig) -> int:
    if config.architecture.startswith("Qwen2VL"):
        return tower.count("embed_dim")  # its hidden_size is the language model's
    return tower.count("hidden_size", "vt_hidden_size", "embed_dim", "mm_hidden_size")


def _inner(tower: ModelConfig, hidden: int) -> int:
    found = tower.optional("intermediate_size", "vt_intermediate_size")
    return 4 * hidden if found is None else found


def _mergers(config: ModelConfig, tower: ModelConfig, hidden: int) -> Iterator[Matrix]:
    if config.architecture.startswith("Gemma3"):  # SigLIP: one matrix projects its output
        side = tower.count("image_size", default=896) // tower.count("patch_size", default=14)
        yield _matrix("pos_embed", side * side, hidden)
        yield _matrix("projector", config.hidden, hidden)
        yield _matrix("projector.vectors", 3 * hidden, 1)
        return
    merge = tower.optional("spatial_merge_size")
    if merge is None:
        sides = tower.counts("merge_kernel_size")
        merge = sides[0] if sides and sides[0] > 0 else 2
    wide = hidden * merge * merge
    out = tower.count("out_hidden_size", default=config.hidden)
    count = 1 + len(tower.counts("deepstack_visual_indexes"))
    yield _matrix("merger.up", wide, wide, count)
    yield _matrix("merger.down", out, wide, count)
    yield _matrix("merger.vectors", wide + out + 2 * hidden, 1, count)


_PLAIN = ModelFamily(biased=False)
_AUXILIARY = 3
"""Default number of target layers that an EAGLE-3 draft reads."""
_EAGLE = ("LlamaForCausalLMEagle", "Qwen2ForCausalLMEagle")
EAGLE3_LLAMA = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLMEagle3V2")
_DFLASH = ("DFlashDraftModel", "DFlashQwen3ForCausalLM", "Qwen3DFlashForCausalLM")


def is_draft_model(architecture: str) -> bool:
    """True if only drafts have this architecture."""
    known = architecture in _EAGLE or architecture in EAGLE3_LLAMA or architecture in _DFLASH
    return known or "Eagle" in architecture or architecture.startswith(("DFlash", "DSpark"))


def draft_model(checkpoint: Checkpoint, config: ModelConfig) -> Iterator[Matrix]:
    """Yield the matrices of a draft as the engine builds it, before it shares the target's
    embedding and head.

    Raises UnknownValueError.
    """
    name = config.architecture
    if name in _EAGLE:
        return _eagle(config, family_of(name.removesuffix("Eagle")))
    if name in EAGLE3_LLAMA or name == "Eagle3DeepseekV2ForCausalLM":
        return _eagle3(checkpoint, config)
    if name in _DFLASH:
        return _dflash(checkpoint, config)
    raise UnknownValueError(f"the number of weights of {name} is unknown")


def _eagle(config: ModelConfig, family: ModelFamily) -> Iterator[Matrix]:
    """Yield the matrices of an EAGLE draft (srt/models/llama_eagle.py). Its first layer has no norm
    before attention."""
    hidden = config.hidden
    yield embedding(config)
    yield Matrix("model.fc", hidden, 2 * hidden, linear=False)
    yield vector("model.fc.bias", hidden if config.flag("bias", default=True) else 0)
    for index in range(config.layers):
        name = f"model.layers.{index}"
        yield from attention(config, family, f"{name}.self_attn")
        yield from mlp(hidden, config.count("intermediate_size"), f"{name}.mlp")
        yield vector(f"{name}.norms", hidden * (2 if index else 1))
    yield head(config)


def _eagle3(checkpoint: Checkpoint, config: ModelConfig) -> Iterator[Matrix]:
    """Yield the matrices of an EAGLE-3 draft (srt/models/llama_eagle3.py).

    The draft has one layer, regardless of the config, and reads the embedding in addition to the
    hidden state.
    """
    hidden = config.hidden
    read = config.count("target_hidden_size", default=hidden)
    layers = len(checkpoint.aux_hidden_layers) or _AUXILIARY
    uses = checkpoint.use_aux_hidden_state is not False
    yield embedding(config)
    yield Matrix("model.fc", hidden, read * (layers if uses else 2), linear=False)
    name = "model.layers.0"
    if config.latent_rank is not None:
        yield from latent_attention(config, f"{name}.self_attn", inputs=2 * hidden)
    else:
        yield from attention(config, _PLAIN, f"{name}.self_attn", inputs=2 * hidden)
    yield from mlp(hidden, config.count("intermediate_size"), f"{name}.mlp")
    yield vector(f"{name}.norms", 4 * hidden)
    if not config.flag("tie_word_embeddings"):
        yield head(config, checkpoint.draft_vocab_size)


def _dflash(checkpoint: Checkpoint, config: ModelConfig) -> Iterator[Matrix]:
    """Yield the matrices of a DFLASH draft (srt/models/dflash.py), without embedding and head."""
    hidden = config.hidden
    layers = len(checkpoint.aux_hidden_layers)
    if not layers:
        raise UnknownValueError(f"`target_layer_ids` of {checkpoint.name} is unknown")
    yield Matrix("fc", hidden, hidden * layers, linear=False)
    yield vector("norms", 2 * hidden)
    family = family_of("Qwen3ForCausalLM")
    for index in range(config.layers):
        name = f"layers.{index}"
        yield from attention(config, family, f"{name}.self_attn")
        yield from mlp(hidden, config.count("intermediate_size"), f"{name}.mlp")
        yield vector(f"{name}.norms", 2 * hidden)

"""The matrices of the towers that see, as far as their config tells."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.memory.matrices import Matrix, Role, Shard
from speclaunch.plan.memory.model_config import MOST_LAYERS, ModelConfig
from speclaunch.plan.plan import UnknownValueError

_GATED = ("Qwen2_5_VL",)


def vision_tower(config: ModelConfig) -> Iterator[Matrix]:
    """A vision transformer and what joins it to the language model; nothing where there is none.

    Exact for Qwen's; of the others the blocks, which are nearly all of it. Raises
    UnknownValueError where the config has a tower and does not say how large.
    """
    tower = config.part("vision_config")
    if tower is None:
        return
    depth = tower.count("depth", "num_hidden_layers", "vt_num_hidden_layers")
    if depth > MOST_LAYERS:
        raise UnknownValueError(f"{tower.name} has {depth} layers")
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
    shard = Shard.TENSOR if columns > 1 else Shard.WHOLE
    return Matrix(f"visual.{module}", rows, columns, shard, Role.VISION, copies)


def _hidden(tower: ModelConfig, config: ModelConfig) -> int:
    if config.architecture.startswith("Qwen2VL"):
        return tower.count("embed_dim")  # its hidden_size is the language model's
    return tower.count("hidden_size", "vt_hidden_size", "embed_dim", "mm_hidden_size")


def _inner(tower: ModelConfig, hidden: int) -> int:
    found = tower.optional("intermediate_size", "vt_intermediate_size")
    return 4 * hidden if found is None else found


def _mergers(config: ModelConfig, tower: ModelConfig, hidden: int) -> Iterator[Matrix]:
    if config.architecture.startswith("Gemma3"):  # a SigLIP: one matrix joins it
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

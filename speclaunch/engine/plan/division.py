"""Checks that a model's dimensions divide evenly among ranks, as the engine's layers assert.

Covers only architectures whose layer code was inspected; raises `UnknownValueError` for all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import mapping, sizes
from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.facts.hardware import Vendor
from speclaunch.engine.plan.architectures import GROUPED, LATENT, OTHER_HEADS
from speclaunch.engine.plan.memory.layers import draft_of
from speclaunch.engine.plan.memory.matrices import ROUTED_EXPERTS, ModelConfig
from speclaunch.engine.plan.placement import Ranks, gpu_ranks
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.topics.target import target_of

if TYPE_CHECKING:  # many plans have nothing to divide, and need no matrices
    from speclaunch.engine.plan.memory.matrices import Matrix
    from speclaunch.engine.plan.memory.quantized import Scheme

_OTHER_LAYERS = "<0.5.1"
"""Releases whose expert parallelism uses separate layers, which are not modeled
(ep_moe/layer.py)."""
_EVEN_VOCABULARY = "<0.5.22"
"""Releases that pad a vocabulary only to a multiple of 64, except on a CPU (0.5.21 and 0.5.22
layers/vocab_parallel_embedding.py)."""


class Undivided(Struct, frozen=True):
    """A model dimension that does not divide evenly among its ranks."""

    whose: str
    """`target` or `draft`."""
    model: str
    what: str
    """The dimension with its size, such as `32 attention heads`."""
    ranks: int
    of: str
    """Kind of ranks, such as `attention ranks`."""
    engine: str
    """The engine's assertion or error message."""
    works: tuple[int, ...] = ()
    """Smaller values of `tp_size` that divide the dimension; empty if changing `tp_size` alone does
    not help."""
    groups: int | None = None
    """The smallest `ep_size` that makes the experts divisible; None if none does."""


def undivided_heads(plan: Plan) -> Iterator[Undivided]:
    """Yield heads and KV heads of target and draft that do not divide evenly among their ranks.

    Raises UnknownValueError.
    """
    ranks = gpu_ranks(plan)
    if ranks.attention < 2:
        return
    for whose, checkpoint in _models(plan):
        yield from _heads(whose, checkpoint, ranks.tensor, ranks.attention)


def undivided_experts(plan: Plan) -> Iterator[Undivided]:
    """Yield expert counts not divisible among groups, and widths not divisible among their ranks.

    See 0.4.6.post5 layers/moe/fused_moe_triton/layer.py:316, 0.5.1 :176, 0.5.23 :414. Raises
    UnknownValueError.
    """
    ranks = gpu_ranks(plan)
    if ranks.tensor < 2 or (ranks.experts > 1 and plan.in_versions(_OTHER_LAYERS)):
        return
    checkpoint = target_of(plan)
    config = ModelConfig.of(checkpoint)
    blocks = _expert_blocks(plan, checkpoint, config, ranks)
    if blocks is not None:
        yield blocks
    routed = config.optional(*ROUTED_EXPERTS, least=0)
    if not routed or routed < 2:
        return
    yield from _expert_groups(checkpoint, config, ranks, routed)
    if blocks is None:
        yield from _expert_widths(plan, checkpoint, ranks)


def undivided_widths(plan: Plan) -> Iterator[Undivided]:
    """Yield dense MLP widths and vocabulary sizes that do not divide evenly among ranks.

    See `divide` in layers/linear.py and layers/vocab_parallel_embedding.py. Raises
    UnknownValueError.
    """
    ranks = gpu_ranks(plan)
    if ranks.tensor < 2 or ranks.attention != ranks.tensor:
        return  # with DP attention some models divide them among fewer ranks
    checkpoint = target_of(plan)
    if checkpoint.architecture not in GROUPED | LATENT:
        raise UnknownValueError(_unread(checkpoint))
    if plan.in_versions(_EVEN_VOCABULARY):
        yield from _vocabulary(checkpoint, ranks.tensor)
    seen: set[tuple[int, int]] = set()
    for matrix, scheme in _projections(checkpoint, "TENSOR"):
        size, block = _divided(matrix, scheme, checkpoint)
        if size is None or (size, block) in seen:
            continue
        seen.add((size, block))
        found = _width(checkpoint, "the MLP", size, block, ranks.tensor, True)
        if found is not None:
            yield found


def _models(plan: Plan) -> Iterator[tuple[str, Checkpoint]]:
    target = target_of(plan)
    yield "target", target
    draft = draft_of(plan)
    if draft is not None and draft.checkpoint is not target and not draft.is_mtp:
        yield "draft", draft.checkpoint


def _unread(checkpoint: Checkpoint) -> str:
    return f"the division of {checkpoint.architecture or checkpoint.name} among ranks is unknown"


def _heads(whose: str, checkpoint: Checkpoint, tensor: int, attention: int) -> Iterator[Undivided]:
    of = "ranks" if attention == tensor else "attention ranks"
    kinds = tuple(_kinds_of_heads(checkpoint))
    sizes = range(tensor - 1, 0, -1) if attention == tensor else ()
    works = tuple(
        size
        for size in sizes
        if all(not heads % size and (kv is None or _shares(kv, size)) for heads, kv in kinds)
    )
    assertion = _OF_LATENT if checkpoint.architecture in LATENT else _OF_HEADS
    for heads, grouped in dict.fromkeys(kinds):
        if heads % attention:
            what = f"{heads} attention heads"
            yield Undivided(whose, checkpoint.name, what, attention, of, assertion, works)
        # a model without DP attention divides by all ranks
        elif grouped and not _shares(grouped, attention) and not _shares(grouped, tensor):
            what = f"{grouped} KV heads"
            remainder = "total_num_kv_heads % tp_size"
            if attention > grouped:
                remainder = "tp_size % total_num_kv_heads"
            yield Undivided(
                whose, checkpoint.name, what, attention, of, f"assert {remainder} == 0", works
            )


def _kinds_of_heads(checkpoint: Checkpoint) -> Iterator[tuple[int, int | None]]:
    """Yield the head and KV head counts of each kind of layer; None for an unchecked KV head count.

    Raises UnknownValueError.
    """
    name = checkpoint.architecture or ""
    if name not in GROUPED | LATENT | OTHER_HEADS.keys():
        raise UnknownValueError(_unread(checkpoint))
    config = ModelConfig.of(checkpoint)
    own = ("num_attention_heads", "num_key_value_heads" if name in GROUPED else None)
    for heads, grouped in OTHER_HEADS.get(name, (own,)):
        if heads == own[0] or config.optional(heads) is not None:
            yield config.count(heads), config.optional(grouped) if grouped else None


_OF_HEADS = "assert total_num_heads % tp_size == 0"
_OF_LATENT = "assert num_heads % attn_tp_size == 0"


def _shares(heads: int, ranks: int) -> bool:
    """True if the KV heads can be split or replicated evenly among the ranks."""
    return not (heads % ranks if heads >= ranks else ranks % heads)


def _expert_groups(
    checkpoint: Checkpoint, config: ModelConfig, ranks: Ranks, routed: int
) -> Iterator[Undivided]:
    """Yield an expert count that does not divide evenly among the groups, even with the redundant
    or shared experts that some releases and models add."""
    shared = config.optional("n_shared_experts", "num_shared_experts", least=0) or 0
    more = {0, ranks.redundant_experts, shared, shared + ranks.redundant_experts}
    if all((routed + extra) % ranks.experts for extra in more):
        assertion = "assert num_experts % moe_ep_size == 0"
        what = f"{routed} experts"
        of = "expert-parallel groups"
        yield Undivided("target", checkpoint.name, what, ranks.experts, of, assertion)


def _expert_blocks(
    plan: Plan, checkpoint: Checkpoint, config: ModelConfig, ranks: Ranks
) -> Undivided | None:
    """Return the expert width if it fails the check that the engine applies to all models, else
    None. See `check_quantized_moe_compatibility` (0.5.6 model_executor/model_runner.py:585 to
    0.5.23 model_executor/model_runner_components/moe_ep_setup.py:136). Raises UnknownValueError."""
    block = _stated_block(checkpoint)
    width = config.optional("moe_intermediate_size")
    within = _within(plan, ranks)
    if plan.in_versions(_NO_CHECK) or block is None or width is None or within < 2:
        return None
    if not width % within:
        if not width // within % block or _pads_experts(plan):
            return None
        if plan.in_versions(_LENIENT) and plan.env_flag("SGLANG_SHARED_EXPERT_TP1"):
            return None
    return _expert_width(plan, checkpoint, width, block, ranks)


_NO_CHECK = "<0.5.6"
_LENIENT = ">=0.5.12"
"""Releases with an environment variable that skips the check of expert blocks (0.5.12
model_runner.py:1176)."""
_PADS = ">=0.5.11"
"""Releases in which aiter pads experts (0.5.11 model_runner.py:1094,
layers/quantization/fp8.py:860)."""


def _pads_experts(plan: Plan) -> bool:
    """True if aiter pads experts to complete blocks (AMD).

    Raises UnknownValueError if the plan does not set SGLANG_USE_AITER, which SGLang's AMD images
    set.
    """
    hardware = plan.facts.hardware
    if hardware is None or hardware.vendor is not Vendor.AMD or not plan.in_versions(_PADS):
        return False
    if plan.env("SGLANG_USE_AITER") is None:
        raise UnknownValueError("the value of SGLANG_USE_AITER is unknown")
    return plan.env_flag("SGLANG_USE_AITER")


def _stated_block(checkpoint: Checkpoint) -> int | None:
    """Return the row count of quantization blocks in the top-level config; None if not stated."""
    quantization = mapping(checkpoint.raw.get("quantization_config"))
    blocks = sizes(quantization.get("weight_block_size"))
    return blocks[0] if blocks and blocks[0] > 0 else None


def _within(plan: Plan, ranks: Ranks) -> int:
    return ranks.tensor // ranks.experts // max(1, int(plan.value("moe_dp_size") or 1))


def _expert_widths(plan: Plan, checkpoint: Checkpoint, ranks: Ranks) -> Iterator[Undivided]:
    if _within(plan, ranks) < 2 or checkpoint.architecture == "GptOssForCausalLM":  # it is padded
        return
    for matrix, scheme in _projections(checkpoint, "EXPERT"):
        width, block = _divided(matrix, scheme, checkpoint)
        if width is None:
            continue
        found = _expert_width(plan, checkpoint, width, block, ranks)
        if found is not None:
            if width % found.ranks or not _pads_experts(plan):
                yield found
            return


def _expert_width(
    plan: Plan, checkpoint: Checkpoint, width: int, block: int, ranks: Ranks
) -> Undivided | None:
    """Return an expert width that does not divide evenly among a group's ranks, with an `ep_size`
    that fixes it; None if it divides evenly."""
    within = _within(plan, ranks)
    routed = ModelConfig.of(checkpoint).optional(*ROUTED_EXPERTS, least=0) or 0
    more = (ranks.experts * factor for factor in range(2, within + 1) if not within % factor)
    groups = next(
        (
            groups
            for groups in more
            if not routed % groups and not width % (ranks.tensor // groups * block)
        ),
        None,
    )
    alone = routed and within * ranks.experts == ranks.tensor
    found = _width(checkpoint, "an expert", width, block, within, False)
    return None if found is None else replace(found, groups=groups if alone else None)


def _projections(checkpoint: Checkpoint, shard: str) -> tuple[tuple[Matrix, Scheme | None], ...]:
    """Return one MLP projection per shape, with its storage scheme (None: unquantized). `shard`:
    the name of a `Shard`. Raises UnknownValueError."""
    from speclaunch.engine.plan.memory.matrices import Shard  # noqa: PLC0415  few plans need it
    from speclaunch.engine.plan.memory.weights import counted  # noqa: PLC0415

    return counted(checkpoint).projections.get(Shard[shard], ())


def _divided(matrix: Matrix, scheme: object, checkpoint: Checkpoint) -> tuple[int | None, int]:
    """Return the length of a projection's sharded side, and the block size that must divide each
    shard."""
    down = matrix.name.endswith("down_proj")
    block = getattr(scheme, "block", None)
    if block is None or checkpoint.quantization != "fp8":
        return (matrix.columns if down else matrix.rows), 1
    return (matrix.columns, block[1]) if down else (matrix.rows, block[0])


def _width(
    checkpoint: Checkpoint, of_what: str, size: int, block: int, ranks: int, alone: bool
) -> Undivided | None:
    of = "ranks"
    if size % ranks:
        error = f"AssertionError: {size} is not divisible by {ranks}"
    elif size // ranks % block:
        error = f"ValueError: {size // ranks} is not divisible by weight quantization block {block}"
        of = f"ranks in blocks of {block}"
    else:
        return None
    counts = range(ranks - 1, 0, -1) if alone else ()
    works = tuple(count for count in counts if not size % (count * block))
    what = f"the width {size} of {of_what}"
    return Undivided("target", checkpoint.name, what, ranks, of, error, works)


def _vocabulary(checkpoint: Checkpoint, ranks: int) -> Iterator[Undivided]:
    from speclaunch.engine.plan.memory.models import padded  # noqa: PLC0415  few versions need it

    size = ModelConfig.of(checkpoint).count("vocab_size")
    rows = padded(size)
    if rows % ranks:
        works = tuple(count for count in range(ranks - 1, 0, -1) if not rows % count)
        what = f"the vocabulary of {size} tokens, padded to {rows},"
        message = f"AssertionError: {rows} is not divisible by {ranks}"
        yield Undivided("target", checkpoint.name, what, ranks, "ranks", message, works)

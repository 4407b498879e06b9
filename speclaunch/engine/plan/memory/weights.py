"""Bytes of a checkpoint's weights on one GPU rank, as the engine holds them.

The total is from the checkpoint's weight index if it has one, else from its config. The config
determines how ranks divide it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.budget import MemorySize
from speclaunch.engine.plan.memory.layers import MTP_ENDS, Draft, draft_of
from speclaunch.engine.plan.memory.matrices import (
    ELEMENT_BYTES,
    Matrix,
    ModelConfig,
    Shard,
    WeightRole,
    serving_dtype,
)
from speclaunch.engine.plan.memory.models import (
    EAGLE3_LLAMA,
    draft_model,
    head,
    is_draft_model,
    language_model,
    mtp_layers,
    padded,
    vision_tower,
)
from speclaunch.engine.plan.memory.quantized import (
    MXFP4,
    NOT_QUANTISED,
    Quantised,
    Scheme,
    online,
    quantised,
)
from speclaunch.engine.plan.placement import Ranks, ranks_of
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.topics.algorithms import BLOCK_FAMILY
from speclaunch.engine.plan.topics.gpu import draft_in_pool
from speclaunch.engine.plan.topics.target import target_of

_FAR = 0.25
"""Relative difference between computed and actual file size above which the config does not
describe the files."""


def ratio_to_files(
    checkpoint: Checkpoint, counted: Mapping[WeightRole, int], head: int, *, is_draft: bool
) -> float | None:
    """Return the ratio of the files' size to the size that the config implies. Returns 1 if the
    files' size is unknown, and None if the sizes differ by more than `_FAR`.

    The config does not show whether the files contain a tied head (`head`: its bytes, 0 if already
    counted), a draft's embedding and head, or MTP layers and their copies. The combination
    closest to the files' size counts.
    """
    total = checkpoint.weight_bytes
    if total is None:
        return 1.0
    sizes = dict(counted)
    sizes[WeightRole.BODY] += sizes.pop(WeightRole.VISION)
    optional = [sizes[WeightRole.MTP_COPY], head]
    if checkpoint.mtp_weights is None:
        optional.append(sizes[WeightRole.MTP])
    if is_draft:
        optional += [sizes[WeightRole.EMBEDDING], sizes[WeightRole.HEAD]]
    fixed = sum(sizes.values()) + head - sum(optional)
    choices = [
        fixed + sum(size for size, taken in zip(optional, chosen, strict=True) if taken)
        for chosen in product((True, False), repeat=len(optional))
    ]
    nearest = min(choices, key=lambda size: abs(size - total))
    if nearest <= 0:
        return None
    ratio = total / nearest
    return ratio if abs(ratio - 1) <= _FAR else None


_PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_USUAL = 2
"""Bytes per element (bfloat16 or float16) if the config does not state the dtype."""


class CountedWeights(Struct, frozen=True, dict=True):
    """A checkpoint's matrices and their storage format."""

    matrices: tuple[Matrix, ...]
    stored: Quantised
    element: int
    """Bytes of an unquantized element."""

    def bytes(self, roles: Iterable[WeightRole] | None = None) -> int:
        """Return the bytes of all matrices, or only of those in `roles`."""
        sizes = self.by_role
        return round(sum(sizes.values() if roles is None else (sizes[role] for role in roles)))

    @cached_property
    def by_role(self) -> dict[WeightRole, float]:
        """Bytes of all matrices, by role."""
        found = dict.fromkeys(WeightRole, 0.0)
        for matrix in self.matrices:
            found[matrix.role] += size_of(matrix, self.stored, self.element)
        return found

    @cached_property
    def projections(self) -> Mapping[Shard, tuple[tuple[Matrix, Scheme | None], ...]]:
        """One MLP projection of each shape with its storage scheme (None: unquantized), by
        shard."""
        found: dict[Shard, dict[tuple[object, ...], tuple[Matrix, Scheme | None]]] = {}
        for matrix in self.matrices:
            if matrix.role is WeightRole.BODY and matrix.name.endswith(_PROJECTIONS):
                scheme = self.stored.scheme_of(matrix)
                shape = (matrix.name.rpartition(".")[2], matrix.rows, matrix.columns, scheme)
                found.setdefault(matrix.shard, {}).setdefault(shape, (matrix, scheme))
        return {shard: tuple(kinds.values()) for shard, kinds in found.items()}

    @cached_property
    def sums(self) -> dict[tuple[object, ...], tuple[float, float, Loaded]]:
        """Cached `_loaded_bytes` results, by placement.

        The stored `Loaded` keeps the object alive whose `id()` is in the key.
        """
        return {}


_recent: OrderedDict[int, tuple[Checkpoint, CountedWeights | str]] = OrderedDict()
"""Cache by the `id()` of the checkpoint: the checkpoint, and its weights or the reason why they
cannot be counted. Many deployments, and the steps of a fit search, share a model."""
_MOST_RECENT = 32


def counted(checkpoint: Checkpoint) -> CountedWeights:
    """Return the matrices that a checkpoint's config implies. Raises UnknownValueError."""
    known = _recent.get(id(checkpoint))
    if known is None or known[0] is not checkpoint:
        known = (checkpoint, _counted(checkpoint))
        _recent[id(checkpoint)] = known
        if len(_recent) > _MOST_RECENT:
            _recent.popitem(last=False)
    _recent.move_to_end(id(checkpoint))
    if isinstance(known[1], str):
        raise UnknownValueError(known[1])
    return known[1]


def _counted(checkpoint: Checkpoint) -> CountedWeights | str:
    try:
        return _count(checkpoint)
    except UnknownValueError as error:
        return str(error)


def _count(checkpoint: Checkpoint) -> CountedWeights:
    config = ModelConfig.of(checkpoint)
    element = ELEMENT_BYTES.get(checkpoint.dtype or "", _USUAL)
    return CountedWeights(tuple(_matrices(checkpoint, config)), quantised(checkpoint), element)


def size_of(matrix: Matrix, stored: Quantised, element: int) -> float:
    """Return the bytes of all copies of a matrix."""
    scheme = stored.scheme_of(matrix)
    if scheme is None:
        return matrix.parameters * (matrix.bytes or element)
    return scheme.bytes(matrix.rows, matrix.columns) * matrix.copies


def _matrices(checkpoint: Checkpoint, config: ModelConfig) -> Iterator[Matrix]:
    if is_draft_model(config.architecture):
        yield from draft_model(checkpoint, config)
        return
    yield from language_model(config)
    if checkpoint.mtp_weights is not False:  # if unknown, the config decides
        yield from mtp_layers(config)
    yield from vision_tower(config)


_VOCABULARY = (WeightRole.EMBEDDING, WeightRole.HEAD)


class Loaded(Struct, frozen=True):
    """In-memory format of the weights that an engine loads.

    `aligned`: multiples to which the expert size and the hidden size of mxfp4 experts are padded.
    """

    stored: Quantised
    element: int
    ranks: Ranks
    aligned: tuple[int, int]


def loaded_in(plan: Plan, stored: Quantised, element: int, ranks: Ranks) -> Loaded:
    """Return the in-memory weight format for a plan. Raises UnknownValueError.

    `create_weights` of srt/layers/quantization/mxfp4.py pads expert and hidden sizes to multiples
    of 128 on Blackwell (256 up to 0.5.17). Elsewhere it pads only the expert size, to 64.
    """
    hardware = plan.facts.hardware
    aligned = (64, 1)
    if hardware is not None and (hardware.capability or 0) >= 100:
        aligned = (128, 128) if plan.in_versions(">=0.5.18") else (256, 256)
    return Loaded(stored, element, ranks, aligned)


def stage_bytes(
    plan: Plan, config: ModelConfig, matrices: Sequence[Matrix], loaded: Loaded
) -> list[float]:
    """Return the bytes per rank for each pipeline stage. The first holds the embedding, the last
    the head.

    Raises UnknownValueError.
    """
    ranks = loaded.ranks
    stages = ranks.stage_layers(config.layers, plan.env("SGLANG_PP_LAYER_PARTITION"))
    found = [0.0] * len(stages)
    where = {index: number for number, stage in enumerate(stages) for index in stage}
    for matrix in matrices:
        last = matrix.role is WeightRole.HEAD
        stage = where.get(matrix.layer, 0) if matrix.layer is not None else (-1 if last else 0)
        found[stage] += _on_rank(matrix, loaded)
    tied = not any(matrix.role is WeightRole.HEAD for matrix in matrices)
    if tied and len(stages) > 1:  # the last stage uses the embedding as its head
        found[-1] += sum(
            _on_rank(matrix, loaded) for matrix in matrices if matrix.role is WeightRole.EMBEDDING
        )
    return found


def _on_rank(matrix: Matrix, loaded: Loaded) -> float:
    size = size_of(matrix, loaded.stored, loaded.element)
    scheme = loaded.stored.scheme_of(matrix)
    if matrix.role in _VOCABULARY:
        size *= padded(matrix.rows) / matrix.rows
    if matrix.name.endswith(".kv_b_proj"):  # a second copy, split for keys and values
        size += matrix.parameters * (1 if scheme and scheme.bits == 8 else loaded.element)
    if scheme is MXFP4 and ".experts." in matrix.name:
        size *= _padding(matrix, loaded)
    return size / matrix.parts(loaded.ranks)


def _padding(matrix: Matrix, loaded: Loaded) -> float:
    """Return the ratio of a padded expert's size to its unpadded size."""
    down = matrix.name.endswith("down_proj")
    own, hidden = (matrix.columns, matrix.rows) if down else (matrix.rows, matrix.columns)
    part = own / max(1, loaded.ranks.tensor // loaded.ranks.experts)
    inner, outer = loaded.aligned
    return (-(-part // inner) * inner / part) * (-(-hidden // outer) * outer / hidden)


_GIB = 1 << 30
_MODEL = frozenset({WeightRole.BODY, WeightRole.EMBEDDING, WeightRole.HEAD, WeightRole.VISION})
_MTP = frozenset({WeightRole.MTP, WeightRole.MTP_COPY})
_CLOSE = 0.001


def weight_size(plan: Plan, *, draft: bool = False) -> MemorySize:
    """Return the weight size of target or `draft` on the fullest rank. Raises UnknownValueError.

    A draft that shares embedding and head with the target (EAGLE, MTP, DFLASH) is counted without
    them. The result's `why` states the size of the draft's copies of both, which are freed later.
    """
    if not draft:
        checkpoint = target_of(plan)
        return _size(plan, checkpoint, _MODEL, plan.value("quantization"))
    found = draft_of(plan)
    if found is None:
        return MemorySize(0, "no draft model")
    name = "speculative_draft_model_quantization"
    method = plan.value(name) if plan.has_argument(name) else plan.value("quantization")
    roles = _loaded_roles(plan, found)
    size = _size(plan, found.checkpoint, roles, None if method == "unquant" else method)
    if WeightRole.EMBEDDING in roles:
        return size
    return replace(size, why=size.why + _peak(plan, found, roles))


def _loaded_roles(plan: Plan, draft: Draft) -> frozenset[WeightRole]:
    """Return the roles of a draft's weights that remain in memory.

    EAGLE and MTP use the target's embedding and head. EAGLE-3 uses the target's head only if the
    draft has none (`init_lm_head`, 0.5.23 eagle_worker_v2.py:336, 0.4.6 eagle_worker.py:125).
    """
    if draft.is_mtp:
        return frozenset({WeightRole.MTP})
    if plan.algorithm == "EAGLE3":
        own_head = draft.checkpoint.draft_vocab_size is not None
        return frozenset({WeightRole.BODY, WeightRole.HEAD} if own_head else {WeightRole.BODY})
    if plan.algorithm in ("EAGLE", "DFLASH", "DSPARK"):
        return frozenset({WeightRole.BODY})
    return _MODEL


def _size(
    plan: Plan, checkpoint: Checkpoint, roles: frozenset[WeightRole], method: object
) -> MemorySize:
    ranks = ranks_of(plan)
    quantised = None
    if method is not None and checkpoint.quantization is None:
        quantised = online(method)  # its files differ in size
    try:
        found = counted(checkpoint)
    except UnknownValueError as error:
        if quantised is not None:
            raise
        return _evenly(checkpoint, ranks, roles, str(error))
    stored = found.stored if quantised is None else quantised
    if roles <= _MTP and not any(matrix.role is WeightRole.MTP for matrix in found.matrices):
        if not is_draft_model(checkpoint.architecture or "") and checkpoint.mtp_weights is False:
            raise UnknownValueError(f"{checkpoint.name} has no multi-token-prediction layers")
        why = f"the multi-token-prediction layers of {checkpoint.name} are unknown"
        return _evenly(checkpoint, ranks, roles, why)
    element = ELEMENT_BYTES[serving_dtype(checkpoint, plan.value("dtype"))]
    loaded = loaded_in(plan, stored, element, ranks)
    config = ModelConfig.of(checkpoint)
    most, all_ranks = _loaded_bytes(plan, config, found, roles, loaded)
    ratio = _files_ratio(checkpoint, config, found)
    if ratio is None:
        why = f"the config of {checkpoint.name} does not describe its files"
        return _evenly(checkpoint, ranks, roles, why)
    exact = stored is NOT_QUANTISED and abs(ratio - 1) < _CLOSE and not _has_vision(found)
    exact = exact and not checkpoint.weights_rounded
    source = "config" if checkpoint.weight_bytes is None else _files(checkpoint)
    total = all_ranks * ratio
    divided = total and (ranks.tensor > 1 or ranks.stages > 1)
    parts = f", {most * ratio / total:.3g} of it on each rank" if divided else ""
    why = f"{total / _GIB:.2f} GiB from the {source}{parts}"
    return MemorySize(round(most * ratio), why, exact)


def _loaded_bytes(
    plan: Plan,
    config: ModelConfig,
    found: CountedWeights,
    roles: frozenset[WeightRole],
    loaded: Loaded,
) -> tuple[float, float]:
    """Return the bytes of `roles` on the fullest rank, and in total without replicas. Raises
    UnknownValueError.

    Cached across all deployments that divide a model the same way.
    """
    layers, partition = config.layers, plan.env("SGLANG_PP_LAYER_PARTITION")
    key = (
        layers,
        partition,
        roles,
        id(loaded.stored),
        loaded.element,
        loaded.ranks,
        loaded.aligned,
    )
    known = found.sums.get(key)
    if known is None:
        own = [matrix for matrix in found.matrices if matrix.role in roles]
        total = sum(size_of(matrix, loaded.stored, loaded.element) for matrix in own)
        known = max(stage_bytes(plan, config, own, loaded)), total, loaded
        if len(found.sums) >= _MOST_SUMS:
            found.sums.clear()
        found.sums[key] = known
    return known[0], known[1]


_MOST_SUMS = 256


def _files_ratio(
    checkpoint: Checkpoint, config: ModelConfig, found: CountedWeights
) -> float | None:
    if checkpoint.weight_bytes is None:
        return 1.0
    sizes = {role: found.bytes([role]) for role in WeightRole}
    extra = 0
    if not sizes[WeightRole.HEAD] and sizes[WeightRole.EMBEDDING]:
        extra = round(size_of(head(config), found.stored, found.element))
    is_draft = is_draft_model(config.architecture)
    return ratio_to_files(checkpoint, sizes, extra, is_draft=is_draft)


def _evenly(
    checkpoint: Checkpoint, ranks: Ranks, roles: frozenset[WeightRole], why: str
) -> MemorySize:
    """Return one rank's share of the files' size. Raises UnknownValueError(`why`) if the size is
    unknown or includes layers that are not loaded."""
    total = checkpoint.weight_bytes
    name = checkpoint.architecture or ""
    own = is_draft_model(name)
    if total is None or (roles <= _MTP and not name.endswith(MTP_ENDS)):
        raise UnknownValueError(why)
    parts = ranks.tensor * (1 if own else ranks.stages)
    text = f"{total / _GIB:.2f} GiB from the {_files(checkpoint)}"
    text += f", divided by {parts}" if parts > 1 else ""
    return MemorySize(round(total / parts), text, False, counted=False)


def _files(checkpoint: Checkpoint) -> str:
    return "published size" if checkpoint.weights_rounded else "files"


def _peak(plan: Plan, draft: Draft, roles: frozenset[WeightRole]) -> str:
    """Return a note on a draft's shared embedding and head; empty if unknown."""
    if plan.algorithm in BLOCK_FAMILY:
        return "; embedding and head are the target's"
    try:
        more = _own_copies(plan, draft, roles)
    except UnknownValueError:
        return ""
    what = "the embedding is" if WeightRole.HEAD in roles else "embedding and head are"
    return f"; {what} the target's, {more / _GIB:.2f} GiB more while the draft loads"


def _own_copies(plan: Plan, draft: Draft, roles: frozenset[WeightRole]) -> float:
    """Return the bytes of a draft's embedding and head that are replaced with the target's. Raises
    UnknownValueError."""
    config, ranks = draft.config, ranks_of(plan)
    element = ELEMENT_BYTES[serving_dtype(draft.checkpoint, plan.value("dtype"))]
    each = padded(config.count("vocab_size")) * config.hidden * element
    if WeightRole.HEAD in roles or config.flag("tie_word_embeddings"):
        return each / ranks.embedding
    return each / ranks.embedding + each / ranks.head


_COLLECTED = ">=0.5.19"
"""Releases that free unreferenced tensors before they size the pool
(mem_cache/kv_cache_configurator.py `_profile_available_bytes`)."""
_READ_TWICE = ("q_proj", "k_proj", "v_proj")
_SHARES_FIRST = BLOCK_FAMILY | {"FROZEN_KV_MTP"}
"""Algorithms whose draft has no embedding, or receives the target's before the pool is sized
(0.5.17 models/dflash.py, speculative/frozen_kv_mtp_worker_v2.py:143)."""


def freed_after_pool(plan: Plan) -> int:
    """Return the bytes of a draft that are freed only after the pool is sized; 0 if the pool's
    budget excludes the draft. Raises UnknownValueError.

    - The draft's own embedding and head: `alloc_memory_pool` calls `init_lm_head` last (0.5.17
      speculative/eagle_worker_v2.py:200, 0.5.23 :257).
    - Up to 0.5.18, the EAGLE-3 layers that `__init__` replaces (models/llama_eagle3.py), because
      only the garbage collector frees them.

    Measured on H100 and H200 with 0.5.17: tests/engine/plan/memory/gpu_measurements.json.
    """
    draft = draft_of(plan)
    if draft is None or not draft_in_pool(plan) or plan.algorithm in _SHARES_FIRST:
        return 0
    roles = _loaded_roles(plan, draft)
    if WeightRole.EMBEDDING in roles:
        return 0
    freed = _own_copies(plan, draft, roles) * draft.models
    if draft.checkpoint.architecture in EAGLE3_LLAMA and not plan.in_versions(_COLLECTED):
        found = counted(draft.checkpoint)
        element = ELEMENT_BYTES[serving_dtype(draft.checkpoint, plan.value("dtype"))]
        loaded = loaded_in(plan, found.stored, element, ranks_of(plan))
        for matrix in found.matrices:
            if matrix.name.endswith(_PROJECTIONS):
                freed += _on_rank(matrix, loaded)
            elif matrix.name.endswith(_READ_TWICE):  # the replaced layer reads one hidden state
                freed += _on_rank(matrix, loaded) / 2
    return round(freed)


def _has_vision(found: CountedWeights) -> bool:
    return any(matrix.role is WeightRole.VISION for matrix in found.matrices)

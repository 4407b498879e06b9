"""Bytes of KV cache for a token on one GPU rank, target and draft, by version.

Where the engine works them out: `profile_max_num_token` (0.4.6 to 0.5.6 model_runner.py),
`get_cell_size_per_token` (0.5.7 to 0.5.10 model_runner_kv_cache_mixin.py), and the configurators
of model_executor/pool_configurator.py (0.5.11 and later).
"""

from __future__ import annotations

from speclaunch.plan.budget import Size
from speclaunch.plan.memory.cell import KvCell, cell_of, element_of, is_sparse, skips_index
from speclaunch.plan.memory.drafts import Draft, counted_layers, draft_of
from speclaunch.plan.memory.layers import WINDOW_DRAFTS, Layers, layers_of
from speclaunch.plan.memory.model_config import ModelConfig
from speclaunch.plan.memory.ranks import Ranks, ranks_of
from speclaunch.plan.memory.states import state_bytes
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.algorithms import BLOCK_FAMILY, EAGLE_FAMILY
from speclaunch.plan.topics.memory import draft_in_pool
from speclaunch.plan.topics.target import target_of
from speclaunch.record import record

_OWN_CELL = ">=0.5.18"
"""DFLASH drafts are counted with their own cell; before, as if they had the target's layers."""


@record
class CountedLayers:
    """What the engine counts for the target: `own` bytes a token, in `layers` layers that keep
    every token and `windows` that keep `share` of them."""

    own: float
    layers: int
    cell: KvCell
    index_layers: int
    windows: int
    share: float


def draft_size(plan: Plan, draft: Draft) -> Size:
    """Bytes of one token in the draft's cache on one rank. Raises UnknownValueError."""
    if plan.algorithm == "FROZEN_KV_MTP":
        return Size(0, "the draft reads the target's KV cache")
    cell, exact = _cell(plan, draft)
    layers = draft.layers
    windows = draft.loaded_as in WINDOW_DRAFTS
    each = cell.sliding if windows else cell.full + cell.index
    return Size(layers * each, f"{layers} draft layers * {cell.why}", exact and not windows)


def added_by_draft(plan: Plan, target: CountedLayers, draft: Draft) -> float:
    """Bytes a token that the engine adds for the draft to what it divides its budget by.

    `DefaultPoolConfigurator`, `HybridSWAPoolConfigurator` (0.5.11 to 0.5.23
    pool_configurator.py). Raises UnknownValueError.
    """
    if plan.algorithm in BLOCK_FAMILY:
        return _added_by_dflash(plan, target, draft)
    if not draft_in_pool(plan) or plan.algorithm not in EAGLE_FAMILY:
        return 0
    layers = counted_layers(plan, draft)
    if target.windows:
        return _added_with_windows(plan, target, draft, layers)
    return _added_by_share(plan, target, layers) if target.layers else 0


def _added_by_share(plan: Plan, target: CountedLayers, layers: int) -> int:
    """As if the draft's layers were like the target's."""
    own = round(target.own)
    index = target.cell.index
    if index and plan.in_versions(">=0.5.18"):
        keys = own - target.index_layers * index
        return int(keys * layers / target.layers) + layers * index
    if plan.in_versions(">=0.5.22"):
        return int(own * layers / target.layers)
    return int(own * (1 + layers / target.layers)) - own


def _added_with_windows(plan: Plan, target: CountedLayers, draft: Draft, layers: int) -> float:
    if plan.in_versions("<0.5.15"):
        return 0
    windows = min(_windows(plan, draft), layers) if plan.in_versions(">=0.5.19") else 0
    full = (layers - windows) * target.cell.counted
    return full + target.share * windows * target.cell.sliding


def _added_by_dflash(plan: Plan, target: CountedLayers, draft: Draft) -> float:
    if plan.in_versions(_OWN_CELL):
        return draft.layers * _cell(plan, draft)[0].full
    if target.windows or not target.layers:
        return 0
    own = round(target.own)
    return -(-own * (target.layers + draft.layers) // target.layers) - own


def _cell(plan: Plan, draft: Draft) -> tuple[KvCell, bool]:
    sparse = is_sparse(plan, draft.config)
    element = element_of(plan, draft.checkpoint, draft.config, draft=True, sparse=sparse)
    ranks = ranks_of(plan).attention
    return cell_of(plan, draft.checkpoint, draft.config, ranks, element), element.exact


def _windows(plan: Plan, draft: Draft) -> int:
    """`eagle_draft_swa_num_layers`: of a draft that has windows itself."""
    if draft.loaded_as in WINDOW_DRAFTS:
        return 1
    return 0 if draft.is_mtp else len(layers_of(plan, draft.config).sliding)


NO_DRAFT = Size(0, "no draft model")


@record
class PoolLayout:
    """What the KV pool of the target consists of, on the rank with most of it."""

    full_layers: int
    """Layers whose KV cache holds every token of a request."""
    full_token_bytes: int
    """Bytes of one token in all of them, as they are allocated."""
    swa_layers: int = 0
    """Layers with a sliding window and a pool of their own."""
    swa_token_bytes: int = 0
    swa_full_tokens_ratio: float | None = None
    """Tokens of the sliding-window pool for one of the full pool; None: there is no such pool."""
    state_layers: int = 0
    """Layers with a recurrent state (Mamba, linear attention)."""
    state_request_bytes: int = 0
    """Bytes of the state of one request, in all of them."""


@record
class _Target:
    """The target's cache on one pipeline stage."""

    config: ModelConfig
    layers: Layers
    cell: KvCell
    index_layers: int
    ratio: float
    own_ratio: bool
    """Whether the version counts windows by `ratio` (0.5.11 and later)."""
    exact: bool

    @property
    def count(self) -> int:
        return len(self.layers.full) * self.layers.repeats

    @property
    def full(self) -> int:
        return self.count * self.cell.full + self.index_layers * self.cell.index

    @property
    def sliding(self) -> int:
        return len(self.layers.sliding) * self.cell.sliding

    @property
    def counted(self) -> float:
        """What the engine divides by, without a draft."""
        full = self.count * self.cell.counted + self.index_layers * self.cell.index
        share = self.ratio if self.own_ratio and self.layers.full else 1
        return full + share * self.sliding

    @property
    def allocated(self) -> float:
        return self.full + (self.ratio if self.layers.full else 1) * self.sliding


def token_size(plan: Plan, *, draft: bool = False) -> Size:
    """Bytes of KV cache for one token on one rank, as it is allocated. Raises UnknownValueError.

    Of a model with sliding windows it counts so much of a token as the window's pool has room for
    (`swa_full_tokens_ratio`). 0 where there is no draft model, or it reads the target's cache.
    """
    if draft:
        found = draft_of(plan)
        return NO_DRAFT if found is None else draft_size(plan, found)
    target = _target(plan)
    return Size(round(target.allocated), _why(target), target.exact)


def pool_layout(plan: Plan) -> PoolLayout:
    """Layers, bytes and ratio of the target's pools. Raises UnknownValueError."""
    target = _target(plan)
    ranks = ranks_of(plan)
    windows = len(target.layers.sliding)
    states = _most_states(plan, target.config, ranks)
    return PoolLayout(
        target.count,
        target.full,
        windows,
        target.sliding,
        target.ratio if windows else None,
        states,
        state_bytes(plan, target.config, ranks.attention, states),
    )


def pool_cell(plan: Plan) -> Size:
    """The bytes that the engine divides its KV budget by: the target's cell, and from 0.5.14 what
    it adds for the draft (0.5.11 for DFLASH). Raises UnknownValueError.

    A model of sliding windows whose windows are sized by the requests, because there is no prefix
    cache (`SWARequestCapPoolConfigurator`, 0.5.14 and later), does not divide by it.
    """
    target = _target(plan)
    own = target.counted
    draft = draft_of(plan) if plan.in_versions(">=0.5.11") else None
    if draft is None:
        return Size(round(own), _why(target), target.exact)
    if plan.in_versions(">=0.5.22") and plan.value("enable_unified_memory"):
        raise UnknownValueError("the draft's KV cache with `enable_unified_memory`")
    whole = CountedLayers(
        own,
        target.count,
        target.cell,
        target.index_layers,
        len(target.layers.sliding),
        target.ratio if target.layers.full else 1,
    )
    more = added_by_draft(plan, whole, draft)
    why = _why(target)
    if more:
        why += f", and {more:,.0f} for the draft"
    return Size(round(own + more), why, target.exact)


def _target(plan: Plan) -> _Target:
    """Of the stage whose cache takes most."""
    checkpoint = target_of(plan)
    config = ModelConfig.of(checkpoint)
    if plan.value("enable_hisparse"):
        raise UnknownValueError("the KV cache with `enable_hisparse` is not modelled")
    ranks = ranks_of(plan)
    sparse = is_sparse(plan, config)
    element = element_of(plan, checkpoint, config, draft=False, sparse=sparse)
    cell = cell_of(plan, checkpoint, config, ranks.attention, element)
    layers = layers_of(plan, config)
    ratio = plan.value("swa_full_tokens_ratio")
    elides = sparse and plan.in_versions(">=0.5.18")

    def on(stage: range) -> _Target:
        own = layers.within(stage)
        kept = [i for i in own.full if not (elides and skips_index(config, i))] if sparse else []
        return _Target(
            config,
            own,
            cell,
            len(kept) * own.repeats,
            0.8 if ratio is None else float(ratio),
            plan.in_versions(">=0.5.11"),
            element.exact,
        )

    stages = ranks.stage_layers(config.layers, plan.env("SGLANG_PP_LAYER_PARTITION"))
    return max((on(stage) for stage in stages), key=lambda target: target.counted)


def _most_states(plan: Plan, config: ModelConfig, ranks: Ranks) -> int:
    """Recurrent layers of the stage that has most: each rank is charged with them."""
    layers = layers_of(plan, config)
    stages = ranks.stage_layers(config.layers, plan.env("SGLANG_PP_LAYER_PARTITION"))
    return max(len(layers.within(stage).recurrent) for stage in stages)


def _why(target: _Target) -> str:
    text = f"{target.count} layers * {target.cell.why}"
    windows = len(target.layers.sliding)
    if not windows:
        return text
    return f"{text}, {windows} windows * {target.cell.sliding} * {target.ratio}"

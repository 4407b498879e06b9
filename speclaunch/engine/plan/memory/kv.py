"""KV cache bytes per token, and bytes of recurrent states (Mamba and linear attention), on one GPU
rank.

Sources for the bytes of a token: `profile_max_num_token` (0.4.6 to 0.5.6 model_runner.py),
`get_cell_size_per_token` (0.5.7 to 0.5.10 model_runner_kv_cache_mixin.py), and the configurators of
model_executor/pool_configurator.py (0.5.11 and later).

Sources for states: `mamba2_cache_params` of each config in srt/configs, and `Mamba2StateShape` and
`KimiLinearStateShape` in srt/configs/mamba_utils.py (0.5.3 to 0.5.23). `handle_max_mamba_cache` and
`_calculate_mamba_ratio`: sglang 0.5.23 kv_cache_configurator.py:3062 and 3243, 0.5.13
model_runner_kv_cache_mixin.py:66, 0.5.9 :153, 0.5.3 model_runner.py:1375.
"""

from __future__ import annotations

from msgspec import Struct

from speclaunch.engine.plan.budget import MemorySize
from speclaunch.engine.plan.memory.estimates import number
from speclaunch.engine.plan.memory.layers import (
    WINDOW_DRAFTS,
    Draft,
    KvCell,
    Layers,
    cell_of,
    counted_layers,
    draft_of,
    element_of,
    is_sparse,
    layers_of,
    skips_index,
)
from speclaunch.engine.plan.memory.matrices import ELEMENT_BYTES, ModelConfig
from speclaunch.engine.plan.placement import Ranks, ranks_of
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.topics.algorithms import BLOCK_FAMILY, EAGLE_FAMILY
from speclaunch.engine.plan.topics.attention import STRATEGY
from speclaunch.engine.plan.topics.gpu import draft_in_pool
from speclaunch.engine.plan.topics.parallel import attention_ranks
from speclaunch.engine.plan.topics.target import target_of


class _Shape(Struct, frozen=True):
    """Dimensions of a layer's recurrent state, before division among ranks."""

    inner: int
    """Convolution channels, excluding the groups' channels."""
    groups: int
    heads: int
    head_dim: int
    state: int
    kernel: int


def state_bytes(plan: Plan, config: ModelConfig, ranks: int, layers: int) -> int:
    """Return the state bytes of one request in `layers` layers, on one of `ranks` attention ranks.

    Raises UnknownValueError if the model's state is unknown or cannot be divided.
    """
    if not layers:
        return 0
    short = ELEMENT_BYTES.get(plan.env("SGLANG_MAMBA_CONV_DTYPE") or "", 2)
    long = _state_bytes(plan, config)
    if config.architecture.startswith("Lfm2"):
        kernel = config.count("conv_L_cache")
        channels = config.count("conv_dim", "hidden_size")
        return (kernel - 1) * _divided(channels, ranks) * short * layers
    kimi = config.part("linear_attn_config")
    if kimi is not None:
        heads, dim = kimi.count("num_heads"), kimi.count("head_dim")
        kernel = kimi.count("short_conv_kernel_size", default=4)
        channels = 3 * _divided(heads * dim, ranks)
        state = _divided(heads, ranks) * dim * dim
        return (channels * (kernel - 1) * short + state * long) * layers
    shape = _shape(config)
    groups = shape.groups
    if groups % ranks:
        groups = ranks  # each rank has the group that its heads need
    channels = _divided(shape.inner + 2 * groups * shape.state, ranks)
    state = _divided(shape.heads, ranks) * shape.head_dim * shape.state
    return (channels * (shape.kernel - 1) * short + state * long) * layers


def _shape(config: ModelConfig) -> _Shape:
    name = config.architecture
    if config.optional("linear_num_value_heads") is not None:  # Qwen3-Next, Qwen3.5
        heads, dim = config.count("linear_num_value_heads"), config.count("linear_value_head_dim")
        return _Shape(
            heads * dim,
            config.count("linear_num_key_heads"),
            heads,
            dim,
            config.count("linear_key_head_dim"),
            config.count("linear_conv_kernel_dim", default=4),
        )
    if name.startswith("NemotronH"):
        heads, dim = config.count("mamba_num_heads"), config.count("mamba_head_dim")
        return _Shape(
            heads * dim,
            config.count("n_groups"),
            heads,
            dim,
            config.count("ssm_state_size"),
            config.count("conv_kernel", default=4),
        )
    if name.startswith(("FalconH1", "GraniteMoeHybrid")):
        inner = config.optional("mamba_d_ssm") or (
            config.count("mamba_expand", default=2) * config.hidden
        )
        heads = config.count("mamba_n_heads")
        automatic = config.text("mamba_d_head") is not None  # "auto"
        each = None if automatic else config.optional("mamba_d_head")
        return _Shape(
            inner,
            config.count("mamba_n_groups", default=1),
            heads,
            inner // heads if each is None else each,
            config.count("mamba_d_state"),
            config.count("mamba_d_conv", default=4),
        )
    raise UnknownValueError(f"the recurrent state of {name or config.name} is unknown")


def _divided(number: int, ranks: int) -> int:
    if number % ranks:
        raise UnknownValueError(f"the recurrent state cannot be divided among {ranks} ranks")
    return number // ranks


def _state_bytes(plan: Plan, config: ModelConfig) -> int:
    """Return the element size of `mamba2_state_dtype`, in bytes.

    The argument takes precedence over the environment variable, and both over the config
    (0.5.9 and later). The default is float32.
    """
    dtype = (
        plan.value("mamba_ssm_dtype")
        or plan.env("SGLANG_MAMBA_SSM_DTYPE")
        or (config.text("mamba_ssm_dtype") if plan.in_versions(">=0.5.9") else None)
    )
    return ELEMENT_BYTES.get(str(dtype), 4)


_SLOTS_PER_REQUEST = 3
"""Number of slots per request with a prefix cache. A request holds one state, and the cache tree
holds the others."""
_UNLIMITED = 512
"""Number of slots without a prefix cache if requests are unlimited (up to 0.5.8)."""


class States(Struct, frozen=True):
    """Slots for recurrent states; all values are 0 without such states.

    A request needs `ratio` slots. `bytes`: pool memory of all slots and of verification's states.
    """

    slots: int = 0
    ratio: int = 0
    bytes: int = 0

    def cap(self, requests: int) -> int:
        return min(requests, self.slots // self.ratio) if self.ratio else requests


class StateSettings(Struct, frozen=True):
    """Settings that determine the state count for an amount of memory."""

    each: int
    """Bytes of one request's state."""
    ratio: int
    explicit: int | None
    """`max_mamba_cache_size`; None if not set."""
    share: float
    """`mamba_full_memory_ratio`: bytes of states per byte of KV cache."""
    cached: bool
    """True if there is a prefix cache."""
    all_running: int | None
    """`max_running_requests` of all attention ranks; None if unlimited."""
    running: int | None
    """`max_running_requests` of one attention rank; None if unlimited."""
    draft_tokens: int
    """Number of states that verification stores for each request, one per draft token. 0 without
    drafts."""
    ranks: int
    era: int
    """Number (0 to 4) of the method by which the release counts states; see `state_settings`."""
    unlimited: bool
    """True if the release has a default number of slots for unlimited requests (up to 0.5.8)."""


def state_settings(plan: Plan, each: int) -> StateSettings:
    """Return the settings of a plan whose target has states of `each` bytes. Raises
    UnknownValueError."""
    if plan.in_versions("<0.5.3"):
        raise UnknownValueError(
            "the states of linear attention before SGLang 0.5.3 are not modeled"
        )
    if plan.algorithm is not None and plan.value("enable_linear_replayssm_spec"):
        raise UnknownValueError("replayed states are not modeled")
    ranks = attention_ranks(plan)
    running = plan.value("max_running_requests")
    part = None
    if running is not None:
        part = max(int(plan.in_versions(">=0.5.23")), int(running) // ranks)
    explicit = plan.user_value("max_mamba_cache_size")
    eras = (">=0.5.17", ">=0.5.13", ">=0.5.8", ">=0.5.7")
    return StateSettings(
        each=each,
        ratio=_ratio(plan),
        explicit=None if explicit is None else int(explicit),
        share=float(plan.value("mamba_full_memory_ratio") or 0.9),
        cached=not plan.value("disable_radix_cache"),
        all_running=None if running is None else int(running),
        running=part,
        draft_tokens=number(plan, "speculative_num_draft_tokens", 0) if plan.algorithm else 0,
        ranks=ranks,
        era=next((4 - i for i, specifier in enumerate(eras) if plan.in_versions(specifier)), 0),
        unlimited=plan.in_versions("<0.5.9"),
    )


def _ratio(plan: Plan) -> int:
    if plan.value("disable_radix_cache"):
        return 1
    if plan.in_versions("<0.5.7"):
        return _SLOTS_PER_REQUEST
    strategy = str(plan.value(STRATEGY) or "")
    extra = strategy.startswith("extra_buffer")
    if plan.in_versions("<0.5.10"):
        more = 1 if plan.algorithm is not None and extra else 2
        return _SLOTS_PER_REQUEST + (more if extra or plan.in_versions("<0.5.8") else 0)
    skips = plan.in_versions(">=0.5.17") and plan.env_flag("SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK")
    if not extra:
        return _SLOTS_PER_REQUEST
    single = bool(plan.value("disable_overlap_schedule")) or strategy == "extra_buffer_lazy"
    return _SLOTS_PER_REQUEST - skips + (1 if single else 2)


def room(settings: StateSettings, rest: float) -> States:
    """Return the states that fit in `rest` bytes. `slots` is 0 or less if none fits."""
    if settings.era >= 3:
        return _jointly(settings, rest)
    each, drafts = settings.each, settings.draft_tokens
    if settings.era == 0:  # an explicit size applies only without the prefix cache
        wide = each * (1 + drafts)
        slots = int(_part(settings, rest) // wide)
        if not settings.cached:
            slots = settings.explicit or settings.all_running or _UNLIMITED
        slots //= settings.ranks
        return States(slots, settings.ratio, slots * wide)
    between = 0
    if drafts and settings.era == 2:
        between = (settings.running or 0) * drafts * each
    elif drafts and settings.cached and settings.explicit is None:
        between = (settings.all_running or 0) * drafts * each
    fixed = _fixed(settings)
    slots = int(_part(settings, rest - between) // each) if fixed is None else fixed
    return States(slots, settings.ratio, slots * each + between)


def _jointly(settings: StateSettings, rest: float) -> States:
    """Return the states for 0.5.13 and later, where slots share memory with verification's states.

    0.5.17 and later add a padding slot to both.
    """
    each, drafts, pad = settings.each, settings.draft_tokens, int(settings.era == 4)
    fixed = _fixed(settings)
    padding = pad * each * (1 + drafts)
    wide = each * (1 + drafts / settings.ratio)
    slots = int((_part(settings, rest) - padding) // wide) if fixed is None else fixed
    between = 0
    if drafts:
        requests = slots // settings.ratio
        if settings.explicit is None and not settings.cached:
            requests = slots
        elif settings.running is not None:
            requests = min(settings.running, requests)
        between = each * (requests + pad) * drafts
    return States(slots, settings.ratio, (slots + pad) * each + between)


def _fixed(settings: StateSettings) -> int | None:
    """Return the slots of an attention rank if settings fix their number; None if memory determines
    it."""
    if settings.explicit is not None:
        return settings.explicit // settings.ranks
    if settings.cached:
        return None
    if settings.running is None and settings.unlimited:
        return _UNLIMITED // settings.ranks
    return settings.running


def _part(settings: StateSettings, rest: float) -> float:
    return rest * settings.share / (1 + settings.share)


_OWN_CELL = ">=0.5.18"
"""Releases that count a DFLASH draft's own bytes per layer. Earlier releases use the target's."""


class CountedLayers(Struct, frozen=True):
    """The target's layers in the engine's memory budget.

    `own`: bytes per token in all layers. `layers`: number of layers that hold every token.
    `windows`: number of layers that hold a `share` of the tokens.
    """

    own: float
    layers: int
    cell: KvCell
    index_layers: int
    windows: int
    share: float


def draft_size(plan: Plan, draft: Draft) -> MemorySize:
    """Return the bytes of one token in the draft's cache on one rank. Raises UnknownValueError."""
    if plan.algorithm == "FROZEN_KV_MTP":
        return MemorySize(0, "the draft reads the target's KV cache")
    cell, exact = _cell(plan, draft)
    layers = draft.layers
    windows = draft.loaded_as in WINDOW_DRAFTS
    each = cell.sliding if windows else cell.full + cell.index
    return MemorySize(layers * each, f"{layers} draft layers * {cell.why}", exact and not windows)


def added_by_draft(plan: Plan, target: CountedLayers, draft: Draft) -> float:
    """Return the bytes per token that the engine's budget adds for the draft.

    See `DefaultPoolConfigurator` and `HybridSWAPoolConfigurator` (0.5.11 to 0.5.23
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
    """Return the bytes per token added for a draft whose layers are counted like the target's."""
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
    """Return the number of draft layers with a sliding window (`eagle_draft_swa_num_layers`)."""
    if draft.loaded_as in WINDOW_DRAFTS:
        return 1
    return 0 if draft.is_mtp else len(layers_of(plan, draft.config).sliding)


NO_DRAFT = MemorySize(0, "no draft model")


class PoolLayout(Struct, frozen=True):
    """Layout of the target's KV pool, on the rank where it is largest."""

    full_layers: int
    """Number of layers whose KV cache holds every token of a request."""
    full_token_bytes: int
    """Allocated bytes of one token in all full layers."""
    swa_layers: int = 0
    """Number of layers with a sliding window and a separate pool."""
    swa_token_bytes: int = 0
    swa_full_tokens_ratio: float | None = None
    """Tokens of the sliding-window pool per token of the full pool; None without such a pool."""
    state_layers: int = 0
    state_request_bytes: int = 0
    """Bytes of one request's state in all layers with a recurrent state."""


class _Target(Struct, frozen=True):
    """The target's cache on one pipeline stage."""

    config: ModelConfig
    layers: Layers
    cell: KvCell
    index_layers: int
    ratio: float
    own_ratio: bool
    """True if the engine's budget counts window layers by `ratio` (0.5.11 and later)."""
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
        """Bytes per token that the engine divides its budget by, without a draft."""
        full = self.count * self.cell.counted + self.index_layers * self.cell.index
        share = self.ratio if self.own_ratio and self.layers.full else 1
        return full + share * self.sliding

    @property
    def allocated(self) -> float:
        return self.full + (self.ratio if self.layers.full else 1) * self.sliding


def token_size(plan: Plan, *, draft: bool = False) -> MemorySize:
    """Return the allocated bytes of KV cache for one token on one rank. Raises UnknownValueError.

    A sliding-window layer counts only its pool's share of the tokens (`swa_full_tokens_ratio`).

    `draft`: count the draft's cache; 0 without a draft or if it reads the target's cache.
    """
    if draft:
        found = draft_of(plan)
        return NO_DRAFT if found is None else draft_size(plan, found)
    target = _target(plan)
    return MemorySize(round(target.allocated), _why(target), target.exact)


def pool_layout(plan: Plan) -> PoolLayout:
    """Return the layers, bytes and ratio of the target's pools. Raises UnknownValueError."""
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


def pool_cell(plan: Plan) -> MemorySize:
    """Return the bytes per token that the engine divides its KV budget by. Raises
    UnknownValueError.

    Includes the draft's bytes from 0.5.14 on (DFLASH: 0.5.11).

    Does not apply to sliding-window models without a prefix cache, whose windows are sized by
    requests (`SWARequestCapPoolConfigurator`, 0.5.14 and later).
    """
    target = _target(plan)
    own = target.counted
    draft = draft_of(plan) if plan.in_versions(">=0.5.11") else None
    if draft is None:
        return MemorySize(round(own), _why(target), target.exact)
    if plan.in_versions(">=0.5.22") and plan.value("enable_unified_memory"):
        raise UnknownValueError("the draft's KV cache with `enable_unified_memory` is not modeled")
    counted = CountedLayers(
        own,
        target.count,
        target.cell,
        target.index_layers,
        len(target.layers.sliding),
        target.ratio if target.layers.full else 1,
    )
    more = added_by_draft(plan, counted, draft)
    why = _why(target)
    if more:
        why += f", and {more:,.0f} for the draft"
    return MemorySize(round(own + more), why, target.exact)


def _target(plan: Plan) -> _Target:
    """Return the target's cache on the pipeline stage that needs the most memory."""
    checkpoint = target_of(plan)
    config = ModelConfig.of(checkpoint)
    if plan.value("enable_hisparse"):
        raise UnknownValueError("the KV cache with `enable_hisparse` is not modeled")
    ranks = ranks_of(plan)
    sparse = is_sparse(plan, config)
    element = element_of(plan, checkpoint, config, draft=False, sparse=sparse)
    cell = cell_of(plan, checkpoint, config, ranks.attention, element)
    layers = layers_of(plan, config)
    ratio = plan.value("swa_full_tokens_ratio")
    elides = sparse and plan.in_versions(">=0.5.18")

    def on(stage: range) -> _Target:
        own = layers.within(stage)
        indexed = [i for i in own.full if not (elides and skips_index(config, i))] if sparse else []
        return _Target(
            config,
            own,
            cell,
            len(indexed) * own.repeats,
            0.8 if ratio is None else float(ratio),
            plan.in_versions(">=0.5.11"),
            element.exact,
        )

    stages = ranks.stage_layers(config.layers, plan.env("SGLANG_PP_LAYER_PARTITION"))
    return max((on(stage) for stage in stages), key=lambda target: target.counted)


def _most_states(plan: Plan, config: ModelConfig, ranks: Ranks) -> int:
    """Return the largest number of recurrent layers in a stage. The engine reserves states for this
    number on every rank."""
    layers = layers_of(plan, config)
    stages = ranks.stage_layers(config.layers, plan.env("SGLANG_PP_LAYER_PARTITION"))
    return max(len(layers.within(stage).recurrent) for stage in stages)


def _why(target: _Target) -> str:
    text = f"{target.count} layers * {target.cell.why}"
    windows = len(target.layers.sliding)
    if not windows:
        return text
    return f"{text}, {windows} windows * {target.cell.sliding} * {target.ratio}"

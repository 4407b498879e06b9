"""The recurrent states of Mamba and linear attention layers: their bytes, and how many there are.

`mamba2_cache_params` of each config in srt/configs, and `Mamba2StateShape`, `KimiLinearStateShape`
in srt/configs/mamba_utils.py (0.5.3 to 0.5.23).

`handle_max_mamba_cache` and `_calculate_mamba_ratio`: sglang 0.5.23 kv_cache_configurator.py:3062
and 3243, 0.5.13 model_runner_kv_cache_mixin.py:66, 0.5.9 :153, 0.5.3 model_runner.py:1375.
"""

from __future__ import annotations

from speclaunch.plan.memory.free import number
from speclaunch.plan.memory.model_config import ELEMENT_BYTES, ModelConfig
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.hybrid import STRATEGY
from speclaunch.plan.topics.parallel import attention_ranks
from speclaunch.record import record


@record
class _Shape:
    """What a layer keeps, before it is divided among ranks."""

    inner: int
    """Channels that are convolved besides those of the groups."""
    groups: int
    heads: int
    head_dim: int
    state: int
    kernel: int


def state_bytes(plan: Plan, config: ModelConfig, ranks: int, layers: int) -> int:
    """Of one request, in `layers` layers of one of `ranks` attention ranks.

    Raises UnknownValueError for a model whose state is not known, or one that cannot be divided.
    """
    if not layers:
        return 0
    short, long = _convolution_bytes(plan), _state_bytes(plan, config)
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
        groups += ranks - groups  # each rank has the group that its heads need
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
    raise UnknownValueError(f"the recurrent state of {name or config.name} is not known")


def _divided(number: int, ranks: int) -> int:
    if number % ranks:
        raise UnknownValueError(f"the recurrent state cannot be divided among {ranks} ranks")
    return number // ranks


def _convolution_bytes(plan: Plan) -> int:
    return ELEMENT_BYTES.get(plan.env("SGLANG_MAMBA_CONV_DTYPE") or "", 2)


def _state_bytes(plan: Plan, config: ModelConfig) -> int:
    """`mamba2_state_dtype`: the argument (it sets the variable, up to 0.5.8 always), the variable,
    the config, float32."""
    said = (
        plan.value("mamba_ssm_dtype")
        or plan.env("SGLANG_MAMBA_SSM_DTYPE")
        or (config.text("mamba_ssm_dtype") if plan.in_versions(">=0.5.9") else None)
    )
    return ELEMENT_BYTES.get(str(said), 4)


_SLOTS_PER_REQUEST = 3
"""With the prefix cache: a request holds a state, and the tree keeps some."""
_UNLIMITED = 512
"""Slots without a prefix cache where no one limits the requests (up to 0.5.7)."""


@record
class States:
    """Room for recurrent states: `slots`, of which a request needs `ratio`, and what they take of
    the memory that remained for the pool. A model without such layers has none and needs none."""

    slots: int = 0
    ratio: int = 0
    bytes: int = 0

    def cap(self, requests: int) -> int:
        """No more requests than there are states for."""
        return min(requests, self.slots // self.ratio) if self.ratio else requests


@record
class StateSettings:
    """What the number of states depends on, besides memory."""

    each: int
    """Bytes of one request's state."""
    ratio: int
    given: int | None
    """`max_mamba_cache_size`."""
    share: float
    """`mamba_full_memory_ratio`: bytes of states for one of KV cache."""
    cached: bool
    """Whether there is a prefix cache."""
    all_running: int | None
    """`max_running_requests`."""
    running: int | None
    """Of one attention rank."""
    draft_tokens: int
    """States that verification keeps for each request: one for a draft token. 0 without."""
    ranks: int
    era: int
    """Which of the five ways of counting: see `state_settings`."""
    unlimited: bool
    """Whether there is a number of slots for where nobody limits the requests (up to 0.5.8)."""


def state_settings(plan: Plan, each: int) -> StateSettings:
    """Of a plan whose target has states of `each` bytes. Raises UnknownValueError."""
    if plan.in_versions("<0.5.3"):
        raise UnknownValueError("the states of linear attention before 0.5.3 are not modelled")
    if plan.algorithm is not None and plan.value("enable_linear_replayssm_spec"):
        raise UnknownValueError("replayed states are not modelled")
    ranks = attention_ranks(plan)
    running = plan.value("max_running_requests")
    part = None
    if running is not None:
        part = max(int(plan.in_versions(">=0.5.23")), int(running) // ranks)
    given = plan.given("max_mamba_cache_size")
    eras = (">=0.5.17", ">=0.5.13", ">=0.5.8", ">=0.5.7")
    return StateSettings(
        each=each,
        ratio=_ratio(plan),
        given=None if given is None else int(given),
        share=float(plan.value("mamba_full_memory_ratio") or 0.9),
        cached=not plan.value("disable_radix_cache"),
        all_running=None if running is None else int(running),
        running=part,
        draft_tokens=number(plan, "speculative_num_draft_tokens", 0) if plan.algorithm else 0,
        ranks=ranks,
        era=next((4 - i for i, one in enumerate(eras) if plan.in_versions(one)), 0),
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
    """The states that get room in `rest` bytes. `slots` is 0 or less where there is none."""
    if settings.era >= 3:
        return _jointly(settings, rest)
    each, drafts = settings.each, settings.draft_tokens
    if settings.era == 0:  # a size that is given counts only without the prefix cache
        wide = each * (1 + drafts)
        slots = int(_part(settings, rest) // wide)
        if not settings.cached:
            slots = settings.given or settings.all_running or _UNLIMITED
        slots //= settings.ranks
        return States(slots, settings.ratio, slots * wide)
    between = 0
    if drafts and settings.era == 2:
        between = (settings.running or 0) * drafts * each
    elif drafts and settings.cached and settings.given is None:
        between = (settings.all_running or 0) * drafts * each
    fixed = _fixed(settings)
    slots = int(_part(settings, rest - between) // each) if fixed is None else fixed
    return States(slots, settings.ratio, slots * each + between)


def _jointly(settings: StateSettings, rest: float) -> States:
    """0.5.13 and later: slots and the states between draft tokens share what there is. 0.5.17
    adds a slot of padding to both."""
    each, drafts, pad = settings.each, settings.draft_tokens, int(settings.era == 4)
    fixed = _fixed(settings)
    padding = pad * each * (1 + drafts)
    wide = each * (1 + drafts / settings.ratio)
    slots = int((_part(settings, rest) - padding) // wide) if fixed is None else fixed
    between = 0
    if drafts:
        requests = slots // settings.ratio
        if settings.given is None and not settings.cached:
            requests = slots
        elif settings.running is not None:
            requests = min(settings.running, requests)
        between = each * (requests + pad) * drafts
    return States(slots, settings.ratio, (slots + pad) * each + between)


def _fixed(settings: StateSettings) -> int | None:
    """Slots of an attention rank where memory does not decide; None where it does."""
    if settings.given is not None:
        return settings.given // settings.ranks
    if settings.cached:
        return None
    if settings.running is None and settings.unlimited:
        return _UNLIMITED // settings.ranks
    return settings.running


def _part(settings: StateSettings, rest: float) -> float:
    return rest * settings.share / (1 + settings.share)

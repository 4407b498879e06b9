"""Attention: backends, deterministic inference, and targets with linear-attention layers.

Source: `_handle_deterministic_inference` (0.5.23 arg_groups/attention_hook.py:600 and
arg_groups/overrides.py:1039, 0.5.4 server_args.py:1516).
"""

from __future__ import annotations

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.settings import Settings

BOTH = "attention_backend"
PREFILL = "prefill_attention_backend"
DECODE = "decode_attention_backend"
PHASES = (PREFILL, DECODE)
"""Arguments that each set the backend of one phase. If the argument is unset, `BOTH` applies."""
BACKENDS = (BOTH, DECODE, PREFILL)
DRAFT = "speculative_draft_attention_backend"

RENAMED = {"compressed": "dsv4", "tokenspeed_mla": "cutedsl_mla"}
"""Deprecated backend names with their replacements (`_handle_deprecated_args`, 0.5.23
arg_groups/serving_hook.py:305)."""
RENAMED_IN = ">=0.5.23"
RENAMED_EARLY, RENAMED_EARLY_IN = ("compressed",), ">=0.5.12"
"""Deprecated backend names that some releases before 0.5.23 also replace, and the releases that
replace them (0.5.12.post1 server_args.py:1128)."""
BEFORE_RENAMED = "<0.5.23"

OWN_CPU_DEFAULTS = ">=0.4.10"
"""Releases with separate defaults for a CPU. Attention uses intel_amx if the CPU has AMX, else
torch_native; sampling uses PyTorch (0.5.23 arg_groups/platform_hook.py:172). Earlier releases use
torch_native."""
FA3_GIVES_WAY = ">=0.5.1,<0.5.14"
"""Releases in which fa3 cannot decode with a hierarchical cache (0.5.10 server_args.py:2929, 0.5.4
:1475)."""


DETERMINISTIC_SWITCH = "enable_deterministic_inference"
POLICY = "rl_on_policy_target"
_DETERMINISTIC_BACKENDS = (
    ("0.5.3", ("fa3", "flashinfer", "triton")),
    ("0.5.13", ("ascend",)),
    ("0.5.16", ("fa4",)),
    ("0.5.19", ("intel_xpu",)),
)
"""Attention backends that support deterministic inference
(`DETERMINISTIC_ATTENTION_BACKEND_CHOICES`), by the release that added each."""
_UNSHARED = frozenset({"flashinfer", "intel_xpu"})
"""Deterministic backends without deterministic prefix sharing (not in
`RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND`)."""
_FIRST_ABSORBING = frozenset({"fa3", "triton"})
_ABSORBED = (
    ("0.5.4.post1", ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM")),
    ("0.5.6.post1", ("MistralLarge3ForCausalLM", "PixtralForConditionalGeneration")),
    ("0.5.9", ("GlmMoeDsaForCausalLM",)),
    ("0.5.18", ("Glm4MoeLiteForCausalLM",)),
)
"""Targets with latent attention that the engine lists for deterministic inference, by the release
that added each."""
_NOT_CHOSEN_FOR = (("0.5.20", ("Glm5NextForConditionalGeneration",)),)
"""Further targets with latent attention, for which the engine sets no default backend (in 0.5.23
attention_hook.py:633, but not in overrides.py:1055)."""


def is_deterministic(settings: Settings) -> bool:
    """True if deterministic inference is requested, directly or by an RL policy."""
    return bool(settings.value(DETERMINISTIC_SWITCH)) or settings.value(POLICY) is not None


def deterministic_backends(settings: Settings) -> frozenset[str]:
    """Return the attention backends that support deterministic inference in this version."""
    return _since(settings, _DETERMINISTIC_BACKENDS)


def sharing_backends(settings: Settings) -> frozenset[str]:
    """Return backends that share prefixes deterministically. With any other backend, the engine
    disables the prefix cache."""
    return deterministic_backends(settings) - _UNSHARED


def absorbing_backends(settings: Settings) -> frozenset[str]:
    """Return backends that serve latent attention deterministically.

    Up to 0.5.16 these are fa3 and triton (0.5.16 server_args.py:6794, 0.5.13 :4272), from 0.5.17
    all backends that share prefixes (server_args.py:7849).
    """
    return sharing_backends(settings) if settings.in_versions(">=0.5.17") else _FIRST_ABSORBING


def absorbs(settings: Settings) -> bool:
    """True if only `absorbing_backends` serve this target deterministically; False for an unknown
    target."""
    target = settings.facts.target
    known = _since(settings, (*_ABSORBED, *_NOT_CHOSEN_FOR))
    return target is not None and target.architecture in known


def triton_targets(settings: Settings) -> frozenset[str]:
    """Return targets that deterministic inference runs on triton by default on Blackwell."""
    return _since(settings, _ABSORBED)


def _since(settings: Settings, rows: tuple[tuple[str, tuple[str, ...]], ...]) -> frozenset[str]:
    return frozenset(
        name for since, names in rows if settings.in_versions(f">={since}") for name in names
    )


STRATEGY = "mamba_radix_cache_strategy"
CHOSEN = ">=0.5.14"
"""Releases that list hybrid architectures (`engine/plan/architectures.py`) and choose a strategy
for caching their states (`_handle_mamba_radix_cache`, 0.5.23 arg_groups/overrides.py:446, 0.5.14
server_args.py:4338)."""
BUFFERED = ("extra_buffer", "extra_buffer_lazy")
"""State-caching strategies with a buffer in addition to the cache."""
AMD_DROPS_CACHE = ">=0.5.11"
"""Releases that drop the state cache on AMD GPUs if speculation is used with a strategy without a
buffer. On other GPUs they refuse to start (0.5.11 server_args.py:2451)."""
NEEDS_A_STATE = ">=0.5.13"
"""Releases that report a separate error if no recurrent state fits in memory (0.5.23
mem_cache/kv_cache_configurator.py:3394)."""
_BUFFERED_BY = (None, "triton")


def has_states(target: Checkpoint) -> bool:
    """True if a hybrid target has recurrent-state layers. A Granite model may have none."""
    granite = (target.architecture or "").startswith("GraniteMoeHybrid")
    return not granite or "mamba" in (target.config.get("layer_types") or ())


def backend_buffers(settings: Settings) -> bool:
    """True if the linear-attention backend supports a state buffer (extra_buffer).

    Raises UnknownValueError.
    """
    return settings.value("linear_attn_backend") in _BUFFERED_BY

"""Deterministic inference: the attention backends that support it, with and without a prefix cache.

`_handle_deterministic_inference`: sglang 0.5.23 arg_groups/attention_hook.py:600 and
arg_groups/overrides.py:1039, 0.5.4 server_args.py:1516.
"""

from __future__ import annotations

from speclaunch.engine.plan.settings import Settings

SWITCH = "enable_deterministic_inference"
POLICY = "rl_on_policy_target"
_BACKENDS = (
    ("0.5.3", ("fa3", "flashinfer", "triton")),
    ("0.5.13", ("ascend",)),
    ("0.5.16", ("fa4",)),
    ("0.5.19", ("intel_xpu",)),
)
"""`DETERMINISTIC_ATTENTION_BACKEND_CHOICES`, by the release that added each."""
_UNSHARED = frozenset({"flashinfer", "intel_xpu"})
"""Backends that are not in `RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND`."""
_FIRST_ABSORBING = frozenset({"fa3", "triton"})
_ABSORBED = (
    ("0.5.4.post1", ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM")),
    ("0.5.6.post1", ("MistralLarge3ForCausalLM", "PixtralForConditionalGeneration")),
    ("0.5.9", ("GlmMoeDsaForCausalLM",)),
    ("0.5.18", ("Glm4MoeLiteForCausalLM",)),
)
"""Targets with latent attention that the engine lists, by the release that added each."""
_NOT_CHOSEN_FOR = (("0.5.20", ("Glm5NextForConditionalGeneration",)),)
"""Further targets without a default (0.5.23 attention_hook.py:633, not overrides.py:1055)."""


def is_requested(settings: Settings) -> bool:
    """True if deterministic inference is requested, directly or by an RL policy."""
    return bool(settings.value(SWITCH)) or settings.value(POLICY) is not None


def backends(settings: Settings) -> frozenset[str]:
    """Return the attention backends that support deterministic inference in this version."""
    return _since(settings, _BACKENDS)


def sharing_backends(settings: Settings) -> frozenset[str]:
    """Return backends that share prefixes deterministically. With any other, the engine disables
    the prefix cache."""
    return backends(settings) - _UNSHARED


def absorbing_backends(settings: Settings) -> frozenset[str]:
    """Return backends that serve latent attention deterministically.

    Up to 0.5.16 these are fa3 and triton (0.5.16 server_args.py:6794, 0.5.13 :4272), from 0.5.17
    all backends that share prefixes (server_args.py:7849).
    """
    return sharing_backends(settings) if settings.in_versions(">=0.5.17") else _FIRST_ABSORBING


def absorbs(settings: Settings) -> bool:
    """True if the target needs a backend that shares prefixes; False if unknown."""
    target = settings.facts.target
    known = _since(settings, (*_ABSORBED, *_NOT_CHOSEN_FOR))
    return target is not None and target.architecture in known


def triton_targets(settings: Settings) -> frozenset[str]:
    """Return targets that default to triton on Blackwell. Other targets default to flashinfer."""
    return _since(settings, _ABSORBED)


def _since(settings: Settings, rows: tuple[tuple[str, tuple[str, ...]], ...]) -> frozenset[str]:
    return frozenset(
        name for since, names in rows if settings.in_versions(f">={since}") for name in names
    )

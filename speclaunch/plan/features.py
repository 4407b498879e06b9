"""Which arguments belong to a feature that a deployment does not use.

Only for what a report says first: an argument of a feature that is not known to be on counts as
idle, and what is idle is folded away, never dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics import lora

_On = Callable[[Plan], bool]


def _switch(name: str, off: tuple[Any, ...] = (None, False, "null")) -> _On:
    return lambda plan: plan.value_or_none(name) not in off


def _moe(plan: Plan) -> bool:
    return plan.facts.target is not None and bool(plan.facts.target.is_moe)


def _lora(plan: Plan) -> bool:
    try:
        return lora.is_on(plan)
    except UnknownValueError:
        return False


def _multimodal(plan: Plan) -> bool:
    return plan.facts.target is not None and plan.facts.target.is_multimodal


def _keys(*beginnings: str) -> _On:
    """The target's config has a key that begins so."""
    return lambda plan: (
        plan.facts.target is not None
        and any(key.startswith(beginnings) for key in plan.facts.target.config)
    )


def _quantized(part: str) -> _On:
    def on(plan: Plan) -> bool:
        own = plan.facts.target.quantization if plan.facts.target is not None else None
        return part in f"{plan.value_or_none('quantization')} {own}"

    return on


_FEATURES: tuple[tuple[tuple[str, ...], _On], ...] = (
    (("hicache_",), _switch("enable_hierarchical_cache")),
    (("disaggregation_",), _switch("disaggregation_mode")),
    (("lora_", "max_lora"), _lora),
    (("eplb_", "ep_", "expert_", "moe_", "deepep_", "enable_eplb"), _moe),
    (("mm_", "encoder_", "image_", "video_", "enable_multimodal"), _multimodal),
    (("mamba_", "max_mamba", "linear_attn", "enable_mamba"), _keys("mamba", "linear_", "ssm_")),
    (("dsa_", "nsa_", "enable_dsa", "enable_nsa"), _keys("index_topk")),
    (("swa_",), _keys("sliding_window")),
    (("fp4_",), _quantized("fp4")),
    (("fp8_",), _quantized("fp8")),
    (("export_metrics", "collect_tokens"), _switch("enable_metrics")),
    (("file_storage_",), lambda _: False),  # where files of an API lie that serving does not read
)


def is_idle(plan: Plan, name: str) -> bool:
    """Whether an argument belongs to a feature that is not known to be on."""
    for beginnings, is_on in _FEATURES:
        if name.startswith(beginnings):
            return not is_on(plan)
    return False

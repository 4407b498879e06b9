"""Conditions of advisories, evaluated on the effective values of plans.

The result is unknown if it depends on a missing fact, unless another part of the condition excludes
the deployment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from speclaunch.checks.advisory_records import CheckpointCondition, Condition, HardwareCondition
from speclaunch.engine import (
    UNKNOWN_HARDWARE,
    Checkpoint,
    Plan,
    UnknownValueError,
    Vendor,
    architectures,
    attention,
    attention_ranks,
    draft_of,
    has_architecture,
    has_states,
    own_path,
    spec_v2,
    target_of,
    within,
)


def holds(condition: Condition, plan: Plan) -> bool:
    """True if a deployment meets a condition. Raises UnknownValueError."""
    return _every(_parts(condition, plan))


def _parts(condition: Condition, plan: Plan) -> Iterator[Callable[[], bool]]:
    """Yield a check for each part of a condition, the cheapest first."""
    if condition.algorithm:
        yield lambda: plan.algorithm in condition.algorithm
    for name, expected in condition.arguments.items():
        yield partial(_has_value, plan, name, expected)
    for name, value in condition.env.items():
        yield partial(_has_variable, plan, name, value)
    for feature in condition.features:
        yield partial(_has_feature, plan, feature)
    if condition.hardware is not None:
        yield partial(_runs_on, plan, condition.hardware)
    if condition.target is not None:
        yield partial(_is_target, plan, condition.target)
    if condition.draft is not None:
        yield partial(_is_draft, plan, condition.draft)
    for package, specifier in condition.packages.items():
        yield partial(_has_package, plan, package, specifier)
    if condition.any:
        yield lambda: not _every(partial(_misses, part, plan) for part in condition.any)


def _every(parts: Iterable[Callable[[], bool]]) -> bool:
    """True if all checks are true, False if one is false. Raises UnknownValueError otherwise."""
    unknown: UnknownValueError | None = None
    for part in parts:
        try:
            if not part():
                return False
        except UnknownValueError as error:
            unknown = unknown or error
    if unknown is not None:
        raise unknown
    return True


def _misses(condition: Condition, plan: Plan) -> bool:
    return not holds(condition, plan)


def _has_value(plan: Plan, name: str, expected: Any) -> bool:
    return matches(plan.value(name), expected)


def matches(value: Any, expected: Any) -> bool:
    """True if an effective value meets the expectation of a condition."""
    match expected:
        case "set" | "unset":
            return (value in (None, False, "", [], {})) is (expected == "unset")
        case list() | tuple():
            return any(matches(value, each) for each in expected)
        case {"above": bound}:
            return isinstance(value, int | float) and value > bound
        case {"below": bound}:
            return isinstance(value, int | float) and value < bound
        case {"not": excluded}:
            return not matches(value, excluded)
    return bool(value) is expected if isinstance(expected, bool) else bool(value == expected)


def _has_variable(plan: Plan, name: str, expected: Any) -> bool:
    value = plan.env_flag(name) if isinstance(expected, bool) else plan.env(name)
    return matches(value, expected)


def _runs_on(plan: Plan, condition: HardwareCondition) -> bool:
    hardware = plan.facts.hardware
    if hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    if condition.vendor and hardware.vendor not in condition.vendor:
        return False
    words = re.split(r"[\s-]+", hardware.name.lower())
    if condition.names and not any(name in words for name in condition.names):
        return False
    if not condition.capability or hardware.vendor is not Vendor.NVIDIA:
        return not condition.capability
    if hardware.capability is None:
        raise UnknownValueError("the compute capability of the GPU is unknown")
    return hardware.capability in condition.capability


def _is_target(plan: Plan, condition: CheckpointCondition) -> bool:
    if condition.architectures and not has_architecture(plan, condition.architectures):
        return False
    return _is_checkpoint(plan, target_of(plan), condition, "quantization")


def _is_draft(plan: Plan, condition: CheckpointCondition) -> bool:
    if plan.algorithm in (None, "NGRAM"):
        return False
    draft = draft_of(plan)
    name = "speculative_draft_model_quantization"
    if condition.architectures:
        found = set(draft.architectures)
        if own_path(plan, as_configured=False) is None:  # the draft of the target's own checkpoint
            mapping = architectures(plan.request.version).draft_map
            found |= {new for old in draft.architectures for new in mapping.get(old, ())}
        if found.isdisjoint(condition.architectures):
            return False
    return _is_checkpoint(plan, draft, condition, name)


def _is_checkpoint(
    plan: Plan, checkpoint: Checkpoint, condition: CheckpointCondition, argument: str
) -> bool:
    if condition.quantization:
        method = plan.value(argument) or checkpoint.quantization
        if str(method or "none") not in condition.quantization:
            return False
    if condition.model_type and checkpoint.model_type not in condition.model_type:
        return False
    return all(
        matches(checkpoint.config.get(key), expected) for key, expected in condition.config.items()
    )


def _has_package(plan: Plan, name: str, specifier: str) -> bool:
    runtime = plan.facts.runtime
    if runtime is None or name not in runtime.packages:
        raise UnknownValueError(f"the version of {name} is unknown")
    return within(runtime.packages[name], specifier)


def _is_hybrid(plan: Plan) -> bool:
    known = architectures(plan.request.version).hybrid
    return has_architecture(plan, known) and has_states(target_of(plan))


def _uses_mla(plan: Plan) -> bool:
    return bool(architectures(plan.request.version).uses_mla(target_of(plan)))


def _topk(plan: Plan) -> int:
    return int(plan.value("speculative_eagle_topk") or 1)


FEATURES: Mapping[str, Callable[[Plan], bool]] = {
    "spec_v2": lambda plan: plan.algorithm is not None and spec_v2.runs(plan),
    "spec_v1": lambda plan: plan.algorithm is not None and not spec_v2.runs(plan),
    "adaptive": lambda plan: bool(plan.value("speculative_adaptive")),
    "tree": lambda plan: _topk(plan) > 1,
    "chain": lambda plan: _topk(plan) == 1,
    "deterministic": attention.is_deterministic,
    "attention_tp": lambda plan: int(plan.value("tp_size")) // attention_ranks(plan) > 1,
    "hybrid": _is_hybrid,
    "mla": _uses_mla,
    "multimodal": lambda plan: target_of(plan).is_multimodal,
    "self_draft": lambda plan: (
        plan.algorithm not in (None, "NGRAM") and own_path(plan, as_configured=False) is None
    ),
    "separate_draft": lambda plan: own_path(plan, as_configured=False) is not None,
    "hicache": lambda plan: bool(plan.value("enable_hierarchical_cache")),
}
"""Features of a deployment by name; `not-NAME` negates one."""


def _has_feature(plan: Plan, name: str) -> bool:
    positive = name.removeprefix("not-")
    return FEATURES[positive](plan) is (positive == name)

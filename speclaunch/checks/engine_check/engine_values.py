"""Compare a release's resolved values with a plan's, and fill in unknown values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks.engine_check.command import STAND_INS
from speclaunch.checks.engine_check.opinion import Opinion
from speclaunch.engine import Plan, Reason, UnknownValueError, canonical, is_secret_argument

_OTHERWISE = frozenset({"enable_dp_attention", "model_path", "tokenizer_path", "config"})
"""Values in the engine's record that differ from the parser's: from 0.5.22 the engine turns
`enable_dp_attention` into `attn_dp_size` (parallel_hook.py:60), and reports it if that is above 1
(0.5.23 server_args.py:332); and paths."""

_LATER = "auto"
"""Value that, like None, validation leaves to the model runner (`dtype`)."""


class Contradiction(Struct, frozen=True):
    """Value for which speclaunch and the engine disagree: a speclaunch bug."""

    name: str
    ours: Any
    engine: Any
    report: str
    """One-line report of the contradiction."""


class ResolvedPlan(Struct, frozen=True):
    """Plan with the engine's own values for unknown values."""

    plan: Plan
    filled: tuple[str, ...] = ()
    """Arguments that were unknown."""
    contradictions: tuple[Contradiction, ...] = ()


def engine_source(release: str) -> str:
    """Return the source of values that come from an engine check."""
    return f"engine check of SGLang {release}"


def with_engine_values(plan: Plan, opinion: Opinion) -> ResolvedPlan:
    """Return a plan with the engine's resolved values; unchanged if there are none."""
    reported = {
        canonical(name): value
        for name, value in opinion.resolved.items()
        if value is not None and value != _LATER
    }
    if not opinion.accepted or not reported:
        return ResolvedPlan(plan)
    filled = {name: reported[name] for name in plan.undecided if name in reported}
    reason = Reason("the engine's own answer", engine_source(opinion.release))
    ours = _claims(plan)
    contradictions = tuple(
        Contradiction(
            name, value, reported[name], _report(plan, name, value, reported[name], opinion)
        )
        for name, value in sorted(ours.items())
        if name in reported and not _agree(value, reported[name])
    )
    wrong = {contradiction.name: contradiction.engine for contradiction in contradictions}
    if not filled and not wrong:
        return ResolvedPlan(plan)
    new = filled | wrong
    changed = replace(
        plan,
        resolved={**plan.resolved, **new},
        undecided={name: why for name, why in plan.undecided.items() if name not in filled},
        changes=tuple(change for change in plan.changes if change.name not in wrong),
        reasons={**plan.reasons, **dict.fromkeys(new, reason)},
    )
    return ResolvedPlan(changed, tuple(sorted(filled)), contradictions)


def _claims(plan: Plan) -> dict[str, Any]:
    """Return the plan's explicit and resolved values. Unchanged defaults are excluded, because
    speclaunch follows their resolution only if it matters."""
    found: dict[str, Any] = {}
    for name in sorted({*plan.resolved, *plan.request.values} - _OTHERWISE):
        if name in STAND_INS or is_secret_argument(name):
            continue
        try:
            found[name] = plan.value(name)
        except UnknownValueError:
            continue
    return found


def _agree(ours: Any, engine: Any) -> bool:
    """True if two values are equal, or cannot be compared."""
    if ours is None:
        return True  # resolution leaves it open
    if isinstance(ours, bool) or isinstance(engine, bool):
        return ours is engine or str(ours).casefold() == str(engine).casefold()
    if isinstance(ours, int | float) and isinstance(engine, int | float):
        return math.isclose(ours, engine, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(ours, list | tuple) and isinstance(engine, list | tuple):
        return len(ours) == len(engine) and all(map(_agree, ours, engine))
    if isinstance(ours, Mapping | list | tuple) or isinstance(engine, Mapping | list | tuple):
        return True  # a text that is parsed into a record: the values are not comparable
    return str(ours).casefold() == str(engine).casefold()


def _report(plan: Plan, name: str, ours: Any, engine: Any, opinion: Opinion) -> str:
    hardware = plan.facts.hardware
    where = hardware.name if hardware is not None else "unknown hardware"
    return f"{name}: SGLang {opinion.release} on {where} resolves {engine!r}, speclaunch {ours!r}"

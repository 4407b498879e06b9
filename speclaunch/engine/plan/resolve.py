"""Resolution: the steps by which each engine version changes the arguments before it starts."""

from __future__ import annotations

import json

from msgspec.structs import replace

from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.read_checkpoint import overridden
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.request import Request
from speclaunch.engine.plan.resolution.attention import (
    is_chosen_by_the_runner,
    resolve_attention,
    resolve_draft_attention,
    resolve_runner_attention,
)
from speclaunch.engine.plan.resolution.graphs import settle_prefill_graphs
from speclaunch.engine.plan.resolution.memory import resolve_long_contexts, resolve_memory
from speclaunch.engine.plan.resolution.models import (
    resolve_caches,
    resolve_disaggregation,
    resolve_hybrid,
    resolve_model_defaults,
)
from speclaunch.engine.plan.resolution.schedule import (
    divide_chunks,
    resolve_adaptive,
    resolve_all_to_all,
    resolve_data_parallelism,
    resolve_schedule,
    resolve_verification,
)
from speclaunch.engine.plan.resolution.speculation import (
    resolve_algorithm,
    resolve_device,
    resolve_draft,
    resolve_parameters,
)
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics.parallel import OWN_ARGUMENT
from speclaunch.engine.plan.topics.speculation import ADAPTIVE_DECIDED_FIRST


def _run_steps(working: Working) -> None:
    """Run all steps for the request's engine version.

    The order matches the engine's in the three cases in which it matters:

    - Memory is divided before DP attention is reset and before speculation limits the requests.
    - Attention backends are chosen before the speculative parameters (up to 0.5.4, after them).
    - Adaptive speculation is switched off before the parameters are resolved (up to 0.5.13, after
      them).
    """
    resolve_device(working)
    resolve_algorithm(working)
    resolve_draft(working)
    resolve_all_to_all(working)
    if working.in_versions(OWN_ARGUMENT):
        resolve_data_parallelism(working)  # rewritten before everything else
    if working.in_versions(">=0.5.14"):
        resolve_disaggregation(working)
    resolve_memory(working)
    resolve_attention(working)
    if is_chosen_by_the_runner(working):
        resolve_parameters(working)
        resolve_runner_attention(working)
    resolve_hybrid(working)
    resolve_long_contexts(working)
    resolve_caches(working)
    if not working.in_versions(OWN_ARGUMENT):
        resolve_data_parallelism(working)
    divide_chunks(working)
    settle_prefill_graphs(working)
    resolve_schedule(working)
    resolve_draft_attention(working)
    if working.in_versions(ADAPTIVE_DECIDED_FIRST):
        resolve_adaptive(working)
        resolve_parameters(working)
    else:
        if not is_chosen_by_the_runner(working):
            resolve_parameters(working)
        resolve_adaptive(working)
        resolve_disaggregation(working)
    resolve_verification(working)
    resolve_model_defaults(working)


def resolve(request: Request, facts: Facts) -> Plan:
    """Return the plan of a request: every value as the engine resolves it.

    Equal requests and facts give equal plans. A field whose effective value depends on a missing
    fact is undecided. A value that the engine would reject remains unchanged.
    """
    working = Working(request, _as_overridden(request, facts))
    _run_steps(working)
    return working.finished()


def _as_overridden(request: Request, facts: Facts) -> Facts:
    """Return the facts with `json_model_override_args` applied to target and draft."""
    name = "json_model_override_args"
    override = request.values.get(name)
    if name in request.unread:
        return replace(facts, target=None, draft=None)
    if override is None:
        return facts
    try:
        changes = json.loads(str(override.value)) if override.known else None
    except (ValueError, RecursionError):
        return facts  # the engine rejects it
    if not override.known:  # an unknown variable may change anything
        return replace(facts, target=None, draft=None)
    if not isinstance(changes, dict):
        return facts
    return replace(
        facts, target=_changed(facts.target, changes), draft=_changed(facts.draft, changes)
    )


def _changed(found: Checkpoint | None, changes: dict[str, object]) -> Checkpoint | None:
    return None if found is None else overridden(found, changes)

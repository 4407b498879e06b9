"""The steps of the resolution, in an order in which each finds what it asks for."""

from __future__ import annotations

from speclaunch.plan.resolution.algorithm import (
    resolve_algorithm,
    resolve_device,
    resolve_draft,
)
from speclaunch.plan.resolution.attention import (
    is_chosen_by_the_runner,
    resolve_attention,
    resolve_runner_attention,
)
from speclaunch.plan.resolution.caches import resolve_caches, resolve_disaggregation
from speclaunch.plan.resolution.draft_attention import resolve_draft_attention
from speclaunch.plan.resolution.fraction import resolve_long_contexts
from speclaunch.plan.resolution.hybrid import resolve_hybrid
from speclaunch.plan.resolution.memory import resolve_memory
from speclaunch.plan.resolution.model_defaults import resolve_model_defaults
from speclaunch.plan.resolution.parallel import (
    divide_chunks,
    resolve_all_to_all,
    resolve_data_parallelism,
)
from speclaunch.plan.resolution.parameters import resolve_parameters
from speclaunch.plan.resolution.prefill_sizes import settle_prefill_graphs
from speclaunch.plan.resolution.schedule import (
    resolve_adaptive,
    resolve_schedule,
    resolve_verification,
)
from speclaunch.plan.resolution.working import Working
from speclaunch.plan.topics.adaptive import DECIDED_FIRST
from speclaunch.plan.topics.parallel import OWN_ARGUMENT


def run(working: Working) -> None:
    """All of it, for the version of the request.

    The order is the engine's where it makes a difference, and it does in three places: the memory
    is divided before DP attention is reset and before speculation limits the requests; attention
    backends are chosen before the parameters are, up to 0.5.4 after them; adaptive speculation
    gives way after them up to 0.5.13, and before them from 0.5.14.
    """
    resolve_device(working)
    resolve_algorithm(working)
    resolve_draft(working)
    resolve_all_to_all(working)
    if working.in_versions(OWN_ARGUMENT):
        resolve_data_parallelism(working)  # it is rewritten first of all
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
    resolve_verification(working)
    resolve_draft_attention(working)
    if working.in_versions(DECIDED_FIRST):
        resolve_adaptive(working)
        resolve_parameters(working)
    else:
        if not is_chosen_by_the_runner(working):
            resolve_parameters(working)
        resolve_adaptive(working)
        resolve_disaggregation(working)
    resolve_model_defaults(working)

"""The memory verdict of a plan: how memory is used, and whether the deployment fits."""

from __future__ import annotations

from typing import Any

from speclaunch.engine.plan.budget import (
    Fit,
    MemoryBudget,
    MemoryPhase,
    MemoryShare,
    MemorySize,
    MemoryUse,
    RankBudget,
)
from speclaunch.engine.plan.memory import phases
from speclaunch.engine.plan.memory.estimates import Device, SizeEstimate, in_gib
from speclaunch.engine.plan.memory.phases import (
    FractionDirection,
    FractionOutcome,
    PredictedFailure,
    Terms,
    direction,
    expected,
    likely_range,
    run,
    start,
    working_range,
)
from speclaunch.engine.plan.memory.pool import Pool
from speclaunch.engine.plan.memory.terms import GatheredSizes, gather, weights_least
from speclaunch.engine.plan.placement import beyond_the_gpus
from speclaunch.engine.plan.plan import Plan, UnknownValueError
from speclaunch.engine.plan.topics import gpu
from speclaunch.engine.plan.topics.gpu import draft_in_pool

_ELASTIC = (MemoryUse.ACTIVATIONS, MemoryUse.GRAPHS, MemoryUse.RUNTIME)
"""Estimates to reduce, in this order, if the deployment fits only with minimum sizes."""


def _rank_budget(device: Device, terms: Terms, outcome: FractionOutcome) -> RankBudget:
    """Return the budget of a group of ranks.

    If a phase fails, the budget ends at that phase, with all estimates at their minimum, so
    the shortage is certain.
    """
    fails = outcome.best.failure is not None
    course = outcome.best if fails else outcome.likely
    taken = course.taken
    runtime = device.runtime.least if fails else device.runtime.size.bytes
    why = device.runtime.size.why
    if terms.corpus.size.bytes:
        runtime += taken.get(MemoryUse.RUNTIME, 0)
        why += f"; {terms.corpus.size.why}"
    sizes = {
        MemoryUse.OTHERS: device.others,
        MemoryUse.RUNTIME: MemorySize(runtime, why, exact=False),
    }
    whys = _whys(terms, course.pool)
    for use in MemoryUse:
        if use in taken and use is not MemoryUse.RUNTIME:
            why, exact = whys.get(use, ("", True))
            sizes[use] = MemorySize(taken[use], why, exact)
    left = device.memory_bytes - sum(size.bytes for size in sizes.values())
    if left < 0 and not fails:
        leasts = {
            MemoryUse.ACTIVATIONS: terms.activations.least,
            MemoryUse.GRAPHS: sum(graphs.least for graphs in terms.graphs),
            MemoryUse.RUNTIME: device.runtime.least + terms.corpus.least,
        }
        left = _give_way(sizes, leasts, left)
    shares = [
        MemoryShare(use, sizes[use]) for use in MemoryUse if use in sizes and sizes[use].bytes
    ]
    shares.append(
        MemoryShare(MemoryUse.FREE, MemorySize(max(0, left), "remaining memory", exact=False))
    )
    return RankBudget(device.ranks, device.memory_bytes, tuple(shares), max(0, -left))


def _give_way(sizes: dict[MemoryUse, MemorySize], leasts: dict[MemoryUse, int], left: int) -> int:
    for use in _ELASTIC:
        size = sizes.get(use)
        if size is None or left >= 0:
            continue
        less = min(max(0, size.bytes - leasts[use]), -left)
        if less:
            why = f"{size.why}: {in_gib(size.bytes)}, reduced to {in_gib(size.bytes - less)}"
            sizes[use] = MemorySize(size.bytes - less, why, exact=False)
            left += less
    return left


def _whys(terms: Terms, pool: Pool | None) -> dict[MemoryUse, tuple[str, bool]]:
    graphs = [graphs.size for graphs in terms.graphs if graphs.size.bytes]
    held = "; prefill graphs hold part of this" if terms.target_prefill.size.bytes else ""
    whys = {
        MemoryUse.TARGET_WEIGHTS: (terms.target_weights.size.why, terms.target_weights.size.exact),
        MemoryUse.DRAFT_WEIGHTS: (terms.draft_weights.size.why, terms.draft_weights.size.exact),
        MemoryUse.GRAPHS: ("; ".join(size.why for size in graphs), False),
        MemoryUse.ACTIVATIONS: (terms.activations.size.why + held, terms.activations.size.exact),
    }
    if pool is None:
        return whys
    layout, page = terms.pool.layout, terms.pool.page
    rows = f"{pool.tokens:,} tokens plus a page of {page}"
    text = f"{rows}, {layout.full_token_bytes:,} bytes each"
    if pool.window_tokens:
        text += (
            f"; {pool.window_tokens:,} tokens of sliding-window layers, "
            f"{layout.swa_token_bytes:,} bytes each"
        )
    slots = terms.pool.slots
    whys |= {
        MemoryUse.TARGET_KV: (text, False),
        MemoryUse.DRAFT_KV: (f"{rows}, {terms.pool.draft_token:,} bytes each", False),
        MemoryUse.STATE: (
            f"{pool.states.slots:,} states of {in_gib(layout.state_request_bytes)}",
            False,
        ),
        MemoryUse.REQUEST_SLOTS: (
            f"one row per request, of {slots.context + slots.extra:,} tokens, 4 bytes each",
            True,
        ),
    }
    return whys


def _likely_size(estimate: SizeEstimate) -> str:
    return f"about {in_gib(estimate.size.bytes)} (at least {in_gib(estimate.least)})"


_ELSEWHERE = (
    "cpu_offload_gb",
    "offload_group_size",
    "kt_weight_path",
    "kt_num_gpu_experts",
    "torchao_config",
    "encoder_only",
    "language_only",
    "language_model_only",
    "ple_offload_embedding",
)
"""Arguments that leave part of the weights in host memory or in other processes, shrink them, or
omit them. Such weights are not counted."""
_FORMATS = frozenset({"gguf", "bitsandbytes", "layered", "sharded_state"})
"""Values of `load_format` for files that the config does not describe."""


def memory_verdict(plan: Plan) -> MemoryBudget:
    """Return the memory budget with its verdict, computed once per plan. Never raises.

    The verdict is FAILS if a rank has no GPU. After an internal error it is UNKNOWN, so a bug
    neither hides the plan nor prevents a start.
    """
    return plan.once(_verdict)


def _verdict(plan: Plan) -> MemoryBudget:
    beyond = beyond_the_gpus(plan)
    if beyond is not None:
        return MemoryBudget(Fit.FAILS, beyond)
    try:
        return budget(plan)
    except Exception as error:
        why = f"a bug in the memory budget, please report it: {type(error).__name__}: {error}"
        return MemoryBudget(Fit.UNKNOWN, f"unknown because of {why}", unknown=(why,))


def is_impossible(plan: Plan, found: GatheredSizes) -> bool:
    """True if one rank's weights exceed the memory of every GPU, even at their minimum and without
    other processes.

    Considers only weights counted matrix by matrix. Includes the draft if the pool's budget does,
    because the draft loads right after the target. False if a missing fact could change the result.
    """
    target = found.target_weights
    if not found.device or target is None or not target.counted:
        return False
    if may_be_offloaded(plan):
        return False
    try:
        if plan.device != "cuda":
            return False
    except UnknownValueError:
        return False
    least = weights_least(target).least
    draft = found.draft_weights
    if draft_in_pool(plan) and draft is not None and draft.counted:
        least += weights_least(draft).least
    return all(least > device.memory_bytes - device.runtime.least for device in found.device)


def may_be_offloaded(plan: Plan) -> bool:
    """True if weights may reside outside the GPU's memory or be smaller than their files, or if
    this is unknown."""
    try:
        if str(plan.value("load_format") or "auto") in _FORMATS:
            return True
        return any(plan.value(name) not in (None, False, 0, -1, "", "none") for name in _ELSEWHERE)
    except UnknownValueError:
        return True


_CLOSE = 0.03
"""Share of the initially free memory. A fit that leaves less than this share free is close."""


def budget(plan: Plan) -> MemoryBudget:
    """Return memory uses and the verdict, as the engine version accounts for memory.

    Never raises for a missing fact: the budget is then unknown, with the reason.

    `working_fractions` is the range predicted to fit. Its upper end assumes minimal estimates. A
    note states the largest fraction that leaves the engine's own reserve free.
    """
    found = gather(plan)
    base: dict[str, Any] = {
        "target_kv": found.target_kv,
        "draft_kv": found.draft_kv,
        "context_length": found.context,
        "mem_fraction_static": found.fraction,
        "working_fractions": None,
        "likely_fractions": None,
        "impossible": is_impossible(plan, found),
    }
    terms = found.terms
    if terms is None:
        return _too_large(plan, found, base) or _unknown(found, base)
    if len(found.unknown) <= (found.fraction is None):  # all but the fraction is known
        base["working_fractions"] = working_range(lambda tried: start(plan, terms, tried).turn)
        base["likely_fractions"] = _within(likely_range(plan, terms), base["working_fractions"])
    try:
        unequal = _unbalanced(plan, found)
    except UnknownValueError:
        unequal = None
    if unequal is not None:
        return MemoryBudget(Fit.FAILS, unequal.what, unequal.phase, unequal.message, **base)
    if found.fraction is None:
        return _unknown(found, base)
    outcome = start(plan, terms, found.fraction)
    base["ranks"] = tuple(_rank_budget(device, terms, outcome) for device in found.device or ())
    if found.unknown:
        return _unknown(found, base)
    if outcome.best.failure is not None:
        return _fails(outcome, outcome.best.failure, terms, base)
    return _holds(plan, outcome, terms, found, base)


def _within(
    inner: tuple[float, float] | None, outer: tuple[float, float] | None
) -> tuple[float, float] | None:
    if inner is None or outer is None:
        return None
    low, high = max(inner[0], outer[0]), min(inner[1], outer[1])
    return (low, high) if low <= high else None


def _unknown(found: GatheredSizes, base: dict[str, Any]) -> MemoryBudget:
    reasons = tuple(found.unknown)
    return MemoryBudget(Fit.UNKNOWN, "; ".join(reasons), unknown=reasons, **base)


def _too_large(plan: Plan, found: GatheredSizes, base: dict[str, Any]) -> MemoryBudget | None:
    """Return a failed budget if the known weights alone exceed the memory."""
    if not found.device or may_be_offloaded(plan):
        return None
    most = min(device.most_free for device in found.device)
    weights = [(MemoryPhase.TARGET_WEIGHTS, "target", found.target_weights)]
    if draft_in_pool(plan):
        weights.append((MemoryPhase.DRAFT_WEIGHTS, "draft", found.draft_weights))
    for phase, whose, size in weights:
        if size is None:
            continue
        most -= size.bytes if size.exact else int(size.bytes * (1 - _CLOSE))
        if most < 0:
            why = (
                f"the {whose}'s weights need {in_gib(size.bytes)} on a rank, {in_gib(-most)} more "
                "than is available"
            )
            message = phases.allocation_message(plan)
            return MemoryBudget(
                Fit.FAILS, why, phase, message, unknown=tuple(found.unknown), **base
            )
    return None


def _unbalanced(plan: Plan, found: GatheredSizes) -> PredictedFailure | None:
    """Return the failure if free memory differs too much between tensor-parallel ranks, or None.

    See 0.5.7 model_runner.py:788. Earlier releases have the same check with a different variable
    name.
    """
    devices: tuple[Device, ...] = found.device or ()
    if int(plan.value("tp_size") or 1) < 2 or len(devices) < 2:
        return None
    least = min(device.free for device in devices)
    most = max(device.free for device in devices)
    if plan.in_versions(">=0.5.7"):
        checked = plan.env_flag(gpu.BALANCE_CHECK, True)
    else:
        checked = not plan.env_flag(gpu.NO_BALANCE_CHECK)
    if not checked or least >= gpu.BALANCED * most:
        return None
    why = (
        f"one GPU has {in_gib(least)} free and another {in_gib(most)}: the engine refuses ranks "
        "that differ by more than a tenth"
    )
    message = phases.unbalanced_message(most, least)
    return PredictedFailure(
        MemoryPhase.TARGET_WEIGHTS, FractionDirection.NEITHER, message, why, most - least
    )


_ADVICE = {
    FractionDirection.RAISE: "a larger mem_fraction_static is needed",
    FractionDirection.LOWER: "a smaller mem_fraction_static leaves more",
    FractionDirection.NEITHER: "mem_fraction_static has no effect on this",
}


def _fails(
    outcome: FractionOutcome, failure: PredictedFailure, terms: Terms, base: dict[str, Any]
) -> MemoryBudget:
    why = (
        f"{failure.what}: at least {in_gib(failure.short)} short, with "
        f"{in_gib(terms.device.free)} free at the start"
    )
    if not failure.short:
        why = f"{failure.what} does not fit"
    why += f"; {_ADVICE[failure.turn]}"
    likely = outcome.likely.failure
    message = failure.message  # with the likely numbers, if they fail in the same phase
    if likely is not None and likely.phase is failure.phase:
        message = likely.message
    notes: tuple[str, ...] = ()
    if base["working_fractions"] is None and failure.turn is not FractionDirection.NEITHER:
        notes = ("no mem_fraction_static works with these settings",)
    pool = outcome.best.pool
    if pool is not None:
        base |= _counts(outcome, base["context_length"])
    return MemoryBudget(Fit.FAILS, why, failure.phase, message, notes=notes, **base)


def _counts(outcome: FractionOutcome, context: int | None) -> dict[str, Any]:
    pool = outcome.likely.pool
    if pool is None:
        return {}
    at_context = None if not context else min(pool.tokens // context, pool.running)
    return {
        "tokens": pool.tokens,
        "running_requests": pool.running,
        "requests_at_context": at_context,
    }


def _holds(
    plan: Plan, outcome: FractionOutcome, terms: Terms, found: GatheredSizes, base: dict[str, Any]
) -> MemoryBudget:
    """Return the budget of a start that succeeds with minimal estimates.

    FITS if it also succeeds with expected sizes, else TIGHT.
    """
    context, doubt = found.context, outcome.likely.failure
    base |= _counts(outcome, context)
    pool = outcome.likely.pool
    if pool is None:  # a pool fits only in the best case
        return MemoryBudget(Fit.TIGHT, _small_pool(terms, doubt), **base)
    notes = _limits(pool, terms, context)
    if doubt is not None and doubt.turn is FractionDirection.LOWER:
        notes.append(_doubt(plan, terms, doubt))
    if outcome.best.free < _CLOSE * terms.device.free:
        notes.append(f"the fit is close: {in_gib(outcome.best.free)} free in the best case")
    if outcome.best.skips_prefill_graphs:
        needs = in_gib(terms.prefill_needs)
        notes.append(f"SGLang skips prefill graphs: less than {needs} is free before their capture")
    why = (
        f"{pool.tokens:,} tokens of KV cache and {pool.running:,} running requests in "
        f"{in_gib(terms.device.free)} free at the start"
    )
    missing = None if found.fraction is None else expected(plan, terms, found.fraction).failure
    if missing is None:
        return MemoryBudget(Fit.FITS, why, notes=tuple(notes), **base)
    if missing.turn is FractionDirection.LOWER:
        need = f"'{missing.phase.value}' is expected to need {in_gib(missing.short)} more"
    else:
        need = f"{missing.what} may not fit"
    why += f", but only in the best case: {need}"
    return MemoryBudget(Fit.TIGHT, why, notes=tuple(notes), **base)


def _small_pool(terms: Terms, doubt: PredictedFailure | None) -> str:
    what = "the KV cache" if doubt is None else doubt.what
    reason = (
        f"{what} fits only in the best case: it depends on CUDA's own memory, "
        f"{_likely_size(terms.device.runtime)}"
    )
    if not terms.target_weights.size.exact:
        reason += f", and on the weights, {_likely_size(terms.target_weights)}"
    return reason


def _doubt(plan: Plan, terms: Terms, doubt: PredictedFailure) -> str:
    """Return a note that less is free than the engine's own reserve, which is often generous."""
    safe = working_range(lambda fraction: direction(run(plan, terms, fraction)))
    at = "no mem_fraction_static leaves this reserve"
    if safe is not None:
        at = f"mem_fraction_static up to {safe[1]:.3f} leaves this reserve"
    return (
        f"free memory is {in_gib(doubt.short)} below the engine's own reserve, a conservative rule "
        f"of thumb (activations {_likely_size(terms.activations)}): if the start fails, it "
        f"fails in the phase '{doubt.phase.value}'; {at}"
    )


def _limits(pool: Pool, terms: Terms, context: int | None) -> list[str]:
    """Return notes on user-set limits that the engine lowers and on a context that does not fit."""
    notes = []
    most = terms.pool.most
    if most is not None and most > pool.profiled:
        notes.append(
            f"max_total_tokens={most:,} exceeds the tokens that fit ({pool.profiled:,}): the "
            "engine uses only the available tokens"
        )
    slots = terms.pool.slots
    limit = None if slots.explicit is None else slots.explicit // slots.ranks
    if limit is not None and pool.running < limit:
        what = "states" if pool.states.ratio and pool.states.cap(limit) < limit else "tokens"
        notes.append(
            f"max_running_requests is lowered from {limit} to {pool.running}: the pool has too few "
            f"{what}"
        )
    if context is not None and pool.tokens < context:
        notes.append(
            f"a request of the full context ({context:,} tokens) does not fit: the pool holds "
            f"{pool.tokens:,}"
        )
    return notes

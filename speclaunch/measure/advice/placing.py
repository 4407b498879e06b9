"""Arguments that an engine version accepts, and the number of GPUs they need.

The rules' fixes are applied until the rules accept the arguments. Then settings that fit in memory
are chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import log2
from typing import Any

from msgspec import Struct

from speclaunch.checks import (
    OVERWRITE,
    Finding,
    Fix,
    Lookup,
    Rule,
    Severity,
    SkippedRule,
    all_rules,
    check_rules,
)
from speclaunch.core import Place, SpeclaunchError
from speclaunch.engine import (
    FRACTION,
    WHY,
    Facts,
    Fit,
    FitCandidate,
    FitLimits,
    Hardware,
    MemoryBudget,
    Plan,
    Predictor,
    Request,
    RequestedValue,
    RequestOrigin,
    Steppable,
    UnknownValueError,
    Vendor,
    architectures,
    cheapest,
    margins,
    memory_verdict,
    needs,
    resolve,
    tightest,
    within,
)
from speclaunch.engine import load as load_catalogue

_MOST_ROUNDS = 8
_THE_WAY = frozenset({"model_path", "speculative_algorithm", "speculative_draft_model_path"})
"""Arguments that define a speculation method; no fix may change them."""
_SHORT_DRAFT, LENGTHENED = "SPL402", "SPL403"
"""Rules about a draft with a shorter context than its target.

The engine rejects such a draft unless an environment variable is set.
"""
_LENGTHENS = ">=0.5.3"
"""Releases that also lengthen the draft's position table (SPL403)."""


class SettledArguments(Struct, frozen=True):
    """Arguments and variables for one version, with the remaining findings."""

    version: str
    arguments: Mapping[str, Any]
    env: Mapping[str, str]
    plan: Plan
    findings: tuple[Finding, ...] = ()
    """Errors and warnings that no fix removed."""
    skipped: tuple[SkippedRule, ...] = ()
    applied: Mapping[str, str] = {}
    """Changed arguments, each with the message of the finding that required the change."""
    unknown_class: str | None = None
    """Reason why the version has no model class for the target; None if it has one."""

    @property
    def accepted(self) -> bool:
        return self.unknown_class is None and not any(
            finding.severity is Severity.ERROR for finding in self.findings
        )

    @property
    def clean(self) -> bool:
        return self.unknown_class is None and all(
            finding.code == LENGTHENED for finding in self.findings
        )

    @property
    def lengthened(self) -> str | None:
        """Warning about a draft served beyond its trained context length; None if absent."""
        return next(
            (finding.message for finding in self.findings if finding.code == LENGTHENED), None
        )

    @property
    def reason(self) -> str:
        """Most severe reason against the arguments, in one sentence; empty if there is none."""
        if self.unknown_class is not None:
            return self.unknown_class
        left = [finding for finding in self.findings if finding.code != LENGTHENED]
        worst = sorted(left, key=lambda finding: finding.severity is not Severity.ERROR)
        return f"{worst[0].code}: {worst[0].message}" if worst else ""


def settle(
    arguments: Mapping[str, Any],
    version: str,
    lookup: Lookup,
    rules: Iterable[Rule] | None = None,
    env: Mapping[str, str] | None = None,
) -> SettledArguments:
    """Return the arguments after the rules' fixes, applied one by one until none is applicable.

    A fix that changes the algorithm, draft or target is not applied.
    """
    selected = tuple(all_rules() if rules is None else rules)
    now, variables, applied = dict(arguments), dict(env or {}), {}
    for _ in range(_MOST_ROUNDS):
        found = _checked(now, variables, version, lookup, selected)
        steps = [
            (fix, finding.message)
            for finding in found.findings
            if (fix := _followed(finding, now, version))
        ]
        if found.unknown_class is not None or not steps:
            break
        fix, message = steps[0]
        for name, value in fix.set.items():
            applied[name] = message
            _put(now, name, value)
        for name, value in fix.env.items():
            applied[name] = message
            _put(variables, name, value)
    return SettledArguments(
        version,
        now,
        variables,
        found.plan,
        found.findings,
        found.skipped,
        {name: why for name, why in applied.items() if name in now or name in variables},
        found.unknown_class,
    )


def _put(into: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        into.pop(name, None)
    else:
        into[name] = value


def _followed(finding: Finding, now: Mapping[str, Any], version: str) -> Fix | None:
    """Return the fix of `finding` if it keeps algorithm, draft and target; None otherwise.

    A draft with a shorter context than its target uses the target's context, as in shipped recipes.
    An environment variable allows it, and SPL403 warns.
    """
    fix = finding.fix
    if finding.code == _SHORT_DRAFT and within(version, _LENGTHENS):
        return Fix(f"set {OVERWRITE} to 1 so that the draft can start", env={OVERWRITE: "1"})
    if finding.code == LENGTHENED or fix is None or not (fix.set or fix.env):
        return None
    other = any(now.get(name) != value for name, value in fix.set.items() if name in _THE_WAY)
    return None if other else fix


def _checked(
    arguments: Mapping[str, Any],
    env: Mapping[str, str],
    version: str,
    lookup: Lookup,
    rules: Sequence[Rule],
) -> SettledArguments:
    request = request_of(arguments, env, version)
    plan = resolve(request, lookup.facts(request))
    results = check_rules(plan, rules)
    left = tuple(finding for finding in results.findings if finding.severity is not Severity.INFO)
    unknown = lacks_class(plan.facts, version)
    return SettledArguments(version, {}, {}, plan, left, results.skipped, {}, unknown)


def request_of(arguments: Mapping[str, Any], env: Mapping[str, str], version: str) -> Request:
    """Return a request to `version`; `arguments` have the newest engine's names."""
    place = Place("(new recipe)")
    return Request(
        "new",
        RequestOrigin.RECIPE,
        load_catalogue(version),
        place,
        {name: RequestedValue(name, value, name, place) for name, value in arguments.items()},
        {name: RequestedValue(name, value, name, place) for name, value in env.items()},
    )


def lacks_class(facts: Facts, version: str) -> str | None:
    """Return why a version has no model class for the target; None if it has one.

    An unknown architecture is also a reason.
    """
    names = facts.target.field_or_none("architectures") if facts.target is not None else None
    if not names:
        return "the architecture of the target is unknown"
    if names[0] in architectures(version).registered:
        return None
    return f"SGLang {version} has no class {names[0]}"


@lru_cache(maxsize=1)
def rules_of_the_way() -> tuple[Rule, ...]:
    """Return the rules whose errors depend on target, draft and algorithm, not on the machine.

    They decide which versions accept a method.
    """
    return tuple(r for r in _of_the_way() if Severity.ERROR in (r.severity, *r.also))


@lru_cache(maxsize=1)
def warnings_of_the_way() -> tuple[Rule, ...]:
    """Return the rules of `_FAMILIES` that only warn."""
    return tuple(rule for rule in _of_the_way() if rule not in rules_of_the_way())


def _of_the_way() -> tuple[Rule, ...]:
    return tuple(rule for rule in all_rules() if rule.code.startswith(_FAMILIES))


_FAMILIES = ("SPL1", "SPL2", "SPL4", "SPL6")
"""Rule families: parameters, features, models, DFLASH and NGRAM."""


TP, CONTEXT = "tp_size", "context_length"
_BREADTH = "speculative_ngram_max_bfs_breadth"
_USUAL = (1, 2, 4, 8)
"""GPU counts to try if the hardware sets no count."""
_GIB = 1 << 30
LEAST_TOKENS = 8192
"""Minimum tokens of a KV cache or context; fewer suffice only for a few short prompts."""
_MOST_WEIGHTS = 0.8
"""Maximum share of memory for weights; the rest is for KV cache, graphs and activations."""
TIGHT = "SPL712"
"""Rule about settings that fit only in the best case."""
_OF_MEMORY = ("SPL711", TIGHT)
"""Rules about the memory verdict, ignored here because that verdict selects the settings."""
_ENOUGH = 0.9
"""A better supported memory fraction must give this share of the likely fraction's KV tokens."""


class Demand(Struct, frozen=True):
    """Load that a recipe must serve, the same for all compared methods."""

    context: int | None = None
    """Tokens of the longest request; None: the model's own context."""
    fewer_requests: bool = False
    """True if fewer concurrent requests than the engine's default are allowed."""
    fit: Fit = Fit.FITS
    """Required fit; TIGHT accepts settings that fit only in the best case."""


USUAL = Demand()
"""Demand for the model's full context at the engine's default concurrency."""


class PlacedArguments(Struct, frozen=True):
    """Arguments for a GPU count, their memory budget, and the reason for each change."""

    settled: SettledArguments
    ranks: int
    budget: MemoryBudget
    why: Mapping[str, str] = {}
    demand: Demand = USUAL
    is_reduced: bool = False
    """True if settings other than the memory fraction were reduced to fit."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All server arguments, including `tp_size` if above 1."""
        found = dict(self.settled.arguments)
        if self.ranks == 1:
            found.pop(TP, None)
        return found

    @property
    def holds_a_request(self) -> bool:
        """True if a request of the full context fits."""
        return bool(self.budget.requests_at_context)

    @property
    def is_of_use(self) -> bool:
        """True if the KV cache holds more than a few short prompts."""
        return self.holds_a_request or (self.budget.tokens or 0) >= LEAST_TOKENS

    @property
    def cut(self) -> tuple[int, int] | None:
        """Served and requested context; None if the full context is served."""
        full = requested_context(self.settled, self.demand)
        served = self.settled.arguments.get(CONTEXT, full)
        return None if full is None or served is None or served >= full else (served, full)

    @property
    def longest(self) -> int | None:
        """Tokens of the longest served request; None if unknown."""
        requested = requested_context(self.settled, self.demand)
        limits = (self.settled.arguments.get(CONTEXT, requested), self.budget.tokens)
        return min((int(limit) for limit in limits if limit is not None), default=None)

    @property
    def lost_context(self) -> int:
        """Number of halvings from the requested to the served context; 0 if served in full."""
        requested, longest = requested_context(self.settled, self.demand), self.longest
        if not requested or not longest or (self.holds_a_request and self.cut is None):
            return 0
        return max(0, round(log2(requested / longest)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Limits of the recipe, one sentence each, with numbers."""
        found = []
        if self.budget.fit is Fit.TIGHT:
            found.append("memory is tight: fits only in the best case")
        if self.cut is not None:
            served, requested = self.cut
            found.append(f"context_length is reduced from {requested:,} to {served:,} tokens")
        context, tokens = self.budget.context_length, self.budget.tokens
        if context is not None and tokens is not None and not self.holds_a_request:
            found.append(
                f"requests of more than {tokens:,} tokens are rejected: the KV cache is smaller "
                f"than the context of {context:,}"
            )
        if self.settled.lengthened is not None:
            found.append(self.settled.lengthened)
        return tuple(found)


class NoPlace(Struct, frozen=True):
    """Reason why a method does not run on the hardware.

    `memory`: True if memory, not a rule, is the reason. `unknown`: True if a fact is missing.
    """

    why: str
    memory: bool = False
    unknown: bool = False
    least_bytes: int | None = None
    """Minimum total bytes over all GPUs, if known."""
    settled: SettledArguments | None = None
    budget: MemoryBudget | None = None
    """Memory budget of the best settings; None if no settings start."""


def place(
    arguments: Mapping[str, Any],
    version: str,
    lookup: Lookup,
    *,
    unknown: bool = False,
    demand: Demand = USUAL,
) -> PlacedArguments | NoPlace:
    """Return the placement on the fewest GPUs that hold a full-context request, or why none works.

    The placement passes the rules and fits in memory. A count that needs reduced settings, such as
    smaller chunks, is returned only if no larger count holds a request without them. If no count
    holds the full context, the count with the most KV tokens wins. The lookup sets the hardware.
    `unknown`: if the budget is unknown, accept the fewest GPUs with room for the weight files, or
    all GPUs if the weight size is unknown.
    """
    hardware = lookup.hardware
    if hardware is None:
        return NoPlace("no hardware is set", unknown=True)
    best: PlacedArguments | None = None
    refused: NoPlace | None = None
    for ranks in sizes(hardware):
        found = place_on(arguments, ranks, version, lookup, demand)
        if isinstance(found, NoPlace):
            # a memory shortage is more informative than an indivisible count
            refused = found if refused is None or found.memory or not refused.memory else refused
            if found.unknown and not unknown:
                return best or found
            if found.unknown and (guessed := _guessed(found, ranks, hardware)) is not None:
                return best or guessed
            continue
        if found.holds_a_request and not found.is_reduced:
            return found
        if best is None or (
            not best.holds_a_request and (found.budget.tokens or 0) > (best.budget.tokens or 0)
        ):
            best = found
    return best or refused or NoPlace("no GPU count divides the model evenly")


def _guessed(found: NoPlace, ranks: int, hardware: Hardware) -> PlacedArguments | None:
    """Return a placement based on weight size; None if it does not fit or a rule objects."""
    settled, budget = found.settled, found.budget
    if settled is None or budget is None or not settled.clean:
        return None
    facts = settled.plan.facts
    models = [model for model in (facts.target, facts.draft) if model is not None]
    weights = [model.field_or_none("weight_bytes") for model in models]
    memory = (hardware.memory_mib or 0) << 20
    if None in weights:
        fits = ranks == sizes(hardware)[-1]
    else:
        fits = sum(weights) <= _MOST_WEIGHTS * memory * ranks
    return PlacedArguments(settled, ranks, budget, dict(settled.applied)) if fits else None


def sizes(hardware: Hardware) -> tuple[int, ...]:
    """Return the GPU counts to try, fewest first."""
    if hardware.vendor is Vendor.CPU:
        return (1,)
    count = hardware.known_count
    if count is None or hardware.is_of_all_machines:
        return _USUAL
    doubled = [1 << power for power in range(7) if 1 << power <= count]
    return tuple(dict.fromkeys((*doubled, count)))


def place_on(
    arguments: Mapping[str, Any],
    ranks: int,
    version: str,
    lookup: Lookup,
    demand: Demand = USUAL,
) -> PlacedArguments | NoPlace:
    """Return the placement on `ranks` GPUs at the best memory fraction, or why none works."""
    requested = {**arguments, TP: ranks}
    if demand.context is not None:
        requested[CONTEXT] = demand.context
    rules = [rule for rule in all_rules() if rule.code not in _OF_MEMORY]
    settled = settle(requested, version, lookup, rules)
    if not settled.clean and arguments.get("speculative_algorithm") == "NGRAM":
        # as a chain: some targets' attention does not support trees
        chain = settle({**requested, _BREADTH: 1}, version, lookup, rules)
        settled = chain if chain.clean else settled
    if not settled.clean:
        return NoPlace(settled.reason, settled=settled)
    short = _cut_too_far(settled, demand)
    if short is not None:
        return NoPlace(short, settled=settled)
    found = memory_verdict(settled.plan)
    rank = tightest(found)
    if found.fit is Fit.UNKNOWN:
        why = f"memory unknown: {found.why}"
        return NoPlace(why, unknown=True, settled=settled, budget=found)
    placed = None if found.impossible else _fitted(settled, ranks, lookup, demand)
    if placed is not None and placed.is_of_use:
        return placed
    why = found.why if found.impossible else f"no settings are likely to fit: {found.why}"
    if placed is not None:
        found = placed.budget
        why = f"the KV cache holds {found.tokens or 0:,} tokens"
    return NoPlace(
        why,
        memory=True,
        least_bytes=None if rank is None else needs(rank) * ranks,
        settled=settled,
        budget=found,
    )


def requested_context(settled: SettledArguments, demand: Demand) -> int | None:
    """Return the requested tokens per request, else the model's own context; None if unknown."""
    target = settled.plan.facts.target
    if demand.context is not None or target is None:
        return demand.context
    try:
        return target.context_in(settled.version)
    except UnknownValueError:
        return None


def _cut_too_far(settled: SettledArguments, demand: Demand) -> str | None:
    """Return a message if a rule reduced the context too far, else None."""
    requested, served = requested_context(settled, demand), settled.arguments.get(CONTEXT)
    if requested is None or served is None or served >= min(requested, LEAST_TOKENS):
        return None
    return f"reduces the context from {requested:,} to {served:,} tokens"


def _fitted(
    settled: SettledArguments, ranks: int, lookup: Lookup, demand: Demand
) -> PlacedArguments | None:
    """Return the settings that fit with the least loss; None if none fit or a rule objects."""

    def plan_with(changes: Mapping[str, Any]) -> Plan:
        merged = {**settled.arguments, **changes}
        known = {name: value for name, value in merged.items() if value is not None}
        request = request_of(known, settled.env, settled.version)
        return resolve(request, lookup.facts(request))

    predictor = Predictor(plan_with)
    order = tuple(
        step for step in Steppable if demand.fewer_requests or step is not Steppable.RUNNING
    )
    limits = FitLimits(order)
    useful = min(LEAST_TOKENS, requested_context(settled, demand) or LEAST_TOKENS)
    try:
        found = cheapest(predictor, limits, demand.fit, least_tokens=useful) or cheapest(
            predictor, limits, demand.fit
        )
    except (SpeclaunchError, UnknownValueError, ValueError):
        return None
    if found is None:
        return None
    changes, why = _supported(predictor, found)
    again = settle(
        {**settled.arguments, **changes},
        settled.version,
        lookup,
        [rule for rule in all_rules() if rule.code not in _OF_MEMORY],
        env=settled.env,
    )
    after = memory_verdict(again.plan)
    if not again.clean or not (after.fit is Fit.FITS or after.fit is demand.fit):
        return None
    reasons = {**settled.applied, **why, **again.applied}
    is_reduced = bool(changes.keys() - {FRACTION})
    return PlacedArguments(again, ranks, after, reasons, demand, is_reduced)


def _supported(
    predictor: Predictor, found: FitCandidate
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return the changes for the best supported memory fraction, and their reasons.

    Prefers the engine's own fraction, then a fraction certain to work. Either must give about as
    many KV tokens as the fraction likely to work.
    """
    others = {name: value for name, value in found.changes.items() if name != FRACTION}
    why = {name: f"to fit: {WHY.get(name, 'less memory')}" for name in others}
    own = predictor.budget(others)
    if own.fit is Fit.FITS and (own.tokens or 0) >= _ENOUGH * found.tokens:
        return others, why
    choices = margins(predictor.plan(others))
    certain = None if choices is None else choices.certain
    value = found.changes[FRACTION]
    text = f"likely to work, with {found.tokens:,} KV tokens"
    if certain is not None and certain.tokens >= _ENOUGH * found.tokens:
        value, text = certain.fraction, f"certain to work, with {certain.tokens:,} KV tokens"
    return {**others, FRACTION: value}, {**why, FRACTION: f"{text}{_engines(own)}"}


def _engines(own: MemoryBudget) -> str:
    if own.mem_fraction_static is None or not own.fit.may_serve:
        return ""
    return f"; the engine's own {own.mem_fraction_static:g} gives {own.tokens or 0:,}"


def in_gib(size: int) -> str:
    """Return a number of bytes as text in GiB, or in MiB below 0.1 GiB."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else f"{size / (1 << 20):.0f} MiB"

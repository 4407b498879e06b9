"""Arguments that one engine version accepts, and how many GPUs they take.

The rules' own fixes are followed until they are content; then settings are chosen that fit into the
memory.
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
    Unjudged,
    all_rules,
    judge,
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
"""What makes a way the one that it is: no fix may change it."""
_SHORT_DRAFT, LENGTHENED = "SPL402", "SPL403"
"""A draft with less context than its target: refused by the engine, and allowed by its variable."""
_LENGTHENS = ">=0.5.3"
"""The releases that lengthen the draft's table of positions, too (SPL403)."""


class SettledArguments(Struct, frozen=True):
    """Arguments and variables for one version, and what the rules still say of them."""

    version: str
    arguments: Mapping[str, Any]
    env: Mapping[str, str]
    plan: Plan
    findings: tuple[Finding, ...] = ()
    """Errors and warnings that no fix took away."""
    unjudged: tuple[Unjudged, ...] = ()
    applied: Mapping[str, str] = {}
    """What was changed, by name, and the message of the finding that asked for it."""
    unknown_class: str | None = None
    """What is wrong where the version has no class for the target at all."""

    @property
    def accepted(self) -> bool:
        """Whether this version takes it: no error is left."""
        return self.unknown_class is None and not any(
            one.severity is Severity.ERROR for one in self.findings
        )

    @property
    def clean(self) -> bool:
        """True if the rules find nothing but what the engine changes, and a lengthened draft."""
        return self.unknown_class is None and all(one.code == LENGTHENED for one in self.findings)

    @property
    def lengthened(self) -> str | None:
        """The warning of a draft that is served beyond the length that it was trained for."""
        return next((one.message for one in self.findings if one.code == LENGTHENED), None)

    @property
    def reason(self) -> str:
        """What stands against it, in one sentence."""
        if self.unknown_class is not None:
            return self.unknown_class
        left = [one for one in self.findings if one.code != LENGTHENED]
        worst = sorted(left, key=lambda one: one.severity is not Severity.ERROR)
        return f"{worst[0].code}: {worst[0].message}" if worst else ""


def settle(
    arguments: Mapping[str, Any],
    version: str,
    lookup: Lookup,
    rules: Iterable[Rule] | None = None,
    env: Mapping[str, str] | None = None,
) -> SettledArguments:
    """Follow the fixes of the rules, one at a time, until none is left or none can be followed.

    A fix that would make another way of it (another algorithm, draft or target) is not followed.
    """
    asked = tuple(all_rules() if rules is None else rules)
    now, variables, applied = dict(arguments), dict(env or {}), {}
    for _ in range(_MOST_ROUNDS):
        found = _judged(now, variables, version, lookup, asked)
        steps = [
            (fix, one.message) for one in found.findings if (fix := _followed(one, now, version))
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
        found.unjudged,
        {name: why for name, why in applied.items() if name in now or name in variables},
        found.unknown_class,
    )


def _put(into: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        into.pop(name, None)
    else:
        into[name] = value


def _followed(one: Finding, now: Mapping[str, Any], version: str) -> Fix | None:
    """The fix, where it can be followed and the way stays the one that it is.

    A draft that is shorter than its target keeps the target's context, as in our own recipes:
    the engine lets it, and SPL403 warns of it.
    """
    fix = one.fix
    if one.code == _SHORT_DRAFT and within(version, _LENGTHENS):
        return Fix("let the draft start", env={OVERWRITE: "1"})
    if one.code == LENGTHENED or fix is None or not (fix.set or fix.env):
        return None
    other = any(now.get(name) != value for name, value in fix.set.items() if name in _THE_WAY)
    return None if other else fix


def _judged(
    arguments: Mapping[str, Any],
    env: Mapping[str, str],
    version: str,
    lookup: Lookup,
    rules: Sequence[Rule],
) -> SettledArguments:
    request = request_of(arguments, env, version)
    plan = resolve(request, lookup.facts(request))
    judgement = judge(plan, rules)
    left = tuple(one for one in judgement.findings if one.severity is not Severity.INFO)
    unknown = lacks_class(plan.facts, version)
    return SettledArguments(version, {}, {}, plan, left, judgement.unjudged, {}, unknown)


def request_of(arguments: Mapping[str, Any], env: Mapping[str, str], version: str) -> Request:
    """What these arguments (by the newest engine's names) ask of a version."""
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
    """What is wrong where a version has no class of its own for the target, or nobody knows."""
    names = facts.target.told("architectures") if facts.target is not None else None
    if not names:
        return "the architecture of the target is not known"
    if names[0] in architectures(version).registered:
        return None
    return f"SGLang {version} has no class {names[0]}"


@lru_cache(maxsize=1)
def rules_of_the_way() -> tuple[Rule, ...]:
    """The rules whose errors depend on target, draft and algorithm, and not on the machine: which
    versions take a way."""
    return tuple(r for r in _of_the_way() if Severity.ERROR in (r.severity, *r.also))


@lru_cache(maxsize=1)
def warnings_of_the_way() -> tuple[Rule, ...]:
    """The others of the same families, which only doubt a way."""
    return tuple(rule for rule in _of_the_way() if rule not in rules_of_the_way())


def _of_the_way() -> tuple[Rule, ...]:
    return tuple(rule for rule in all_rules() if rule.code.startswith(_FAMILIES))


_FAMILIES = ("SPL1", "SPL2", "SPL4", "SPL6")
"""Parameters, features, models, DFLASH and NGRAM."""


TP, CONTEXT = "tp_size", "context_length"
_BREADTH = "speculative_ngram_max_bfs_breadth"
_USUAL = (1, 2, 4, 8)
"""What people serve on where only the kind of GPU was said."""
_GIB = 1 << 30
LEAST_TOKENS = 8192
"""A KV cache, or a context, of fewer tokens serves a few short prompts: no more than a trial."""
_MOST_WEIGHTS = 0.8
"""Of the memory: the rest is for the KV cache, graphs and activations."""
TIGHT = "SPL712"
"""The rule about settings that fit only in the best case."""
_OF_MEMORY = ("SPL711", TIGHT)
"""The rules about the memory verdict: here the settings are chosen by it."""
_ENOUGH = 0.9
"""A better supported fraction is taken if it gives this share of the likely one's KV tokens."""


class Demand(Struct, frozen=True):
    """What a recipe is to serve, the same for all ways that are compared."""

    context: int | None = None
    """Tokens of the longest request; None: the model's own."""
    fewer_requests: bool = False
    """True if fewer concurrent requests than the engine's default are allowed."""
    fit: Fit = Fit.FITS
    """TIGHT accepts settings that fit only in the best case."""


USUAL = Demand()
"""The whole context of the model, and as many requests as the engine runs at a time."""


class PlacedArguments(Struct, frozen=True):
    """Arguments for so many GPUs, their memory, and why each was changed."""

    settled: SettledArguments
    ranks: int
    budget: MemoryBudget
    why: Mapping[str, str] = {}
    demand: Demand = USUAL

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All server arguments, `tp_size` included where it is more than one."""
        found = dict(self.settled.arguments)
        if self.ranks == 1:
            found.pop(TP, None)
        return found

    @property
    def holds_a_request(self) -> bool:
        """Whether one request of the whole context has room."""
        return bool(self.budget.requests_at_context)

    @property
    def is_of_use(self) -> bool:
        """Whether the KV cache is more than a few short prompts."""
        return self.holds_a_request or (self.budget.tokens or 0) >= LEAST_TOKENS

    @property
    def cut(self) -> tuple[int, int] | None:
        """The context that is served and the one that was to be, if it is less."""
        wanted = wanted_context(self.settled, self.demand)
        served = self.settled.arguments.get(CONTEXT, wanted)
        return None if wanted is None or served is None or served >= wanted else (served, wanted)

    @property
    def longest(self) -> int | None:
        """Tokens of the longest request that is served; None if unknown."""
        wanted = wanted_context(self.settled, self.demand)
        limits = (self.settled.arguments.get(CONTEXT, wanted), self.budget.tokens)
        return min((int(one) for one in limits if one is not None), default=None)

    @property
    def lost_context(self) -> int:
        """How many times the context is halved; 0: all of it is served."""
        wanted, longest = wanted_context(self.settled, self.demand), self.longest
        if not wanted or not longest or (self.holds_a_request and self.cut is None):
            return 0
        return max(0, round(log2(wanted / longest)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the recipe gives up, each in a sentence with the numbers."""
        found = []
        if self.budget.fit is Fit.TIGHT:
            found.append("tight: it fits only in the best case")
        if self.cut is not None:
            served, wanted = self.cut
            found.append(f"context_length is cut from {wanted:,} to {served:,} tokens")
        context, tokens = self.budget.context_length, self.budget.tokens
        if context is not None and tokens is not None and not self.holds_a_request:
            found.append(
                f"requests of more than {tokens:,} tokens are refused: the KV cache has no room "
                f"for the context of {context:,}"
            )
        if self.settled.lengthened is not None:
            found.append(self.settled.lengthened)
        return tuple(found)


class NoPlace(Struct, frozen=True):
    """Why a way has no place on the hardware. `memory`: because of memory, and not of a rule;
    `unknown`: because a fact is missing."""

    why: str
    memory: bool = False
    unknown: bool = False
    least_bytes: int | None = None
    """Bytes that all GPUs together would need at least, where it is known."""
    settled: SettledArguments | None = None
    budget: MemoryBudget | None = None
    """That of the best settings, where some start at all."""


def place(
    arguments: Mapping[str, Any],
    version: str,
    lookup: Lookup,
    *,
    unknown: bool = False,
    demand: Demand = USUAL,
) -> PlacedArguments | NoPlace:
    """The fewest GPUs on which the rules are content, the memory fits, and a request of the whole
    context has room; else the most that fit. The lookup names the hardware.

    `unknown`: where the budget cannot tell, take the fewest GPUs of which the files of the weights
    fill a part only; all of them, where not even their size is known.
    """
    hardware = lookup.hardware
    if hardware is None:
        return NoPlace("no hardware was named", unknown=True)
    kept: PlacedArguments | None = None
    refused: NoPlace | None = None
    for ranks in sizes(hardware):
        found = place_on(arguments, ranks, version, lookup, demand)
        if isinstance(found, NoPlace):
            # what the memory lacks says more than that the next number does not divide
            refused = found if refused is None or found.memory or not refused.memory else refused
            if found.unknown and not unknown:
                return kept or found
            if found.unknown and (guessed := _guessed(found, ranks, hardware)) is not None:
                return kept or guessed
            continue
        if found.holds_a_request:
            return found
        kept = found if kept is None or _more(found, kept) else kept
    return kept or refused or NoPlace("no number of GPUs divides it")


def _guessed(found: NoPlace, ranks: int, hardware: Hardware) -> PlacedArguments | None:
    """A place for which only the size of the weights speaks; None where it speaks against it."""
    settled, budget = found.settled, found.budget
    if settled is None or budget is None or not settled.clean:
        return None
    facts = settled.plan.facts
    models = [one for one in (facts.target, facts.draft) if one is not None]
    weights = [one.told("weight_bytes") for one in models]
    memory = (hardware.memory_mib or 0) << 20
    if None in weights:
        fits = ranks == sizes(hardware)[-1]
    else:
        fits = sum(weights) <= _MOST_WEIGHTS * memory * ranks
    return PlacedArguments(settled, ranks, budget, dict(settled.applied)) if fits else None


def sizes(hardware: Hardware) -> tuple[int, ...]:
    """The numbers of GPUs to try, the fewest first."""
    if hardware.vendor is Vendor.CPU:
        return (1,)
    count = hardware.known_count
    if count is None or hardware.is_of_all_machines:
        return _USUAL
    doubled = [1 << power for power in range(7) if 1 << power <= count]
    return tuple(dict.fromkeys((*doubled, count)))


def _more(one: PlacedArguments, other: PlacedArguments) -> bool:
    return (one.budget.tokens or 0) > (other.budget.tokens or 0)


def place_on(
    arguments: Mapping[str, Any],
    ranks: int,
    version: str,
    lookup: Lookup,
    demand: Demand = USUAL,
) -> PlacedArguments | NoPlace:
    """The same on a given number of GPUs, at the best fraction that is likely to work."""
    asked = {**arguments, TP: ranks}
    if demand.context is not None:
        asked[CONTEXT] = demand.context
    rules = [rule for rule in all_rules() if rule.code not in _OF_MEMORY]
    settled = settle(asked, version, lookup, rules)
    if not settled.clean and arguments.get("speculative_algorithm") == "NGRAM":
        # as a chain: for targets whose attention takes no tree
        chain = settle({**asked, _BREADTH: 1}, version, lookup, rules)
        settled = chain if chain.clean else settled
    if not settled.clean:
        return NoPlace(settled.reason, settled=settled)
    short = _cut_too_far(settled, demand)
    if short is not None:
        return NoPlace(short, settled=settled)
    found = memory_verdict(settled.plan)
    if found.fit is Fit.UNKNOWN:
        why = f"the memory is not known: {found.why}"
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
        least_bytes=_least(memory_verdict(settled.plan), ranks),
        settled=settled,
        budget=found,
    )


def wanted_context(settled: SettledArguments, demand: Demand) -> int | None:
    """Tokens that a request is to have: those that were requested, else the model's own; None if
    these are unknown."""
    target = settled.plan.facts.target
    if demand.context is not None or target is None:
        return demand.context
    try:
        return target.context_in(settled.version)
    except UnknownValueError:
        return None


def _cut_too_far(settled: SettledArguments, demand: Demand) -> str | None:
    """Why a context that a rule cut is no use; None if it was not, or is long enough."""
    wanted, served = wanted_context(settled, demand), settled.arguments.get(CONTEXT)
    if wanted is None or served is None or served >= min(wanted, LEAST_TOKENS):
        return None
    return f"it cuts the context from {wanted:,} to {served:,} tokens"


def _fitted(
    settled: SettledArguments, ranks: int, lookup: Lookup, demand: Demand
) -> PlacedArguments | None:
    """The settings that fit with the least loss, where the rules are content with them."""

    def plan_with(changes: Mapping[str, Any]) -> Plan:
        asked = {**settled.arguments, **changes}
        known = {name: value for name, value in asked.items() if value is not None}
        request = request_of(known, settled.env, settled.version)
        return resolve(request, lookup.facts(request))

    predictor = Predictor(plan_with)
    order = tuple(one for one in Steppable if demand.fewer_requests or one is not Steppable.RUNNING)
    limits = FitLimits(order)
    useful = min(LEAST_TOKENS, wanted_context(settled, demand) or LEAST_TOKENS)
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
    return PlacedArguments(again, ranks, after, {**settled.applied, **why, **again.applied}, demand)


def _supported(
    predictor: Predictor, found: FitCandidate
) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The changes, at the best supported fraction that gives about as many KV tokens: the engine's
    own, the certain one, the likely one."""
    others = {name: value for name, value in found.changes.items() if name != FRACTION}
    why = {name: f"to fit: {WHY.get(name, 'less memory')}" for name in others}
    own = predictor.budget(others)
    if own.fit is Fit.FITS and (own.tokens or 0) >= _ENOUGH * found.tokens:
        return others, why
    choices = margins(predictor.plan(others))
    certain = None if choices is None else choices.certain
    value = found.changes[FRACTION]
    said = f"likely to work, with {found.tokens:,} KV tokens"
    if certain is not None and certain.tokens >= _ENOUGH * found.tokens:
        value, said = certain.fraction, f"certain to work, with {certain.tokens:,} KV tokens"
    return {**others, FRACTION: value}, {**why, FRACTION: f"{said}{_engines(own)}"}


def _engines(own: MemoryBudget) -> str:
    """What the engine's own fraction would give."""
    if own.mem_fraction_static is None or not own.fit.may_serve:
        return ""
    return f"; the engine's own {own.mem_fraction_static:g} gives {own.tokens or 0:,}"


def _least(found: MemoryBudget, ranks: int) -> int | None:
    """What everything but the KV cache takes on all GPUs together."""
    rank = tightest(found)
    if rank is not None:
        return needs(rank) * ranks
    return None


def in_gib(size: int) -> str:
    """Bytes as people read them."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else f"{size / (1 << 20):.0f} MiB"

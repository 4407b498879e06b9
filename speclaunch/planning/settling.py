"""Arguments that one engine version accepts: the rules' own fixes are followed until they are
content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.versions import within
from speclaunch.errors import Place
from speclaunch.facts.facts import Facts
from speclaunch.plan.architectures import architectures
from speclaunch.plan.plan import Plan
from speclaunch.plan.request import Given, Origin, Request
from speclaunch.plan.resolve import resolve
from speclaunch.record import record
from speclaunch.rules.examine import Lookup
from speclaunch.rules.finding import Finding, Fix, Severity, Unjudged
from speclaunch.rules.interface import Rule
from speclaunch.rules.model_values import OVERWRITE
from speclaunch.rules.registry import all_rules
from speclaunch.rules.runner import judge

_MOST_ROUNDS = 8
_THE_WAY = frozenset({"model_path", "speculative_algorithm", "speculative_draft_model_path"})
"""What makes a way the one that it is: no fix may change it."""
_SHORT_DRAFT, LENGTHENED = "SPL402", "SPL403"
"""A draft with less context than its target: refused by the engine, and allowed by its variable."""
_LENGTHENS = ">=0.5.3"
"""The releases that lengthen the draft's table of positions, too (SPL403)."""


@record
class Settled:
    """Arguments and variables for one version, and what the rules still say of them."""

    version: str
    arguments: Mapping[str, Any]
    env: Mapping[str, str]
    plan: Plan
    findings: tuple[Finding, ...] = ()
    """Errors and warnings that no fix took away."""
    unjudged: tuple[Unjudged, ...] = ()
    applied: Mapping[str, str] = field(default_factory=dict)
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
) -> Settled:
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
    return Settled(
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
) -> Settled:
    request = request_of(arguments, env, version)
    plan = resolve(request, lookup.facts(request))
    judgement = judge(plan, rules)
    left = tuple(one for one in judgement.findings if one.severity is not Severity.INFO)
    unknown = lacks_class(plan.facts, version)
    return Settled(version, {}, {}, plan, left, judgement.unjudged, {}, unknown)


def request_of(arguments: Mapping[str, Any], env: Mapping[str, str], version: str) -> Request:
    """What these arguments (by the newest engine's names) ask of a version."""
    place = Place("(new recipe)")
    return Request(
        "new",
        Origin.RECIPE,
        load_catalogue(version),
        place,
        {name: Given(name, value, name, place) for name, value in arguments.items()},
        {name: Given(name, value, name, place) for name, value in env.items()},
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

"""Which errors rest on facts that only the index, a repository's file or an assumption knows.

An error is asked for a second time without these facts: one that is not found then rests on them.
What is found in the words alone, with a plan that tells nothing else, rests on no facts: most
errors are of this kind, and need no second plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Never

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import Facts, UnknownFact, checkpoint_fact
from speclaunch.facts.origin import Provenance
from speclaunch.plan.plan import Plan
from speclaunch.plan.resolve import resolve
from speclaunch.rules.finding import Finding, Judgement, Severity
from speclaunch.rules.interface import Rule
from speclaunch.rules.runner import judge

_AT_HAND = frozenset({Provenance.DIRECTORY, Provenance.CACHE})


def with_grounds(
    judgement: Judgement, plan: Plan, given: Facts, rules: Iterable[Rule]
) -> Judgement:
    """The judgement, with what each error rests on in its `why`.

    An error that rests on facts in doubt (of another revision, from a weak source) is a warning.
    """
    distant = [one for one in given.checkpoints if _is_distant(one)]
    errors = {finding.code for finding in judgement.errors}
    if not distant or not errors:
        return judgement
    asked = [rule for rule in rules if rule.code in errors]
    of_words = _said(asked, _words_alone(plan))
    if all(_key(finding) in of_words for finding in judgement.errors):
        return judgement
    firm = {one.name: _said(asked, resolve(plan.request, _without(given, one))) for one in distant}
    findings = tuple(
        _grounded(finding, [one for one in distant if _key(finding) not in firm[one.name]])
        if finding.severity is Severity.ERROR
        else finding
        for finding in judgement.findings
    )
    return replace(judgement, findings=findings)


class _LookedAtError(Exception):
    """A rule looked at what it was not told; none goes on without it, as with unknown values."""


class _Untold:
    """Facts and effective values that nobody may look at: a rule that does has no verdict."""

    def __getattr__(self, name: str) -> Never:
        raise _LookedAtError(name)

    def __contains__(self, name: object) -> Never:
        raise _LookedAtError(name)

    __iter__ = __len__ = __bool__ = __getitem__ = __contains__


def _words_alone(plan: Plan) -> Plan:
    """A plan of which nothing is known but what was asked for, as it was asked."""
    untold: Any = _Untold()
    return Plan(plan.request, untold, untold, untold, untold, untold)


def _said(rules: Iterable[Rule], plan: Plan) -> set[tuple[str, str]]:
    return {_key(finding) for finding in judge(plan, rules).findings}


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message


def _is_distant(one: Checkpoint) -> bool:
    origin = one.origin
    return origin is not None and (origin.provenance not in _AT_HAND or origin.assumed is not None)


def _without(given: Facts, gone: Checkpoint) -> Facts:
    def other(one: Checkpoint | None) -> Checkpoint | None:
        return None if one is not None and one.name == gone.name else one

    unknown = UnknownFact(checkpoint_fact(gone.name), "not asked")
    return replace(
        given,
        target=other(given.target),
        draft=other(given.draft),
        unknown=(*given.unknown, unknown),
    )


def _grounded(finding: Finding, grounds: list[Checkpoint]) -> Finding:
    if not grounds:
        return finding
    told = "; ".join(f"{one.name}: {one.origin}" for one in grounds)
    doubted = any(one.origin is not None and one.origin.doubt for one in grounds)
    return replace(
        finding,
        why=f"{finding.why} ({told})".lstrip(),
        severity=Severity.WARNING if doubted else finding.severity,
    )

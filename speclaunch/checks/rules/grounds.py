"""Find errors that depend on facts only the index, a repository's file or an assumption provides.

Errors are checked again without these facts; an error that disappears depends on them. Errors found
from the arguments alone depend on no facts. Most are of this kind and need no second plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Never

from msgspec.structs import replace

from speclaunch.checks.rules.finding import Finding, RuleResults, Severity
from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.runner import judge
from speclaunch.engine import (
    Checkpoint,
    Facts,
    FactSource,
    PartialConfig,
    Plan,
    UnknownFact,
    checkpoint_fact,
    from_config,
    resolve,
)

_LOCAL = frozenset({FactSource.DIRECTORY, FactSource.CACHE})


def with_grounds(
    judgement: RuleResults, plan: Plan, given: Facts, rules: Iterable[Rule]
) -> RuleResults:
    """Return the result with the source of each error's facts in its `why`.

    An error that depends on doubtful facts (of another revision, from a weak source) becomes a
    warning, unless a document states those facts.
    """
    distant = [one for one in given.checkpoints if _is_distant(one)]
    errors = {finding.code for finding in judgement.errors}
    if not distant or not errors:
        return judgement
    selected = [rule for rule in rules if rule.code in errors]
    of_words = _found_keys(selected, _request_only(plan))
    if all(_key(finding) in of_words for finding in judgement.errors):
        return judgement
    firm = {
        one.name: _found_keys(selected, resolve(plan.request, _without(given, one)))
        for one in distant
    }
    certain = {
        one.name: _found_keys(selected, resolve(plan.request, _as_stated(given, one)))
        for one in distant
        if one.origin is not None and one.origin.stated
    }
    findings = tuple(
        _grounded(finding, [one for one in distant if _key(finding) not in firm[one.name]], certain)
        if finding.severity is Severity.ERROR
        else finding
        for finding in judgement.findings
    )
    return replace(judgement, findings=findings)


class _FactAccessError(Exception):
    """Access to an unavailable fact, which ends the rule as an unknown value does."""


class _UnavailableFacts:
    """Unavailable facts and effective values: a rule that accesses them has no verdict."""

    def __getattr__(self, name: str) -> Never:
        raise _FactAccessError(name)

    def __contains__(self, name: object) -> Never:
        raise _FactAccessError(name)

    __iter__ = __len__ = __bool__ = __getitem__ = __contains__


def _request_only(plan: Plan) -> Plan:
    """Return a plan with nothing but the request."""
    missing: Any = _UnavailableFacts()
    return Plan(plan.request, missing, missing, missing, missing, missing)


def _found_keys(rules: Iterable[Rule], plan: Plan) -> set[tuple[str, str]]:
    return {_key(finding) for finding in judge(plan, rules).findings}


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message


def _is_distant(one: Checkpoint) -> bool:
    origin = one.origin
    return origin is not None and (origin.provenance not in _LOCAL or origin.assumed is not None)


def _without(given: Facts, gone: Checkpoint) -> Facts:
    unknown = UnknownFact(checkpoint_fact(gone.name), "not asked")
    return replace(_replaced(given, gone, None), unknown=(*given.unknown, unknown))


def _as_stated(given: Facts, one: Checkpoint) -> Facts:
    """Return the facts with only those keys of a checkpoint that a document states."""
    stated = one.origin.stated if one.origin is not None else ()
    raw = one.field_or_none("raw")
    known = {key: raw[key] for key in stated if key in raw}
    config = PartialConfig(one.name, known, set(raw) - set(known))
    return _replaced(given, one, from_config(one.name, config, None, origin=one.origin))


def _replaced(given: Facts, one: Checkpoint, other: Checkpoint | None) -> Facts:
    def instead(found: Checkpoint | None) -> Checkpoint | None:
        return other if found is not None and found.name == one.name else found

    return replace(given, target=instead(given.target), draft=instead(given.draft))


def _grounded(
    finding: Finding, grounds: list[Checkpoint], certain: Mapping[str, set[tuple[str, str]]]
) -> Finding:
    if not grounds:
        return finding
    sources, is_doubted = [], False
    for one in grounds:
        if _key(finding) in certain.get(one.name, ()):
            sources.append(f"{one.name}: {one.origin and one.origin.stated_in}")
        else:
            sources.append(f"{one.name}: {one.origin}")
            is_doubted = is_doubted or (one.origin is not None and one.origin.doubt is not None)
    origins = "; ".join(sources)
    if is_doubted:
        why = f"not certain, only if this holds: {origins}. Then: {finding.why}"
        return replace(finding, why=why, severity=Severity.WARNING)
    return replace(finding, why=f"{finding.why} ({origins})".lstrip())

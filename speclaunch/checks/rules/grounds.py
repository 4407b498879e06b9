"""Find errors that depend on facts from the index, a repository's file or an assumption.

The rules run again without these facts: an error that disappears depends on them. Most errors
follow from the arguments alone and need no second plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Never

from msgspec.structs import replace

from speclaunch.checks.rules.finding import Finding, RuleResults, Severity
from speclaunch.checks.rules.interface import Rule
from speclaunch.checks.rules.runner import check_rules
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


def annotate_grounds(
    results: RuleResults, plan: Plan, facts: Facts, rules: Iterable[Rule]
) -> RuleResults:
    """Return the result with the source of each error's facts in its `why`.

    An error that depends on doubtful facts (of another revision, from a weak source) becomes a
    warning, unless a document states those facts.
    """
    distant = [checkpoint for checkpoint in facts.checkpoints if _is_distant(checkpoint)]
    errors = {finding.code for finding in results.errors}
    if not distant or not errors:
        return results
    selected = [rule for rule in rules if rule.code in errors]
    of_words = _found_keys(selected, _request_only(plan))
    if all(_key(finding) in of_words for finding in results.errors):
        return results
    firm = {
        checkpoint.name: _found_keys(selected, resolve(plan.request, _without(facts, checkpoint)))
        for checkpoint in distant
    }
    certain = {
        checkpoint.name: _found_keys(selected, resolve(plan.request, _as_stated(facts, checkpoint)))
        for checkpoint in distant
        if checkpoint.origin is not None and checkpoint.origin.stated
    }
    findings = tuple(
        _grounded(
            finding,
            [checkpoint for checkpoint in distant if _key(finding) not in firm[checkpoint.name]],
            certain,
        )
        if finding.severity is Severity.ERROR
        else finding
        for finding in results.findings
    )
    return replace(results, findings=findings)


class _FactAccessError(Exception):
    """Access to an unavailable fact. Like an unknown value, it ends the rule without a verdict."""


class _UnavailableFacts:
    """Unavailable facts and effective values: a rule that accesses them has no verdict."""

    def __getattr__(self, name: str) -> Never:
        raise _FactAccessError(name)

    def __contains__(self, name: object) -> Never:
        raise _FactAccessError(name)

    __iter__ = __len__ = __bool__ = __getitem__ = __contains__


def _request_only(plan: Plan) -> Plan:
    """Return a plan that has only the request."""
    missing: Any = _UnavailableFacts()
    return Plan(plan.request, missing, missing, missing, missing, missing)


def _found_keys(rules: Iterable[Rule], plan: Plan) -> set[tuple[str, str]]:
    return {_key(finding) for finding in check_rules(plan, rules).findings}


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message


def _is_distant(checkpoint: Checkpoint) -> bool:
    origin = checkpoint.origin
    return origin is not None and (origin.provenance not in _LOCAL or origin.assumed is not None)


def _without(facts: Facts, gone: Checkpoint) -> Facts:
    unknown = UnknownFact(checkpoint_fact(gone.name), "not considered")
    return replace(_replaced(facts, gone, None), unknown=(*facts.unknown, unknown))


def _as_stated(facts: Facts, checkpoint: Checkpoint) -> Facts:
    """Return the facts with only those keys of a checkpoint that a document states."""
    stated = checkpoint.origin.stated if checkpoint.origin is not None else ()
    raw = checkpoint.field_or_none("raw")
    known = {key: raw[key] for key in stated if key in raw}
    config = PartialConfig(checkpoint.name, known, set(raw) - set(known))
    return _replaced(
        facts, checkpoint, from_config(checkpoint.name, config, None, origin=checkpoint.origin)
    )


def _replaced(facts: Facts, checkpoint: Checkpoint, other: Checkpoint | None) -> Facts:
    def instead(found: Checkpoint | None) -> Checkpoint | None:
        return other if found is not None and found.name == checkpoint.name else found

    return replace(facts, target=instead(facts.target), draft=instead(facts.draft))


def _grounded(
    finding: Finding, grounds: list[Checkpoint], certain: Mapping[str, set[tuple[str, str]]]
) -> Finding:
    if not grounds:
        return finding
    sources, is_doubted = [], False
    for checkpoint in grounds:
        if _key(finding) in certain.get(checkpoint.name, ()):
            sources.append(
                f"{checkpoint.name}: {checkpoint.origin and checkpoint.origin.stated_in}"
            )
        else:
            sources.append(f"{checkpoint.name}: {checkpoint.origin}")
            is_doubted = is_doubted or (
                checkpoint.origin is not None and checkpoint.origin.doubt is not None
            )
    origins = "; ".join(sources)
    if is_doubted:
        why = f"uncertain: it depends on {origins}. If so: {finding.why}"
        return replace(finding, why=why, severity=Severity.WARNING)
    return replace(finding, why=f"{finding.why} ({origins})".lstrip())

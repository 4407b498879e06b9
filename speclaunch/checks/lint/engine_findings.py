"""Findings that the engine check adds to those of the rules: SPL090."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from speclaunch.checks.engine_check.opinions import Opinion, ReleaseRefusal
from speclaunch.checks.lint.file_codes import REFUSES
from speclaunch.checks.rules.finding import (
    DeploymentPlace,
    Finding,
    Fix,
    RuleResults,
    Severity,
    SkippedRule,
)
from speclaunch.checks.rules.runner import secrets_of
from speclaunch.core import Place, Redactor
from speclaunch.engine import Plan, Request

_OF_THE_PARSER = frozenset({"SPL001", "SPL002", "SPL003"})
"""Rules that predict a parser error, which validation must confirm; others may fail later."""
_PARSER = "SystemExit"


def engine_findings(
    opinion: Opinion, plan: Plan, findings: Sequence[Finding], *, is_named: bool = True
) -> RuleResults:
    """Return the findings that the engine check of a plan adds to the `findings` of the rules.

    A refusal adds nothing if an error about the same arguments explains it. `is_named`: True if the
    version was named for this deployment.
    """
    refusal = opinion.refusal
    if refusal is not None:
        if any(_explains(finding, refusal, plan.request) for finding in findings):
            return RuleResults()
        return RuleResults((_refused(opinion.release, refusal, plan.request, is_named=is_named),))
    if not opinion.accepted:
        return RuleResults((), (SkippedRule(REFUSES.code, REFUSES.name, opinion.why),))
    return RuleResults(tuple(_contradicted(opinion.release, plan.request, findings)))


def exactness_note(release: str) -> str:
    """Return the note that an answer is exact, with its release."""
    return f"exact: engine check of SGLang {release}"


def _explains(finding: Finding, refusal: ReleaseRefusal, request: Request) -> bool:
    """True if an error is about an argument that the engine rejects."""
    if finding.severity is not Severity.ERROR:
        return False
    about = {finding.place, *finding.others}
    if refusal.units:
        return not about.isdisjoint(unit.place for unit in refusal.units)
    return request.place in about or _model(request) in about


def _refused(release: str, refusal: ReleaseRefusal, request: Request, *, is_named: bool) -> Finding:
    written = list(
        dict.fromkeys(_written(unit.name, unit.written, request) for unit in refusal.units)
    )
    named = list(
        dict.fromkeys(
            _written(argument.name, argument.written, request) for argument in refusal.named
        )
    )
    places = [unit.place for unit in refusal.units] or [_model(request)]
    places += [unit.place for unit in refusal.named]
    machines = " and ".join(refusal.machines)
    where = "its parser" if refusal.kind == _PARSER else f"{refusal.kind} at {refusal.place}"
    why = [] if is_named else ["no SGLang version is set; the newest release rejects it"]
    line = "" if refusal.line.startswith("raise ") else refusal.line  # its message is reported
    why.append(f"{where} on {machines}{f', `{line}`' if line else ''}")
    if len(written) > 1:
        why.append(f"only the combination of {_listed(written, 'and')} is refused")
    if named:
        why.append(f"it names {_listed(named, 'and')}, but also refuses without {_them(named)}")
    why += refusal.doubts or [exactness_note(release)]
    if written:
        fix = Fix(f"change or remove {_listed(written, 'or')}")
    else:
        fix = Fix("serve the model with another release, or on other hardware")
    return _finding(
        Severity.ERROR if is_named and not refusal.doubts else Severity.WARNING,
        f"SGLang {release} refuses this: {refusal.words}",
        "; ".join(why),
        fix,
        places,
        request,
    )


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _contradicted(release: str, request: Request, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield errors of the rules about arguments that the engine's parser accepted."""
    positions = {token.place.position for token in request.argv}
    for finding in findings:
        if finding.code not in _OF_THE_PARSER or finding.severity is not Severity.ERROR:
            continue
        if finding.place.position not in positions:
            continue
        line = f"{finding.code}, SGLang {release}: {finding.message}"
        yield _finding(
            Severity.INFO,
            f"SGLang {release} accepts this, but {finding.code} rejects it: a bug in speclaunch",
            exactness_note(release),
            Fix(f"ignore {finding.code} here, and report the bug: {line}"),
            [finding.place],
            request,
        )


def _finding(
    severity: Severity, message: str, why: str, fix: Fix, places: Sequence[Place], request: Request
) -> Finding:
    hide = Redactor(secrets_of(request)).text
    others = tuple(dict.fromkeys(place for place in places if place != places[0]))
    return Finding(
        REFUSES.code,
        REFUSES.name,
        severity,
        hide(message),
        hide(why),
        Fix(hide(fix.text)),
        places[0],
        request.version,
        others,
        (DeploymentPlace(request.place, request.name),),
    )


def _model(request: Request) -> Place:
    found = request.values.get("model_path")
    return request.place if found is None else found.place


def _written(name: str, written: str, request: Request) -> str:
    found = request.values.get(name)
    return written if found is None else found.written


def _listed(names: Sequence[str], word: str) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"

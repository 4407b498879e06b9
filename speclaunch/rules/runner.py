"""Ask the rules about a plan."""

from __future__ import annotations

from collections.abc import Iterable

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.interface import Finding, Judgement, Rule, Unjudged, Verdict


def judge(plan: Plan, rules: Iterable[Rule]) -> Judgement:
    """The verdicts of `rules` on a plan, in the order of their places.

    A rule that asks for a value that cannot be evaluated keeps what it said until then, and is
    listed as unjudged.
    """
    findings: list[Finding] = []
    unjudged: list[Unjudged] = []
    for rule in rules:
        if not rule.versions.contains(plan.version):
            continue
        try:
            if rule.algorithms and plan.algorithm not in rule.algorithms:
                continue
            for verdict in rule.check(plan):
                findings.append(_finding(rule, verdict, plan))
        except UnknownValueError as error:
            unjudged.append(Unjudged(rule.code, rule.name, str(error)))
    findings.sort(key=lambda f: (f.place.path, f.place.line, f.place.column, f.code))
    return Judgement(tuple(findings), tuple(unjudged))


def _finding(rule: Rule, verdict: Verdict, plan: Plan) -> Finding:
    request = plan.request
    written = [
        n for n in verdict.at if n in request.given or n in request.env or n in request.extras
    ]
    place = verdict.place or (plan.place(written[0]) if written else request.place)
    return Finding(
        rule.code,
        rule.name,
        verdict.severity or rule.severity,
        verdict.message,
        verdict.why,
        verdict.fix,
        place,
        rule.sources[0],
        request.version,
    )

"""Run rules on a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from speclaunch.checks.rules.finding import (
    DeploymentPlace,
    Finding,
    RuleResults,
    SkippedRule,
    in_order,
)
from speclaunch.checks.rules.interface import Rule, Verdict
from speclaunch.core import Redactor, holds_secret, is_secret_variable, lazy
from speclaunch.engine import (
    Plan,
    Request,
    RequestOrigin,
    UnknownValueError,
    canonical,
    is_secret_argument,
)

_FLAG = lazy(r"(?<![\w-])--[a-z0-9][a-z0-9-]*")
_OF_WORDS = "SPL0"
"""Prefix of rules about single tokens, which apply regardless of the other arguments."""
BUG = "of a bug in this rule, please report it"
"""Beginning of the reason if a rule raised an error."""


def check_rules(plan: Plan, rules: Iterable[Rule]) -> RuleResults:
    """Return the verdicts of `rules` on a plan, in the order of their places.

    A rule that needs an unknown value is listed as skipped; its earlier verdicts remain. Skipped
    advisories are not listed, because most depend on facts that few files provide.
    """
    findings: list[Finding] = []
    skipped: list[SkippedRule] = []
    for rule in rules:
        if rule.check_across is not None or not rule.holds_in(plan.request.version):
            continue  # compares deployments: no verdict on a single plan, and no need to import it
        if rule.of_deployments and plan.request.server_context is None:
            continue
        if plan.request.unseen and not rule.code.startswith(_OF_WORDS):
            if not rule.is_advisory:
                skipped.append(SkippedRule(rule.code, rule.name, plan.request.unseen))
            continue
        try:
            if rule.algorithms and plan.algorithm not in rule.algorithms:
                continue
            for verdict in rule.check(plan):
                findings.append(finding_of(rule, verdict, plan))
        except UnknownValueError as error:
            if not rule.is_advisory:
                skipped.append(SkippedRule(rule.code, rule.name, str(error)))
        except Exception as error:  # a bug in one rule must not hide the findings of the others
            reason = f"{BUG}: {type(error).__name__}: {error}"
            skipped.append(SkippedRule(rule.code, rule.name, reason))
    findings.sort(key=in_order)
    return RuleResults(tuple(findings), tuple(skipped))


def finding_of(rule: Rule, verdict: Verdict, plan: Plan) -> Finding:
    """Return a verdict as a finding, at the place of the first name that the user set."""
    request = plan.request
    written = [
        n for n in verdict.at if n in request.values or n in request.env or n in request.extras
    ]
    places = [plan.place(name) for name in written]
    place = verdict.place or (places[0] if places else request.place)
    others = tuple(dict.fromkeys(o for o in (*places, *verdict.others) if o != place))
    hide = plan.once(_hider)
    return Finding(
        rule.code,
        rule.name,
        verdict.severity or rule.severity,
        hide(verdict.message),
        hide(verdict.why),
        verdict.fix and replace(verdict.fix, text=hide(_with_own_flags(verdict.fix.text, request))),
        place,
        request.version,
        others,
        (DeploymentPlace(request.place, request.name),),
        {name: hide(_set_value(name, request)) for name in sorted(set(verdict.at))},
    )


def _set_value(name: str, request: Request) -> str:
    """Return the user's value as text; empty if the user set none."""
    for values in (request.values, request.env, request.extras):
        if name in values:
            return str(values[name].value)
    return ""


def _with_own_flags(text: str, request: Request) -> str:
    """Return a help text with flags in the deployment's own spelling."""
    if request.origin is not RequestOrigin.SLIME:
        return text
    from speclaunch.deployments import (  # noqa: PLC0415
        OWN,
        prefixed,
    )

    def flag(found: re.Match[str]) -> str:
        argument = request.catalogue.by_flag(found[0])
        # slime sets these itself: they must not be written
        taken = argument is not None and canonical(argument.dest) not in OWN
        return prefixed(found[0]) if taken else found[0]

    return _FLAG.sub(flag, text)


def secrets_of(request: Request) -> list[str]:
    """Return the secret values of a deployment."""
    arguments = (*request.values.values(), *request.overridden)
    secret = [
        argument
        for argument in arguments
        if is_secret_argument(argument.name) or holds_secret(argument.value)
    ]
    env = request.env.values()
    secret += [
        variable
        for variable in env
        if is_secret_variable(variable.name) or holds_secret(variable.value)
    ]
    # shorter values are no secrets, and would match in every sentence
    return [str(value.value) for value in secret if value.known and len(str(value.value)) > 3]


def _hider(plan: Plan) -> Callable[[str], str]:
    """Return a function that removes the secret values of a deployment from a text."""
    return Redactor(secrets_of(plan.request)).text

"""Ask the rules about a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from speclaunch.checks.rules.finding import DeploymentPlace, Finding, Judgement, Unjudged, in_order
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
"""The rules about single words, which hold whatever else is given."""
BUG = "of a bug in this rule, please report it"
"""How the reason begins where a rule stumbled."""


def judge(plan: Plan, rules: Iterable[Rule]) -> Judgement:
    """The verdicts of `rules` on a plan, in the order of their places.

    A rule that asks for a value that cannot be evaluated keeps what it said until then, and is
    listed as unjudged.
    """
    findings: list[Finding] = []
    unjudged: list[Unjudged] = []
    for rule in rules:
        if rule.check_across is not None or not rule.holds_in(plan.request.version):
            continue  # what looks across says nothing of one alone, and need not be imported
        if rule.of_deployments and plan.request.surroundings is None:
            continue
        if plan.request.unseen and not rule.code.startswith(_OF_WORDS):
            unjudged.append(Unjudged(rule.code, rule.name, plan.request.unseen))
            continue
        try:
            if rule.algorithms and plan.algorithm not in rule.algorithms:
                continue
            for verdict in rule.check(plan):
                findings.append(finding_of(rule, verdict, plan))
        except UnknownValueError as error:
            unjudged.append(Unjudged(rule.code, rule.name, str(error)))
        except Exception as error:  # one rule's mistake must not hide what the others say
            said = f"{BUG}: {type(error).__name__}: {error}"
            unjudged.append(Unjudged(rule.code, rule.name, said))
    findings.sort(key=in_order)
    return Judgement(tuple(findings), tuple(unjudged))


def finding_of(rule: Rule, verdict: Verdict, plan: Plan) -> Finding:
    """A verdict with its place: that of the first name which the user wrote."""
    request = plan.request
    written = [
        n for n in verdict.at if n in request.given or n in request.env or n in request.extras
    ]
    places = [plan.place(name) for name in written]
    place = verdict.place or (places[0] if places else request.place)
    others = tuple(dict.fromkeys(o for o in (*places, *verdict.others) if o != place))
    hide = _hider(request)
    return Finding(
        rule.code,
        rule.name,
        verdict.severity or rule.severity,
        hide(verdict.message),
        hide(verdict.why),
        verdict.fix and replace(verdict.fix, text=hide(_spelled(verdict.fix.text, request))),
        place,
        request.version,
        others,
        (DeploymentPlace(request.place, request.name),),
        {name: hide(_set_value(name, request)) for name in sorted(set(verdict.at))},
    )


def _set_value(name: str, request: Request) -> str:
    """The value that the user set, as a text; empty where the user set none."""
    for given in (request.given, request.env, request.extras):
        if name in given:
            return str(given[name].value)
    return ""


def _spelled(text: str, request: Request) -> str:
    """A help text with the engine's flags as they are written where the deployment stands."""
    if request.origin is not RequestOrigin.SLIME:
        return text
    from speclaunch.deployments import (  # noqa: PLC0415
        OWN,
        prefixed,
    )

    def flag(found: re.Match[str]) -> str:
        argument = request.catalogue.by_flag(found[0])
        # what slime says itself must not be written at all
        taken = argument is not None and canonical(argument.dest) not in OWN
        return prefixed(found[0]) if taken else found[0]

    return _FLAG.sub(flag, text)


def secrets_of(request: Request) -> list[str]:
    """The secret values of a deployment."""
    given = (*request.given.values(), *request.overridden)
    secret = [one for one in given if is_secret_argument(one.name) or holds_secret(one.value)]
    env = request.env.values()
    secret += [one for one in env if is_secret_variable(one.name) or holds_secret(one.value)]
    # what is as short as a number is no secret, and would be found in every sentence
    return [str(one.value) for one in secret if one.known and len(str(one.value)) > 3]


def _hider(request: Request) -> Callable[[str], str]:
    """Takes the secret values of a deployment out of a text."""
    return Redactor(secrets_of(request)).text

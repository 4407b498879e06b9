"""What a target's form does to a deployment: the rules read what was written, as `lint` would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from speclaunch.deploy.proof import read_back
from speclaunch.errors import Place
from speclaunch.facts.facts import Facts
from speclaunch.plan.request import Given, Request, from_invocation
from speclaunch.plan.resolve import resolve
from speclaunch.rules.finding import Finding, Judgement
from speclaunch.rules.registry import all_rules
from speclaunch.rules.runner import judge


def errors_of_form(text: str, suffix: str, own: Sequence[Request]) -> tuple[Finding, ...]:
    """The errors of a rendered text that the recipe does not have by itself.

    `own` are the recipe's requests, one for each command of the text, in its order. No facts are
    looked up: those are the same for both. The findings stand at their places in the recipe, each
    once.
    """
    commands = read_back(text, suffix).invocations
    found: list[Finding] = []
    for invocation, request in zip(commands, own, strict=True):
        written = from_invocation(invocation, request.name, request.catalogue)
        found += [one for one in _news(written, request) if one not in found]
    return tuple(found)


def _news(request: Request, own: Request) -> Iterator[Finding]:
    known = Counter(_what(finding, own) for finding in _judged(own).errors)
    for finding in _judged(request).errors:
        what = _what(finding, request)
        known[what] -= 1
        if known[what] < 0:
            yield replace(finding, place=_place(finding, request, own))


def _judged(request: Request) -> Judgement:
    return judge(resolve(request, Facts()), all_rules())


def _what(finding: Finding, request: Request) -> tuple[str, str]:
    """What an error is about in either form: the rule, and the argument (or all that it says)."""
    return finding.code, _name(finding, request) or finding.message


def _name(finding: Finding, request: Request) -> str | None:
    there: tuple[Given, ...] = (*request.given.values(), *request.env.values())
    return next((one.name for one in there if one.place == finding.place), None)


def _place(finding: Finding, request: Request, own: Request) -> Place:
    """Where the recipe says what the text says at the finding's place."""
    name = _name(finding, request)
    mine = {**own.given, **own.env}
    return mine[name].place if name in mine else own.place

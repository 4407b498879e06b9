"""What a target's form does to a deployment: the rules read what was written, as `lint` would."""

from __future__ import annotations

from dataclasses import replace

from speclaunch.errors import Place
from speclaunch.facts.facts import Facts
from speclaunch.importer.files import read_shell
from speclaunch.plan.request import Given, Request, from_invocation
from speclaunch.plan.resolve import resolve
from speclaunch.rules.interface import Finding, Judgement
from speclaunch.rules.registry import all_rules
from speclaunch.rules.runner import judge


def errors_of_form(text: str, own: Request) -> tuple[Finding, ...]:
    """The errors of a rendered text that the recipe, asked as `own`, does not have by itself.

    No facts are looked up: those are the same for both. The findings stand at their places in the
    recipe.
    """
    (invocation,) = read_shell(text, "rendered.sh").invocations
    request = from_invocation(invocation, own.name, own.catalogue)
    known = {finding.code for finding in _judged(own).errors}
    return tuple(
        replace(finding, place=_place(finding, request, own))
        for finding in _judged(request).errors
        if finding.code not in known
    )


def _judged(request: Request) -> Judgement:
    return judge(resolve(request, Facts()), all_rules())


def _place(finding: Finding, request: Request, own: Request) -> Place:
    """Where the recipe says what the text says at the finding's place."""
    there: tuple[Given, ...] = (*request.given.values(), *request.env.values())
    named = (one.name for one in there if one.place == finding.place)
    mine = {**own.given, **own.env}
    return next((mine[name].place for name in named if name in mine), own.place)

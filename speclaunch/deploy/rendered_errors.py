"""Findings about a rendering: about its recipe, and about what the target's form does to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from speclaunch.deploy.assemble import Assembled
from speclaunch.deploy.interface import RenderedCommand, Renderer, Rendering
from speclaunch.deploy.round_trip import read_back
from speclaunch.deploy.words import ALL_ADDRESSES
from speclaunch.errors import Place
from speclaunch.facts.facts import Facts
from speclaunch.launch.preflight import here
from speclaunch.lint.recipe_findings import findings_across, unsilenced
from speclaunch.plan.request import Given, Request, from_invocation
from speclaunch.plan.resolve import resolve
from speclaunch.recipe.load import Recipe
from speclaunch.rules.examine import Lookup, examine
from speclaunch.rules.finding import Finding, Judgement, Severity
from speclaunch.rules.interface import Rule
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


def findings_of_recipe(
    assembled: Assembled, whole: Recipe, lookup: Lookup, rules: Sequence[Rule]
) -> tuple[Finding, ...]:
    """The errors and warnings of the rendered roles, for the release and hardware of each, and of
    the roles of `whole` together; those that a comment silences are left out."""
    found: list[Finding] = []
    for one in assembled.prepared:
        facts = here(lookup, one.recipe, probe=False, cpu=one.cpu is not None)
        told = examine(one.request({}), facts, rules).judgement.findings
        found += unsilenced(told, one.recipe.path)
    version = assembled.prepared[0].catalogue.version
    found += findings_across(whole, version, lookup, rules)
    once = {(one.place, one.code, one.message): one for one in found}  # of lines that roles share
    return tuple(one for one in once.values() if one.severity is not Severity.INFO)


def exposed(renderer: Renderer, rendering: Rendering) -> tuple[str, ...]:
    """The roles that listen on all interfaces without an API key."""
    return tuple(
        dict.fromkeys(
            command.role.name
            for command in renderer.commands(rendering)
            if _host(command) in _ALL_INTERFACES and command.role.spelling.value("api_key") is None
        )
    )


_ALL_INTERFACES = (ALL_ADDRESSES, "::")


def _host(command: RenderedCommand) -> str | None:
    said = command.given.get("host")
    return said[0] if said else command.role.spelling.value("host")


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

"""Whether a deployment may be started: what the rules say, what is not there, what is foreseen."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import (
    Examined,
    Finding,
    Lookup,
    PreflightError,
    Rule,
    Severity,
    examine,
    interpreter,
    unsilenced,
)
from speclaunch.core import Problem
from speclaunch.deployments import Prepared, Recipe
from speclaunch.engine import Ask, missing_paths, probe_hardware
from speclaunch.serving.launch.session import Session, foresee

if TYPE_CHECKING:
    from speclaunch.checks import Asker

_MISFIT = "SPL711"
_CHEAP_S = 5.0
"""An engine is asked before its start where that costs less than this, or than a third of it."""
_LEAST_START_S = 20.0
"""Of a start without weights: imports, processes, graphs. The tiny models of the CPU engine take
about this on an idle machine."""
_READ_BYTES_A_SECOND = 2e9
"""Of weights, from a quick disk."""


def here(found: Lookup, recipe: Recipe, *, probe: bool, cpu: bool) -> Lookup:
    """Return the lookup with the hardware that a recipe will run on."""
    named = recipe.deployment.hardware.name
    return found.on(named, probe_hardware if probe else None, cpu=cpu)


class PreflightResult(Struct, frozen=True):
    """What is wrong with a deployment before it is started."""

    name: str
    findings: tuple[Finding, ...]
    """What the engine changes by itself (info) is left to `plan` and `lint`."""
    absent: tuple[Problem, ...] = ()
    """What is not on this machine, which stops a launch as well."""

    @property
    def wrong(self) -> str:
        """What speaks against a start; empty where nothing does."""
        errors, absent = len(self._errors), len(self.absent)
        said = []
        if errors:
            said.append(f"{errors} finding{'s' * (errors > 1)} of error severity")
        if absent:
            said.append(f"{absent} missing path{'s' * (absent > 1)}")
        return " and ".join(said)

    def require(self) -> None:
        """Raises PreflightError where something speaks against a start."""
        if not self.wrong:
            return
        leave = "--ignore CODE skips a finding,  " if self._errors else ""
        raise PreflightError(
            Problem(
                f"{self.name} was not started: {self.wrong}",
                help=f"fix {'it' if len(self._errors) + len(self.absent) == 1 else 'them'}; "
                f"{leave}--force starts anyway",
            )
        )

    @property
    def _errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


def preflight(
    prepared: Prepared,
    found: Lookup,
    rules: Iterable[Rule],
    absent: Iterable[Problem] = (),
    asker: Asker | None = None,
) -> PreflightResult:
    """What the rules find in a recipe, and the engine that will be started, but for what its own
    comments silence. Raises NoJudgeError where the engine must be asked, and cannot be."""
    examined = examine(prepared.request(os.environ), found, rules)
    told = examined.judgement.findings
    if asker is not None:
        told += _asked_first(prepared, examined, asker)
    findings = unsilenced(told, prepared.recipe.path)
    shown = tuple(one for one in findings if one.severity is not Severity.INFO)
    return PreflightResult(prepared.recipe.deployment.name, shown, tuple(absent))


def with_other_roles(
    found: PreflightResult, whole: Recipe, prepared: Prepared, lookup: Lookup, rules: Iterable[Rule]
) -> PreflightResult:
    """With what the roles of a recipe say of each other: one that does not fit the others does not
    serve with them."""
    from speclaunch.checks import findings_across  # noqa: PLC0415  few have roles

    told = findings_across(whole, prepared.catalogue.version, lookup, rules)
    more = tuple(one for one in told if one.severity is not Severity.INFO)
    return replace(found, findings=(*found.findings, *more))


def _asked_first(prepared: Prepared, examined: Examined, asker: Asker) -> tuple[Finding, ...]:
    """What the engine itself refuses, where asking is cheap beside its start."""
    from speclaunch.checks import second_opinion  # noqa: PLC0415  asked by few

    blamed = examined.judgement.blamed
    wanted = asker.wanted(examined.plan, interpreter(prepared.python), blamed)
    if wanted is None:
        return ()
    opinion = asker.known(wanted)
    if opinion is None:
        sizes = [one.told("weight_bytes") or 0 for one in examined.plan.facts.checkpoints]
        seconds = _LEAST_START_S + sum(sizes) / _READ_BYTES_A_SECOND
        if asker.mode is Ask.AUTO and asker.cost(wanted) > max(_CHEAP_S, seconds / 3):
            return ()
        opinion = asker.opinion_on(wanted)
    return second_opinion(opinion, examined.plan, examined.judgement.findings).findings


def absent_paths(prepared: Prepared) -> list[Problem]:
    """What the recipe names on this machine and is not there, each with its place."""
    made = (prepared.cpu.models,) if prepared.cpu is not None else ()
    return [
        Problem(one.message, prepared.recipe.place("args", one.given), one.help)
        for one in missing_paths(prepared.spelling, prepared.catalogue, made=made)
    ]


def require_hope(session: Session, rules: Iterable[Rule]) -> None:
    """Raises PreflightError where the memory is predicted not to do and no other settings may be
    tried. Who leaves SPL711 out does not want to hear of it."""
    if session.recovers or not any(rule.code == _MISFIT for rule in rules):
        return
    deployment = session.prepared.recipe.deployment
    found = foresee(deployment.recovery, session.plan_with)
    if found is not None:
        raise PreflightError(
            Problem(
                f"{deployment.name} was not started: {found.why}",
                help=f"{found.help}; recovery=default starts with settings that fit, --force "
                "starts the recipe as written",
            )
        )

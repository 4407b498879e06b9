"""Checks before a start: findings of the rules, missing paths, predicted failures."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import (
    CheckedRequest,
    Finding,
    Lookup,
    PreflightError,
    Rule,
    Severity,
    check_request,
    findings_across,
    interpreter,
    unsilenced,
)
from speclaunch.core import Problem
from speclaunch.deployments import Prepared, Recipe
from speclaunch.engine import EngineCheckMode, missing_paths, probe_hardware
from speclaunch.serving.launch.session import Session, predict_failure

if TYPE_CHECKING:
    from speclaunch.checks import EngineQuerier

_MISFIT = "SPL711"
_CHEAP_S = 5.0
"""Maximum seconds for an engine query before a start, or a third of the start's duration if that is
longer."""
_LEAST_START_S = 20.0
"""Duration of a start without weights (imports, processes, graphs), in seconds. The CPU engine's
tiny models take about this long on an idle machine."""
_READ_BYTES_A_SECOND = 2e9
"""Rate at which weights are read from a fast disk, in bytes per second."""


def local_lookup(found: Lookup, recipe: Recipe, *, probe: bool, cpu: bool) -> Lookup:
    """Return the lookup with the recipe's hardware. `probe`: True to inspect this machine if the
    hardware is `auto`."""
    named = recipe.deployment.hardware.name
    return found.on(named, probe_hardware if probe else None, cpu=cpu)


class PreflightResult(Struct, frozen=True):
    """Problems of a deployment before its start."""

    name: str
    findings: tuple[Finding, ...]
    """Findings except those of info severity, which `plan` and `lint` show."""
    absent: tuple[Problem, ...] = ()
    """Problems with paths missing on this machine; they also stop a launch."""

    @property
    def reasons(self) -> str:
        """Reasons against a start; empty if there are none."""
        errors, absent = len(self._errors), len(self.absent)
        reasons = []
        if errors:
            reasons.append(f"{errors} finding{'s' * (errors > 1)} of error severity")
        if absent:
            reasons.append(f"{absent} missing path{'s' * (absent > 1)}")
        return " and ".join(reasons)

    def require(self) -> None:
        """Raise PreflightError if there are reasons against a start."""
        if not self.reasons:
            return
        leave = "--ignore CODE skips a finding; " if self._errors else ""
        raise PreflightError(
            f"{self.name} was not started: {self.reasons}",
            help=f"fix {'it' if len(self._errors) + len(self.absent) == 1 else 'them'}; "
            f"{leave}--force starts anyway",
        )

    @property
    def _errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.ERROR]


def preflight(
    prepared: Prepared,
    found: Lookup,
    rules: Iterable[Rule],
    absent: Iterable[Problem] = (),
    asker: EngineQuerier | None = None,
) -> PreflightResult:
    """Return findings of the rules and of the engine to be started, except those that the recipe's
    comments ignore. Raises NoJudgeError if the engine must be queried but cannot be."""
    examined = check_request(prepared.request(os.environ), found, rules)
    reported = examined.results.findings
    if asker is not None:
        reported += _engine_refusals(prepared, examined, asker)
    findings = unsilenced(reported, prepared.recipe.path)
    shown = tuple(finding for finding in findings if finding.severity is not Severity.INFO)
    return PreflightResult(prepared.recipe.deployment.name, shown, tuple(absent))


def with_other_roles(
    found: PreflightResult,
    recipe: Recipe,
    prepared: Prepared,
    lookup: Lookup,
    rules: Iterable[Rule],
) -> PreflightResult:
    """Return the result plus findings about mismatches that prevent the recipe's roles from serving
    together."""

    across = findings_across(recipe, prepared.catalogue.version, lookup, rules)
    more = tuple(finding for finding in across if finding.severity is not Severity.INFO)
    return replace(found, findings=(*found.findings, *more))


def _engine_refusals(
    prepared: Prepared, examined: CheckedRequest, asker: EngineQuerier
) -> tuple[Finding, ...]:
    """Return the engine's own refusals; empty if a query takes too long compared with a start."""
    from speclaunch.checks import engine_findings  # noqa: PLC0415  rarely needed

    blamed = examined.results.blamed
    query = asker.query_for(examined.plan, interpreter(prepared.python), blamed)
    if query is None:
        return ()
    opinion = asker.known(query)
    if opinion is None:
        sizes = [
            checkpoint.field_or_none("weight_bytes") or 0
            for checkpoint in examined.plan.facts.checkpoints
        ]
        seconds = _LEAST_START_S + sum(sizes) / _READ_BYTES_A_SECOND
        if asker.mode is EngineCheckMode.AUTO and asker.cost(query) > max(_CHEAP_S, seconds / 3):
            return ()
        opinion = asker.opinion_on(query)
    return engine_findings(opinion, examined.plan, examined.results.findings).findings


def absent_paths(prepared: Prepared) -> list[Problem]:
    """Return a problem for each path in the recipe that is missing on this machine."""
    made = (prepared.cpu.models,) if prepared.cpu is not None else ()
    return [
        Problem(path.message, prepared.recipe.place("args", path.recipe_name), path.help)
        for path in missing_paths(prepared.rendered_args, prepared.catalogue, made=made)
    ]


def require_predicted_fit(session: Session, rules: Iterable[Rule]) -> None:
    """Raise PreflightError if memory is predicted to run out and no other settings may be tried.
    Does nothing if `rules` lacks SPL711, or for a lock, whose settings have served."""
    recorded = session.deployment.lock is not None
    if session.recovers or recorded or not any(rule.code == _MISFIT for rule in rules):
        return
    deployment = session.prepared.recipe.deployment
    found = predict_failure(deployment.recovery, session.plan_with)
    if found is not None:
        raise PreflightError(
            f"{deployment.name} was not started: {found.why}",
            help=f"{found.help}; recovery=default starts with settings that fit, and --force "
            "starts the recipe unchanged",
        )

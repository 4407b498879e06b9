"""`--fit` and `--best`: better settings, as changes to the recipe."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from speclaunch.core import InputError, Problem, SpeclaunchError
from speclaunch.deployments import Prepared, fit_limits
from speclaunch.engine import (
    OBJECTIVE,
    Best,
    Fit,
    MemoryBudget,
    Plan,
    RequestLoad,
    Suggestion,
    UnknownValueError,
    best_for,
    beyond_the_gpus,
    canonical,
    load_of,
    resolve,
    suggest_fit,
)
from speclaunch.measure.advice.planned_deployment import command_of
from speclaunch.serving import recipe_diff


class Fitting(Struct, frozen=True):
    """Suggested settings, and how to apply them."""

    suggestion: Suggestion
    diff: tuple[str, ...] = ()
    """Changed lines of the recipe's `args`, prefixed with `- ` or `+ `."""
    overrides: tuple[str, ...] = ()
    """The changes as overrides to append to a command line."""
    command: str | None = None
    """Command with the changes; None if there are none."""

    @property
    def head(self) -> str:
        """Short summary of the suggestion."""
        if self.suggestion.fit is Fit.UNKNOWN:
            return "fitting settings are unknown"
        if self.suggestion.fit is Fit.FAILS:
            return "no settings fit"
        if self.suggestion.fit is Fit.TIGHT:
            settings = "these settings fit" if self.suggestion.changes else "it fits unchanged"
            return f"{settings} only in the best case"
        if not self.suggestion.changes:
            return "it fits unchanged"
        before = self.suggestion.before.fit
        return "these settings fit better" if before is Fit.FITS else "these settings fit"


def fitting(prepared: Prepared, plan: Plan) -> Fitting:
    """Return the settings that fit, changing only what recovery may change."""
    deployment = prepared.recipe.deployment

    def plan_with(changes: Mapping[str, Any]) -> Plan:
        return resolve(prepared.changed(changes).request(os.environ), plan.facts)

    beyond = beyond_the_gpus(plan)
    if beyond is not None:
        return Fitting(Suggestion(Fit.FAILS, beyond, OBJECTIVE, MemoryBudget(Fit.FAILS, beyond)))
    try:
        found = suggest_fit(plan_with, limits=fit_limits(deployment.recovery))
    except (SpeclaunchError, UnknownValueError) as error:
        why = str(error)
        unknown = MemoryBudget(Fit.UNKNOWN, why, unknown=(why,))
        return Fitting(Suggestion(Fit.UNKNOWN, why, OBJECTIVE, unknown))
    changes = found.arguments
    return Fitting(
        found,
        tuple(recipe_lines(changes, deployment.args)),
        tuple(recipe_diff(changes, deployment)),
        _command(prepared, changes),
    )


class Advice(Struct, frozen=True):
    """The best settings for a load, and how to apply them."""

    best: Best
    diff: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    command: str | None = None
    """Command with the settings; None if they change nothing."""

    @property
    def head(self) -> str:
        """Short summary of how much of the load fits."""
        if self.best.fit is Fit.UNKNOWN:
            return "the best settings are unknown"
        if self.best.fit is Fit.FITS:
            return "the complete load fits"
        if self.best.fit is Fit.TIGHT:
            return "the complete load fits only in the best case"
        return "part of the load fits" if self.best.requests else "the load does not fit"


def advice(
    prepared: Prepared, plan: Plan, requests: int | None = None, context: int | None = None
) -> Advice:
    """Return the best settings for a load. A part that is None defaults to the recipe's value.

    Raises InputError if the model does not support the load.
    """

    def plan_with(changes: Mapping[str, Any]) -> Plan:
        return resolve(prepared.changed(changes).request(os.environ), plan.facts)

    load = RequestLoad(requests or 0, context or 0)
    beyond = beyond_the_gpus(plan)
    if beyond is not None:
        return Advice(Best(Fit.FAILS, beyond, load))
    try:
        load = load_of(plan, requests, context)
        found = best_for(load, plan_with)
    except ValueError as error:
        raise InputError(
            Problem(str(error), help="set args.context_length if the model allows it")
        ) from None
    except (SpeclaunchError, UnknownValueError) as error:
        return Advice(Best(Fit.UNKNOWN, str(error), load))
    if found.fit is Fit.UNKNOWN or not found.requests:
        return Advice(found)
    deployment = prepared.recipe.deployment
    changes = {
        name: value
        for name, value in found.changes.items()
        if deployment.args.get(name) != value
        and not (value is None and name not in plan.request.values)
    }
    diff = tuple(recipe_lines(changes, deployment.args))
    overrides = tuple(recipe_diff(changes, deployment))
    return Advice(found, diff, overrides, _command(prepared, changes))


def _command(prepared: Prepared, changes: Mapping[str, Any]) -> str | None:
    return command_of(prepared.changed(changes)).text if changes else None


def recipe_lines(changes: Mapping[str, Any], args: Mapping[str, Any]) -> list[str]:
    """Return changes as lines of a recipe's `args`, prefixed with `- ` or `+ `."""
    lines = []
    for name, value in changes.items():
        written = [
            other
            for other, old in args.items()
            if old is not None and canonical(other) == canonical(name)
        ]
        lines += [f"- {other}: {_yaml(args[other])}" for other in written]
        lines.append(f"+ {written[0] if written else name}: {_yaml(value)}")
    return lines


def _yaml(value: Any) -> str:
    """Return a value as YAML: plain words unquoted, anything else as JSON."""
    if isinstance(value, str) and value.replace("_", "").replace(".", "").isalnum():
        return value
    return json.dumps(value, ensure_ascii=False)

"""Known engine bugs that may explain a failure, selected by the configuration in the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.checks import Advisory, Lookup, Symptom, all_advisories
from speclaunch.core import Place
from speclaunch.engine import (
    Plan,
    Request,
    RequestedValue,
    RequestOrigin,
    UnknownValueError,
    declare,
    load,
)
from speclaunch.serving.launch.diagnosis.interface import Diagnosis
from speclaunch.serving.launch.diagnosis.launch_log import UNREADABLE

_FAILURES = (Symptom.CRASH, Symptom.HANG, Symptom.REFUSAL)
_NAMED = (
    "model_path",
    "revision",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_draft_model_revision",
)
"""Arguments that decide which checkpoints are looked up."""


def known_bugs(diagnosis: Diagnosis) -> tuple[Advisory, ...]:
    """Return the advisories about failures that affect an engine with this configuration.

    Empty if the log shows no failure, no engine version or no arguments.
    """
    if not diagnosis.failed or diagnosis.version is None or not diagnosis.arguments:
        return ()
    plan = _plan(diagnosis.version, diagnosis.arguments, cpu=diagnosis.cpu)
    return tuple(
        advisory
        for advisory in all_advisories()
        if advisory.symptom in _FAILURES and _applies(advisory, plan)
    )


def _applies(advisory: Advisory, plan: Plan) -> bool:
    try:
        return advisory.applies(plan)
    except UnknownValueError:
        return False


def _plan(version: str, arguments: Mapping[str, Any], *, cpu: bool) -> Plan:
    """Return a plan with the logged `arguments`, which the engine had already resolved."""
    place = Place("log")
    named = {
        name: RequestedValue(name, arguments[name], name, place)
        for name in _NAMED
        if isinstance(arguments.get(name), str)
    }
    request = Request("log", RequestOrigin.COMMAND, load(version), place, named)
    facts = Lookup(hardware=declare("cpu") if cpu else None).facts(request)
    known = {name: value for name, value in arguments.items() if value is not UNREADABLE}
    undecided = dict.fromkeys(arguments.keys() - known.keys(), "the log shows no plain value")
    return Plan(request, facts, known, undecided)

"""What the rules say of a case, against what the engine made of it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from speclaunch.checks.rules.examine import BUG, Lookup, check_request
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.checks.rules.registry import all_rules
from speclaunch.engine.facts.cpu_engine import SGLANG_VERSION
from tests.support.checks.rules.harness import request_of

from . import models
from .case import Case
from .models import Healthy
from .stored import Stored


def write(case: Case, healthy: Healthy, folder: Path) -> None:
    """The checkpoints of a case: the folders `target` and `draft`."""
    models.write(case.target, healthy, folder / "target")
    if case.draft is not None:
        models.write(case.draft, healthy, folder / "draft")


def findings(case: Case, healthy: Healthy) -> tuple[Finding, ...]:
    """All findings about a case."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write(case, healthy, folder)
        args = case.arguments()
        for name in ("model_path", "speculative_draft_model_path"):
            if name in args:
                args[name] = str(folder / args[name])
        if case.lifted:
            del args["device"]
        request = request_of(args, None, case.env, SGLANG_VERSION)
        judgement = check_request(request, Lookup(), all_rules()).results
    stumbled = [one for one in judgement.skipped if one.reason.startswith(BUG)]
    assert not stumbled, stumbled
    return judgement.findings


def problems(case: Case, run: Stored, healthy: Healthy) -> list[str]:
    """How the rules' judgement differs from what the engine did, and from what the case says."""
    found = findings(case, healthy)
    errors = sorted({one.code for one in found if one.severity is Severity.ERROR})
    own = {one.severity.value for one in found if one.code == case.rules[0]}
    told = []
    if run.serves and errors and not (case.late and errors == [case.rules[0]]):
        told.append(f"it serves, and {', '.join(errors)} is an error")
    if not run.serves and not errors and not case.missed:
        told.append("it fails, and no rule foretells it")
    if case.missed and (run.serves or errors):
        told.append("it is marked as missed, and is not")
    if case.speaks and case.speaks not in own:
        told.append(f"{case.rules[0]} says {own or 'nothing'}, not {case.speaks}")
    if not case.speaks and own:
        told.append(f"{case.rules[0]} says {own}")
    return told


@cache
def stand_ins() -> Healthy:
    """The healthy checkpoints without an engine, read once."""
    return models.from_stand_ins()

"""Every plan has a budget: the cases of all rules, with facts that are missing, odd or hostile."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.plan.budget import Fit
from speclaunch.engine.plan.memory.budget import budget
from tests.support.checks.rules.harness import CASES, load_cases, plan_of

FILES = sorted(CASES.glob("*.yaml"))


@pytest.mark.thorough
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_case_has_a_budget(path: Path) -> None:
    for case in load_cases(path):
        if case.together or case.text is not None:
            continue
        plan = plan_of(case)
        machine = plan.facts.hardware or declare("h100-80gb")
        for hardware in (plan.facts.hardware, machine):
            found = budget(replace(plan, facts=replace(plan.facts, hardware=hardware)))
            assert found.why
            assert (found.fit is Fit.UNKNOWN) <= bool(found.unknown)
            assert (found.fit is Fit.FAILS) == (found.phase is not None)
            for rank in found.ranks:
                total = sum(share.size.bytes for share in rank.shares)
                assert total == rank.memory_bytes + rank.short_bytes

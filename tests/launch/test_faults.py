"""A short run of tools/fault_injection.py: whatever is killed, nothing is left of a launch."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "fault_injection.py"


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fault_injection", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(20, 30))
def test_faults_leave_nothing_behind(seed: int) -> None:
    said: list[str] = []
    counts = tool().rounds(3, seed, real=False, say=said.append)
    assert (counts["good"], counts["bad"]) == (3, 0), said


def test_every_process_is_struck_at_every_moment() -> None:
    faults = {(fault.name, fault.moment) for fault in tool().faults()}
    for victim in ("speclaunch", "engine", "scheduler", "detokenizer"):
        for number in ("SIGKILL", "SIGTERM", "SIGINT"):
            for moment in ("start", "serve", "stop"):
                assert (f"{number} {victim}", moment) in faults
    assert len(faults) > 50

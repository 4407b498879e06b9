"""A short run of campaigns/fault_injection.py: whatever is killed, nothing is left of a launch."""

from __future__ import annotations

import pytest

from campaigns import fault_injection


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(20, 30))
def test_faults_leave_nothing_behind(seed: int) -> None:
    said: list[str] = []
    counts = fault_injection.rounds(3, seed, real=False, say=said.append)
    assert (counts["good"], counts["bad"]) == (3, 0), said


def test_every_process_is_struck_at_every_moment() -> None:
    faults = {(fault.name, fault.moment) for fault in fault_injection.faults()}
    for victim in ("speclaunch", "engine", "scheduler", "detokenizer"):
        for number in ("SIGKILL", "SIGTERM", "SIGINT"):
            for moment in ("start", "serve", "stop"):
                assert (f"{number} {victim}", moment) in faults
    assert len(faults) > 50

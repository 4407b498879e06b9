"""An engine that is stopped, also when that is interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from speclaunch.measure.bench.engines import EngineOrder, MeasuredEngine

SLOW = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit(0)))
print("up", flush=True)
time.sleep(60)
"""


@pytest.mark.thorough
def test_an_interruption_while_it_stops_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE)
    assert slow.stdout is not None
    slow.stdout.readline()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: slow)
    engine = MeasuredEngine(EngineOrder("R", (), 1), tmp_path / "log")
    monkeypatch.undo()
    wait, said = slow.wait, [KeyboardInterrupt()]

    def interrupted(timeout: float | None = None) -> int:
        if said:
            raise said.pop()
        return wait(timeout)

    monkeypatch.setattr(slow, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.stop()
    assert slow.poll() == 0

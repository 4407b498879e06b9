"""Engines for the tests of the supervisor."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from speclaunch.deployments.recipe.schema import Launch
from speclaunch.engine.releases.command import RenderedArgs, RenderedArgument
from speclaunch.engine.releases.shell import Address
from speclaunch.serving.launch.client import Verification
from speclaunch.serving.launch.phases import PhaseTracker
from speclaunch.serving.launch.supervisor import EngineSpec
from tests.support.serving.launch.fake_sglang import FAKE


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def order(tmp_path: Path, port: int) -> Callable[..., EngineSpec]:
    def make(
        behaviour: str, *, smoke: bool = False, secrets: Sequence[str] = (), **settings: object
    ) -> EngineSpec:
        return EngineSpec(
            argv=[sys.executable, str(FAKE), behaviour, str(port)],
            env={**os.environ, "FAKE_API_KEY": "".join(secrets)},
            log=tmp_path / "engine.log",
            address=Address("127.0.0.1", port),
            rendered=RenderedArgs(
                "0.5.23",
                (
                    RenderedArgument(
                        "speculative_algorithm", "--speculative-algorithm", ("NGRAM",)
                    ),
                    RenderedArgument("max_running_requests", "--max-running-requests", ("8",)),
                ),
                {},
            ),
            settings=Launch.model_validate({"grace_seconds": 2, **settings}),
            secrets=secrets,
            smoke=smoke,
        )

    return make


@dataclass
class Recorder:
    """An observer that remembers, and can act when the engine is ready."""

    on_ready: Callable[[], None] = lambda: None
    on_spawn: Callable[[int], None] = lambda pid: None
    pid: int = 0
    phases: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    verification: Verification | None = None
    stops: list[str] = field(default_factory=list)

    def spawned(self, pid: int | None, log: Path) -> None:
        assert pid is not None
        self.pid = pid
        self.on_spawn(pid)

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        self.phases = [step.phase.value for step in tracker.steps]

    def output(self, lines: Sequence[str]) -> None:
        self.lines.extend(lines)

    def ready(self, verification: Verification | None, seconds: float) -> None:
        self.verification = verification
        self.on_ready()

    def stopping(self, why: str) -> None:
        self.stops.append(why)

    def warn(self, text: str) -> None:
        self.stops.append(text)

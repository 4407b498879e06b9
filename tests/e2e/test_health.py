"""What the real engine answers to a probe: what plan/startup.py says of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import httpx
import psutil
import pytest

from speclaunch.engine.plan.startup import USUAL_PATIENCE

from .conftest import Serving, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server() -> Iterator[Serving]:
    with serving("recipe=cpu_ngram") as found:
        found.report()
        yield found


def asked(server: Serving, path: str, timeout: float = 60) -> tuple[int, float]:
    """The answer, and the seconds that it took."""
    started = time.perf_counter()
    answer = httpx.get(f"http://127.0.0.1:{server.port}{path}", timeout=timeout)
    return answer.status_code, time.perf_counter() - started


def test_a_scheduler_that_hangs_is_noticed_by_generation_alone(server: Serving) -> None:
    processes = server.engine_processes()
    schedulers = [one for one in processes if "scheduler" in _name(one)]
    assert schedulers
    for one in schedulers:
        one.send_signal(signal.SIGSTOP)
    try:
        assert asked(server, "/ready")[0] == 200
        assert asked(server, "/v1/models")[0] == 200
        status, seconds = asked(server, "/health")
        assert status == 503
        assert seconds >= USUAL_PATIENCE
        assert asked(server, "/ready")[0] == 503
        assert asked(server, "/v1/models")[0] == 200
    finally:
        for one in schedulers:
            one.send_signal(signal.SIGCONT)
    assert asked(server, "/health_generate")[0] == 200


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""

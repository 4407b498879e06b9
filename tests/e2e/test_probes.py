"""The probes that are rendered, against a real engine that loads, is saturated, and hangs.

Not killed, not killed, restarted: a scripted kubelet applies the settings as they stand in the
text. Scaled is only what each part says.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.cpu_engine.programs import ensure_model
from speclaunch.serving.launch.inputs import engine_argv, engine_environment
from speclaunch.serving.launch.runs import free_port

from .conftest import speclaunch
from .kubelet import Kubelet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

DELAY = 22
"""Seconds that loading takes longer than it does with a tiny model."""
PATIENCE = 5
"""Seconds that the engine waits for its scheduler, instead of 20: what is rendered follows it."""
PROMPT = "one two three four five six seven eight"


def test_what_loads_or_is_saturated_lives_and_what_hangs_is_restarted(
    cpu_engine: CpuEngine, tmp_path: Path
) -> None:
    ensure_model(cpu_engine, "cycle")  # a launch writes it, and none comes before
    port = free_port()
    words = [
        "recipe=cpu_ngram",
        f"args.port={port}",
        f"+engine.env.SGLANG_HEALTH_CHECK_TIMEOUT='{PATIENCE}'",
    ]
    inside = ["+deploy.image=x/y:1", "+deploy.speclaunch=image", "recovery.policy=off"]
    done = speclaunch("render", *words, *inside, "--to", "kubernetes")
    assert done.returncode == 0, done.stderr
    (deployment,) = (one for one in yaml.safe_load_all(done.stdout) if one["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    prepared = prepare(load("cpu_ngram", words[1:]))
    command, env = engine_argv(prepared, None), engine_environment(prepared)

    def started(number: int) -> tuple[Sequence[str], Mapping[str, str]]:
        delay = DELAY if number == 0 else 0
        return ("sh", "-c", f'sleep {delay}; exec "$@"', "sh", *command), env

    with Kubelet(started, container, str(tmp_path / "engine.log")) as kubelet:
        # it loads: nothing is scaled
        took = kubelet.wait(lambda: kubelet.ready, 300)
        assert took > DELAY
        assert kubelet.restarts == 0
        assert kubelet.failures["startupProbe"] >= 2  # the probe did look while it loaded

        # it is saturated: asked ten times as often as rendered, with the rendered timeouts
        kubelet.count_anew()
        kubelet.pace = 10
        saturated = _saturate(port, lambda: kubelet.asked.get("livenessProbe", 0) >= 5)
        assert saturated > 4, "requests must wait for a slot"
        assert not kubelet.failures
        assert kubelet.ready and kubelet.restarts == 0

        # it hangs: the periods are a tenth of the rendered ones, the failures as many
        _stop_the_scheduler(kubelet)
        kubelet.wait(lambda: kubelet.restarts == 1, 300)
        assert kubelet.failures["livenessProbe"] >= container["livenessProbe"]["failureThreshold"]
        kubelet.wait(lambda: kubelet.ready, 300)
        assert _generate(port, 4) == 200
        assert kubelet.restarts == 1


def _saturate(port: int, enough: Callable[[], bool]) -> int:
    """More long requests than there are slots, until it is enough; how many waited at most."""
    begun = time.monotonic()
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            _generate(port, 600)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(24)]
    for thread in threads:
        thread.start()
    waiting = 0
    while time.monotonic() - begun < 35 or not enough():
        assert time.monotonic() - begun < 300, "a slow machine is probed seldom, but not so"
        time.sleep(1)
        waiting = max(waiting, _waiting(port))
    stopped.set()
    for thread in threads:
        thread.join(120)
    return waiting


def _generate(port: int, tokens: int) -> int:
    body = {
        "text": PROMPT,
        "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True},
    }
    return httpx.post(f"http://127.0.0.1:{port}/generate", json=body, timeout=200).status_code


def _waiting(port: int) -> int:
    """Requests that have no slot yet."""
    answer = httpx.get(f"http://127.0.0.1:{port}/v1/loads", timeout=30).json()
    return sum(int(one.get("num_waiting_reqs", 0)) for one in answer.get("loads", [answer]))


def _stop_the_scheduler(kubelet: Kubelet) -> None:
    assert kubelet.process is not None
    below = psutil.Process(kubelet.process.pid).children(recursive=True)
    schedulers = [one for one in below if "scheduler" in " ".join(one.cmdline())]
    assert schedulers, [one.cmdline() for one in below]
    for one in schedulers:
        os.kill(one.pid, signal.SIGSTOP)

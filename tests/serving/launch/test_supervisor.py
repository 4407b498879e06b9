"""Real processes, real signals: what a launch comes to, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from speclaunch.core.errors import LaunchError
from speclaunch.serving.launch import guard
from speclaunch.serving.launch.supervisor import Ending, EngineSpec, supervise

from .conftest import FAKE, Recorder

Make = Callable[..., EngineSpec]


def alive(pids: list[int]) -> list[int]:
    def runs(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [pid for pid in pids if runs(pid)]


@pytest.mark.thorough
def test_a_smoke_test_serves_reports_and_leaves_nothing(order: Make) -> None:
    below: list[int] = []
    recorder = Recorder()
    recorder.on_ready = lambda: below.extend([recorder.pid, *guard.descendants(recorder.pid)])
    outcome = supervise(order("serve", smoke=True), recorder)
    assert outcome.ending is Ending.STOPPED
    assert outcome.verification is not None and outcome.verification.ok
    assert outcome.verification.generation is not None
    assert outcome.verification.generation.acceptance_length == pytest.approx(3.2)
    changes = [(c.name, c.requested, c.effective) for c in outcome.verification.changes]
    assert changes == [("max_running_requests", "8", "4")]
    assert recorder.phases == [
        "import SGLang",
        "start scheduler",
        "load target weights",
        "allocate KV cache",
        "warm up",
        "ready",
    ]
    assert len(below) == 3
    assert alive(below) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("bad-flag", "error: unrecognized arguments: --no-such-flag"),
        (
            "bare-assertion",
            "AssertionError: assert cfg.speculative_eagle_topk is None (speculative_hook.py:1162)",
        ),
        ("silent-kill", "SIGKILL"),
        ("port-taken", "was taken while the engine was starting"),
        ("speculation-off", "speculation is off: NGRAM was requested"),
        ("generation-fails", "/generate answered 500"),
        ("endless-info", "the engine's answer is not valid: sends more than 16 MiB"),
    ],
)
def test_a_failed_start_says_why(order: Make, behaviour: str, reason: str) -> None:
    recorder = Recorder()
    outcome = supervise(order(behaviour), recorder)
    assert outcome.ending is Ending.FAILED
    assert outcome.reason is not None and reason in outcome.reason
    assert alive([recorder.pid]) == []


@pytest.mark.thorough
def test_a_server_that_answers_in_the_engines_place_is_not_taken_for_it(
    order: Make, port: int
) -> None:
    """It took the port while the weights were loading."""
    other = subprocess.Popen([sys.executable, str(FAKE), "alone", str(port)])
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.05)
        recorder = Recorder()
        outcome = supervise(order("stuck", ready_timeout_seconds=30), recorder)
    finally:
        other.terminate()
        other.wait()
    assert outcome.ending is Ending.FAILED
    assert outcome.reason is not None and f"process {other.pid}" in outcome.reason
    assert f"port {port} was taken" in outcome.reason
    assert recorder.verification is None


@pytest.mark.thorough
@pytest.mark.parametrize("failure", [RuntimeError("odd\nanswer"), SystemExit(3)])
def test_a_check_that_fails_by_itself_ends_the_launch(
    order: Make, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr("speclaunch.serving.launch.supervisor.verify", fail)
    recorder = Recorder()
    outcome = supervise(order("serve"), recorder)
    assert outcome.ending is Ending.FAILED and not outcome.served
    assert outcome.reason is not None
    assert outcome.reason.startswith("the check of the engine failed, a bug in speclaunch: ")
    assert outcome.reason.endswith(")") and "\n" not in outcome.reason
    assert alive([recorder.pid]) == []


@pytest.mark.thorough
def test_a_watchdog_that_fails_by_itself_ends_the_launch(
    order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speclaunch.serving.launch.supervisor.stopped_process", lambda _: 1 / 0)
    recorder = Recorder()
    outcome = supervise(order("serve", watchdog={"interval_seconds": 0.1}), recorder)
    assert outcome.ending is Ending.FAILED
    assert outcome.reason is not None
    assert outcome.reason.startswith("the watchdog failed, a bug in speclaunch: ZeroDivisionError")
    assert alive([recorder.pid]) == []


@pytest.mark.thorough
def test_an_engine_that_is_never_ready_is_given_up(order: Make) -> None:
    outcome = supervise(order("stuck", ready_timeout_seconds=1), Recorder())
    assert outcome.ending is Ending.FAILED
    assert outcome.reason is not None
    assert "not ready after 1 s" in outcome.reason
    assert "load target weights" in outcome.reason


@pytest.mark.thorough
def test_an_engine_that_dies_while_serving_is_reported_with_its_last_error(order: Make) -> None:
    outcome = supervise(order("dies-serving"), Recorder())
    assert outcome.ending is Ending.DIED
    assert outcome.engine_exit_code == 1
    assert outcome.reason is not None and "CUDA out of memory" in outcome.reason


@pytest.mark.thorough
def test_an_engine_that_dies_of_its_first_generation_failed_for_that(order: Make) -> None:
    """No verdict on what it serves: the log says why, and memory may be the reason."""
    outcome = supervise(order("dies-generating"), Recorder())
    assert outcome.ending is Ending.FAILED and not outcome.served
    assert outcome.verification is None
    assert outcome.reason is not None and "CUDA out of memory" in outcome.reason


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "ending"),
    [(signal.SIGINT, Ending.INTERRUPTED), (signal.SIGTERM, Ending.STOPPED)],
)
def test_a_signal_while_serving_stops_the_engine(
    order: Make, number: signal.Signals, ending: Ending
) -> None:
    below: list[int] = []
    recorder = Recorder()

    def interrupt() -> None:
        below.extend([recorder.pid, *guard.descendants(recorder.pid)])
        os.kill(os.getpid(), number)

    recorder.on_ready = interrupt
    outcome = supervise(order("serve"), recorder)
    assert outcome.ending is ending
    assert outcome.engine_exit_code == 0
    assert alive(below) == []


def test_a_signal_while_starting_interrupts(order: Make) -> None:
    recorder = Recorder(on_spawn=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    outcome = supervise(order("stuck"), recorder)
    assert outcome.ending is Ending.INTERRUPTED
    assert alive([recorder.pid]) == []


@pytest.mark.thorough
def test_an_engine_that_ignores_sigterm_is_killed_after_its_grace_time(order: Make) -> None:
    below: list[int] = []
    recorder = Recorder()
    recorder.on_ready = lambda: below.extend([recorder.pid, *guard.descendants(recorder.pid)])
    outcome = supervise(order("ignores-term", smoke=True, grace_seconds=1), recorder)
    assert outcome.engine_exit_code == -signal.SIGKILL
    assert alive(below) == []


@pytest.mark.thorough
def test_a_second_signal_ends_the_grace_time(order: Make) -> None:
    recorder = Recorder()

    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -INT {os.getpid()}"])

    recorder.on_ready = twice
    outcome = supervise(order("ignores-term", grace_seconds=600), recorder)  # past the time limit
    assert outcome.engine_exit_code == -signal.SIGKILL


@pytest.mark.thorough
def test_secrets_do_not_reach_the_log(order: Make) -> None:
    supervise(order("serve", smoke=True, secrets=["sk-very-secret"]), Recorder())
    log = order("serve").log.read_text()
    assert "the key is ***" in log
    assert "sk-very-secret" not in log


@pytest.mark.thorough
def test_a_file_with_secrets_is_gone_when_the_engine_is_ready(order: Make, tmp_path: Path) -> None:
    from msgspec.structs import replace

    secrets = tmp_path / "secrets.yaml"
    secrets.write_text("api-key: x\n")
    there: list[bool] = []
    recorder = Recorder(on_spawn=lambda _: there.append(secrets.exists()))
    recorder.on_ready = lambda: there.append(secrets.exists())
    supervise(replace(order("serve", smoke=True), private_files=[secrets]), recorder)
    assert there == [True, False]
    secrets.write_text("api-key: x\n")
    supervise(replace(order("bad-flag"), private_files=[secrets]), Recorder())
    assert not secrets.exists()


@pytest.mark.thorough
def test_an_observer_whose_terminal_is_gone_takes_nothing_down(order: Make) -> None:
    class Gone(Recorder):
        def progress(self, *_: object) -> None:
            raise OSError(5, "Input/output error")

        def stopping(self, why: str) -> None:
            raise BrokenPipeError

    outcome = supervise(order("serve", smoke=True), Gone())
    assert outcome.ending is Ending.STOPPED and outcome.engine_exit_code == 0


def test_a_process_of_the_engine_that_died_is_named(tmp_path: Path) -> None:
    from speclaunch.serving.launch.engine_log import dead_process

    lines = [
        "[2026-11-21 02:16:21] Subprocess scheduler_0 (pid=19730) crashed with exit code -9. "
        "Triggering SIGQUIT for cleanup..."
    ]
    assert dead_process(lines) == "its scheduler_0 (process 19730) ended: killed by signal 9"
    assert dead_process(["nothing"]) is None


def test_an_interpreter_that_cannot_be_run_is_one_clear_error(order: Make, tmp_path: Path) -> None:
    from msgspec.structs import replace

    missing = replace(order("serve"), argv=[str(tmp_path / "python"), "x"])
    with pytest.raises(LaunchError, match="cannot run the engine's interpreter: No such file"):
        supervise(missing, Recorder())


_LAUNCHER = textwrap.dedent(
    """
    import os, pathlib, sys
    sys.path.insert(0, {root!r})
    from tests.serving.launch.conftest import Recorder
    from speclaunch.engine.releases.command import RenderedArgs
    from speclaunch.engine.releases.shell import Address
    from speclaunch.serving.launch.supervisor import EngineSpec, supervise
    from speclaunch.deployments.recipe.schema import Launch
    port = {port}
    recorder = Recorder(on_ready=lambda: print("ready", flush=True))
    recorder.on_spawn = lambda pid: print(pid, flush=True)
    supervise(EngineSpec([sys.executable, {fake!r}, {behaviour!r}, str(port)], dict(os.environ),
        pathlib.Path({log!r}), Address("127.0.0.1", port), RenderedArgs("0.5.23", (), {{}}),
        Launch(grace_seconds=1)), recorder)
    """
)


@pytest.mark.thorough
@pytest.mark.parametrize("behaviour", ["serve", "ignores-term", "stuck"])
@pytest.mark.parametrize("victim", ["speclaunch", "guard"])
def test_kill_9_leaves_no_engine(
    order: Make, port: int, tmp_path: Path, behaviour: str, victim: str
) -> None:
    code = _LAUNCHER.format(
        root=str(Path(__file__).parents[3]),
        fake=order("serve").argv[1],
        behaviour=behaviour,
        port=port,
        log=str(tmp_path / "engine.log"),
    )
    speclaunch = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert speclaunch.stdout is not None
    engine = int(speclaunch.stdout.readline())
    if behaviour == "stuck":
        time.sleep(0.3)
    else:
        assert speclaunch.stdout.readline() == "ready\n"
    guard_pid = psutil.Process(engine).ppid()
    below = [guard_pid, engine, *guard.descendants(engine)]
    os.kill(speclaunch.pid if victim == "speclaunch" else guard_pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while alive(below) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(below) == []
    speclaunch.kill()
    speclaunch.communicate()

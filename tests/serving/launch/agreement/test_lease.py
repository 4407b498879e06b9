"""A rank that lost the agreement does not serve: its engine ends with its lease, whatever hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speclaunch.serving.launch.agreement.membership import DirectoryStore, Membership, StoreError
from speclaunch.serving.launch.agreement.ranks import AgreementKeeper
from speclaunch.serving.launch.agreement.records import Joined, Name, RankStage, RankState
from speclaunch.serving.launch.guard import boot_seconds
from speclaunch.serving.launch.process import EngineProcess

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def wait(what: Callable[[], Any], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.thorough
def test_an_engine_ends_with_its_lease(tmp_path: Path) -> None:
    with EngineProcess(
        SLEEP, os.environ, tmp_path / "log", grace_seconds=5, until=boot_seconds() + 0.5
    ) as engine:
        assert engine.wait(5)
        assert engine.exit_code == -signal.SIGKILL


@pytest.mark.thorough
def test_a_lease_that_is_extended_goes_on(tmp_path: Path) -> None:
    with EngineProcess(
        SLEEP, os.environ, tmp_path / "log", grace_seconds=5, until=boot_seconds() + 1.0
    ) as engine:
        for _ in range(6):
            engine.extend(boot_seconds() + 1.0)
            assert not engine.wait(0.3)
        assert engine.wait(5)


@pytest.mark.thorough
def test_the_engine_of_a_speclaunch_that_was_stopped_ends_with_its_lease(tmp_path: Path) -> None:
    """It is stopped as a debugger or a frozen container does it; its guard is not."""
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from speclaunch.serving.launch.process import EngineProcess\n"
        "from speclaunch.serving.launch.guard import boot_seconds\n"
        f"engine = EngineProcess({SLEEP!r}, {{}}, Path({str(tmp_path / 'log')!r}), grace_seconds=5,"
        " until=boot_seconds() + 2)\n"
        "engine.poll(1)\n"
        "print(engine.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    keeper = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert keeper.stdout is not None
        pid = int(keeper.stdout.readline())
        keeper.send_signal(signal.SIGSTOP)
        assert Path(f"/proc/{pid}").exists()
        wait(lambda: not Path(f"/proc/{pid}").exists())
    finally:
        keeper.kill()
        keeper.communicate()


class BadStore(DirectoryStore):
    """Does what it is told to from outside."""

    refuses = False
    hangs = 0.0
    answers = threading.Event()
    """Ends what hangs."""

    def overwrite(self, name: str, data: bytes) -> None:
        BadStore.answers.wait(BadStore.hangs)
        if BadStore.refuses:
            raise StoreError("write to", OSError(28, os.strerror(28)), Path("/shared"))
        super().overwrite(name, data)


def member(path: Path, rank: int, *, space: str = "") -> Membership:
    def store(place: Path, owner: str) -> DirectoryStore:
        return BadStore(place, owner)

    joined = Joined(Name("server", rank), "k", lease_seconds=1.0, space=space, mark=f"m{rank}")
    return Membership(path / "job", joined, ["server"], boot_seconds, store)


def keeper(path: Path, rank: int) -> AgreementKeeper:
    found = AgreementKeeper(member(path, rank), 1.0)
    found.start()
    wait(lambda: found.view)
    return found


@pytest.mark.thorough
def test_a_lease_runs_out_when_the_directory_refuses_and_is_not_taken_up_again(
    tmp_path: Path,
) -> None:
    one = keeper(tmp_path, 0)
    time.sleep(1.5)
    assert not one.lapsed
    BadStore.refuses = True
    try:
        wait(lambda: one.lapsed, 3)
    finally:
        BadStore.refuses = False
    assert "No space left on device" in str(one.error)
    time.sleep(0.5)
    assert one.lapsed, "the others have counted on it"
    one.stop(1)


@pytest.mark.thorough
def test_a_lease_runs_out_while_the_directory_does_not_answer(tmp_path: Path) -> None:
    one = keeper(tmp_path, 0)
    BadStore.hangs = 600.0  # past the time limit: who asks does not wait for the disk
    try:
        wait(lambda: one.lapsed)
    finally:
        BadStore.hangs = 0.0
        BadStore.answers.set()
    one.stop(5)
    BadStore.answers.clear()


@pytest.mark.thorough
def test_a_slow_directory_costs_no_lease(tmp_path: Path) -> None:
    one = keeper(tmp_path, 0)
    BadStore.hangs = 0.3
    try:
        for _ in range(20):
            time.sleep(0.1)
            assert not one.lapsed
    finally:
        BadStore.hangs = 0.0
    one.stop(2)


def test_what_is_told_is_on_the_disk_when_its_cycle_is_done(tmp_path: Path) -> None:
    one = keeper(tmp_path, 0)
    cycle = one.publish(RankState(0, 3, RankStage.STARTING, 3), {"epoch-00000.json": b"{}"})
    wait(lambda: one.has_done(cycle))
    assert (tmp_path / "job" / "g0001" / "epoch-00000.json").read_bytes() == b"{}"
    other = member(tmp_path, 1)
    (peer,) = other.join().peers
    assert peer.state is not None and (peer.state.epoch, peer.state.stage) == (
        3,
        RankStage.STARTING,
    )
    one.stop(1)


def test_a_life_that_is_silent_for_longer_than_its_lease_is_gone(tmp_path: Path) -> None:
    now = [0.0]
    first, second = member(tmp_path, 0), member(tmp_path, 1)
    second._clock = lambda: now[0]
    first.join()
    first.beat(RankState(1))
    assert not second.join().peers[0].gone
    for now[0] in (1.0, 3.0):
        assert not second.read_view().peers[0].gone
    first.beat(RankState(2))
    now[0] = 4.0
    assert not second.read_view().peers[0].gone
    now[0] = 8.0
    assert second.read_view().peers[0].gone


def test_a_later_life_fences_the_one_before(tmp_path: Path) -> None:
    first, second = member(tmp_path, 0), member(tmp_path, 0)
    assert not first.join().fenced
    view = second.join()
    assert second.joined.name.life == 2 and not view.fenced
    assert first.read_view().fenced


def test_a_life_that_left_no_process_on_this_host_is_gone_at_once(tmp_path: Path) -> None:
    from speclaunch.serving.launch.agreement.membership import is_gone, process_space

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    joined = Joined(Name("server", 0), "k", space=process_space(), pid=ended.pid, mark="x")
    assert is_gone(joined)
    engine = subprocess.Popen(SLEEP, env={**os.environ, "SPECLAUNCH_RANK": "x"})
    try:
        wait(lambda: not is_gone(joined))
    finally:
        engine.kill()
        engine.wait()
    elsewhere = Joined(Name("server", 0), "k", space="another boot", pid=ended.pid, mark="x")
    assert not is_gone(elsewhere), "another host, container or boot: only its lease tells"


def test_a_new_generation_waits_for_the_lives_of_the_one_that_ended(tmp_path: Path) -> None:
    from speclaunch.serving.launch.agreement.records import (
        Decision,
        DecisionKind,
        PartSettings,
        dump,
        epoch_file,
    )

    old = member(tmp_path, 1)
    old.join()
    old.beat(RankState(1, 0, RankStage.SERVING, 0))
    end = Decision(0, DecisionKind.END, "server.0.1", {"server": PartSettings({}, 0)})
    old.create(epoch_file("epoch", 0), dump(end))
    new = member(tmp_path, 0)
    (peer,) = new.join().peers
    assert new.generation == 2 and peer.former and not peer.gone
    old.beat(RankState(2, 0, RankStage.LEFT))
    assert new.read_view().peers in ((), (peer,)) or all(one.gone for one in new.read_view().peers)
    assert new.read_view().peers == ()

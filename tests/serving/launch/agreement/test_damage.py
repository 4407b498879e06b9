"""Records that are damaged, special files or from a wrong clock: reported, and never waited for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speclaunch.serving.launch.agreement.membership import Membership
from speclaunch.serving.launch.agreement.protocol import Lost, Mine, View, Wait, act
from speclaunch.serving.launch.agreement.ranks import RankLaunching
from speclaunch.serving.launch.agreement.records import (
    Decision,
    DecisionKind,
    Failure,
    Joined,
    Name,
    PartSettings,
    RankGroup,
    RankStage,
    RankState,
    dump,
    dump_state,
    epoch_file,
    failed_file,
    life_file,
)
from speclaunch.serving.launch.process import Interrupts
from speclaunch.serving.launch.supervisor import Ending

GENERATION = "job/g0001"


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def secret(path: Path) -> None:
    path.write_bytes(b"{}")
    path.chmod(0)


def text(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


DAMAGE: dict[str, Callable[[Path], None]] = {
    "empty": text(b""),
    "cut off": text(b'{"version": 1, "epo'),
    "no object": text(b"[1]"),
    "of another version": text(b'{"version": 99}'),
    "nested": text(b"[" * 100_000),
    "nested a little": text(b'{"version": 1, "a": ' + b"[" * 300 + b"]" * 300 + b"}"),
    "no text": text(b"\xff\xfe\x00"),
    "oversized": sparse,
    "a directory": lambda path: path.mkdir(),
    "a FIFO": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link in a circle": lambda path: path.symlink_to(path),
    "of another user": secret,
}
if os.geteuid() == 0:
    del DAMAGE["of another user"]  # it may read everything


def member(path: Path, rank: int, clock: Callable[[], float] = lambda: 0.0) -> Membership:
    joined = Joined(Name("server", rank), "k", lease_seconds=1.0, mark=f"m{rank}")
    return Membership(path / "job", joined, ["server"], clock)


def decision(epoch: int = 0, **changes: Any) -> dict[str, Any]:
    said = json.loads(
        dump(Decision(epoch, DecisionKind.BEGIN, "server.0.1", {"server": PartSettings({}, 0)}))
    )
    return {**said, **changes}


def put(path: Path, file: str, said: object) -> None:
    (path / GENERATION).mkdir(parents=True, exist_ok=True)
    (path / GENERATION / file).write_text(json.dumps(said))


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_decision_is_reported_and_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / GENERATION / epoch_file("epoch", 0)
    path.parent.mkdir(parents=True)
    DAMAGE[name](path)
    one = member(tmp_path, 0)
    view = one.join()
    assert view.damaged.startswith((f"{path} ", f"cannot read {path}: ")), view.damaged
    assert "another launch.agreement.job" in view.damaged
    assert len(view.unreadable) == 1 and str(path) in view.unreadable[0]
    mine = Mine(one.joined, {"server": 1})
    assert act(mine, view) == Wait(view.damaged)
    assert act(mine, View(damaged="why", stale=True)) == Lost("why")


@pytest.mark.parametrize(
    "said",
    [
        decision(7),
        decision(parts={}),
        decision(parts={"other": {"changes": {}, "since": 0}}),
        decision(parts={"server": {"changes": {}, "since": 9}}),
        decision(parts={"server": {"changes": {}, "since": -1}}),
    ],
)
def test_a_decision_of_another_launch_is_damage(tmp_path: Path, said: object) -> None:
    put(tmp_path, epoch_file("epoch", 0), said)
    assert "is not a valid record" in member(tmp_path, 0).join().damaged


def test_a_decision_from_the_future_is_damage(tmp_path: Path) -> None:
    put(tmp_path, epoch_file("epoch", 0), decision())
    put(tmp_path, epoch_file("epoch", 99_999), decision(99_999))
    put(tmp_path, epoch_file("served", 99_999), {})
    view = member(tmp_path, 0).join()
    assert "epoch-00001.json is missing" in view.damaged
    assert len(view.decisions) == 1 and view.served == -1


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_life_is_reported_and_waited_for_no_longer_than_a_lease(
    tmp_path: Path, name: str
) -> None:
    now = [0.0]
    path = tmp_path / GENERATION / life_file("life", Name("server", 1, 1))
    path.parent.mkdir(parents=True)
    DAMAGE[name](path)
    one = member(tmp_path, 0, lambda: now[0])
    view = one.join()
    assert not view.damaged and len(view.unreadable) == 1 and str(path) in view.unreadable[0]
    assert [(peer.gone, peer.former) for peer in view.peers] == [(False, True)]
    now[0] = 4.0
    assert [peer.gone for peer in one.read_view().peers] == [True]


@pytest.mark.parametrize("lease", [1e6, 1e300, float("inf"), float("nan"), -1.0, 10**400])
def test_no_record_holds_a_lease_for_ever(tmp_path: Path, lease: float) -> None:
    now = [0.0]
    name = Name("server", 1, 1)
    joined = json.loads(dump(Joined(name, "k", lease_seconds=1.0)))
    put(tmp_path, life_file("life", name), {**joined, "lease_seconds": lease})
    one = member(tmp_path, 0, lambda: now[0])
    assert "is not a valid record" in "".join(one.join().unreadable)
    now[0] = 4.0
    assert one.read_view().peers[0].gone


def test_no_time_of_a_file_holds_a_lease(tmp_path: Path) -> None:
    now = [0.0]
    name = Name("server", 1, 1)
    put(tmp_path, life_file("life", name), json.loads(dump(Joined(name, "k", lease_seconds=1.0))))
    beat = tmp_path / GENERATION / life_file("beat", name)
    beat.write_bytes(dump_state(RankState(10**12, 0, RankStage.SERVING, 0)))
    os.utime(beat, (1e11, 1e11))
    one = member(tmp_path, 0, lambda: now[0])
    assert not one.join().peers[0].gone
    now[0] = 4.0
    assert one.read_view().peers[0].gone


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_state_is_silence(tmp_path: Path, name: str) -> None:
    now = [0.0]
    life = Name("server", 1, 1)
    put(tmp_path, life_file("life", life), json.loads(dump(Joined(life, "k", lease_seconds=1.0))))
    path = tmp_path / GENERATION / life_file("beat", life)
    DAMAGE[name](path)
    one = member(tmp_path, 0, lambda: now[0])
    assert not one.join().peers[0].gone
    now[0] = 4.0
    view = one.read_view()
    assert view.peers[0].gone
    assert len(view.unreadable) == 1 and str(path) in view.unreadable[0]


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_failure_is_reported_and_blocks_its_own_rank(tmp_path: Path, name: str) -> None:
    one = member(tmp_path, 0)
    one.join()
    put(tmp_path, epoch_file("epoch", 0), decision())
    other = tmp_path / GENERATION / failed_file(0, Name("server", 1, 1))
    DAMAGE[name](other)
    view = one.read_view()
    assert not view.damaged and str(other) in view.unreadable[0]
    own = tmp_path / GENERATION / failed_file(0, one.joined.name)
    DAMAGE[name](own)
    assert str(own) in one.read_view().damaged


def test_a_record_that_is_mended_counts_again(tmp_path: Path) -> None:
    path = tmp_path / GENERATION / epoch_file("epoch", 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    one = member(tmp_path, 0)
    assert one.join().damaged
    put(tmp_path, epoch_file("epoch", 0), decision())
    put(
        tmp_path,
        failed_file(0, one.joined.name),
        json.loads(dump(Failure(one.joined.name, 0, memory=False, why="x"))),
    )
    view = one.read_view()
    assert (view.damaged, view.unreadable, len(view.failures)) == ("", (), 1)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_of_the_memory_is_as_good_as_none(tmp_path: Path, name: str) -> None:
    one = member(tmp_path, 0)
    (tmp_path / "last-good").mkdir()
    DAMAGE[name](tmp_path / "last-good" / f"{one._memory_key(['server'])}.json")
    assert one.join().known_good is None


def test_a_state_is_not_written_through_a_link_or_into_a_pipe(tmp_path: Path) -> None:
    one = member(tmp_path, 0)
    one.join()
    path = tmp_path / GENERATION / life_file("beat", one.joined.name)
    precious = tmp_path / "precious"
    precious.write_text("x")
    for make in (lambda: path.symlink_to(precious), lambda: os.mkfifo(path)):
        make()
        with pytest.raises(Exception, match="cannot write to"):
            one.beat(RankState(1))
        path.unlink()
    assert precious.read_text() == "x"


class Observer:
    """Collects what a launch reports."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)

    warn = note


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["nested", "a FIFO", "a device"])
def test_a_launch_ends_within_its_lease(tmp_path: Path, name: str) -> None:
    path = tmp_path / GENERATION / epoch_file("epoch", 0)
    path.parent.mkdir(parents=True)
    DAMAGE[name](path)
    observer: Any = Observer()
    with Interrupts() as interrupts:
        launching = RankLaunching(
            group=RankGroup(tmp_path, "job", "server", 0, {"server": 1}, 1.0, 600.0, "k"),
            order=lambda *_: pytest.fail("no engine may start"),
            diagnose=lambda *_, **__: pytest.fail("no engine has ended"),
            version="0.5.23",
            observer=observer,
            interrupts=interrupts,
            log=tmp_path / "log",
        )
        found = launching.run()
    assert found.outcome.ending is Ending.FAILED
    assert str(path) in (found.outcome.reason or "")
    assert sum(one.startswith("unreadable record: ") for one in observer.texts) == 1

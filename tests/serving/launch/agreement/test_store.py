"""The shared directory: files appear whole and once, and what goes wrong is said with its remedy."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.serving.launch.agreement import records
from speclaunch.serving.launch.agreement.membership import (
    DirectoryStore,
    StoreError,
    make_directory,
)
from speclaunch.serving.launch.agreement.records import (
    Decision,
    DecisionKind,
    Failure,
    Joined,
    Name,
    PartSettings,
    RankStage,
    RankState,
    dump,
    dump_state,
    load_decision,
    load_failure,
    load_joined,
    load_state,
)

NAME = Name("server", 1, 2)


def test_of_many_who_create_a_file_one_has_made_it(tmp_path: Path) -> None:
    won: list[int] = []

    def create(number: int) -> None:
        if DirectoryStore(tmp_path, f"rank-{number}").create("epoch", b"%d" % number * 10_000):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    (winner,) = won
    assert (tmp_path / "epoch").read_bytes() == b"%d" % winner * 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["epoch"], "no unfinished file is left"


def test_a_link_whose_answer_was_lost_has_been_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NFS client sends a request again; the second answer says that it exists."""
    link = os.link

    def lost(*args: Any) -> None:
        link(*args)
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr(os, "link", lost)
    assert DirectoryStore(tmp_path, "rank").create("epoch", b"ours")
    monkeypatch.undo()
    assert not DirectoryStore(tmp_path, "rank").create("epoch", b"other")
    assert (tmp_path / "epoch").read_bytes() == b"ours"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "speclaunch-test", str(place)]
    if os.geteuid() or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_named_and_the_heartbeat_goes_on(small_disk: Path) -> None:
    store = DirectoryStore(small_disk, "rank")
    store.overwrite("beat", dump_state(RankState(1)))
    with pytest.raises(OSError, match="No space"), (small_disk / "filler").open("wb") as filler:
        while True:
            filler.write(b"x" * 4096)
            filler.flush()
    with pytest.raises(StoreError, match="No space left on device") as failed:
        store.create("epoch", b"x" * 8192)
    assert failed.value.help == "free some space on its disk"
    store.overwrite("beat", dump_state(RankState(2)))
    assert load_state(store.read("beat") or b"") == RankState(2)
    assert sorted(store.names()) == ["beat", "filler"]
    assert not list(small_disk.glob(".tmp-*"))


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "mount its file system writable"),
        (errno.ESTALE, "mount its file system again"),
        (errno.EPERM, "hard links"),
        (errno.EIO, "mounted on every host"),
    ],
)
def test_what_a_disk_refuses_has_a_remedy(
    number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match=os.strerror(number)) as failed:
        DirectoryStore(tmp_path, "rank").create("epoch", b"{}")
    assert remedy in failed.value.help
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot create"):
        make_directory(tmp_path / "file" / "below")


def test_what_was_left_unfinished_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".tmp-server.1-abc-1").touch()
    (tmp_path / ".tmp-server.0-abc-1").touch()
    store = DirectoryStore(tmp_path, "server.1-def")
    assert store.names() == []
    store.sweep("server.1-")
    assert [path.name for path in tmp_path.iterdir()] == [".tmp-server.0-abc-1"]


CHANGES = st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8) | st.none())


@pytest.mark.thorough
@given(CHANGES, st.integers(0, 99), st.text(max_size=30))
def test_what_is_written_is_read(changes: dict[str, Any], epoch: int, text: str) -> None:
    joined = Joined(NAME, text, changes, True, 3.5, text, text, 7, text)
    assert load_joined(dump(joined)) == joined
    parts = {"server": PartSettings(changes, epoch)}
    decision = Decision(epoch, DecisionKind.MEMORY, text, parts, text, changes, text, text, text)
    assert load_decision(dump(decision)) == decision
    failure = Failure(NAME, epoch, True, text, text, changes)
    assert load_failure(dump(failure)) == failure
    state = RankState(epoch, epoch - 1, RankStage.SERVING, epoch)
    assert load_state(dump_state(state)) == state and len(dump_state(state)) == records.STATE_BYTES


@given(st.binary(max_size=400))
def test_what_is_not_valid_is_as_good_as_absent(data: bytes) -> None:
    loads = (load_joined, load_decision, load_failure, load_state)
    assert [load(data) for load in loads] == [None] * 4  # type: ignore[operator]


@given(st.integers(0, records.STATE_BYTES), st.integers(1, 10**9), st.integers(1, 10**9))
def test_a_state_that_is_read_while_it_is_written_is_one_of_both(
    cut: int, before: int, after: int
) -> None:
    old, new = RankState(before, 1, RankStage.WAITING), RankState(after, 2, RankStage.STARTING, 2)
    torn = dump_state(new)[:cut] + dump_state(old)[cut:]
    assert load_state(torn) in (old, new, None)

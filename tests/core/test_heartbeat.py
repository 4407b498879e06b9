"""Signs of life: when, what, and that they end."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from speclaunch.core.heartbeat import Growth, Heartbeat, amount, announced_bytes, beating, duration
from tests.support.loops import rows


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_speaks_only_after_silence() -> None:
    clock, said = Clock(), list[str]()
    heartbeat = Heartbeat(said.append, lambda seconds: f"after {seconds:.0f} s", clock=clock)
    clock.now += 14.9
    assert not heartbeat.beat()
    clock.now += 0.1
    assert heartbeat.beat()
    assert not heartbeat.beat(), "twice at the same moment"
    clock.now += 10
    heartbeat.note_output()
    clock.now += 10
    assert not heartbeat.beat(), "something else was said 10 s ago"
    clock.now += 5
    assert heartbeat.beat()
    assert said == ["after 15 s", "after 40 s"]


def test_a_closed_pipe_is_left_alone() -> None:
    clock, tries = Clock(), list[str]()

    def closed(text: str) -> None:
        tries.append(text)
        raise BrokenPipeError

    heartbeat = Heartbeat(closed, lambda _: "alive", clock=clock)
    for _ in range(3):
        clock.now += 20
        assert not heartbeat.beat()
    assert tries == ["alive"]


@pytest.mark.thorough
def test_a_thread_beats_while_another_thing_is_waited_for_and_ends_with_it() -> None:
    said: list[str] = []
    with beating(said.append, lambda _: "alive", every=0.05):
        time.sleep(0.4)
    number = len(said)
    assert number >= 2
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]
    time.sleep(0.15)
    assert len(said) == number


def test_growth_counts_what_came_even_if_it_is_gone_again(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"x" * 5000)
    clock = Clock()
    growth = Growth(tmp_path, expected=4_000_000, clock=clock)
    clock.now += 10
    download = tmp_path / "pip-unpack" / "torch.whl"
    download.parent.mkdir()
    download.write_bytes(b"x" * 1_000_000)
    assert growth.text() == "1.0 of 4.0 MB, 100 kB/s, about 30 s left"
    download.unlink()
    (tmp_path / "pip-unpack" / "numpy.whl").write_bytes(b"x" * 500_000)
    clock.now += 10
    assert growth.text() == "1.5 of 4.0 MB, 50 kB/s, about 50 s left"


def test_growth_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    growth = Growth(tmp_path / "later")
    assert growth.text() == "0 B so far"


@rows(
    "done, expected, speed, text",
    [
        (1_200_000_000, None, 38_000_000, "1.2 GB so far, 38 MB/s"),
        (1_200_000_000, 3_600_000_000, 38e6, "1.2 of 3.6 GB, 38 MB/s, about 1 min 3 s left"),
        (5_000_000, 4_000_000, 1e6, "5 MB so far, 1 MB/s"),  # more than was announced
        (5_000_000, 9_000_000, 0, "5.0 of 9.0 MB"),
    ],
)
def test_amounts(done: int, expected: int | None, speed: float, text: str) -> None:
    assert amount(done, expected, speed) == text


@rows(
    "seconds, text",
    [(0.4, "0 s"), (59.9, "59 s"), (200, "3 min 20 s"), (3900, "1 h 5 min"), (183600, "2 d 3 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@rows(
    "line, expected",
    [
        ("  Downloading torch-2.13.0-cp311-cp311-linux_x86_64.whl (915.2 MB)", 915_200_000),
        ("Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)", 11_000),
        ("Collecting torch==2.13.0 (from -r requirements.txt (line 3))", None),
        ("Downloading six-1.17.0-py2.py3-none-any.whl.metadata", None),
        ("Using cached torch-2.13.0.whl (915.2 MB)", None),
    ],
)
def test_what_pip_announces(line: str, expected: int | None) -> None:
    assert announced_bytes(line) == expected

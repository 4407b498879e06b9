"""Logs that rotate, as their writer and their readers see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.serving.launch.engine_log import Follower, lines_of, log_files, read_log
from speclaunch.serving.launch.guard import Log


def test_a_full_log_is_put_aside_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log = Log(str(path), [], most=100, keep=2)
    for number in range(50):
        log.write(f"line {number:03d}\n".encode())
    assert [file.name for file in log_files(path)] == [
        "engine.log.2",
        "engine.log.1",
        "engine.log",
    ]
    assert all(file.stat().st_size <= 110 for file in log_files(path))
    lines = list(read_log(path))
    assert lines == [f"line {number:03d}" for number in range(50)][-len(lines) :]
    assert len(lines) > 25


def test_keeping_none_empties_the_file(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    log, follower = Log(str(path), [], most=50, keep=0), Follower(path)
    seen = []
    for number in range(20):
        log.write(f"line {number:03d}\n".encode())
        seen += follower.lines()
    assert log_files(path) == [path]
    assert seen == [f"line {number:03d}" for number in range(20)]


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 400), max_size=60), st.integers(1, 300), st.integers(0, 3))
def test_who_follows_misses_nothing_over_rotations(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int], most: int, keep: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "engine.log"
    log, follower = Log(str(path), [], most=most, keep=keep), Follower(path)
    written, seen = [], []
    for number, length in enumerate(pieces):
        line = f"{number}:" + "x" * length
        written.append(line)
        log.write(line.encode() + b"\n")
        seen += follower.lines()
    assert seen == written


def test_a_log_directory_that_is_removed_takes_nothing_down(tmp_path: Path) -> None:
    path = tmp_path / "run" / "engine.log"
    path.parent.mkdir()
    log, follower = Log(str(path), [], most=20, keep=2), Follower(path)
    log.write(b"one\n")
    assert follower.lines() == ["one"]
    path.unlink()
    path.parent.rmdir()
    log.write(b"two, and so long that it would be put aside\n")
    log.write(b"three\n")
    assert log.error == "No such file or directory" or log.error is None
    assert follower.lines()[0].startswith("two")


def test_a_very_long_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    with path.open("w") as file:
        file.write("the first line\n")
        for _ in range(9000):
            file.write("x" * 1000 + "\n")
        file.write("the last line\n")
    lines = list(read_log(path))
    assert (lines[0], lines[-1]) == ("the first line", "the last line")
    assert len(lines) < 6000


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path) -> None:
    assert list(read_log(tmp_path / "none.log")) == []
    assert Follower(tmp_path / "none.log").lines() == []
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded_whatever_is_written(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_bytes(b"x" * (9 << 20) + b"\nend\n" + b"y" * (1 << 20))
    follower, sizes, seen = Follower(path), [], []
    while not sizes or follower.is_behind:
        seen += follower.lines()
        sizes.append(len(follower._rest))
    assert max(sizes) < 1 << 16 and len(sizes) == 3
    assert max(map(len, seen)) <= 1 << 16
    assert "".join(seen) == "x" * (9 << 20) + "end" + "y" * ((1 << 20) - len(follower._rest))


@pytest.mark.thorough
def test_who_is_behind_reads_the_old_file_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    follower = Follower(path)
    path.write_bytes(b"".join(b"%d\n" % number for number in range(1_000_000)))
    seen = follower.lines()
    path.rename(tmp_path / "engine.log.1")
    path.write_bytes(b"new\n")
    while follower.is_behind:
        seen += follower.lines()
    seen += follower.lines()
    assert seen == [*map(str, range(1_000_000)), "new"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_without_an_end_is_cut(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "log"
    path.write_text("x" * (1 << 20) + "\nend\n", encoding=encoding)
    with path.open("rb") as file:
        assert [len(line) for line in lines_of(file)] == [1 << 16, 4]

"""Files and streams of strangers: only what ends is read, up to a limit, within a time."""

from __future__ import annotations

import io
import os
import socket
from pathlib import Path

import pytest

from speclaunch.core import reads
from speclaunch.core.reads.bounded import (
    IrregularFileError,
    TooLargeError,
    is_endless,
    open_regular,
    read_regular,
    read_stream,
    reason,
)


def test_a_regular_file_is_read_completely(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10)
    assert read_regular(path, 10) == b"x" * 10
    assert read_regular("/proc/self/status", 1 << 20).startswith(b"Name:")  # of size 0
    with pytest.raises(TooLargeError, match="it has 10 bytes, more than 9 bytes"):
        read_regular(path, 9)
    with pytest.raises(TooLargeError):
        read_regular("/proc/self/status", 10)


def test_a_sparse_file_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(100 << 30)
    with pytest.raises(TooLargeError, match="107374182400 bytes, more than 10 MiB"):
        reads.read_bytes(path)


@pytest.mark.parametrize("kind", ["device", "link", "pipe", "socket", "directory"])
def test_anything_else_is_refused_without_waiting(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if kind == "device":
        path = Path("/dev/zero")
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        here = Path.cwd()
        with socket.socket(socket.AF_UNIX) as found:
            os.chdir(tmp_path)  # the name of a socket is short
            try:
                found.bind("x")
            finally:
                os.chdir(here)
    with pytest.raises(IrregularFileError) as caught:
        read_regular(path)
    assert reason(caught.value) == (
        "is a directory" if kind == "directory" else "not a regular file"
    )
    with reads.recording() as looked, pytest.raises(OSError, match=str(path)):
        reads.read_text(path)
    assert not looked.repeatable


def test_a_pipe_without_a_writer_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "x"
    os.mkfifo(path)
    handle, _ = open_regular(path, pipes=True)
    with os.fdopen(handle, "rb") as file:
        assert file.read() == b""


def test_a_name_that_no_file_can_have_is_an_error() -> None:
    for name in ("x" * 100_000, "a\0b"):
        with pytest.raises(OSError, match=r"too long|null"):
            read_regular(name)


def test_a_stream_ends_at_its_limits() -> None:
    assert read_stream(io.BytesIO(b"abc"), 3) == b"abc"
    with pytest.raises(TooLargeError):
        read_stream(io.BytesIO(b"abcd"), 3)
    with Path("/dev/zero").open("rb") as zero:
        assert is_endless(zero)
        with pytest.raises(TooLargeError):
            read_stream(zero, 1000)
    with Path(os.devnull).open("rb") as nothing:
        assert not is_endless(nothing)
        assert read_stream(nothing) == b""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb") as other:
        os.write(other.fileno(), b"ab")
        with pytest.raises(TimeoutError, match="no end of input after"):
            read_stream(pipe, seconds=0.01)

"""Ports that are still free when the engine has loaded."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from speclaunch.core.errors import LaunchError
from speclaunch.serving.launch import runs


@pytest.mark.thorough
def test_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    found = [runs.free_port() for _ in range(50)]
    assert len(set(found)) == 50
    assert all(runs._FIRST <= one < runs._first_outgoing() for one in found)


def test_a_port_that_is_taken_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(runs, "_FIRST", port)
        monkeypatch.setattr(runs, "_RANGE", tmp_path / "range")
        (tmp_path / "range").write_text(f"{port + 1} 60999\n")
        with pytest.raises(LaunchError, match="no port is free"):
            runs.free_port()


@pytest.mark.parametrize("text", ["", "1024 65535", "words"])
def test_another_range_leaves_the_usual_one(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_RANGE", tmp_path / "range")
    (tmp_path / "range").write_text(text)
    assert runs._first_outgoing() == runs._LAST

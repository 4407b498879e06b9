"""The memory of this machine, as an engine on its CPU reads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from speclaunch.engine.facts import hardware_probe
from speclaunch.engine.facts.hardware import Vendor
from speclaunch.engine.facts.hardware_probe import probe_host


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of 1,000 bytes, 800 of them available, with one node and no control group."""
    memory = SimpleNamespace(total=1000, available=800)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(hardware_probe, "_CGROUP", tmp_path)
    monkeypatch.setattr(hardware_probe, "_NODES", tmp_path)
    return tmp_path


def test_what_the_kernel_says(host: Path) -> None:
    found = probe_host()
    assert (found.vendor, found.declared, found.device) == (Vendor.CPU, False, "cpu")
    assert [(one.memory_bytes, one.free_bytes) for one in found.gpus] == [(1000, 800)]


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        ("500", "100", (500, 400)),
        ("500", "600", (500, 0)),
        ("5000", "100", (1000, 800)),
        ("max", "100", (1000, 800)),
        ("500", None, (1000, 800)),
    ],
)
def test_a_control_group_leaves_less(
    host: Path, limit: str, used: str | None, expected: tuple[int, int]
) -> None:
    (host / "memory.max").write_text(f"{limit}\n")
    if used is not None:
        (host / "memory.current").write_text(f"{used}\n")
    (found,) = probe_host().gpus
    assert (found.memory_bytes, found.free_bytes) == expected


def test_each_node_has_its_part(host: Path) -> None:
    for name in ("node0", "node1", "possible"):
        (host / name).mkdir()
    assert [one.free_bytes for one in probe_host().gpus] == [400, 400]


def test_this_machine() -> None:
    (first, *_rest) = probe_host().gpus
    assert first.free_bytes is not None
    assert 0 < first.free_bytes <= first.memory_bytes

"""The operators of the stand-in ``sgl_kernel``, in the engine's interpreter."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from speclaunch.engine.facts.cpu_engine import SHIM, CpuEngine

REFERENCE = Path(__file__).with_name("ops_reference.py")
CHECKS = re.findall(r"^@check\ndef (\w+)", REFERENCE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def results(cpu_engine: CpuEngine) -> dict[str, str | None]:
    ended = subprocess.run(
        [cpu_engine.python, "-P", REFERENCE],
        env=cpu_engine.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, str | None] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.e2e
@pytest.mark.core(0)
@pytest.mark.parametrize("name", CHECKS)
def test_operator_agrees_with_its_reference(name: str, results: dict[str, str | None]) -> None:
    assert results[name] is None, results[name]


def test_every_operator_has_a_check() -> None:
    exported = re.findall(r'^    "(\w+)_cpu"', (SHIM / "sgl_kernel/__init__.py").read_text(), re.M)
    assert len(exported) == 12
    text = REFERENCE.read_text()
    assert all(f"{name}_cpu" in text for name in exported)

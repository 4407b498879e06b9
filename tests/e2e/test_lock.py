"""A lock of the real engine: written once it served, and started again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.deployments.recipe.lock_file import read_lock
from speclaunch.serving.launch.runs import free_port
from tests.e2e.conftest import speclaunch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


def test_a_locked_engine_serves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    port = f"args.port={free_port()}"
    options = ("--smoke", "--output-format", "json")
    first = speclaunch("launch", "recipe=cpu_ngram", port, "--lock", *options, timeout=600)
    assert first.returncode == 0, first.stderr
    lock = read_lock(tmp_path / "cpu_ngram.lock.yaml").deployment.lock
    assert lock is not None
    smoke = lock.certificates[-1]
    assert smoke.kind == "smoke" and (smoke.accept_length or 0) > 1
    assert {"sglang", "torch", "transformers"} <= {item.name for item in lock.engine.packages}
    assert "model.safetensors" in {file.name for file in lock.checkpoints[0].files}

    again = speclaunch("launch", "recipe=cpu_ngram", "--locked", *options, timeout=600)
    assert again.returncode == 0, again.stderr
    before, after = (json.loads(done.stdout) for done in (first, again))
    assert before["argv"] == after["argv"]
    assert before["env"] == after["env"]
    assert after["verification"]["ok"]

    path = tmp_path / "cpu_ngram.lock.yaml"
    path.write_text(path.read_text().replace("version: 2.13.0+cpu", "version: 2.12.0"))
    refused = speclaunch("launch", "recipe=cpu_ngram", "--locked", *options, timeout=600)
    assert refused.returncode == 1
    assert "error: package torch is 2.13.0+cpu (" in refused.stderr
    assert "locked 2.12.0 (" in refused.stderr
    assert "1 difference from cpu_ngram.lock.yaml" in refused.stderr

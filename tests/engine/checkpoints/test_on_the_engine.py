"""The tiny drafts really speculate, and broken ones do not: on the real engine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.cpu_engine.programs import ensure_model
from tests.support.engine.checkpoints import safetensors_bytes
from tests.support.engine.checkpoints.mutants import BASES, MTP_LAYER

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
HERE = Path(__file__).parent
LOST = {"eagle3": "fc.weight", "eagle": "fc.weight", "standalone": "lm_head.weight"} | {
    "mtp": f"{MTP_LAYER}eh_proj.weight"
}


def test_healthy_and_broken(
    cpu_engine: CpuEngine, cpu_environment: dict[str, str], tmp_path: Path
) -> None:
    cases = []
    for base, pair in BASES.items():
        folders = {"model_path": ensure_model(cpu_engine, pair.target)}
        if pair.draft is not None:
            folders["speculative_draft_model_path"] = ensure_model(cpu_engine, pair.draft)
        broken = safetensors_bytes.read(list(folders.values())[-1])
        broken.tensors[f"base_model.{LOST[base]}"] = broken.tensors.pop(LOST[base])
        broken.write(tmp_path / base)
        for name, draft in (
            (base, list(folders.values())[-1]),
            (f"broken {base}", tmp_path / base),
        ):
            asked = folders | {list(folders)[-1]: draft}
            said = {key: str(folder) for key, folder in asked.items()}
            said["speculative_algorithm"] = pair.algorithm
            log = str(tmp_path / "engine.log")
            cases.append(json.dumps({"name": name, "log": log, "arguments": said}))
    done = subprocess.run(
        [cpu_engine.python, HERE / "measure_acceptance.py"],
        input="\n".join(cases),
        capture_output=True,
        text=True,
        env=cpu_environment,
        check=True,
    )
    found = {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    runs = json.loads((HERE / "runs.json").read_text())
    for base in BASES:
        assert found[base]["length"] >= 2.5
        assert found[base]["length"] == pytest.approx(runs["healthy"][base], abs=0.3)
        assert found[f"broken {base}"]["length"] < 1.2

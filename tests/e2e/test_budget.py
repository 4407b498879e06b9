"""The memory budget against the real engine, which is started twice: once it serves, once not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.engine.facts.facts import Facts
from speclaunch.engine.facts.hardware import Gpu, Hardware, Vendor
from speclaunch.engine.facts.hardware_probe import probe_host
from speclaunch.engine.facts.read_checkpoint import read_checkpoint
from speclaunch.engine.plan.budget import Fit, MemoryBudget, MemoryPhase, MemorySize, MemoryUse
from speclaunch.engine.plan.memory import terms
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.resolve import resolve
from speclaunch.serving.cpu_engine.programs import ensure_model
from speclaunch.serving.launch.runs import free_port
from tests.support.checks.rules.harness import request_of
from tests.support.engine.plan.memory.cpu_engine import arguments, extract, start

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

EAGLE3 = {
    "model_path": "llama",
    "dtype": "float32",
    "max_running_requests": 4,
    "mem_fraction_static": 0.1,
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "llama-eagle3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
TOO_LITTLE = {
    "model_path": "llama",
    "dtype": "float32",
    "max_running_requests": 4,
    # so little that nothing is left even where the host's accounting has not seen the weights yet
    "mem_fraction_static": 1e-30,
}
_ATTEMPTS = 3


def predicted(args: dict[str, Any], models: dict[str, Path], host: Hardware) -> MemoryBudget:
    found = {
        name: read_checkpoint(name, models[args[name]])
        for name in ("model_path", "speculative_draft_model_path")
        if name in args
    }
    facts = Facts(found["model_path"], found.get("speculative_draft_model_path"), host)  # type: ignore[arg-type]
    return budget(resolve(request_of({**args, "device": "cpu"}, None, {}, "0.5.23"), facts))


def share(found: MemoryBudget, use: MemoryUse) -> int:
    return sum(one.size.bytes for one in found.ranks[0].shares if one.use is use)


def test_pools_and_failure(
    cpu_engine: CpuEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {name: ensure_model(cpu_engine, name) for name in ("llama", "llama-eagle3")}

    early = predicted(EAGLE3, models, probe_host())
    log = start(cpu_engine, arguments(models, EAGLE3, {}), free_port(), tmp_path / "serves")
    measured = extract(log)
    assert "tokens" in measured, log[-3000:]
    assert early.fit is Fit.FITS and early.tokens is not None  # how many wanders with the host
    # from what the engine measured: exactly
    used = measured["before"] - measured["after"]
    runtime = share(early, MemoryUse.RUNTIME)
    memory = measured["before"] + runtime
    same = Hardware("cpu", Vendor.CPU, gpus=(Gpu(0, "memory", memory, memory),), declared=False)
    with monkeypatch.context() as patch:
        patch.setattr(
            terms, "weight_size", lambda plan, *, draft=False: MemorySize(0 if draft else used, "")
        )
        exact = predicted(EAGLE3, models, same)
    assert exact.tokens == pytest.approx(measured["tokens"], rel=1e-3)
    assert exact.running_requests == measured["running"]
    pools = [pool["bytes"] for pool in measured["pools"]]
    assert [share(exact, MemoryUse.TARGET_KV), share(exact, MemoryUse.DRAFT_KV)] == [
        pytest.approx(size, rel=1e-3) for size in pools
    ]

    failing = predicted(TOO_LITTLE, models, same)
    for attempt in range(_ATTEMPTS):
        folder = tmp_path / f"fails-{attempt}"
        log = start(cpu_engine, arguments(models, TOO_LITTLE, {}), free_port(), folder)
        said = extract(log)
        if "error" in said:
            break
        # another process gave back more memory meanwhile than the weights took
        assert said["rest"] > 0, log[-3000:]
    assert "error" in said, log[-3000:]
    assert (failing.fit, failing.phase) == (Fit.FAILS, MemoryPhase.KV_POOL)
    assert failing.message is not None
    begins = (
        "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=1e-30."
    )
    assert failing.message.startswith(begins)
    assert begins in said["error"]
    print({"early": early.tokens, **measured, "failure": said["error"]})

"""The budget against what the real engine measured on a CPU (tools/cpu_measurements.py).

Free memory of a host wanders while an engine starts: each prediction takes what that run had
before it loaded weights (P), and the exact one also what it had after it (A).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import Gpu, Hardware, Vendor
from speclaunch.engine.facts.read_checkpoint import from_config
from speclaunch.engine.plan.budget import Fit, MemoryBudget, MemoryPhase, MemorySize, MemoryUse
from speclaunch.engine.plan.memory import estimates, phases, terms
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.memory.estimates import NOTHING
from speclaunch.engine.plan.resolve import resolve
from tests.support.checks.rules.harness import request_of
from tests.support.loops import rows

DATA = json.loads((Path(__file__).with_name("cpu_measurements.json")).read_text())
CASES: dict[str, dict[str, Any]] = DATA["cases"]
MEMORY = {name: case for name, case in CASES.items() if "before" in case["measured"]}
"""Without those that are refused for another reason, before memory is looked at."""
SERVED = {name: case for name, case in MEMORY.items() if "tokens" in case["measured"]}
FAILED = {name: case for name, case in MEMORY.items() if "error" in case["measured"]}


def checkpoint(name: str) -> Checkpoint:
    model = DATA["models"][name]
    return replace(from_config(name, model["config"]), weight_bytes=model["weight_bytes"])


def predicted(case: dict[str, Any]) -> MemoryBudget:
    """The budget of a host with as much memory as that run had, when it began to load weights."""
    args = {**case["args"], "device": "cpu"}
    before = case["measured"]["before"] + estimates._PROCESSES
    host = Hardware("cpu", Vendor.CPU, gpus=(Gpu(0, "memory", before, before),), declared=False)
    draft = args.get("speculative_draft_model_path")
    facts = Facts(
        checkpoint(args["model_path"]), None if draft is None else checkpoint(draft), host
    )
    return budget(resolve(request_of(args, None, {}, DATA["engine"]), facts))


def share(found: MemoryBudget, use: MemoryUse) -> int:
    return sum(one.size.bytes for one in found.ranks[0].shares if one.use is use)


def test_there_is_enough_to_compare() -> None:
    assert len(SERVED) >= 12
    assert len(FAILED) >= 4
    assert {case["args"].get("speculative_algorithm") for case in SERVED.values()} == {
        None,
        "NGRAM",
        "STANDALONE",
        "EAGLE3",
        "EAGLE",
        "NEXTN",
    }


@pytest.mark.parametrize("name", SERVED)
def test_pools_from_what_was_free_before_and_after(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With P and A of the run, everything follows exactly: tokens, requests, slots, bytes."""
    measured = SERVED[name]["measured"]
    used = measured["before"] - measured["after"]
    monkeypatch.setattr(
        terms,
        "weight_size",
        lambda plan, *, draft=False: MemorySize(0 if draft else used, "measured"),
    )
    monkeypatch.setattr(terms, "freed_after_pool", lambda plan: 0)
    monkeypatch.setattr(terms, "_corpus", lambda plan: NOTHING)
    found = predicted(SERVED[name])
    assert found.fit in (Fit.FITS, Fit.TIGHT)
    assert found.tokens == pytest.approx(measured["tokens"], rel=1e-4, abs=1)
    assert found.running_requests == measured["running"]
    assert found.context_length == measured["context"]
    target, *drafts = measured["pools"]
    assert share(found, MemoryUse.TARGET_KV) == pytest.approx(target["bytes"], rel=1e-4, abs=2048)
    expected = sum(pool["bytes"] for pool in drafts)
    assert share(found, MemoryUse.DRAFT_KV) == pytest.approx(expected, rel=1e-4, abs=2048)
    rows, columns = measured["slots"]
    assert share(found, MemoryUse.REQUEST_SLOTS) == rows * columns * 4


@rows("name", SERVED)
def test_pools_from_what_was_free_before(name: str) -> None:
    """With P alone: within 2 %, and what the host's free memory wandered meanwhile."""
    measured = SERVED[name]["measured"]
    found = predicted(SERVED[name])
    assert found.tokens is not None
    has_room = found.tokens > sum(phases.WARM_UP_TOKENS)
    assert found.fit is (Fit.FITS if has_room else Fit.TIGHT)
    weights = share(found, MemoryUse.TARGET_WEIGHTS) + share(found, MemoryUse.DRAFT_WEIGHTS)
    weights += share(found, MemoryUse.RUNTIME) - estimates._PROCESSES
    wandered = abs(measured["before"] - measured["after"] - weights)
    assert wandered < 0.01 * measured["before"]
    pools = sum(pool["bytes"] for pool in measured["pools"])
    taken = share(found, MemoryUse.TARGET_KV) + share(found, MemoryUse.DRAFT_KV)
    capped = "max_total_tokens" in SERVED[name]["args"]
    assert abs(taken - pools) <= 0.02 * pools + (0 if capped else 1.4 * wandered)


@rows("name", FAILED)
def test_the_phase_that_fails(name: str) -> None:
    measured = FAILED[name]["measured"]
    found = predicted(FAILED[name])
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.KV_POOL)
    assert found.message is not None
    kind, _, said = measured["error"].partition(": ")
    assert kind == "ValueError"
    fraction = FAILED[name]["args"]["mem_fraction_static"]
    begins = f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={fraction}"
    assert said.startswith(begins)
    assert found.message.startswith(begins)
    assert said.rpartition("If using")[2] == found.message.rpartition("If using")[2]
    least = float(said.partition("minimum viable = 1 - available/pre = ")[2][:6])
    ours = float(found.message.partition("minimum viable = 1 - available/pre = ")[2][:6])
    assert ours == pytest.approx(least, abs=0.005)
    assert found.working_fractions is not None
    assert found.working_fractions[0] == pytest.approx(least, abs=0.006)


@rows("tokens, fit", [(8, Fit.FAILS), (20, Fit.TIGHT), (64, Fit.FITS), (8192, Fit.FITS)])
def test_a_pool_without_room_for_the_warm_up_prompt_serves_nothing(tokens: int, fit: Fit) -> None:
    """0.5.23 with 8 tokens: "Input length (17 tokens) exceeds the maximum allowed length (2
    tokens)"."""
    case = SERVED["none_f10"]
    found = predicted({**case, "args": {**case["args"], "max_total_tokens": tokens}})
    assert found.fit is fit
    if fit is Fit.FAILS:
        assert (found.phase, found.working_fractions) == (MemoryPhase.SERVING, None)
        assert found.message == "exceeds the maximum allowed length (2 tokens)"


def test_a_start_without_a_warm_up_request_needs_no_room_for_it() -> None:
    args = {**SERVED["none_f10"]["args"], "max_total_tokens": 8, "skip_server_warmup": True}
    assert predicted({**SERVED["none_f10"], "args": args}).fit is Fit.FITS


@pytest.mark.parametrize(("fraction", "fit"), [(0.9, Fit.FITS), (0.97, Fit.TIGHT)])
def test_a_pool_leaves_room_for_what_the_engine_needs_after_it(fraction: float, fit: Fit) -> None:
    """With 0.9689 of 20.8 GiB the system killed 0.5.23 while it filled the pool."""
    case = SERVED["none_f10"]
    found = predicted({**case, "args": {**case["args"], "mem_fraction_static": fraction}})
    assert found.fit is fit


@pytest.mark.parametrize("name", ["mtp_f02", "none_f02"])
@pytest.mark.parametrize(("mib", "fit"), [(200, Fit.TIGHT), (300, Fit.FITS)])
def test_a_static_share_that_the_host_may_use_up_is_tight(name: str, mib: int, fit: Fit) -> None:
    """Whatever the host loses while weights load is taken from the static share."""
    case = SERVED[name]
    fraction = mib * estimates.MIB / case["measured"]["before"]
    found = predicted({**case, "args": {**case["args"], "mem_fraction_static": fraction}})
    assert found.fit is fit
    assert found.likely_fractions is not None and found.working_fractions is not None
    low, high = found.likely_fractions
    assert (low <= fraction <= high) is (fit is Fit.FITS)
    assert found.working_fractions[0] < low


def test_the_host_lost_less_in_every_start_that_served() -> None:
    """Without big models, whose weights may be counted late."""
    lost = [
        case["measured"]["before"] - case["measured"]["after"]
        for name, case in SERVED.items()
        if not name.startswith(("big", "ngram"))
    ]
    assert len(lost) > 10 and max(lost) < phases.HOST_LOSS

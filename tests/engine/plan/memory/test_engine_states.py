"""States and requests against the engines' own functions (tools/engine_states.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.core.errors import Place
from speclaunch.engine.plan.memory.kv import room, state_settings
from speclaunch.engine.plan.memory.pool import running_requests, slot_settings
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.request import RequestedValue
from tests.engine.plan.memory.deployments import PLAIN, SPECULATING, plan

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("engine_states.json").read_text())
VERSIONS = list(dict.fromkeys(case["version"] for case in CASES))
CELL = 32768


def planned(version: str, settings: dict[str, Any]) -> Plan:
    """A plan with these effective values, however they came about."""
    drafts, ranks = settings["draft_tokens"], settings["ranks"]
    found = plan(PLAIN if drafts is None else SPECULATING, version)
    strategy = "extra_buffer" if settings["extra_buffer"] else "no_buffer"
    values = {
        **found.resolved,
        "speculative_num_draft_tokens": drafts,
        "max_running_requests": settings["max_running_requests"],
        "disable_radix_cache": settings["disable_radix_cache"],
        "disable_overlap_schedule": settings["disable_overlap_schedule"],
        "mamba_full_memory_ratio": settings["mamba_full_memory_ratio"],
        "mamba_radix_cache_strategy": strategy,
        "dp_size": ranks,
        "attn_dp_size": ranks,
        "enable_dp_attention": ranks > 1,
    }
    given = dict(found.request.values)
    name, size = "max_mamba_cache_size", settings["max_mamba_cache_size"]
    if size is not None:
        given[name] = RequestedValue(name, size, name, Place("case"))
    request = replace(found.request, values=given)
    return replace(found, request=request, resolved=values, undecided={})


def test_there_are_enough() -> None:
    assert len(VERSIONS) == 21
    assert len(CASES) >= 400
    assert any("refused" in case["engine"] for case in CASES)


@pytest.mark.thorough
@pytest.mark.parametrize("version", VERSIONS)
def test_as_the_engine_counts(version: str) -> None:
    for case in CASES:
        if case["version"] != version:
            continue
        settings, engine = case["settings"], case["engine"]
        asked = planned(version, settings)
        states = room(state_settings(asked, settings["state_bytes"]), settings["rest"])
        if "refused" in engine:
            assert states.slots <= 0, case
            continue
        assert states.slots == engine["slots"], case
        assert settings["rest"] - states.bytes == pytest.approx(engine["left"], abs=64), case
        if "requests" not in engine:
            continue
        tokens = engine["left"] // CELL
        requests = slot_settings(asked, settings["context_length"])
        running = running_requests(requests, tokens, tokens, states)
        assert max(running, 0) == max(engine["requests"], 0), case

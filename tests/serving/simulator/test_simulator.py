"""The simulated engine behaves like one; and the ladder's figures over many of them (slow)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from msgspec.structs import replace

from speclaunch.core.resources import conf_dir
from speclaunch.deployments.recipe.schema import Recovery
from speclaunch.serving.launch.diagnosis.diagnose import diagnose
from speclaunch.serving.launch.diagnosis.interface import Direction
from speclaunch.serving.launch.engine_log import Phase
from tests.support.serving.simulator.cases import VERSIONS, Case, random_case
from tests.support.serving.simulator.compare import compare, explained, failing_cases, summary
from tests.support.serving.simulator.engine import start, with_fraction
from tests.support.serving.simulator.quick import kept_weights

DEFAULT = Recovery(**yaml.safe_load((conf_dir() / "recovery" / "default.yaml").read_text()))
PHASES = {
    "pool": Phase.KV_POOL,
    "capture": Phase.GRAPHS,
    "serve": Phase.READY,
    "traffic": Phase.READY,
    "draft pool": Phase.DRAFT_WEIGHTS,
}


@pytest.fixture(scope="module")
def failing() -> list[tuple[Case, str, tuple[str, ...]]]:
    return [(case, run.phase, run.lines) for case, run in failing_cases(40)]


def test_the_same_number_is_the_same_case() -> None:
    one, other = random_case(7), random_case(7)
    assert start(one, one.planner()({})) == start(other, other.planner()({}))


@pytest.mark.thorough
def test_failures_of_several_phases_and_versions_come_up(
    failing: list[tuple[Case, str, tuple[str, ...]]],
) -> None:
    assert {"pool", "capture", "serve"} <= {phase for _, phase, _ in failing}
    assert len({case.version for case, _, _ in failing}) >= len(VERSIONS) - 2


@pytest.mark.thorough
def test_what_it_prints_is_diagnosed_with_the_right_direction(
    failing: list[tuple[Case, str, tuple[str, ...]]],
) -> None:
    for case, phase, lines in failing:
        found = diagnose(lines, version=case.version, exit_code=1)
        assert found.cause is not None, (case.number, lines[-8:])
        way = found.cause.directions.get("mem_fraction_static")
        if phase in ("capture", "serve", "draft pool"):
            assert way is Direction.LOWER, (case.number, phase, found.cause.name)
        elif phase == "traffic":
            assert way is Direction.RAISE, (case.number, phase, found.cause.name)


def test_more_fraction_never_gives_fewer_tokens() -> None:
    case = random_case(1)
    plan_with = case.planner()
    tokens = [start(case, plan_with(with_fraction({}, step / 20))).tokens for step in range(10, 19)]
    assert tokens == sorted(tokens)


def test_the_draft_is_charged_to_the_pool_from_0_5_14_only() -> None:
    """The same fraction leaves a smaller pool, and more beside it."""
    old = next(
        case
        for number in range(400)
        if (case := random_case(number)).version == "0.5.13.post1"
        and case.args["speculative_algorithm"] == "STANDALONE"
        and start(case, case.planner()(with_fraction({}, 0.8))).tokens > 0
    )
    new = replace(old, version="0.5.14")
    before, after = (
        start(case, case.planner()(with_fraction({}, 0.8))).tokens for case in (old, new)
    )
    assert after < before


@pytest.mark.thorough
def test_as_a_process_it_prints_its_log_and_ends_like_the_engine() -> None:
    case, run = next(failing_cases(1))
    command = [sys.executable, "-m", "tests.support.serving.simulator.process", str(case.number)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert done.stdout.splitlines() == list(run.lines)
    changed = [*command, "--changes", json.dumps({"mem_fraction_static": 0.01})]
    other = subprocess.run(changed, capture_output=True, text=True, timeout=60)
    assert "mem_fraction_static=0.01" in other.stdout


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_ladder_needs_at_most_two_restarts_where_the_documents_fail() -> None:
    with kept_weights():
        results = compare(200, DEFAULT, first=20_000)
    ours = summary("ours", results, lambda result: result.ours)
    documents = summary("documents", results, lambda result: result.documents)
    gentle = summary("gentle", results, lambda result: result.gentle)
    assert ours.median <= 1
    assert ours.high <= 2
    assert ours.never <= 0.01 * ours.feasible
    assert ours.kept >= 0.8
    assert documents.never > 0.3 * documents.feasible
    assert gentle.never > 0.3 * gentle.feasible
    infeasible = [result for result in results if not result.feasible]
    starts = explained(results)
    assert len(starts) >= 0.9 * len(infeasible)
    assert sum(count <= 3 for count in starts) >= 0.7 * len(infeasible)

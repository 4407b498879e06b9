"""Which ranks agree: by the recipe, and by what the platform says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from speclaunch.core.errors import LaunchError
from speclaunch.deployments.recipe.schema import Agreement
from speclaunch.engine.releases.shell import nodes_of
from speclaunch.serving.launch.agreement.records import group_of, job_of
from tests.support.loops import rows


def group(args: dict[str, Any], environment: dict[str, str] | None = None, **settings: Any) -> Any:
    said = Agreement.model_validate({"directory": "/shared", "job": "j", **settings})
    return group_of(said, args, environment or {})


def test_without_a_directory_nobody_agrees() -> None:
    assert group({"nnodes": 2}, directory=None) is None


def test_the_hosts_of_one_server() -> None:
    found = group({"nnodes": 4, "node_rank": "3"})
    assert (found.part, found.rank, found.parts, found.job) == ("server", 3, {"server": 4}, "j")
    assert found.directory == Path("/shared")


def test_prefill_and_decode() -> None:
    parts = {"prefill": 1, "decode": 2}
    found = group({"disaggregation_mode": "decode", "nnodes": 2, "node_rank": 1}, parts=parts)
    assert (found.part, found.rank, found.parts) == ("decode", 1, parts)
    named = group({"disaggregation_mode": "prefill"}, part="p-1", parts={"p-1": 1, "d": 1})
    assert named.part == "p-1"


@rows(
    "environment, alone, job",
    [
        ({"SLURM_JOB_ID": "7"}, False, "slurm-7-0"),
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2"}, False, "slurm-7-2"),
        ({"LWS_LEADER_ADDRESS": "llm-0.llm.default"}, True, "lws-llm-0.llm.default"),
        ({"LWS_LEADER_ADDRESS": "llm-0.llm.default"}, False, None),
        ({}, True, None),
    ],
)
def test_what_the_platform_calls_a_run(
    environment: dict[str, str], alone: bool, job: str | None
) -> None:
    assert job_of(environment, alone=alone) == job


def test_two_jobs_never_have_one_directory() -> None:
    names = {group({}, job=job).job for job in ("a/b", "a-b", "a.b", "../a-b", "a" * 200)}
    assert len(names) == 5
    assert not any("/" in name or "." in name for name in names)


@rows(
    "args, settings, message",
    [
        ({"nnodes": 2, "node_rank": 2}, {}, "node_rank=2 is out of range for nnodes=2"),
        ({"node_rank": "x"}, {}, "node_rank: 'x' is not a whole number"),
        ({}, {"job": None}, "the job is unknown"),
        ({}, {"directory": "shared"}, "not an absolute path"),
        ({"nnodes": 2}, {"parts": {"server": 3}}, "'server' has 3 ranks, but nnodes is 2"),
        ({}, {"parts": {"a": 1}}, "'server' has 0 ranks"),
        ({}, {"part": "a b", "parts": {"a b": 1}}, "'a b' is not a valid name"),
    ],
)
def test_what_cannot_be(args: dict[str, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        group(args, **settings)


def test_a_rank_alone_is_the_first() -> None:
    assert nodes_of({}) == (0, 1)

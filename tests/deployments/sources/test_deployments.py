"""Whole deployments in the shape of published guides, mistakes of that kind included."""

from __future__ import annotations

from pathlib import Path

from speclaunch.deployments.sources.files import read_file
from speclaunch.deployments.sources.interface import Invocation
from tests.deployments.sources.test_server_context import of, value
from tests.deployments.sources.test_server_context_kinds import option

DEPLOYMENTS = Path(__file__).parent / "deployments"


def servers(name: str) -> list[Invocation]:
    reading = read_file(DEPLOYMENTS / name)
    assert not reading.problems
    assert len({id(of(one).group) for one in reading.invocations}) == 1
    return list(reading.invocations)


def test_leader_worker_sets_behind_a_router() -> None:
    """Four commands of one deployment: two servers of two hosts each."""
    found = servers("leader_worker_pd.yaml")
    contexts = [of(one) for one in found]
    assert [(one.role, one.part) for one in contexts] == [
        ("prefill", "leader"),
        ("prefill", "worker"),
        ("decode", "leader"),
        ("decode", "worker"),
    ]
    assert [(option(one, "--nnodes"), option(one, "--node-rank")) for one in found] == [
        ("2", "0"),
        ("2", "1"),
        ("2", "0"),
        ("2", "1"),
    ]
    group = contexts[0].group
    assert [one.name for one in group.services] == ["big-prefill", "big-decode", "big-front"]
    (router,) = group.routers
    assert [(one.role, one.host, one.bootstrap) for one in router.upstreams] == [
        ("prefill", "big-prefill", None),
        ("decode", "big-decode", None),
    ]
    leader, worker = contexts[0].pod, contexts[1].pod
    assert (value(leader.env["MC_TE_METRIC"]), value(worker.env["MC_TE_METRIC"])) == (
        "false",
        "true",
    )
    assert value(leader.privileged) is True
    assert worker.privileged is None
    assert [one.kind for one in leader.volumes] == ["emptyDir", "hostPath"]
    assert leader.volumes[0].size is None


def test_roles_of_one_group() -> None:
    """A group of one pod runs its leader's command; the workers' patch is nobody's."""
    found = servers("role_based_pd.yaml")
    contexts = [of(one) for one in found]
    assert [(one.role, one.part, one.nodes and value(one.nodes)) for one in contexts] == [
        ("prefill", None, 1),
        ("decode", None, 1),
    ]
    assert [option(one, "--dp-size") for one in found] == ["8", "8"]
    assert [option(one, "--node-rank") for one in found] == ["0", "0"]
    assert [one.image for one in found] == ["lmsysorg/sglang:latest"] * 2
    for one in contexts:
        assert [value(volume.mount) for volume in one.pod.volumes] == [
            "/dev/shm",
            "/sgl-workspace/sglang",
        ]
        assert value(one.pod.host_network) is True
        assert one.pod.labels["role"] == "leader"
    assert [value(one.pod.probes[0].failure_threshold) for one in contexts] == [3000, 30000]  # type: ignore[arg-type]
    (router,) = contexts[0].group.routers
    assert value(router.options["prefill-selector"]) == "pd_role=prefill"
    assert [one.name for one in contexts[0].group.services] == ["v32"]

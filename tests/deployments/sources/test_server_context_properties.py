"""Any manifest of several roles: every server is found once, with its role, part and hosts."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.core.errors import InputError
from speclaunch.deployments.sources.files import read_yaml
from speclaunch.engine.plan.request import ServerContext
from tests.deployments.sources.test_server_context import value

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
SERVER = ["python3", "-m", "sglang.launch_server", "--model-path", "meta/x"]


@st.composite
def container(draw: st.DrawFn, role: str) -> dict[str, Any]:
    words = [*SERVER, "--disaggregation-mode", role]
    as_script = draw(st.booleans())
    return {
        "name": draw(NAMES),
        "command": ["sh", "-c", " ".join(words)] if as_script else words,
        "resources": {"limits": {"nvidia.com/gpu": draw(st.sampled_from([1, "8"]))}},
    }


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    """A RoleBasedGroup with prefill and decode in any of its patterns."""
    roles = []
    for role in ("prefill", "decode"):
        template = {"spec": {"containers": [draw(container(role))]}}
        size = draw(st.integers(1, 9))
        held: dict[str, Any] = draw(
            st.sampled_from(
                [
                    {"template": template},
                    {"standalonePattern": {"template": template}},
                    {"leaderWorkerPattern": {"template": template, "size": size}},
                    {"template": template, "leaderWorkerSet": {"size": size}},
                ]
            )
        )
        roles.append({"name": role, "replicas": draw(st.integers(0, 5)), **held})
    return {
        "apiVersion": "workloads.x-k8s.io/v1alpha2",
        "kind": "RoleBasedGroup",
        "metadata": {"name": draw(NAMES)},
        "spec": {"roles": draw(st.permutations(roles))},
    }


@st.composite
def sets(draw: st.DrawFn, role: str) -> dict[str, Any]:
    """A LeaderWorkerSet, with a template for the leader or without."""
    worker = {"spec": {"containers": [draw(container(role))]}}
    template: dict[str, Any] = {"size": draw(st.integers(1, 9)), "workerTemplate": worker}
    if draw(st.booleans()):
        template["leaderTemplate"] = {"spec": {"containers": [draw(container(role))]}}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": draw(NAMES) + "-" + role},
        "spec": {"replicas": draw(st.integers(1, 4)), "leaderWorkerTemplate": template},
    }


def read(objects: list[dict[str, Any]]) -> list[ServerContext]:
    reading = read_yaml(yaml.safe_dump_all(objects), "x.yaml")
    assert not reading.problems
    assert not reading.unread
    found = [one.server_context for one in reading.invocations]
    assert None not in found
    return [one for one in found if one is not None]


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(groups())
def test_groups_of_roles(group: dict[str, Any]) -> None:
    found = read([group])
    roles = group["spec"]["roles"]
    assert [one.role for one in found] == [role["name"] for role in roles]
    assert len({id(one.group) for one in found}) == 1
    for one, role in zip(found, roles, strict=True):
        pattern = role.get("leaderWorkerPattern", role.get("leaderWorkerSet", {}))
        assert (one.nodes and value(one.nodes)) == pattern.get("size")
        assert one.replicas is not None
        assert value(one.replicas) == role["replicas"]
        assert value(one.pod.limits["nvidia.com/gpu"]) in (1, 8)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(sets("prefill"), sets("decode"))
def test_sets_of_leader_and_workers(first: dict[str, Any], second: dict[str, Any]) -> None:
    found = read([first, second])
    expected = []
    for role, one in (("prefill", first), ("decode", second)):
        parts = ["leader", "worker"] if "leaderTemplate" in str(one) else [None]
        size = one["spec"]["leaderWorkerTemplate"]["size"]
        expected += [(role, part, size) for part in parts]
    assert sorted(map(str, expected)) == sorted(
        str((one.role, one.part, one.nodes and value(one.nodes))) for one in found
    )
    assert len({id(one.group) for one in found}) == 1


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99999) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("spec", "template", "containers", "command", "args", "env", "name", "roles"),
                    *("leaderWorkerPattern", "size", "templateRef", "patch", "multinode", "ports"),
                    *("resources", "limits", "livenessProbe", "httpGet", "volumes", "volumeMounts"),
                    *("services", "components", "extraPodSpec", "mainContainer", "metadata"),
                    *("leaderTemplatePatch", "roleTemplates", "engineConfig", "worker", "leader"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)
KINDS = st.sampled_from(
    [
        *("Deployment", "LeaderWorkerSet", "RoleBasedGroup", "RoleBasedGroupSet", "Service"),
        *("DynamoGraphDeployment", "ClusterServingRuntime", "StormService", "LLMInferenceService"),
    ]
)


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(KINDS, ANY, ANY)
def test_nothing_takes_a_reader_down(kind: str, spec: object, metadata: object) -> None:
    """Values of any type where something else is expected, beside a real server."""
    odd = {"apiVersion": "x/v1", "kind": kind, "metadata": metadata, "spec": spec}
    server = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "s", "command": SERVER}]},
    }
    try:
        reading = read_yaml(yaml.safe_dump_all([odd, server]), "x.yaml")
    except InputError:
        return
    assert any(one.name == "p/s" for one in reading.invocations)

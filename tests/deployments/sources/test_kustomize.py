"""Kustomizations: composed as the real kustomize does, each value with its own place."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from speclaunch.core.errors import Place
from speclaunch.deployments.sources.files import read_file
from speclaunch.deployments.sources.interface import Invocation, Reading
from speclaunch.deployments.sources.kustomizations import composed_objects
from tests.deployments.sources.test_server_context import of, value
from tests.support.deployments.sources.helpers import texts

KUBECTL = shutil.which("kubectl")
needs_kustomize = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on this machine")

BASE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  replicas: 1
  template:
    metadata: {labels: {app: server}}
    spec:
      containers:
      - name: s
        image: lmsysorg/sglang:v0.5.20
        command: [python3, -m, sglang.launch_server]
        args:
        - --model-path
        - meta/x
        - --tp
        - "4"
        env: [{name: A, value: a}, {name: B, value: b}]
"""
GROUP = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: ranks}
spec:
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
        - name: s
          image: lmsysorg/sglang:v0.5.20
          command: [python3, -m, sglang.launch_server, --nnodes, $(LWS_GROUP_SIZE)]
"""
OVERLAY = """\
resources: [../base, more.yaml]
namePrefix: big-
images: [{name: lmsysorg/sglang, newTag: v0.5.23}]
replicas: [{name: server, count: 3}]
patches:
- path: memory.yaml
- target: {kind: Deployment, name: ser.*}
  patch: |-
    - op: replace
      path: /spec/template/spec/containers/0/args/3
      value: "8"
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --trust-remote-code
"""
MEMORY = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  template:
    spec:
      containers:
      - name: s
        env: [{name: B, value: other}]
        resources: {limits: {nvidia.com/gpu: 8}}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: server}, ports: [{port: 80}]}
"""
FILES = {
    "base/kustomization.yaml": "resources: [server.yaml]\n",
    "base/server.yaml": BASE,
    "over/kustomization.yaml": OVERLAY,
    "over/memory.yaml": MEMORY,
    "over/more.yaml": SERVICE,
}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def reading_of(folder: Path, files: Mapping[str, str], name: str = "over") -> Reading:
    return read_file(written(folder, files) / name / "kustomization.yaml")


def server(reading: Reading) -> Invocation:
    assert not reading.problems, reading.problems
    assert not reading.unread
    (found,) = reading.invocations
    return found


def stands(place: Place) -> tuple[str, str]:
    """The name of the file of a place, and what stands there."""
    file = Path(place.path)
    line = file.read_text().split("\n")[place.line - 1]
    return file.name, line[place.column - 1 : place.column - 1 + place.length]


def test_every_value_keeps_its_place(tmp_path: Path) -> None:
    """Base, patch file, patch in the kustomization, its `images` and `replicas`."""
    found = server(reading_of(tmp_path, FILES))
    assert texts(found) == ["--model-path", "meta/x", "--tp", "8", "--trust-remote-code"]
    assert found.name == "big-server/s"
    assert found.image == "lmsysorg/sglang:v0.5.23"
    assert [stands(word.place) for word in found.words] == [
        ("server.yaml", "--model-path"),
        ("server.yaml", "meta/x"),
        ("server.yaml", "--tp"),
        ("kustomization.yaml", '"8"'[1:-1]),
        ("kustomization.yaml", "--trust-remote-code"),
    ]
    context = of(found)
    assert value(context.replicas) == 3
    assert context.replicas is not None
    assert stands(context.replicas.place) == ("kustomization.yaml", "3")
    limit = context.pod.limits["nvidia.com/gpu"]
    assert stands(limit.place) == ("memory.yaml", "8")
    assert stands(context.pod.env["A"].place) == ("server.yaml", "a")
    assert stands(context.pod.env["B"].place) == ("memory.yaml", "other")
    assert context.pod.image is not None
    assert stands(context.pod.image.place) == ("kustomization.yaml", "v0.5.23")
    assert [one.name for one in context.group.services] == ["big-front"]
    assert found.read_only is not None


def test_lists_of_custom_kinds_are_replaced(tmp_path: Path) -> None:
    """kustomize does not know their merge keys: a patch with one container leaves that alone."""
    patch = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: ranks}
spec:
  leaderWorkerTemplate:
    size: 4
    workerTemplate: {spec: {containers: [{name: s, env: [{name: A, value: a}]}]}}
"""
    files = {
        "over/kustomization.yaml": "resources: [g.yaml]\npatches: [{path: p.yaml}]\n",
        "over/g.yaml": GROUP,
        "over/p.yaml": patch,
    }
    assert not reading_of(tmp_path, files).invocations
    files["over/p.yaml"] = patch.replace("    workerTemplate", "    # ")
    found = server(reading_of(tmp_path, files))
    assert texts(found) == ["--nnodes", "4"]
    assert stands(found.words[1].place) == ("p.yaml", "4")


def test_a_configuration_out_of_a_file(tmp_path: Path) -> None:
    """The file of `--config` comes from configMapGenerator, with places in that file."""
    files = {
        "over/kustomization.yaml": (
            "resources: [s.yaml]\nconfigMapGenerator: [{name: c, files: [server.yaml]}]\n"
        ),
        "over/s.yaml": BASE.replace("        - --model-path\n", "        - --config\n").replace(
            "        - meta/x\n", "        - /etc/server.yaml\n"
        ),
        "over/server.yaml": "model-path: meta/x\ntp-size: 4\n",
    }
    found = server(reading_of(tmp_path, files))
    assert found.config is not None
    assert found.config.text == "model-path: meta/x\ntp-size: 4\n"
    assert Path(found.config.shown) == tmp_path / "over/server.yaml"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("replacements: [{path: r.yaml}]", "`replacements` is not supported"),
        ("helmCharts: [{name: x}]", "`helmCharts` is not supported"),
        ("patches: [{path: gone.yaml}]", "does not exist"),
        ("patchesStrategicMerge: [other.yaml]", "no Deployment `gone`"),
        ("components: [../nothing]", "has no kustomization"),
        ("patches: [{target: {name: s}, patch: '[{op: add, path: /x/y, value: 1}]'}]", "x"),
    ],
)
def test_what_is_not_understood_is_told(tmp_path: Path, more: str, said: str) -> None:
    """With its place, and nothing is said of the result."""
    files = {
        "over/kustomization.yaml": f"resources: [s.yaml]\n{more}\n".replace("name: s}", "}"),
        "over/s.yaml": BASE,
        "over/other.yaml": BASE.replace("server}", "gone}"),
    }
    reading = reading_of(tmp_path, files)
    assert not reading.invocations
    (problem,) = reading.problems
    assert said in problem.message
    assert problem.place is not None
    assert problem.place.line == 2


@pytest.mark.parametrize("resource", ["/etc/hostname", "../../../secret.yaml", "link.yaml"])
def test_files_elsewhere_on_the_machine_are_not_read(tmp_path: Path, resource: str) -> None:
    """Nothing of them is quoted, whatever a kustomization names."""
    outside = tmp_path / "secret.yaml"
    outside.write_text(BASE)
    folder = tmp_path / "a/b"
    files = {
        "over/kustomization.yaml": f"resources: [s.yaml, {resource}]\n",
        "over/s.yaml": BASE,
    }
    written(folder, files)
    (folder / "over/link.yaml").symlink_to(outside)
    reading = read_file(folder / "over/kustomization.yaml")
    assert not reading.invocations
    (problem,) = reading.problems
    assert "outside" in problem.message or "not below" in problem.message


def test_kustomizations_that_contain_each_other(tmp_path: Path) -> None:
    files = {
        "over/kustomization.yaml": "resources: [../base, s.yaml]\n",
        "base/kustomization.yaml": "resources: [../over]\n",
        "over/s.yaml": BASE,
    }
    reading = reading_of(tmp_path, files)
    assert not reading.invocations


def test_a_kustomization_without_a_server_says_nothing(tmp_path: Path) -> None:
    files = {
        "over/kustomization.yaml": "resources: [s.yaml]\nhelmCharts: []\n",
        "over/s.yaml": SERVICE,
    }
    assert reading_of(tmp_path, files) == Reading()


# -- the real kustomize ---------------------------------------------------------------------


def by_kustomize(folder: Path) -> list[dict[str, Any]] | None:
    """What `kubectl kustomize` makes of a directory; None where it refuses it."""
    assert KUBECTL is not None
    command = [KUBECTL, "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return None if done.returncode else list(yaml.safe_load_all(done.stdout))


def plain(node: yaml.Node) -> Any:
    """A node as Python has it."""
    return yaml.SafeLoader("").construct_document(node)


def without_hash(objects: list[Any]) -> dict[Any, Any]:
    """Objects by kind and name; of generated ConfigMaps neither name nor version."""
    found = {}
    for one in objects:
        is_map = one["kind"] == "ConfigMap"
        name = "generated" if is_map else one["metadata"]["name"]
        found[one["kind"], name] = one["data"] if is_map else one
    return found


def compared(folder: Path, name: str = "over") -> None:
    theirs = by_kustomize(folder / name)
    ours = composed_objects(folder / name / "kustomization.yaml")
    if theirs is None:
        assert ours is None, "kustomize refuses it"
    else:
        assert ours is not None, "kustomize takes it"
        assert without_hash([plain(one) for one in ours]) == without_hash(theirs)


@pytest.mark.thorough
@needs_kustomize
def test_as_kustomize_does(tmp_path: Path) -> None:
    compared(written(tmp_path, FILES))


NAMES = st.sampled_from(["a", "b", "c"])
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "image": st.sampled_from(["x/y:1", "x/y", "z@sha256:abc", "host:5000/x/y:2"]),
            "args": st.lists(st.sampled_from(["--tp", "8", "--dp"]), min_size=1, max_size=3),
            "env": st.lists(
                st.fixed_dictionaries({"name": NAMES, "value": st.sampled_from(["1", "2"])}),
                max_size=3,
                unique_by=lambda one: one["name"],
            ),
            "ports": st.lists(
                st.sampled_from([80, 81, 82]).map(lambda port: {"containerPort": port}),
                max_size=2,
                unique_by=lambda one: one["containerPort"],
            ),
            "volumeMounts": st.lists(
                st.fixed_dictionaries({"mountPath": st.sampled_from(["/a", "/b"]), "name": NAMES}),
                max_size=2,
                unique_by=lambda one: one["mountPath"],
            ),
        },
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one["name"],
)
KINDS = st.sampled_from(
    [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("x.example.com/v1", "Servers")]
)


def workload(kind: tuple[str, str], name: str, containers: Any, replicas: int) -> dict[str, Any]:
    spec = {"replicas": replicas, "template": {"spec": {"containers": containers}}}
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": name}, "spec": spec}


@st.composite
def kustomizations(draw: st.DrawFn) -> dict[str, str]:
    """A base with workloads, and an overlay that changes them in several ways."""
    count = draw(st.integers(1, 2))
    bases = [
        workload(draw(KINDS), f"w{number}", draw(CONTAINERS), draw(st.integers(1, 3)))
        for number in range(count)
    ]
    over: dict[str, Any] = {"resources": ["../base"]}
    files = {}
    patches = []
    for number in range(draw(st.integers(0, 2))):
        base = bases[draw(st.integers(0, count - 1))]
        kind = (base["apiVersion"], base["kind"])
        if draw(st.booleans()):
            patch = workload(kind, base["metadata"]["name"], draw(CONTAINERS), 2)
            if draw(st.booleans()):
                del patch["spec"]["replicas"]
            if draw(st.booleans()):
                patch["spec"]["template"]["spec"]["containers"][0]["args"] = None
            files[f"over/p{number}.yaml"] = yaml.safe_dump(patch)
            patches.append({"path": f"p{number}.yaml"})
        else:
            where = "/spec/template/spec/containers/0/image"
            operations = [
                draw(
                    st.sampled_from(
                        [
                            {"op": "add", "path": where, "value": "new:1"},
                            {"op": "replace", "path": "/spec/replicas", "value": 7},
                            {"op": "add", "path": "/spec/template/spec/hostIPC", "value": True},
                            {"op": "remove", "path": "/spec/replicas"},
                            {
                                "op": "add",
                                "path": "/spec/template/spec/containers/-",
                                "value": {"name": "z", "image": "x/y:9"},
                            },
                        ]
                    )
                )
            ]
            target = {"kind": kind[1], "name": base["metadata"]["name"]}
            patches.append({"target": target, "patch": yaml.safe_dump(operations)})
    if patches:
        over["patches"] = patches
    more = st.sampled_from(
        [
            ("namePrefix", "pre-"),
            ("nameSuffix", "-post"),
            ("namespace", "space"),
            ("images", [{"name": "x/y", "newTag": "7"}]),
            ("images", [{"name": "x/y", "newName": "q", "digest": "sha256:d"}]),
            ("replicas", [{"name": "w0", "count": 5}]),
            ("commonLabels", {"app": "one"}),
            ("labels", [{"pairs": {"app": "two"}, "includeTemplates": True}]),
            ("labels", [{"pairs": {"app": "two"}}]),
            ("configMapGenerator", [{"name": "c", "literals": ["A=b", "C=d=e"]}]),
        ]
    )
    over |= dict(draw(st.lists(more, max_size=3)))
    files["over/kustomization.yaml"] = yaml.safe_dump(over)
    files["base/kustomization.yaml"] = "resources: [all.yaml]\n"
    files["base/all.yaml"] = yaml.safe_dump_all(bases)
    return files


@pytest.mark.thorough
@needs_kustomize
@settings(max_examples=int(os.environ.get("KUSTOMIZE_EXAMPLES", "8")), deadline=None)
@given(kustomizations())
def test_any_kustomization_as_kustomize_does(files: dict[str, str]) -> None:
    """Merged containers, JSON patches, names, images, labels: the same objects."""
    with tempfile.TemporaryDirectory() as folder:
        compared(written(Path(folder), files))

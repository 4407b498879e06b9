"""What is rendered is valid where it goes: by official schemas, and by the clients themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from speclaunch.deployments.recipe.find_recipe import recipe_names
from tests.deployments.targets import deployments
from tests.deployments.targets.validators import (
    MINORS,
    objects,
    validate_compose,
    validate_kubernetes,
)
from tests.support import program

PODS = ("kubernetes", "leaderworkerset", "rolebasedgroup")
ALL = ("docker-compose", *PODS)
ON_THE_CPU = "runs on the CPU engine, which is installed on this machine but in no image"


def render(recipe: str, target: str, *words: str) -> subprocess.CompletedProcess[str]:
    return program.run("render", f"recipe={recipe}", "--to", target, *words)


def check(text: str, target: str) -> None:
    if target == "docker-compose":
        validate_compose(text)
        return
    for minor in MINORS:
        validate_kubernetes(text, minor)


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_every_recipe_is_valid_or_says_why_not(name: str, target: str) -> None:
    done = render(name, target)
    if name.startswith("cpu_"):
        assert done.returncode == 1 and done.stdout == ""
        assert ON_THE_CPU in done.stderr and "help: set deploy.image" in done.stderr
        return
    if name.startswith("multinode_") and target == "docker-compose":
        assert done.returncode == 1 and done.stdout == ""
        assert "runs everything on one host" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    check(done.stdout, target)


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize(
    "mode", ["", "speclaunch: image", "speclaunch: wheel", "speclaunch: mounted"]
)
@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("name", sorted(deployments.RECIPES))
def test_deployments_of_several_parts_are_valid(
    name: str, target: str, mode: str, tmp_path: Path
) -> None:
    if mode and "deploy:" in deployments.RECIPES[name]:
        pytest.skip("it has a section deploy of its own")
    source = ", speclaunch_source: /srv/speclaunch" if mode.endswith("mounted") else ""
    more = f"deploy: {{{mode}{source}}}\n" if mode else ""
    done = render(str(deployments.write(tmp_path, name, more)), target)
    if done.returncode == 1:
        assert target == "docker-compose"
        assert "docker-compose" in done.stderr and done.stdout == ""
        assert "hosts" in name or "wheel" in mode
        return
    assert done.returncode == 0, done.stderr
    check(done.stdout, target)
    assert "very-secret" not in done.stdout and "hf_abcdefg" not in done.stdout
    assert "{{" not in done.stdout
    again = render(str(tmp_path / f"{name}.yaml"), target)
    assert again.stdout == done.stdout


@pytest.mark.thorough
def test_a_wrong_field_is_noticed_by_what_judges() -> None:
    """The judges can fail."""
    text = yaml.safe_dump(
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "x"},
            "spec": {"leaderWorkerTemplate": {"size": 1, "sise": 1, "workerTemplate": {}}},
        }
    )
    with pytest.raises(AssertionError, match="sise is no field"):
        validate_kubernetes(text, MINORS[0])
    with pytest.raises(Exception, match="servces"):
        validate_compose("servces: {}\n")
    service = "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {prts: []}}"
    with pytest.raises(Exception, match="prts"):
        validate_kubernetes(service, MINORS[0])


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("target", PODS)
@pytest.mark.parametrize("name", ["prefill_decode_hosts", "several_hosts", "replicas"])
def test_kustomize_takes_it(name: str, target: str, tmp_path: Path) -> None:
    done = render(str(deployments.write(tmp_path, name)), target)
    folder = tmp_path / "k"
    folder.mkdir()
    (folder / "all.yaml").write_text(done.stdout)
    (folder / "kustomization.yaml").write_text("resources: [all.yaml]\nnameSuffix: -x\n")
    built = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert len(objects(built.stdout)) == len(objects(done.stdout))


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="there is no docker-compose")
@pytest.mark.parametrize("name", ["one_host", "replicas", "prefill_decode", "amd", "own_path"])
def test_the_client_of_compose_takes_it(name: str, tmp_path: Path) -> None:
    done = render(str(deployments.write(tmp_path, name)), "docker-compose")
    path = tmp_path / "compose.yaml"
    # Compose 1.29 knows no `name` of the project (2.3 does)
    path.write_text("".join(x for x in done.stdout.splitlines(True) if not x.startswith("name: ")))
    env = {"PATH": "/usr/bin:/bin", "API_KEY": "x", "HOME": str(tmp_path)}
    said = subprocess.run(
        ["docker-compose", "-f", path, "config"], capture_output=True, text=True, env=env
    )
    assert said.returncode == 0, said.stderr
    assert (
        yaml.safe_load(said.stdout)["services"].keys()
        == yaml.safe_load(done.stdout)["services"].keys()
    )

"""`speclaunch models inspect`: words in, text and exit code out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.facts.test_safetensors_header import packed
from tests.support.engine.checkpoints import stand_ins
from tests.support.engine.checkpoints.safetensors_bytes import read
from tests.support.hub_server import HubServer
from tests.support.program import run


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return stand_ins.write_all(tmp_path_factory.mktemp("models"))


def test_a_healthy_draft(models: dict[str, Path]) -> None:
    done = run("models", "inspect", str(models["llama-eagle3"]))
    assert done.returncode == 0, done.stderr
    assert "15 tensors: 14 loaded, 1 skipped" in done.stdout
    assert "The files contain every tensor that SGLang 0.5.23 loads." in done.stdout


def test_a_renamed_tensor(models: dict[str, Path], tmp_path: Path) -> None:
    model = read(models["llama-eagle3"])
    model.tensors["draft.fc.weight"] = model.tensors.pop("fc.weight")
    model.write(tmp_path / "m")
    done = run("models", "inspect", str(tmp_path / "m"), "--output-format", "json")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert said["missing"] == {"fc.weight": "draft.fc.weight"}
    status = {one["name"]: one["status"] for one in said["tensors"]}
    assert (status["draft.fc.weight"], status["t2d"]) == ("not read", "skipped")
    assert [one["code"] for one in said["findings"]] == ["SPL951"]
    assert (said["algorithm"], said["loader"]) == ("EAGLE3", "LlamaForCausalLMEagle3")


def test_a_shape_that_the_engine_refuses(models: dict[str, Path], tmp_path: Path) -> None:
    model = read(models["llama-eagle"])
    (name,) = (one for one in model.tensors if one.endswith("gate_proj.weight"))
    model.tensors[name] = model.tensors[name].transposed()
    model.write(tmp_path / "m")
    done = run("models", "inspect", str(tmp_path / "m"))
    assert done.returncode == 1
    assert "error[SPL952]" in done.stdout
    assert "wrong shape" in done.stdout


def test_a_shape_that_the_engine_cuts_silently(models: dict[str, Path], tmp_path: Path) -> None:
    model = read(models["llama-eagle"])
    model.config["intermediate_size"] = 64
    model.write(tmp_path / "m")
    done = run("models", "inspect", str(tmp_path / "m"))
    assert done.returncode == 0
    assert "warning[SPL952]" in done.stdout


def test_a_target_beside_it(models: dict[str, Path], tmp_path: Path) -> None:
    target = read(models["cycle-8"])
    target.config["vocab_size"] = 400
    target.write(tmp_path / "t")
    draft = str(models["llama-eagle3"])
    done = run("models", "inspect", draft, "--target", str(tmp_path / "t"))
    assert done.returncode == 1
    assert "SPL953" in done.stdout
    assert "outside the target's 400" in done.stdout


def test_a_whole_model_is_a_draft_beside_a_target(models: dict[str, Path]) -> None:
    words = ("models", "inspect", str(models["cycle-draft-5"]))
    alone = run(*words, "--output-format", "json")
    assert json.loads(alone.stdout)["algorithm"] is None
    beside = run(*words, "--target", str(models["cycle"]), "--output-format", "json")
    assert json.loads(beside.stdout)["algorithm"] == "STANDALONE"


@pytest.mark.thorough
def test_the_version_counts(models: dict[str, Path], tmp_path: Path) -> None:
    model = read(models["llama-eagle3"])
    model.tensors = {
        name.replace("midlayer", "layers.0"): one for name, one in model.tensors.items()
    }
    model.write(tmp_path / "m")
    words = ("models", "inspect", str(tmp_path / "m"), "--engine")
    assert "SPL951" in run(*words, "0.5.11").stdout
    assert "The files contain every tensor that SGLang" in run(*words, "0.5.13").stdout
    assert run(*words, "0.5.11,0.5.12").returncode == 2


def test_its_own_layer(models: dict[str, Path]) -> None:
    done = run("models", "inspect", str(models["glm-mtp"]))
    assert "29 loaded, 35 skipped" in done.stdout


def test_a_class_that_is_not_known(models: dict[str, Path], tmp_path: Path) -> None:
    model = read(models["cycle"])
    model.config["architectures"] = ["SomethingElse"]
    model.write(tmp_path / "m")
    done = run("models", "inspect", str(tmp_path / "m"))
    assert "loads for this class are unknown" in done.stdout
    assert "the engine's requirements are unknown" in done.stdout


@pytest.mark.parametrize("what", ["nothing", "no weights", "a link", "a broken file"])
def test_what_cannot_be_inspected(what: str, models: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "m"
    if what != "nothing":
        folder.mkdir()
        (folder / "config.json").write_text((models["cycle"] / "config.json").read_text())
    if what == "a link":
        (folder / "model.safetensors").symlink_to(models["cycle"] / "model.safetensors")
    if what == "a broken file":
        (folder / "model.safetensors").write_bytes(b"version https://git-lfs")
    done = run("models", "inspect", str(folder))
    assert "Traceback" not in done.stderr
    if what == "a broken file":
        assert (done.returncode, "SPL957" in done.stdout) == (1, True)
    else:
        assert done.returncode == 2
        said = {"nothing": "no config.json", "no weights": "has no safetensors file"}
        assert said.get(what, "links outside its directory") in done.stderr


@pytest.mark.thorough
def test_from_the_hub_the_headers_alone(models: dict[str, Path], hub: HubServer) -> None:
    model = read(models["llama-eagle3"])
    data = model.packed(list(model.tensors))
    hub.answers |= {"config.json": model.config, "model.safetensors": data}
    done = run("models", "inspect", "org/name")
    assert done.returncode == 0, done.stderr
    assert "only headers were read" in done.stdout
    hub.answers["model.safetensors"] = packed({}, 0)
    assert "14 of 14 tensors" in run("models", "inspect", "org/name").stdout

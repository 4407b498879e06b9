"""Checkpoints on this machine, the hub's cache, the token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.engine.facts.facts import Checkpoint, UnknownFact
from speclaunch.engine.facts.hub import fetch_checkpoint
from speclaunch.serving.doctor.checks.models import check_models
from speclaunch.serving.doctor.facts import CheckLine, CheckState, Hub, LocalModel, VolumeUse
from speclaunch.serving.doctor.machine import read_hub, read_model
from tests.support.hub_server import Answer, HubServer
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import GB, machine, said, target, volume

HUB = Hub(Path("/hub"), "HF_TOKEN")
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def line(model: LocalModel, hub: Hub = HUB, **changes: Any) -> CheckLine:
    changes.setdefault("target", target())
    found = said(check_models, machine(models=(model,), hub=hub, **changes))
    (one,) = [line for line in found if line.check == "model"]
    return one


def known(**facts: Any) -> Checkpoint:
    return Checkpoint(LLAMA, **facts)


@rows(
    "model, state, words",
    [
        (
            LocalModel("target", LLAMA, present=True, checkpoint=known(weight_bytes=16 * GB)),
            CheckState.OK,
            "16 GB",
        ),
        (
            LocalModel("target", "/cpu/models/cycle", is_path=True, generated=True),
            CheckState.OK,
            "at its first launch",
        ),
        (LocalModel("draft", "/models/x", is_path=True), CheckState.ERROR, "does not exist"),
        (
            LocalModel("target", "/models/x", is_path=True, readable=False),
            CheckState.ERROR,
            "cannot be read",
        ),
        (LocalModel("target", "s3://bucket/x", is_url=True), CheckState.NOTE, "s3://"),
        (LocalModel("target", LLAMA), CheckState.NOTE, "is not downloaded"),
        (
            LocalModel("target", LLAMA, unfinished=2, unfinished_bytes=3 * GB),
            CheckState.WARNING,
            "2 unfinished downloads (3.0 GB)",
        ),
        (
            LocalModel("target", "/m", is_path=True, present=True, weight_files=False),
            CheckState.ERROR,
            "lacks any weights",
        ),
        (
            LocalModel(
                "target",
                LLAMA,
                present=True,
                checkpoint=known(missing_files=("a", "b", "c", "d", "e")),
            ),
            CheckState.WARNING,
            "lacks a, b, c and 2 more",
        ),
        (
            LocalModel("target", LLAMA, present=True, unfinished=1, checkpoint=known()),
            CheckState.NOTE,
            "1 unfinished download",
        ),
    ],
)
def test_a_checkpoint(model: LocalModel, state: CheckState, words: str) -> None:
    found = line(model)
    assert (found.state, words in found.found) == (state, True), found
    assert found.found.startswith(f"{model.role}: ")


def test_offline_nothing_is_downloaded() -> None:
    offline = replace(HUB, offline="TRANSFORMERS_OFFLINE")
    found = line(LocalModel("target", LLAMA), offline)
    assert found.state is CheckState.ERROR
    assert "TRANSFORMERS_OFFLINE is set" in found.why
    half = LocalModel("target", LLAMA, present=True, checkpoint=known(missing_files=("a",)))
    assert line(half, offline).state is CheckState.ERROR
    assert line(LocalModel("target", LLAMA, present=True), offline).state is CheckState.OK


def test_weights_that_are_never_read_may_be_missing() -> None:
    model = LocalModel("target", "/m", is_path=True, present=True, weight_files=False)
    assert line(model, target=target(dummy_weights=True)).state is CheckState.OK


def test_a_model_that_does_not_fit_on_the_disk() -> None:
    model = LocalModel("target", LLAMA, checkpoint=known(weight_bytes=690 * GB))
    assert line(model, volumes=(volume(VolumeUse.MODELS, 300),)).state is CheckState.ERROR
    assert line(model, volumes=(volume(VolumeUse.MODELS, 800),)).state is CheckState.NOTE
    begun = replace(model, unfinished=1, unfinished_bytes=500 * GB)
    assert line(begun, volumes=(volume(VolumeUse.MODELS, 300),)).state is CheckState.WARNING


def test_another_hub_is_not_looked_at() -> None:
    assert line(LocalModel("target", LLAMA), replace(HUB, modelscope=True)).state is CheckState.NOTE


def test_a_copy_that_the_engine_does_not_know_of_is_named() -> None:
    model = LocalModel("draft", "/gone", is_path=True, checkpoint=known(path=Path("/copies/x")))
    assert "args.speculative_draft_model_path=/copies/x" in (line(model).fix or "")


@pytest.mark.parametrize(
    ("status", "code", "ours", "engines", "state"),
    [
        (403, "GatedRepo", "", None, CheckState.ERROR),
        (403, "GatedRepo", "t", "HF_TOKEN", CheckState.ERROR),  # that token may not
        (403, "GatedRepo", "", "/engine/home/token", CheckState.WARNING),  # not asked with
        (403, "GatedRepo", "t", "/engine/home/token", CheckState.ERROR),
        (401, "RepoNotFound", "", None, CheckState.ERROR),
        (503, "", "", None, CheckState.NOTE),
        (429, "", "", None, CheckState.NOTE),
    ],
)
def test_what_the_hub_refuses_stops_the_launch(
    status: int,
    code: str,
    ours: str,
    engines: str | None,
    state: CheckState,
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.answers["config.json"] = Answer(status, headers={"x-error-code": code})
    monkeypatch.setenv("HF_TOKEN", ours)
    fact = fetch_checkpoint(LLAMA)
    assert isinstance(fact, UnknownFact)
    found = line(LocalModel("target", LLAMA, unknown=fact), replace(HUB, token=engines))
    assert found.state is state
    assert fact.why in found.why


@pytest.mark.parametrize(
    ("gated", "token", "state"),
    [
        (True, None, CheckState.ERROR),
        (True, "HF_TOKEN", CheckState.NOTE),
        (False, None, CheckState.NOTE),
    ],
)
def test_a_gated_model_needs_a_token(gated: bool, token: str | None, state: CheckState) -> None:
    model = LocalModel("target", LLAMA, checkpoint=known(gated=gated))
    assert line(model, replace(HUB, token=token)).state is state


def token_line(hub: Hub, *found: LocalModel, **changes: Any) -> CheckLine | None:
    lines = said(check_models, machine(models=found, hub=hub, **changes))
    return next((line for line in lines if line.check == "token"), None)


def test_the_token_is_never_shown() -> None:
    line = token_line(HUB)
    assert line is not None
    assert (line.state, line.found) == (CheckState.OK, "an access token for the hub is in HF_TOKEN")


def test_a_token_that_is_missing_matters_for_a_download() -> None:
    without = replace(HUB, token=None)
    wanted = token_line(without, LocalModel("target", LLAMA), target=target())
    assert wanted is not None
    assert wanted.state is CheckState.NOTE
    assert LLAMA in wanted.why
    assert token_line(without, LocalModel("target", LLAMA, present=True), target=target()) is None
    assert token_line(without) is not None


# reading


def test_where_the_hub_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert read_hub({}, home).cache == home / ".cache/huggingface/hub"
    assert read_hub({"XDG_CACHE_HOME": "/c"}, home).cache == Path("/c/huggingface/hub")
    assert read_hub({"HF_HOME": "/h"}, home).cache == Path("/h/hub")
    assert read_hub({"HF_HOME": "/h", "HF_HUB_CACHE": "/x"}, home).cache == Path("/x")
    assert read_hub({"HUGGINGFACE_HUB_CACHE": "/y"}, home).cache == Path("/y")


@pytest.mark.parametrize(
    ("env", "offline", "modelscope"),
    [
        ({}, None, False),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE", False),
        ({"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "yes"}, "TRANSFORMERS_OFFLINE", False),
        ({"HF_HUB_OFFLINE": "no"}, None, False),
        ({"SGLANG_USE_MODELSCOPE": "true"}, None, True),
    ],
)
def test_what_the_hub_may(
    env: dict[str, str], offline: str | None, modelscope: bool, tmp_path: Path
) -> None:
    found = read_hub(env, tmp_path)
    assert (found.offline, found.modelscope) == (offline, modelscope)


def test_where_the_token_is(tmp_path: Path) -> None:
    base = tmp_path / ".cache/huggingface"
    assert read_hub({}, tmp_path).token is None
    base.mkdir(parents=True)
    (base / "token").write_text(" \n")
    assert read_hub({}, tmp_path).token is None
    (base / "token").write_text("hf_secret\n")
    found = read_hub({}, tmp_path)
    assert found.token == str(base / "token")
    assert "hf_secret" not in repr(found)
    assert read_hub({"HF_TOKEN": "hf_secret"}, tmp_path).token == "HF_TOKEN"
    assert read_hub({"HF_TOKEN": " ", "HF_TOKEN_PATH": "/no"}, tmp_path).token is None


def cached(tmp_path: Path, *files: str) -> Hub:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for file in files:
        (snapshot / file).write_text("{}")
    return replace(HUB, cache=tmp_path)


def read(name: str, hub: Hub, made: Path = Path("/made")) -> LocalModel:
    return read_model("target", name, hub, made)


def test_a_model_in_the_cache(tmp_path: Path) -> None:
    hub = cached(tmp_path, "config.json", "model-00001-of-00001.safetensors")
    found = read("a/b", hub)
    assert (found.present, found.is_path, found.unfinished) == (True, False, 0)
    assert not read("a/other", hub).present


def test_a_configuration_alone_is_no_download(tmp_path: Path) -> None:
    hub = cached(tmp_path, "config.json")
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    (blobs / "x.incomplete").write_bytes(b"12345")
    (blobs / "y").write_bytes(b"12345")
    found = read("a/b", hub)
    assert (found.present, found.unfinished, found.unfinished_bytes) == (False, 1, 5)


def test_a_model_that_is_a_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({}))
    found = read(str(tmp_path), HUB)
    assert (found.is_path, found.present, found.weight_files) == (True, True, False)
    (tmp_path / "model.safetensors").touch()
    assert read(str(tmp_path), HUB).weight_files


@pytest.mark.parametrize(
    ("name", "is_path", "is_url", "generated"),
    [
        ("/nowhere/x", True, False, False),
        ("./nowhere", True, False, False),
        ("a/b/c", True, False, False),
        ("a/b", False, False, False),
        ("gpt2", False, False, False),
        ("s3://bucket/a", False, True, False),
        ("/made/cycle", True, False, True),
    ],
)
def test_what_a_name_means(
    name: str, is_path: bool, is_url: bool, generated: bool, tmp_path: Path
) -> None:
    found = read(name, replace(HUB, cache=tmp_path))
    assert (found.is_path, found.is_url, found.generated) == (is_path, is_url, generated)
    assert not found.present


def test_one_file_of_gguf(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    found = read(str(tmp_path / "m.gguf"), HUB)
    assert (found.is_path, found.present, found.weight_files) == (True, True, True)


def test_a_directory_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", closed)
    assert not read(str(tmp_path), HUB).readable

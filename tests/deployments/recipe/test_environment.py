"""Values out of the environment: unknown to a check, named by a dry run, needed by a launch."""

from __future__ import annotations

import copy
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from speclaunch.core.errors import InputError
from speclaunch.deployments.recipe.load import Recipe, load
from speclaunch.deployments.recipe.resolve_values import register_resolvers, resolve
from speclaunch.deployments.recipe.resolve_values import resolved as resolved_by
from speclaunch.deployments.sources.requests import from_recipe
from speclaunch.deployments.targets.prepare import Prepared, prepare
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.command import FromEnvironment, render_args
from speclaunch.engine.releases.shell import shell_command
from speclaunch.serving.launch.inputs import command, secrets_file_of

NAMES = ("PROD_KEY", "MODELS", "TP", "PORT", "SWITCH", "MY_HF", "GPUS")


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def recipe(tmp_path: Path, args: str, more: str = "") -> Recipe:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\n{more}args:\n  model_path: m\n{args}")
    return load(str(path))


def dry(found: Recipe) -> Prepared:
    return prepare(found, "0.5.23", dry_run=True)


def pasted(found: Recipe) -> str:
    prepared = dry(found)
    return shell_command(prepared.program, prepared.rendered_args.arguments, prepared.overlay)


def words_of(text: str, tmp_path: Path, **env: str) -> list[str]:
    """What a real bash makes of a command: a python3 on its PATH writes its words down."""
    fake = tmp_path / "bin" / "python3"
    fake.parent.mkdir(exist_ok=True)
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "TOKEN=$HF_TOKEN" "$@"\n')
    fake.chmod(0o755)
    path = f"{fake.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text], capture_output=True, text=True, env={"PATH": path, **env}, check=True
    )
    return done.stdout.splitlines()


def test_a_variable_that_is_not_set_is_an_unknown_value(tmp_path: Path) -> None:
    found = recipe(tmp_path, "  api_key: ${oc.env:PROD_KEY}\n  tp_size: ${oc.env:TP}\n")
    catalogue = load_catalogue("0.5.23")
    deployment = found.deployment
    spelling = render_args(deployment.args, deployment.engine.env, catalogue)
    request = from_recipe(found, spelling, catalogue)
    assert not request.problems  # `--tp-size ${oc.env:TP}` is no integer, and nobody says it were
    assert not request.values["api_key"].known and not request.values["tp_size"].known
    assert request.values["model_path"].known


def test_a_launch_needs_it(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        "  api_key: ${oc.env:PROD_KEY}\n  port: ${oc.env:PORT,31000}\n",
        "hardware: {name: '${oc.env:GPUS}'}\n",
    )
    with pytest.raises(InputError) as caught:
        prepare(found)
    said = {(p.message, p.place.line if p.place else 0) for p in caught.value.problems}
    assert said == {
        ("args.api_key: the environment variable PROD_KEY is not set", 5),
        ("hardware.name: the environment variable GPUS is not set", 2),
    }
    assert all(p.help and "export" in p.help for p in caught.value.problems)


def test_a_value_that_is_set_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELS", "/models")
    monkeypatch.setenv("TP", "2")
    monkeypatch.setenv("PORT", "31001")
    found = recipe(
        tmp_path,
        "  tokenizer_path: ${oc.env:MODELS}/llama\n  tp_size: ${oc.decode:${oc.env:TP}}\n"
        "  port: ${oc.env:PORT,31000}\n",
    )
    assert not found.unset
    assert found.deployment.args["tokenizer_path"] == "/models/llama"
    assert found.deployment.args["tp_size"] == 2
    assert dry(found).address.port == 31001
    assert "--tokenizer-path /models/llama" in pasted(found)


def test_a_default_counts_where_it_is_not_set(tmp_path: Path) -> None:
    found = recipe(tmp_path, "  port: ${oc.env:PORT,31000}\n  host: ${oc.env:TP,null}\n")
    assert not found.unset
    assert dry(found).address.port == 31000
    assert "--port 31000" in pasted(found) and "--host" not in pasted(found)


def test_what_refers_to_it_is_unknown_too(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        "  tp_size: ${oc.env:TP}\n  dp_size: ${args.tp_size}\n"
        "  cuda_graph_bs_decode: [1, '${args.tp_size}']\n"
        "  disable_radix_cache: ${oc.decode:${oc.env:SWITCH}}\n",
    )
    assert {one.key for one in found.unset} == {
        "args.tp_size",
        "args.dp_size",
        "args.cuda_graph_bs_decode.1",
        "args.disable_radix_cache",
    }
    assert '--dp-size "${TP:?}"' in pasted(found)
    assert '--cuda-graph-bs-decode 1 "${TP:?}"' in pasted(found)


def test_a_dry_run_is_ready_to_paste(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        "  api_key: ${oc.env:PROD_KEY}\n  tokenizer_path: ${oc.env:MODELS}/a $b\n"
        "  json_model_override_args: {a: '${oc.env:MODELS}', b: é}\n",
        "engine: {env: {HF_TOKEN: '${oc.env:MY_HF}'}}\n",
    )
    text = pasted(found)
    assert "API_KEY" not in text.replace("PROD_KEY", "")  # no name that nobody has given
    words = words_of(text, tmp_path, PROD_KEY="k y", MODELS="/m", MY_HF="hf_x")
    assert words[0] == "TOKEN=hf_x"
    assert words[words.index("--api-key") + 1] == "k y"
    assert words[words.index("--tokenizer-path") + 1] == "/m/a $b"
    assert words[words.index("--json-model-override-args") + 1] == '{"a": "/m", "b": "é"}'
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode and "PROD_KEY" in done.stderr) or "MY_HF" in done.stderr


@pytest.mark.parametrize("written", ["${oc.env:PROD_KEY}", "${oc.env:PROD_KEY,fallback}"])
def test_a_secret_is_never_shown(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROD_KEY", "s3cret")
    found = recipe(tmp_path, f"  api_key: {written}\n  served_model_name: a-{written}\n")
    prepared = dry(found)
    assert '--api-key "${PROD_KEY:?}"' in pasted(found)
    assert "s3cret" not in pasted(found) and "fallback" not in pasted(found)
    assert "s3cret" not in " ".join(command(prepared))
    assert {"s3cret", "a-s3cret"} <= set(prepared.secrets)
    secrets = secrets_file_of(prepared, tmp_path)
    assert secrets is not None and secrets[1] == "api-key: s3cret\n"


def test_an_escaped_reference_is_text(tmp_path: Path) -> None:
    found = recipe(tmp_path, "  served_model_name: '\\${oc.env:TP}'\n  host: ${oc.env:PORT,x}\n")
    assert found.deployment.args["served_model_name"] == "${oc.env:TP}"
    assert not found.unset


def test_a_value_that_is_still_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"args\.tp_size has no value yet"):
        recipe(tmp_path, "  api_key: ${oc.env:PROD_KEY}\n  tp_size: ???\n")


def resolved(raw: dict[str, str]) -> dict[str, Any]:
    register_resolvers()
    return resolved_by(raw, resolve)


def test_a_default_for_an_empty_variable_too(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"a": "${env_or:TP,3}x", "b": "${env_or:TP,${oc.env:PORT}}", "c": "\\${env_or:TP,3}"}
    for value in (None, ""):
        if value is not None:
            monkeypatch.setenv("TP", value)
        found = resolved(raw)
        assert found["a"] == "3x" and found["a"].shell() == '"${TP:-3}x"'
        assert found["b"].unset == ("PORT",) and found["b"].shell() == '"${TP:-${PORT:?}}"'
        assert found["c"] == "${env_or:TP,3}"
    monkeypatch.setenv("TP", "1")
    assert resolved(raw) == {"a": "1x", "b": "1", "c": "${env_or:TP,3}"}


def test_defaults_of_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"a": "${oc.env:TP,${oc.env:PORT,3}}x", "b": "${oc.env:TP,${oc.env:PORT}}"}
    found = resolved(raw)
    assert found["a"] == "3x" and found["a"].shell() == '"${TP-${PORT-3}}x"'
    assert found["b"].unset == ("PORT",) and found["b"].variables == ("TP", "PORT")
    monkeypatch.setenv("TP", "1")
    assert resolved(raw) == {"a": "1x", "b": "1"}
    assert isinstance(copy.copy(found["b"]), FromEnvironment)
    assert copy.deepcopy(found["b"]).unset == ("PORT",)

"""From a command to a recipe and back: the same effective arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from speclaunch.engine.argv import parse_argv
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.command import spell
from speclaunch.importer.deployment import recipe_name, to_deployment
from speclaunch.importer.files import read_text, read_words
from speclaunch.recipe.compose import recipe_names
from speclaunch.recipe.load import load

COMMANDS = [
    ("0.5.11", "--model x --speculative-algorithm EAGLE --cuda-graph-max-bs 8 --tp 2"),
    ("0.5.23", '--model-path x --json-model-override-args {"a":[1,null]} --host 0.0.0.0'),
    ("0.5.23", "--model-path x --served-model-name ${x} --chunked-prefill-size -1"),
    ("0.5.3", "--model-path x --enable-metrics --context-length 4096 --cuda-graph-bs 1 2 4"),
    ("0.5.18", "--model-path x --lora-paths a=b c=d --port 31000 --context-length 32k"),
    ("0.5.14", "--model-path x --dtype float16 --no-enable-x --trust-remote-code"),
]


def round_trip(words: list[str], version: str, tmp_path: Path) -> None:
    catalogue = load_catalogue(version)
    before = parse_argv(words, catalogue)
    (invocation,) = read_words(["python", "-m", "sglang.launch_server", *words]).invocations
    imported = to_deployment(invocation, "x", version)
    path = tmp_path / "x.yaml"
    path.write_text(imported.recipe("the command line"))
    deployment = load(str(path)).deployment
    spelling = spell(deployment.args, deployment.engine.env, catalogue)
    assert not spelling.problems
    again = [token for argument in spelling.arguments for token in argument.tokens]
    after = parse_argv(again, catalogue)
    assert after.error is None
    if before.error is None:
        assert after.values == before.values
        assert not imported.problems
    else:
        assert imported.problems


@pytest.mark.parametrize(("version", "line"), COMMANDS)
def test_a_command_survives_import_and_launch(version: str, line: str, tmp_path: Path) -> None:
    round_trip(line.split(), version, tmp_path)


@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_every_recipe_survives_being_a_command(name: str, tmp_path: Path) -> None:
    from packaging.version import Version

    from speclaunch.engine.catalogue import held_versions

    deployment = load(name).deployment
    fitting = [v for v in held_versions() if deployment.engine.specifier.contains(Version(v))]
    for version in {fitting[0], fitting[-1]}:
        spelling = spell(deployment.args, deployment.engine.env, load_catalogue(version))
        round_trip([t for a in spelling.arguments for t in a.tokens], version, tmp_path)


def test_our_groups_are_used_where_they_say_the_same() -> None:
    recipe = load("eagle2_llama2_7b")
    spelling = spell(recipe.deployment.args, {}, load_catalogue("0.5.23"))
    words = [token for argument in spelling.arguments for token in argument.tokens]
    (invocation,) = read_words(["sglang", "serve", *words]).invocations
    text = to_deployment(invocation, "x", "0.5.23").recipe("x")
    assert "- model: llama2_7b_eagle" in text
    assert "- speculation: eagle_tree" in text
    assert "speculative_num_steps" not in text and "host" not in text


def test_variables_are_taken_from_the_environment_and_the_rest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "python -m sglang.launch_server --model-path $MODEL/x --tp ${TP} \\\n"
        "  --served-model-name $(hostname) 2>&1 | tee log\n"
    )
    (invocation,) = read_text(script, "run.sh", ".sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert not imported.problems
    text = imported.recipe("run.sh")
    assert "left out `| tee log`" in text
    assert "$(hostname)" in text and "not evaluated" in text
    path = tmp_path / "x.yaml"
    path.write_text(text)
    monkeypatch.setenv("MODEL", "/models")
    monkeypatch.setenv("TP", "4")
    args = load(str(path)).deployment.args
    assert (args["model_path"], args["tp_size"]) == ("/models/x", "4")
    assert args["served_model_name"] == "$(hostname)"


def test_the_version_is_the_newest_that_takes_the_command() -> None:
    words = ["sglang", "serve", "--model-path", "x", "--cuda-graph-max-bs", "8"]
    (invocation,) = read_words(words).invocations
    imported = to_deployment(invocation, "x")
    assert imported.version == "0.5.19" and not imported.problems


def test_slime_says_the_model_and_the_gpus_in_words_of_its_own() -> None:
    script = (
        "CKPT_ARGS=(\n  --hf-checkpoint /root/GLM\n)\nSGLANG_ARGS=(\n"
        "  --rollout-num-gpus-per-engine 8\n  --sglang-speculative-algorithm EAGLE\n)\n"
    )
    (invocation,) = read_text(script, "run.sh", ".sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert not imported.problems
    assert imported.args["tp_size"].value == 8
    assert imported.args["model_path"].value in ("???", "/root/GLM")


def test_the_engines_own_config_file() -> None:
    (invocation,) = read_words(["sglang", "serve", "--config=a.yaml"]).invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert "config" not in imported.args and "ignores this form" in imported.remarks[0]
    (invocation,) = read_words(["sglang", "serve", "--config", "a.yaml"]).invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert imported.args["config"].value == "a.yaml" and "import it" in imported.remarks[0]


def test_a_secret_of_the_cluster_is_taken_from_the_environment() -> None:
    manifest = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
        "  - name: engine\n    command: [sglang, serve, --model-path, x]\n"
        "    env:\n    - name: HF_TOKEN\n      valueFrom: {secretKeyRef: {name: hf, key: t}}\n"
    )
    (invocation,) = read_text(manifest, "pod.yaml", ".yaml").invocations
    assert "HF_TOKEN: ${oc.env:HF_TOKEN}" in to_deployment(invocation, "x", "0.5.23").recipe("p")


def test_names() -> None:
    assert recipe_name("run-eagle3.8B") == "run_eagle3_8b"
    assert recipe_name("--", 2) == "imported_2"


def test_a_variable_of_the_cluster_in_the_middle_of_a_word() -> None:
    manifest = (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: engine\n"
        '    command: [sglang, serve, --model-path, "/m/$(MODEL)", --dist-init-addr,\n'
        '      "$(LWS_LEADER_ADDRESS):20000"]\n'
        "    env: [{name: NCCL_X, value: 'a-$(HOST_NAME)-b'}]\n"
    )
    (invocation,) = read_text(manifest, "pod.yaml").invocations
    text = to_deployment(invocation, "x", "0.5.23").recipe("pod.yaml")
    recipe = yaml.safe_load(text)
    assert recipe["args"]["dist_init_addr"] == "${oc.env:LWS_LEADER_ADDRESS}:20000"
    assert recipe["args"]["model_path"] == "/m/${oc.env:MODEL}"
    assert recipe["engine"]["env"]["NCCL_X"] == "a-${oc.env:HOST_NAME}-b"
    assert "$(" not in text.replace("`$(", "")


def test_a_command_of_a_shell_stays_as_it_is() -> None:
    script = 'sglang serve --model-path m --dist-init-addr "$(hostname -i):$PORT"\n'
    (invocation,) = read_text(script, "run.sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert imported.args["dist_init_addr"].value == "$(hostname -i):$PORT"


def test_how_a_container_is_set_up_is_told_in_one_remark() -> None:
    compose = (
        "services:\n  e:\n    image: lmsysorg/sglang:v0.5.10\n    command: sglang serve --model-path m\n"
        "    environment: {A: b}\n    volumes: [~/hf:/hf]\n    shm_size: 32g\n    ipc: host\n"
        "    devices: [/dev/kfd]\n"
    )
    (invocation,) = read_text(compose, "compose.yaml").invocations
    remarks = to_deployment(invocation, "x", "0.5.23").remarks
    assert remarks == (
        "compose.yaml:6:14: left out `volumes, shm_size, ipc, devices`: how the container is set up"
        " is up to who starts it",
    )
    pod = (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: e\n"
        "    command: [sglang, serve, --model-path, m]\n    volumeMounts: []\n    ports: []\n"
    )
    (invocation,) = read_text(pod, "pod.yaml").invocations
    (remark,) = to_deployment(invocation, "x", "0.5.23").remarks
    assert "`volumeMounts, ports`" in remark

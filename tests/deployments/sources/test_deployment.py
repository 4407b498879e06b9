"""From a command to a recipe and back: the same effective arguments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from speclaunch.checks.edit.import_recipes import require_same_command
from speclaunch.checks.edit.round_trip import meaning_of
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.sources.deployment import to_deployment
from speclaunch.deployments.sources.files import read_file, read_text, read_words
from speclaunch.deployments.sources.interface import recipe_name
from speclaunch.deployments.sources.requests import from_invocation
from speclaunch.deployments.targets.prepare import prepare
from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.command import render_args
from speclaunch.engine.releases.shell import shell_command
from tests.support.loops import rows

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
    spelling = render_args(deployment.args, deployment.engine.env, catalogue)
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


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_every_recipe_survives_being_a_command(name: str, tmp_path: Path) -> None:
    from packaging.version import Version

    from speclaunch.engine.releases.catalogue import held_versions

    deployment = load(name).deployment
    fitting = [v for v in held_versions() if deployment.engine.specifier.contains(Version(v))]
    for version in {fitting[0], fitting[-1]}:
        spelling = render_args(deployment.args, deployment.engine.env, load_catalogue(version))
        round_trip([t for a in spelling.arguments for t in a.tokens], version, tmp_path)


def test_our_groups_are_used_where_they_say_the_same() -> None:
    recipe = load("eagle2_llama2_7b")
    spelling = render_args(recipe.deployment.args, {}, load_catalogue("0.5.23"))
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
    assert "served_model_name: ???  # `$(hostname)` is not run" in text
    path = tmp_path / "x.yaml"
    path.write_text(text.replace("???", "named"))
    monkeypatch.setenv("MODEL", "/models")
    monkeypatch.setenv("TP", "4")
    args = load(str(path)).deployment.args
    assert (args["model_path"], args["tp_size"]) == ("/models/x", "4")
    assert "not set in this file" not in text


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


def test_an_option_of_slime_is_named_with_its_value() -> None:
    script = "python3 train.py --rollout-num-gpus 16 --sglang-tp-size 8 --colocate\n"
    (invocation,) = read_text(script, "run.sh", ".sh").invocations
    said = " ".join(to_deployment(invocation, "x", "0.5.23").remarks)
    assert "left out `--rollout-num-gpus 16`" in said and "left out `--colocate`" in said


def test_the_engines_own_config_file() -> None:
    (invocation,) = read_words(["sglang", "serve", "--config=a.yaml"]).invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert "config" not in imported.args and "ignores this form" in imported.remarks[0]
    (invocation,) = read_words(["sglang", "serve", "--config", "a.yaml"]).invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert imported.args["config"].value == "a.yaml" and "import it" in imported.remarks[0]
    assert "model_path" not in imported.args  # it may be in that file


def test_a_secret_of_the_cluster_is_taken_from_the_environment() -> None:
    manifest = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
        "  - name: engine\n    command: [sglang, serve, --model-path, x]\n"
        "    env:\n    - name: HF_TOKEN\n      valueFrom: {secretKeyRef: {name: hf, key: t}}\n"
    )
    (invocation,) = read_text(manifest, "pod.yaml", ".yaml").invocations
    assert "HF_TOKEN: ${oc.env:HF_TOKEN}" in to_deployment(invocation, "x", "0.5.23").recipe("p")


DEFAULTS = r"""MODEL=${MODEL:-meta-llama/Llama-3.1-8B-Instruct}
: ${TP:=8}
if [ -n "$BIG" ]; then PORT=1; else PORT=2; fi
SGLANG_X=${X:-true} python -m sglang.launch_server --model-path "$MODEL" --tp $TP \
  --mem-fraction-static=${MEM:-0.80} --port $PORT --dtype ${1:-auto} --host ${HOST-0.0.0.0} \
  --speculative-draft-model-path ${DRAFT:-${BASE}/it_is} --served-model-name "a-${N:-it's, {b}}" \
  --dist-init-addr $(head):1 "$@"
"""


def imported_defaults() -> str:
    (invocation,) = read_text(DEFAULTS, "run.sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert not imported.problems
    return imported.recipe("run.sh")


@pytest.mark.thorough
def test_a_default_of_a_variable_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = imported_defaults()
    assert "model_path: ${env_or:MODEL,meta-llama/Llama-3.1-8B-Instruct}\n" in text
    assert "description: No speculation on meta-llama/Llama-3.1-8B-Instruct\n" in text
    path = tmp_path / "x.yaml"
    path.write_text(text.replace("???", "3"))
    monkeypatch.setenv("BASE", "/base")
    args = load(str(path)).deployment.args
    assert args["model_path"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert (args["tp_size"], args["mem_fraction_static"], args["host"]) == ("8", "0.80", "0.0.0.0")
    assert args["served_model_name"] == "a-it's, {b}"
    assert args["speculative_draft_model_path"] == "/base/it_is"
    assert load(str(path)).deployment.engine.env["SGLANG_X"] == "true"
    for name in ("MODEL", "TP", "MEM", "DRAFT", "N", "X"):
        monkeypatch.setenv(name, "7")
    other = load(str(path)).deployment
    assert {other.args[n] for n in ("model_path", "tp_size", "mem_fraction_static")} == {"7"}
    assert (other.args["served_model_name"], other.engine.env["SGLANG_X"]) == ("a-7}", "7")


def test_what_only_a_run_could_tell_is_left_open() -> None:
    text = imported_defaults()
    assert "port: ???  # `$PORT`: its value depends on a condition (1, 2)\n" in text
    assert "dist_init_addr: ???  # `$(head)` is not run\n" in text
    assert "dtype: auto  # the default of argument 1 of the script\n" in text
    assert "left out `$@`: the arguments of the script" in text


def test_no_constant_carries_a_remark_about_a_variable() -> None:
    lines = [line for line in imported_defaults().splitlines() if "  # `" in line]
    assert [line.partition(":")[0].strip() for line in lines] == ["port", "dist_init_addr"]
    for line in lines:
        assert ": ???" in line, line


def test_placeholders_are_left_open() -> None:
    text = (
        "```bash\npython3 -m sglang.launch_server --model <target-model-path> \\\n"
        "  --speculative-algorithm EAGLE3 --speculative-draft-model-path <draft> \\\n"
        "  --cuda-graph-bs 1 2 ... 64 --speculative-num-steps 3 ...\n```\n"
    )
    (invocation,) = read_text(text, "x.md").invocations
    recipe = to_deployment(invocation, "x", "0.5.14").recipe("x.md")
    assert "model_path: ???  # fill in `<target-model-path>`\n" in recipe
    assert "speculative_draft_model_path: ???  # fill in `<draft>`\n" in recipe
    assert "cuda_graph_bs: ???" in recipe and "speculative_num_steps: 3\n" in recipe
    assert "description: EAGLE3 on an unset model\n" in recipe


@pytest.mark.parametrize(
    ("script", "asked", "version"),
    [
        ("sglang serve --model-path x", "0.5.10", "0.5.10"),
        ("sglang serve --model-path x", "v0.5.12", "0.5.12"),
        ("sglang serve --model-path x", None, "0.5.23"),
        ("sglang serve --model-path x --cuda-graph-max-bs 8", None, "0.5.23"),
        ("docker run lmsysorg/sglang:v0.5.9-cu129 sglang serve --model-path x", None, "0.5.9"),
        ("docker run lmsysorg/sglang:latest sglang serve --model-path x", None, "0.5.23"),
    ],
)
def test_the_recipe_says_the_version_it_was_read_for(
    script: str, asked: str | None, version: str, tmp_path: Path
) -> None:
    (invocation,) = read_text(script, "run.sh").invocations
    path = tmp_path / "x.yaml"
    path.write_text(to_deployment(invocation, "x", asked).recipe("run.sh"))
    assert load(str(path)).deployment.engine.pinned == version


def test_what_is_left_out_for_one_reason_takes_one_line() -> None:
    options = " ".join(f"--train-option-{number} {number}" for number in range(33))
    script = f"python3 train.py --sglang-speculative-algorithm EAGLE {options} --seed 3\n"
    (invocation,) = read_text(script, "run.sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    lines = [line for line in imported.remarks if "--train-option-" in line]
    assert len(lines) == 1
    assert "33" in lines[0] and "--train-option-0 " in lines[0] and "--train-option-32" in lines[0]


def test_the_arguments_of_a_config_file_are_part_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("model-path: x\ntp-size: 4\nport: 1\n")
    script = tmp_path / "run.sh"
    script.write_text("python3 -m sglang.launch_server --config conf.yaml --port 2\n")
    (invocation,) = read_file(script).invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    values = {name: line.value for name, line in imported.args.items()}
    assert values == {"model_path": "x", "tp_size": 4, "port": 2}
    assert "conf.yaml are part of this recipe" in imported.remarks[0]


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


def test_a_command_of_a_shell_is_left_open_and_named() -> None:
    script = 'sglang serve --model-path m --dist-init-addr "$(hostname -i):$PORT"\n'
    (invocation,) = read_text(script, "run.sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    line = imported.args["dist_init_addr"]
    assert line.value == "???"  # no recipe runs it: as a text it would reach the engine raw
    assert "$(hostname -i)" in (line.comment or "")


def test_how_a_container_is_set_up_is_told_in_one_remark() -> None:
    compose = (
        "services:\n  e:\n    image: lmsysorg/sglang:v0.5.10\n    command: sglang serve --model-path m\n"
        "    environment: {A: b}\n    volumes: [~/hf:/hf]\n    shm_size: 32g\n    ipc: host\n"
        "    devices: [/dev/kfd]\n"
    )
    (invocation,) = read_text(compose, "compose.yaml").invocations
    remarks = to_deployment(invocation, "x", "0.5.23").remarks
    assert remarks == (
        "compose.yaml:6:14: left out `volumes, shm_size, ipc, devices`: the caller sets "
        "up the container",
    )
    pod = (
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: e\n"
        "    command: [sglang, serve, --model-path, m]\n    volumeMounts: []\n    ports: []\n"
    )
    (invocation,) = read_text(pod, "pod.yaml").invocations
    (remark,) = to_deployment(invocation, "x", "0.5.23").remarks
    assert "`volumeMounts, ports`" in remark


CONDITIONAL = """\
ARGS=(--model-path m)
if [ "${DEBUG:-0}" = 1 ]; then ARGS+=(--log-level debug); export NCCL_DEBUG=INFO; fi
[[ $A ]] && ARGS+=(--port=${PORT:-5})
command -v x || ARGS+=(--log-requests)
for one in a $Z; do ARGS+=(--enable-metrics); done
case $B in x) ARGS+=(--dtype auto) ;; *) ARGS+=(--dtype half) ;; esac
OPTS="--tp-size 2"
if y; then OPTS="--tp-size 2 --random-seed 3"; fi
cd /x && export OMP_NUM_THREADS=1
MODE=a; [ -n "$C" ] && MODE=b
python3 -m sglang.launch_server "${ARGS[@]}" $OPTS --tokenizer-mode $MODE
"""


def test_what_only_a_condition_gives_is_said() -> None:
    (invocation,) = read_text(CONDITIONAL, "x.sh", ".sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    said = {problem.message.split(" only ")[0]: problem for problem in imported.assumed}
    assert {what: one.place and one.place.line for what, one in said.items()} == {
        "--log-level is set": 2,
        "NCCL_DEBUG is set": 2,
        "--port is set": 3,
        "--log-requests is set": 4,
        "--enable-metrics is set": 5,
        "--dtype has this value": 6,
        "--random-seed is set": 8,
    }
    lines = dict(
        line.strip().split(": ", 1)
        for line in imported.recipe("x").splitlines()[1:]
        if ": " in line
    )
    assert (
        lines["log_level"]
        == "debug  # only under the condition of line 2; by default it does not hold"
    )
    assert lines["NCCL_DEBUG"] == "INFO  # only under the condition of line 2"
    assert lines["port"] == "${env_or:PORT,'5'}  # only under the condition of line 3"
    assert lines["enable_metrics"] == "true  # only in the loop of line 5"
    assert lines["dtype"].endswith("of line 6; another branch may add different arguments")
    assert lines["model_path"] == "m"
    assert lines["tp_size"] == "2"
    assert lines["OMP_NUM_THREADS"] == "'1'"
    assert lines["tokenizer_mode"].startswith("???")


def test_what_a_group_says_as_well_keeps_its_condition() -> None:
    text = "P=\nif x; then P='--host 127.0.0.1 --port 30000'; fi\npython3 -m sglang.launch_server --model-path m $P\n"
    (invocation,) = read_text(text, "x.sh", ".sh").invocations
    recipe = to_deployment(invocation, "x", "0.5.23").recipe("x")
    assert "port: 30000  # only under the condition of line 2" in recipe


def test_what_slime_ignores_is_left_out_with_one_remark() -> None:
    script = (
        "python3 train.py --hf-checkpoint /root/GLM --rollout-num-gpus-per-engine 8 \\\n"
        "  --sglang-tp-size 4 --sglang-trust-remote-code --sglang-port 30001 \\\n"
        "  --sglang-model-path /other --sglang-tp-size 2 \\\n"
        "  --sglang-enable-return-routed-experts --sglang-mem-fraction-static 0.7\n"
    )
    (invocation,) = read_text(script, "run.sh", ".sh").invocations
    found = to_deployment(invocation, "x", "0.5.23")
    assert {name: line.value for name, line in found.args.items()} == {
        "mem_fraction_static": 0.7, "tp_size": 8, "model_path": "/root/GLM",
    }  # fmt: skip
    (remark,) = [line for line in found.remarks if "ignores" in line]
    assert remark.startswith("run.sh:2:3: ")
    assert "--sglang-tp-size (slime derives it from --rollout-num-gpus-per-engine)" in remark
    assert remark.count("--sglang-") == 5
    for flag in ("trust-remote-code", "port", "model-path", "enable-return-routed-experts"):
        assert f"--sglang-{flag} (" in remark
    require_same_command(invocation, found, found.recipe("run.sh"))
    linted = from_invocation(invocation, "x", load_catalogue("0.5.23"))
    assert {name: one.value for name, one in linted.values.items()} == {
        name: line.value for name, line in found.args.items()
    }


@pytest.mark.thorough
def test_what_slime_ignores_is_left_out_where_nothing_else_says_it() -> None:
    (invocation,) = read_text(
        "A=(--sglang-model-path /m --sglang-tp 4 --sglang-dtype half)\n", "run.sh", ".sh"
    ).invocations
    found = to_deployment(invocation, "x", "0.5.23")
    assert {name: line.value for name, line in found.args.items()} == {
        "dtype": "half", "model_path": "???",
    }  # fmt: skip
    assert "--sglang-model-path (slime serves --hf-checkpoint)" in "\n".join(found.remarks)
    require_same_command(invocation, found, found.recipe("run.sh"))


EMPTY_COUNTS = """\
A=${A:-one}; KEEP=${KEEP-two}; INNER=${IN:-}
: ${SET:=three}
export NCCL_X=${NCCL:-four}
python3 -m sglang.launch_server --model-path m${M-} --served-model-name "$A" \\
  --host "$KEEP" --revision "$SET" --tokenizer-path "${INNER:-five}" \\
  --chat-template "${T:-/t/${U-six}}" --random-seed ${N-7}
"""
SET_TO_NOTHING = ("A", "KEEP", "IN", "SET", "NCCL", "T", "U")


@pytest.mark.parametrize("value", [None, "", "given"])
def test_an_empty_variable_is_what_it_is_to_bash(
    value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`:-` and `:=` take an empty variable for none, `-` does not: the recipe does the same, and so
    does the command that a dry run makes of it."""
    (invocation,) = read_text(EMPTY_COUNTS, "run.sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    path = tmp_path / "x.yaml"
    path.write_text(text := imported.recipe("run.sh"))
    require_same_command(invocation, imported, text)
    for name in SET_TO_NOTHING:
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    fake = tmp_path / "bin" / "python3"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "<%s>\\n" "$NCCL_X" "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")

    def ran(script: str) -> list[str]:
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        env, *words = done.stdout.splitlines()
        parsed = meaning_of([word[1:-1] for word in words[2:]], load_catalogue("0.5.23"))
        assert parsed is not None
        return [env, *(f"{name}={parsed.values[name]}" for name in parsed.explicit)]

    prepared = prepare(load(str(path)), "0.5.23", dry_run=True)
    overlay = {name: said for name, said in prepared.overlay.items() if name == "NCCL_X"}
    again = shell_command(("python3", "-m", "x"), prepared.rendered_args.arguments, overlay)
    mine, theirs = ran(again), ran(EMPTY_COUNTS)
    assert set(theirs) <= set(mine) and mine[0] == theirs[0]


@rows(
    "written, line",
    [
        ("${A:-x}${A:-y}", "${env_or:A,x}${env_or:A,y}"),
        ("${A:-x${B-y}}", '${env_or:A,"x${oc.env:B,y}"}'),
        ("$C$C", "${oc.env:C,z}${oc.env:C,z}"),
        ("$D$D", "${env_or:D,xyz}${env_or:D,xyz}"),
        ("${E:-${F}}", '${env_or:E,"${oc.env:F}"}'),
    ],
)
def test_every_default_keeps_its_own_variable(written: str, line: str) -> None:
    script = (
        'C=${C-z} B2=y D=${D:-x"$B2"z}\n'
        f"python3 -m sglang.launch_server --model-path m --revision {written}\n"
    )
    (invocation,) = read_text(script, "run.sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    require_same_command(invocation, imported, imported.recipe("run.sh"))
    assert str(imported.args["revision"].value) == line

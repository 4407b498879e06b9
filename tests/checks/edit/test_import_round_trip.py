"""An imported recipe is composed and spelled again: what is not the command is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.checks.edit.import_recipes import require_same_command
from speclaunch.checks.edit.round_trip import RoundTripError
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.sources.deployment import Imported, to_deployment
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Invocation
from speclaunch.deployments.sources.recipe_text import RecipeLine
from tests.support.loops import over

SCRIPT = """\
export SGLANG_X=1 HF_TOKEN=$HF_TOKEN
python3 -m sglang.launch_server --model ${MODEL} --tp 2 --port $PORT \\
  --speculative-algorithm EAGLE3 --speculative-draft-model-path /d --json-model-override-args '{"a": "${b}"}'
"""


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))


def imported(text: str, version: str | None = None) -> tuple[Invocation, Imported]:
    (invocation,) = read_text(text, "x.sh", ".sh").invocations
    return invocation, to_deployment(invocation, "x", version)


def test_what_was_imported_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "/somewhere")
    invocation, found = imported(SCRIPT)
    require_same_command(invocation, found, found.recipe("x.sh"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tp_size: 2", "tp_size: 4"),
        ("speculative_draft_model_path: /d", "speculative_draft_model_path: /e"),
        ("${oc.env:MODEL}", "x"),
        ("  speculative_algorithm: EAGLE3\n", ""),
        ("SGLANG_X: '1'", "SGLANG_X: '0'"),
        ("args:", "argz:"),
    ],
)
def test_what_is_not_the_command_is_refused(old: str, new: str) -> None:
    invocation, found = imported(SCRIPT)
    text = found.recipe("x.sh")
    assert old in text
    with pytest.raises(RoundTripError):
        require_same_command(invocation, found, text.replace(old, new))


@pytest.mark.thorough
@pytest.mark.parametrize("version", ["0.4.8.post1", "0.5.11", "0.5.13.post1", "0.5.23"])
def test_slime_says_the_gpus_at_every_version(version: str, tmp_path: Path) -> None:
    text = (
        "SGLANG_ARGS=(\n --rollout-num-gpus-per-engine 8\n --sglang-pipeline-parallel-size 2\n"
        " --sglang-tensor-parallel-size 3\n --sglang-mem-fraction-static 0.5\n)\n"
    )
    invocation, found = imported(text, version)
    written = found.recipe("x.sh")
    require_same_command(invocation, found, written)
    path = tmp_path / "mine.yaml"
    path.write_text(written.replace("???", "x"))
    args = load(str(path)).deployment.args
    assert args["tp_size"] == 4 and "tensor_parallel_size" not in args


@pytest.mark.thorough
def test_an_argument_that_was_lost_is_seen() -> None:
    invocation, found = imported(SCRIPT)
    args = {name: line for name, line in found.args.items() if name != "port"}
    for lost in (args, found.args | {"dp_size": RecipeLine(2)}):
        broken = replace(found, args=lost)
        with pytest.raises(RoundTripError):
            require_same_command(invocation, broken, broken.recipe("x.sh"))


@pytest.mark.parametrize(
    ("default", "recipe"),
    [
        ("$B", '${env_or:A,"${oc.env:B}"}'),
        ("${B:-x}", '${env_or:A,"${env_or:B,x}"}'),
        ("a/$B/c", '${env_or:A,"a/${oc.env:B}/c"}'),
    ],
)
def test_a_default_that_is_another_variable(default: str, recipe: str) -> None:
    text = f"python3 -m sglang.launch_server --model-path ${{A:-{default}}}\n"
    invocation, found = imported(text)
    assert f"model_path: {recipe}\n" in found.recipe("x.sh")
    require_same_command(invocation, found, found.recipe("x.sh"))


START = "python3 -m sglang.launch_server --model-path"
NESTED = [
    (f"{START} ${{A:-${{B:-/data}}/x}}", 'model_path: ${env_or:A,"${env_or:B,/data}/x"}'),
    (f"{START} m --chat-template ${{A:-${{B}}/a{{b}}.jinja}}", "chat_template: ${env_or:A,"),
    (f'{START} "${{A}}${{A-$B}}-1"', 'model_path: ${oc.env:A}${oc.env:A,"${oc.env:B}"}-1'),
    (f'{START} "${{A-${{B--1}}$C}}"', "model_path: ${oc.env:A,"),
    (f"X=${{A:-x}}\n{START} m --served-model-name $A/$X", "served_model_name: ${oc.env:A}/"),
    (f"export X=${{A-x}}\n{START} $A", "X: ${oc.env:A,x}"),
    (f"{START} 1e3", "model_path: '1e3'"),
    (f"{START} $Aé", "model_path: ${oc.env:A}é"),
    (f'{START} "${{A-é}}"', "model_path: ${oc.env:A,'é'}"),
    (f"{START} $null", "model_path: ???"),
    (f'{START} "$A\\$x"', "model_path: ???"),
    (f"""{START} ${{A:-$B{{"a":1}}""", "model_path: ???"),
]


@pytest.mark.thorough
@over(NESTED)
def test_nested_defaults_are_proven(case: tuple[str, str]) -> None:
    """One import of these was refused as a bug of ours."""
    script, line = case
    invocation, found = imported(script + "\n")
    text = found.recipe("x.sh")
    require_same_command(invocation, found, text)
    assert line in text, text


COMPOSE = """\
services:
{% for w in workers %}
  s{{ w.name }}:
    environment: ["{{ w.key }}={{ w.value }}", "HF_HOME={{ home }}"]
    command: python3 -m sglang.launch_server --model-path {{ model }} --tp {{ w.tp | default(8) }}
{% endfor %}
"""
HELM = """\
kind: Deployment
spec:
  containers:
  - command: ["python3", "-m", "sglang.launch_server", "--tp", "8"]
    env:
    {{- range $k, $v := .Values.env }}
    - name: {{ $k }}
      value: {{ $v | quote }}
    {{- end }}
    - {name: HF_HOME, value: "{{ .Values.home }}"}
"""
MARKED = """\
services:
  s:
    environment: {"{{ name }}": x, HF_HOME: "{{ home }}"}
    command: [python3, -m, sglang.launch_server, --model-path, m]
"""


@pytest.mark.thorough
@over([("x.yml.j2", COMPOSE), ("x.yaml", HELM), ("compose.yaml", MARKED)], lambda case: case[0])
def test_templated_names_of_variables_are_left_out(case: tuple[str, str]) -> None:
    name, text = case
    (invocation,) = read_text(text, name).invocations
    found = to_deployment(invocation, "x")
    require_same_command(invocation, found, found.recipe(name))
    assert list(found.env) == ["HF_HOME"]
    (remark,) = [one for one in found.remarks if "not a valid environment variable name" in one]
    assert "left out `{{ " in remark

"""What is rendered means the same: bash itself reads it back."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from speclaunch.checks.edit.render_check import (
    errors_of_form,
    plan_rendering,
    require_same_commands,
)
from speclaunch.checks.edit.round_trip import RoundTripError
from speclaunch.checks.rules.examine import Lookup
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load
from speclaunch.deployments.sources.files import read_shell
from speclaunch.deployments.sources.requests import from_invocation
from speclaunch.deployments.targets.assemble import RENDERERS
from speclaunch.deployments.targets.interface import Rendering, Role
from speclaunch.deployments.targets.one_host import SET_BY_SLIME, ShellRenderer, SlimeRenderer
from speclaunch.deployments.targets.prepare import Prepared, prepare
from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.engine.releases.catalogue import load as load_catalogue
from tests.deployments.targets import deployments
from tests.support import program

STUB = "#!/bin/sh\npython3 -c 'import json,os,sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))' \"$@\"\n"


SCRIPTS = ("shell", "slime")
"""The targets whose text is for a shell."""


def alone(prepared: Prepared, *program: str) -> Rendering:
    """A recipe of one role."""
    role = Role("server", program or prepared.program, prepared.rendered_args, prepared.overlay)
    deployment = prepared.recipe.deployment
    return Rendering(deployment.name, deployment.description, (role,))


def rendering(name: str, *overrides: str, program: tuple[str, ...] = ()) -> Rendering:
    return alone(prepare(load(name, overrides), dry_run=True), *program)


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_a_rendered_script_runs_the_command_that_a_launch_runs(name: str, tmp_path: Path) -> None:
    program = tmp_path / "engine"
    program.write_text(STUB)
    program.chmod(0o755)
    wanted = rendering(name, program=(str(program),))
    (role,) = wanted.roles
    script = RENDERERS["shell"]().render(wanted)
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    argv, env = json.loads(done.stdout)
    assert tuple(argv) == role.words
    for variable, value in role.env.items():
        if variable not in ("PATH", "PYTHONPATH"):
            assert env.get(variable) == value


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_a_slime_array_holds_every_argument_that_slime_takes(name: str) -> None:
    wanted = rendering(name, "+args.pp_size=1")
    text = RENDERERS["slime"]().render(wanted)
    script = f"{text}\nprintf '%s\\0' \"${{SGLANG_ARGS[@]}}\""
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    words = done.stdout.split("\0")[:-1]
    (role,) = wanted.roles
    gpus = role.rendered_args.value("tp_size") or "1"
    assert words[:2] == ["--rollout-num-gpus-per-engine", gpus]
    expected: list[str] = []
    for argument in role.rendered_args.arguments:
        if argument.name in SET_BY_SLIME:
            assert f"# left out: {argument.flag} (" in text
        elif argument.name != "tp_size":
            first, *rest = argument.tokens
            expected += [first.replace("--", "--sglang-", 1), *rest]
    assert words[2:] == expected
    assert "--debug-rollout-only" in text


@pytest.mark.thorough
@pytest.mark.parametrize("target", SCRIPTS)
def test_secrets_are_asked_for_and_odd_values_are_quoted(target: str) -> None:
    wanted = rendering(
        "ngram_qwen7b",
        "args.api_key=sk-secret",
        "engine.env.HF_TOKEN=hf_secret",
        "args.served_model_name='a $(id) b'",
    )
    text = RENDERERS[target]().render(wanted)
    assert "secret" not in text
    assert '"${API_KEY:?}"' in text and '"${HF_TOKEN:?}"' in text
    assert "'a $(id) b'" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize("version", [v for v in held_versions() if v != "0.5.23"])
def test_slime_gets_the_gpus_of_an_engine_at_every_version(version: str, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("defaults: [base]\nargs: {model_path: x, tp_size: 4, pp_size: 2}\n")
    prepared = prepare(load(str(recipe)), version, dry_run=True)
    text = RENDERERS["slime"]().render(alone(prepared))
    assert "--rollout-num-gpus-per-engine 8\n" in text
    assert "tensor-parallel" not in text and "--sglang-tp" not in text
    assert text.count("--sglang-p") == 1  # slime reads the pipeline from it
    assert "(slime serves --hf-checkpoint)" in text


class _Sizes(SlimeRenderer):
    """What it once wrote for engines up to 0.5.13."""

    def render(self, deployment: Rendering) -> str:
        text = super().render(deployment)
        size = "   --rollout-num-gpus-per-engine 1\n   --sglang-tensor-parallel-size 4\n"
        return re.sub(r"   --rollout-num-gpus-per-engine \d+\n", size, text)


@pytest.mark.parametrize(
    "broken",
    [
        lambda one: _Sizes().render(one),
        lambda one: SlimeRenderer().render(one).replace("--sglang-mem-fraction-static", "--x"),
        lambda one: ShellRenderer().render(one).replace("export HF_HOME=", "export HF_HOME=x"),
        lambda one: ShellRenderer().render(one).replace("--tp-size 4", "--tp-size 2"),
        lambda one: ShellRenderer().render(one) + "sglang serve\n",
    ],
)
def test_a_text_that_is_another_deployment_is_refused(
    broken: Callable[[Rendering], str], tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "defaults: [base]\nengine: {env: {HF_HOME: /h, API_TOKEN: t}}\n"
        "args: {model_path: x, tp_size: 4, mem_fraction_static: 0.5, api_key: sk-1}\n"
    )
    prepared = prepare(load(str(recipe)), "0.5.14", dry_run=True)
    wanted = alone(prepared)
    for renderer in map(RENDERERS.__getitem__, deployments.SERVING):
        if not renderer().refuses(wanted):
            require_same_commands(renderer(), renderer().render(wanted), wanted, prepared.catalogue)
    with pytest.raises(RoundTripError):
        require_same_commands(ShellRenderer(), broken(wanted), wanted, prepared.catalogue)


def test_slime_has_the_negation_before_its_prefix(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("defaults: [base]\nargs: {model_path: x, enable_tf32_matmul: false}\n")
    prepared = prepare(load(str(recipe)), "0.5.23", dry_run=True)
    wanted = alone(prepared)
    text = SlimeRenderer().render(wanted)
    assert "   --no-sglang-enable-tf32-matmul\n" in text
    require_same_commands(SlimeRenderer(), text, wanted, prepared.catalogue)
    wrong = text.replace("--no-sglang-", "--sglang-no-")
    with pytest.raises(RoundTripError):
        require_same_commands(SlimeRenderer(), wrong, wanted, prepared.catalogue)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return program.run(*words, "--engine", "0.5.23")


def _rendered(recipe: str, to: str, *overrides: str) -> subprocess.CompletedProcess[str]:
    return _run("render", f"recipe={recipe}", *overrides, "--to", to)


@pytest.mark.thorough
def test_what_the_target_refuses_is_not_written() -> None:
    sizes = ("args.tp_size=2", "args.dp_size=2")
    refused = _rendered("eagle3_llama8b", "slime", *sizes)
    assert refused.returncode == 1 and refused.stdout == ""
    assert "error[SPL807]" in refused.stderr and "--sglang-enable-dp-attention" in refused.stderr
    assert "command line: args.dp_size=2" in refused.stderr
    assert "rendered.sh" not in refused.stderr
    assert _rendered("eagle3_llama8b", "shell", *sizes).returncode == 0
    mended = _rendered("eagle3_llama8b", "slime", *sizes, "+args.enable_dp_attention=true")
    assert mended.returncode == 0 and "--sglang-dp-size 2" in mended.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("target", sorted(RENDERERS))
def test_what_lint_refuses_of_the_recipe_is_not_rendered(target: str, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "defaults: [base]\nargs: {model_path: x, speculative_algorithm: NGRAM, pp_size: 2, "
        "enable_metrics: true}\n"
    )
    own = _run("lint", str(recipe))
    assert own.returncode == 1
    refused = _rendered(str(recipe), target)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "error[SPL221]" in refused.stderr and "--force" in refused.stderr
    assert _rendered(str(recipe), target, "--force").returncode == 0


@pytest.mark.parametrize(
    ("own", "form", "news"),
    [
        ("--tp-size 0", "--tp-size=0", []),
        ("--tp-size 0", "--tp-size 0 --pp-size 0", ["pp-size"]),  # one rule, another argument
        ("--nope 1", "--nope 1 --other 1", ["--other"]),  # no argument of the engine's at all
        ("--port 99999999 --tp-size 0", "--tp-size 0", []),
    ],
)
def test_a_new_error_of_a_known_rule_is_noticed(own: str, form: str, news: list[str]) -> None:
    def text(args: str) -> str:
        return f"python3 -m sglang.launch_server --model-path m {args}\n"

    (invocation,) = read_shell(text(own), "own.sh").invocations
    request = from_invocation(invocation, "own", load_catalogue("0.5.23"))
    found = errors_of_form(text(form), ".sh", [request])
    assert len(found) == len(news)
    assert all(one in finding.message for one, finding in zip(news, found, strict=True))


@pytest.mark.campaign
@pytest.mark.thorough
@pytest.mark.parametrize("target", deployments.SERVING)
@pytest.mark.parametrize("name", sorted(recipe_names()))
def test_no_recipe_is_refused_in_any_form(name: str, target: str) -> None:
    renderer, recipe = RENDERERS[target](), load(name)
    for role in [one.role for one in recipe.roles] if renderer.single_server else [None]:
        assembled = plan_rendering(recipe, None, Lookup(), role=role, carries_speclaunch=False)
        wanted = assembled.rendering
        if renderer.refuses(wanted):
            assert name.startswith("cpu_") or wanted.roles[0].nodes > 1
            continue
        of_roles = dict(zip((one.name for one in wanted.roles), assembled.prepared, strict=True))
        own = [of_roles[one.role.name].request({}) for one in renderer.commands(wanted)]
        assert not errors_of_form(renderer.render(wanted), renderer.suffix, own)


@pytest.mark.thorough
@pytest.mark.parametrize("target", sorted(RENDERERS))
def test_a_text_changes_only_on_purpose(target: str, tmp_path: Path) -> None:
    """Renew the stored texts with `python -m tests.deployments.targets.deployments`."""
    for stored, text in deployments.texts(tmp_path, target):
        assert text == stored.read_text(), stored.name


def test_an_array_without_an_argument_is_refused(tmp_path: Path) -> None:
    done = _rendered(str(deployments.write(tmp_path, "own_path")), "slime")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: slime sets every argument of own_path except its number of GPUs" in done.stderr

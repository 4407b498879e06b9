"""A secret in a command never gets into the recipe, nor onto the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from speclaunch.checks.edit.import_recipes import require_same_command
from speclaunch.checks.edit.round_trip import RoundTripError
from speclaunch.deployments.sources.deployment import to_deployment
from speclaunch.deployments.sources.files import read_text
from tests.support import program

KEY, TOKEN = "sk-9f2c1e7ab04d77", "hf_qWmZkTbYcRdLsVpNuXoJ"
LAUNCH = "python3 -m sglang.launch_server --model-path m"
FORMS = {
    "flag.sh": f"{LAUNCH} --api-key {KEY} --admin-api-key '{KEY}b'\n",
    "equals.sh": f"{LAUNCH} --api-key={KEY}\n",
    "variable.sh": f"MY={KEY}\nexport HF_TOKEN={TOKEN}\n{LAUNCH} --api-key $MY | tee --token {KEY}\n",
    "default.sh": f"export HF_TOKEN=${{MY_HF:-{TOKEN}}}\n{LAUNCH} --api-key ${{PROD:-{KEY}}}\n",
    "prefix.sh": f"HF_TOKEN={TOKEN} {LAUNCH}\n",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
    f"  - name: e\n    command: [sglang, serve, --model-path, x, --api-key, {KEY}]\n"
    f"    env:\n    - name: HF_TOKEN\n      value: {TOKEN}\n",
    "compose.yaml": "services:\n  e:\n    command: [sglang, serve, --model-path, x, --api-key,"
    f" {KEY}]\n    environment: [HF_TOKEN={TOKEN}]\n",
    "engine.yaml": f"model-path: m\napi-key: {KEY}\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_secret_is_taken_from_the_environment(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(FORMS[name])
    done = program.run("import", path, "--engine", "0.5.23")
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert KEY not in said and TOKEN not in said
    recipe = yaml.safe_load(done.stdout)
    holders = {**recipe["args"], **recipe.get("engine", {}).get("env", {})}
    found = {
        key: holders[key] for key in ("api_key", "admin_api_key", "HF_TOKEN") if key in holders
    }
    assert found
    for key, value in found.items():
        (variable,) = re.findall(r"\$\{oc\.env:(\w+)\}", value)
        assert value == f"${{oc.env:{variable}}}"
        message = f"the value of {key} is written in the file; the recipe reads it from ${variable}"
        assert message in " ".join(done.stderr.split()) and message in done.stdout
    if name == "default.sh":
        assert found == {"api_key": "${oc.env:PROD}", "HF_TOKEN": "${oc.env:MY_HF}"}


@pytest.mark.thorough
def test_a_command_of_words() -> None:
    done = program.run(
        "import",
        "--",
        *LAUNCH.split(),
        "--api-key",
        KEY,
    )
    assert done.returncode == 0 and KEY not in done.stdout + done.stderr
    assert "api_key: ${oc.env:API_KEY}" in done.stdout


def test_what_stands_for_a_secret_is_kept() -> None:
    text = f"HF_TOKEN=EMPTY {LAUNCH} --api-key EMPTY --ssl-keyfile-password $PASS\n"
    (invocation,) = read_text(text, "x.sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    assert imported.args["api_key"].value == imported.env["HF_TOKEN"].value == "EMPTY"
    assert not imported.assumed


@pytest.mark.thorough
def test_another_variable_than_the_announced_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    (invocation,) = read_text(FORMS["flag.sh"], "x.sh").invocations
    imported = to_deployment(invocation, "x", "0.5.23")
    text = imported.recipe("x.sh")
    require_same_command(invocation, imported, text)
    for wrong in ("${oc.env:ADMIN_API_KEY}", "other"):
        with pytest.raises(RoundTripError):
            require_same_command(invocation, imported, text.replace("${oc.env:API_KEY}", wrong))

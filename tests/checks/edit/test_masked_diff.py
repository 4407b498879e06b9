"""What `migrate --diff` shows: no secret, and a patch that applies where that is possible."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import program

KEY, TOKEN = "sk-9f2c1e7ab04d77", "hf_qWmZkTbYcRdLsVpNuXoJ"
START = "python3 -m sglang.launch_server --model-path m"
OLD, NEW = "--cuda-graph-max-bs 8", "--cuda-graph-max-bs-decode 8"


def migrate(tmp_path: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return program.run("migrate", name, "--to", "0.5.23", *options, cwd=tmp_path)


CHANGED = {  # the changed line, or one next to it in a form of its own, holds the secret
    "a.sh": f"{START} {OLD} --api-key {KEY}\n",
    "b.sh": f"{START} {OLD} --api-key '{KEY}'\n",
    "c.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: e\n"
    "    command: [sglang, serve, --model-path, x, --api-key, "
    + KEY
    + ", --cuda-graph-max-bs, '8']\n",
    "d.sh": f"HF_TOKEN={TOKEN} {START} {OLD}\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(CHANGED))
def test_a_secret_in_a_changed_line_is_hidden(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(CHANGED[name])
    done = migrate(tmp_path, name, "--diff")
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert KEY not in said and TOKEN not in said
    assert "cuda-graph-max-bs-decode" in done.stdout and "***" in done.stdout
    assert "1 secret value is hidden (***): the patch does not apply" in done.stderr
    assert (tmp_path / name).read_text() == CHANGED[name]
    assert migrate(tmp_path, name).returncode == 0
    written = (tmp_path / name).read_text()  # the file itself keeps it
    assert (KEY in written or TOKEN in written) and "***" not in written


@pytest.mark.thorough
@pytest.mark.parametrize("between", [0, 1, 2])
def test_a_secret_around_the_change_is_left_out(between: int, tmp_path: Path) -> None:
    more = [f"  --random-seed {number} \\" for number in range(between)]
    lines = [f"{START} \\", f"  --api-key {KEY} \\", *more, f"  {OLD} \\", *more, "  --tp 1"]
    script = tmp_path / "run.sh"
    script.write_text("\n".join([f"export HF_TOKEN={TOKEN}", *lines]) + "\n")
    done = migrate(tmp_path, "run.sh", "--diff")
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert KEY not in said and TOKEN not in said and "***" not in said
    assert ("--unidiff-zero" in done.stderr) is (between == 0)
    zero = ["--unidiff-zero"] if between == 0 else []
    subprocess.run(
        ["git", "apply", "-p1", *zero], input=done.stdout, text=True, cwd=tmp_path, check=True
    )
    assert script.read_text().count(NEW) == 1 and KEY in script.read_text()


@pytest.mark.thorough
def test_a_stand_in_is_shown_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{START} {OLD} --api-key EMPTY --dtype auto\n")
    done = migrate(tmp_path, "run.sh", "--diff")
    assert "--api-key EMPTY" in done.stdout and "patch" not in done.stderr


@pytest.mark.thorough
def test_recipes_too(tmp_path: Path) -> None:
    recipe = f"args:\n  model_path: m\n  cuda_graph_max_bs: 8\n  api_key: {KEY}\n"
    (tmp_path / "mine.yaml").write_text(recipe)
    done = migrate(tmp_path, "mine.yaml", "--diff")
    assert done.returncode == 0 and KEY not in done.stdout + done.stderr
    assert "+  cuda_graph_max_bs_decode: 8" in done.stdout

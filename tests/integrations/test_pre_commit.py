"""The hooks, run by pre-commit itself in a repository of somebody's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from speclaunch.app.verbs.app import plain_options
from speclaunch.app.verbs.start_options import LintOptions
from tests.integrations.checkout import ROOT, clone, git

PRE_COMMIT = (sys.executable, "-m", "pre_commit")
BROKEN = "python -m sglang.launch_server --model-path m --speculative-nun-steps 3\n"
FIXABLE = """\
engine: {version: "0.5.23"}
args:
  model_path: meta-llama/Llama-3.1-8B-Instruct
  dtype: float16
  speculative_algorithm: EAGLE3
  speculative_draft_model_path: jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B
  speculative_num_steps: 3
  speculative_eagle_topk: 1
  speculative_num_draft_tokens: 9
"""
SOUND = (
    "python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B-Instruct --port 30000"
    " --speculative-algorithm NGRAM --speculative-num-draft-tokens 12\n"
)


@pytest.mark.thorough
def test_the_hooks_are_a_manifest() -> None:
    done = subprocess.run(
        [*PRE_COMMIT, "validate-manifest", ".pre-commit-hooks.yaml"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_lines_of_the_hooks_are_read() -> None:
    for one in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()):
        program, *words = one["entry"].split()
        assert program == "speclaunch"
        assert words.pop(0) == "lint"
        options = plain_options(LintOptions, [*words, "a.sh", "b.yaml"])
        assert options is not None and options.paths == ("a.sh", "b.yaml"), one["id"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's, with the three lines."""
    source = clone(tmp_path_factory.mktemp("speclaunch") / "clone")
    own = tmp_path_factory.mktemp("own")
    (own / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: file://{source}\n    rev: v1.0.0\n    hooks: [{{id: speclaunch}}]\n"
    )
    git(own, "init", "-q")
    git(own, "add", "-A")
    return own


def hook(repository: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "PRE_COMMIT_HOME": str(repository.parent / "pre-commit"),
    }
    done = subprocess.run(
        [*PRE_COMMIT, "run", "--color", "never", *words],
        cwd=repository, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if "No matching distribution" in done.stdout or "Failed to establish a new" in done.stdout:
        pytest.skip("pre-commit cannot install the hook: no package index can be reached")
    return done


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_broken_deployment_stops_a_commit_and_a_sound_one_does_not(repository: Path) -> None:
    (repository / "README.md").write_text("# Ours\n\nNothing of a server.\n")
    (repository / "mkdocs.yml").write_text("site_name: !ENV [NAME]\nplugins: [search\n")
    (repository / "logo.bin").write_bytes(b"\0\1sglang")
    git(repository, "add", "-A")
    nothing = hook(repository)
    assert nothing.returncode == 0 and "Passed" in nothing.stdout, nothing.stdout

    (repository / "serve.sh").write_text(SOUND)
    git(repository, "add", "-A")
    sound = hook(repository)
    assert sound.returncode == 0, sound.stdout

    (repository / "broken.sh").write_text(BROKEN)
    (repository / "recipe.yaml").write_text("args:\n  model_path: m\n  tp_sise: 2\n")
    git(repository, "add", "-A")
    broken = hook(repository)
    assert broken.returncode == 1 and "Failed" in broken.stdout
    assert "broken.sh:1:47" in broken.stdout, broken.stdout
    assert "recipe.yaml:3:3" in broken.stdout, broken.stdout

    with_arguments = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())
    with_arguments["repos"][0]["hooks"][0]["args"] = ["--ignore", "SPL0"]
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(with_arguments))
    assert "Passed" in hook(repository, "--all-files").stdout


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_other_hook_applies_fixes_and_stops_for_a_look(repository: Path) -> None:
    config = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())
    config["repos"][0]["hooks"] = [{"id": "speclaunch-fix"}]
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(repository, "rm", "-q", "--cached", "--ignore-unmatch", "broken.sh", "recipe.yaml")
    (repository / "fixable.yaml").write_text(FIXABLE)
    git(repository, "add", "fixable.yaml", ".pre-commit-config.yaml")
    done = hook(repository, "--files", "fixable.yaml")
    assert done.returncode == 1 and "files were modified by this hook" in done.stdout, done.stdout
    assert (repository / "fixable.yaml").read_text() == FIXABLE.replace("tokens: 9", "tokens: 4")
    assert hook(repository, "--files", "fixable.yaml").returncode == 0

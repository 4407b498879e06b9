"""What lint and plan know without being shown a checkpoint, and how they say where from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import program

SCRIPT = """python3 -m sglang.launch_server --model-path {target} {more} \\
  --speculative-algorithm NGRAM --tp-size 3
"""
TRAINED = """python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B \\
  --speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1 \\
  --speculative-draft-model-path yuhuili/EAGLE3-LLaMA3.1-Instruct-8B \\
  --speculative-num-draft-tokens 4
"""
NGRAM = """python3 -m sglang.launch_server --model-path my/Qwen3-8B-AWQ --speculative-algorithm NGRAM \\
  --tp-size 3
"""


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, on a machine without any checkpoint."""
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "nothing"))
    return tmp_path


def lint(folder: Path, text: str, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The only file's report, and its findings by code."""
    (folder / "serve.sh").write_text(text)
    done = program.run(
        "lint", "serve.sh", "--engine", "0.5.23", "--output-format", "json", *words, cwd=folder
    )
    (file,) = json.loads(done.stdout)["files"]
    return file, {finding["code"]: finding for finding in file["findings"]}


def test_an_error_that_the_index_grounds_says_so(empty: Path) -> None:
    file, findings = lint(empty, SCRIPT.format(target="Qwen/Qwen3-8B", more=""))
    assert findings["SPL507"]["severity"] == "error"
    assert findings["SPL507"]["why"].endswith(
        "(Qwen/Qwen3-8B: speclaunch's index, read 2026-11-22)"
    )
    assert [(one["name"], one["provenance"]) for one in file["checkpoints"]] == [
        ("Qwen/Qwen3-8B", "index")
    ]
    assert not [fact for fact in file["unknown"] if fact["what"].startswith("the checkpoint")]


def test_another_revision_makes_it_likely(empty: Path) -> None:
    more = "--revision 0123456789abcdef"
    _, findings = lint(empty, SCRIPT.format(target="Qwen/Qwen3-8B", more=more))
    assert findings["SPL507"]["severity"] == "warning"
    assert "not 0123456789abcdef" in findings["SPL507"]["why"]


def test_a_config_of_training_makes_it_likely(empty: Path) -> None:
    _, findings = lint(empty, TRAINED)
    assert findings["SPL407"]["severity"] == "warning"
    assert "from its training config" in findings["SPL407"]["why"]
    assert "Qwen/Qwen3-8B:" not in findings["SPL407"]["why"]  # it rests on the draft alone


@pytest.mark.thorough
def test_what_the_guides_state_is_certain(empty: Path) -> None:
    """The guide's own example without the two arguments that it calls necessary, by name and path,
    and complete; another revision is another matter."""
    for target, draft in (
        ("meta-llama/Llama-3.1-8B-Instruct", "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B"),
        ("/root/Llama-3.1-8B-Instruct", "/root/sglang-EAGLE3-LLaMA3.1-Instruct-8B"),
    ):
        text = TRAINED.replace("Qwen/Qwen3-8B", target)
        text = text.replace("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", draft)
        _, findings = lint(empty, text)
        for code in ("SPL401", "SPL402"):
            assert findings[code]["severity"] == "error", (code, target)
            assert "slime documentation, speculative decoding" in findings[code]["why"]
        necessary = "--dtype float16 --context-length 2048 --speculative-algorithm"
        _, findings = lint(empty, text.replace("--speculative-algorithm", necessary))
        assert not {"SPL401", "SPL402"} & set(findings), target
        other = "--speculative-draft-model-revision 0123456789abcdef --speculative-algorithm"
        _, findings = lint(empty, text.replace("--speculative-algorithm", other))
        assert findings["SPL401"]["severity"] == "warning", target


@pytest.mark.thorough
def test_a_sibling_is_taken_when_told(empty: Path) -> None:
    file, findings = lint(empty, NGRAM)
    assert "SPL507" not in findings
    (fact,) = [one for one in file["unknown"] if one["what"] == "the checkpoint my/Qwen3-8B-AWQ"]
    assert "--assume my/Qwen3-8B-AWQ=Qwen/Qwen3-8B" in fact["fix"]
    file, findings = lint(empty, NGRAM, "--assume", "my/Qwen3-8B-AWQ=Qwen/Qwen3-8B")
    assert "assumed to match Qwen/Qwen3-8B" in findings["SPL507"]["why"]
    (empty / "speclaunch.toml").write_text('[assume]\n"my/Qwen3-8B-AWQ" = "Qwen/Qwen3-8B"\n')
    assert lint(empty, NGRAM) == (file, findings)


def test_a_broken_speclaunch_toml_ends_with_its_place(empty: Path) -> None:
    (empty / "speclaunch.toml").write_text("[asume]\n")
    (empty / "serve.sh").write_text(NGRAM)
    done = program.run("lint", "serve.sh", cwd=empty)
    assert done.returncode == 2
    assert "speclaunch.toml:1:1" in done.stderr and "did you mean `assume`?" in done.stderr


@pytest.mark.thorough
def test_a_plan_of_the_readme_shows_real_numbers(empty: Path) -> None:
    done = program.run("plan", "recipe=mtp_mimo7b", "--hardware", "h100", "--full", cwd=empty)
    assert "MiMo-7B-RL: speclaunch's index, read 2026-11-22" in done.stdout
    assert "weights" in done.stdout and "unknown whether" not in done.stdout


@pytest.mark.thorough
def test_doctor_says_where_the_facts_come_from(empty: Path) -> None:
    words = ("doctor", "recipe=mtp_mimo7b", "--hardware", "h100", "--engine", "0.5.23")
    text = program.run(*words, cwd=empty).stdout
    known = "checkpoint facts from speclaunch's index (read 2026-11-22): XiaomiMiMo/MiMo-7B-RL"
    assert known in text
    document = json.loads(program.run(*words, "--output-format", "json", cwd=empty).stdout)
    assert [one["provenance"] for one in document["checkpoints"]] == ["index"]

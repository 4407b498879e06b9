"""`speclaunch drafts` and `speclaunch init`: words, streams, exit codes, files."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.app.verbs.test_cli import run

TARGET = "Qwen/Qwen3-8B"
NEWEST = ("--engine", "0.5.23")


def drafts_json(*words: str, code: int = 0) -> Any:
    done = run("drafts", *words, "--output-format", "json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
def test_the_list_as_text() -> None:
    done = run("drafts", TARGET, *NEWEST, "--hardware", "h100:1")
    assert done.returncode == 0 and done.stderr == ""
    for said in (
        "DFLASH with z-lab/Qwen3-8B-DFlash-b16",
        "STANDALONE with Qwen/Qwen3-0.6B",
        "NGRAM",
        "confidence high",
        "tokens of KV cache",
        "index",
    ):
        assert said in done.stdout


@pytest.mark.thorough
def test_the_list_as_json() -> None:
    found = drafts_json(TARGET, *NEWEST, "--hardware", "h100:1")
    assert found["version"] == 1 and found["target"] == TARGET
    assert found["architectures"] == ["Qwen3ForCausalLM"] and found["releases"] == ["0.5.23"]
    ngram = next(way for way in found["ways"] if way["method"] == "NGRAM")
    assert ngram["releases"] == [{"first": "0.5.23", "last": "0.5.23"}]
    assert ngram["memory"]["draft_weight_bytes"] == 0 and ngram["memory"]["fits"] is True
    keys = {
        "method",
        "algorithm",
        "draft",
        "arguments",
        "releases",
        "refused",
        "changes",
        "warnings",
    }
    keys |= {"not_judged", "confidence", "founded_on", "sources", "memory"}
    keys |= {"setting_why", "comparable_accept_length", "published"}
    assert all(way.keys() == keys for way in found["ways"])


@pytest.mark.thorough
def test_what_no_release_accepts_is_shown_on_request() -> None:
    number = "4.24 tokens a step: mtbench math, 16 draft tokens, vLLM nightly"
    assert number not in run("drafts", TARGET, *NEWEST).stdout
    assert number in run("drafts", TARGET, *NEWEST, "--all").stdout
    refused, why = "RedHatAI/Qwen3-8B-speculator.eagle3", "not accepted by any release: "
    done = run("drafts", TARGET, *NEWEST)
    assert refused not in done.stdout and why not in done.stdout
    assert "no release accepts 3 more (--all shows them)" in done.stdout
    done = run("drafts", TARGET, *NEWEST, "--all")
    assert refused in done.stdout and why in done.stdout and "--all" not in done.stdout
    done = run("drafts", "openai/gpt-oss-20b", "--engine", "0.4.6.post5")
    assert done.returncode == 1 and why in done.stdout  # there is nothing else to show


def test_without_hardware_no_memory_is_worked_out() -> None:
    found = drafts_json(TARGET, *NEWEST)
    assert found["hardware"] is None and {way["memory"] for way in found["ways"]} == {None}


def test_no_release_takes_any_way() -> None:
    found = drafts_json("openai/gpt-oss-20b", "--engine", "0.4.6.post5", code=1)
    assert all(way["refused"] for way in found["ways"])


def test_an_unknown_target() -> None:
    done = run("drafts", "Qwen/Qwen3-8BB")
    assert done.returncode == 2 and "did you mean Qwen/Qwen3-8B" in done.stderr
    done = run("init", "Qwen/Qwen3-8BB", "--hardware", "h100")
    assert done.returncode == 2 and "did you mean Qwen/Qwen3-8B" in done.stderr


def test_a_checkpoint_on_disk(tmp_path: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000}
    config |= {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    config |= {"intermediate_size": 11008, "max_position_embeddings": 4096, "dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = drafts_json(str(tmp_path), *NEWEST)
    assert [way["method"] for way in found["ways"]] == ["NGRAM"]


def init(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = run("init", TARGET, *NEWEST, *words, cwd=cwd)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.thorough
def test_the_recipe_goes_to_standard_output_and_what_was_chosen_to_standard_error() -> None:
    done = init("--hardware", "h100:1")
    assert done.returncode == 0
    assert done.stdout.startswith("# ") and "\ndefaults:\n  - base\n" in done.stdout
    assert "1 GPU" in done.stderr


@pytest.mark.thorough
def test_the_recipe_is_written_and_lints_clean(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    done = init("--hardware", "h100:1", "--output", str(path))
    assert done.returncode == 0 and done.stdout == "" and str(path) in done.stderr
    checked = run("lint", str(path), "--output-format", "json")
    assert checked.returncode == 0
    planned = run("plan", str(path), "--output-format", "json")
    assert planned.returncode == 0
    assert json.loads(planned.stdout)["budget"]["fit"] == "fits"


@pytest.mark.thorough
def test_no_file_is_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine\n")
    done = init("--hardware", "h100:1", "--output", str(path))
    assert done.returncode == 2 and "--overwrite" in done.stderr and path.read_text() == "mine\n"
    for option, is_noted in (("--overwrite", False), ("--force", True)):
        path.write_text("mine\n")
        done = init("--hardware", "h100:1", "--output", str(path), option)
        assert done.returncode == 0 and path.read_text().startswith("# ")
        assert ("use --overwrite" in done.stderr) is is_noted


@pytest.mark.thorough
def test_force_writes_despite_errors_and_then_replaces_no_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    words = ("init", "meta-llama/Llama-3.3-70B-Instruct", "--hardware", "rtx4090:2", *NEWEST)
    assert run(*words, "--output", str(path)).returncode == 1 and not path.exists()
    done = run(*words, "--output", str(path), "--force")
    assert done.returncode == 0 and "[SPL711]" in done.stderr
    assert "written despite SPL711" in path.read_text()
    path.write_text("mine\n")
    done = run(*words, "--output", str(path), "--force")
    assert done.returncode == 2 and path.read_text() == "mine\n"
    assert "use --overwrite to replace it (--force" in done.stderr
    done = run(*words, "--output", str(path), "--force", "--overwrite")
    assert done.returncode == 0 and "SPL711" in path.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--hardware h200:8"),
        (("--hardware", "h1000"), "unknown hardware"),
        (("--hardware", "cpu"), "for GPUs"),
        (("--hardware", "h100", "--output", "mine.yml"), "must end in .yaml"),
        (("--hardware", "h100", "--output", "no/such/mine.yaml"), "no such directory"),
        (("--hardware", "h100", "--algorithm", "mtp"), "no speculation method 'mtp'"),
        (("--hardware", "h100", "--draft", "o/none"), "no draft o/none"),
        (("--hardware", "h100", "--interactive"), "needs a terminal"),
    ],
)
def test_what_cannot_be_asked(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = init(*words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.thorough
def test_what_does_not_fit_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    words = ("deepseek-ai/DeepSeek-V3", "--hardware", "h100:8", *NEWEST, "--output", str(path))
    done = run("init", *words)
    assert done.returncode == 1 and "GiB on all GPUs together" in done.stderr
    assert not path.exists()


@pytest.mark.thorough
def test_the_way_by_name() -> None:
    assert "speculation: ngram" in init("--hardware", "h100:1", "--algorithm", "NGRAM").stdout
    said = init("--hardware", "h100:1", "--draft", "Qwen/Qwen3-1.7B").stdout
    assert "speculative_draft_model_path: Qwen/Qwen3-1.7B" in said


class Terminal:
    """A real terminal that is answered."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "speclaunch", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200"},
        )
        os.close(slave)
        self.said = ""

    def until(self, words: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while words not in self.said and time.monotonic() < end:
            ready, _, _ = select.select([self.master], [], [], 0.2)
            if ready:
                try:
                    self.said += os.read(self.master, 65536).decode()
                except OSError:
                    break
        assert words in self.said, self.said

    def answer(self, question: str, text: str) -> None:
        self.until(question)
        self.said = ""
        os.write(self.master, f"{text}\n".encode())

    def end(self) -> int:
        try:
            self.until("wrote ")
            return self.process.wait(timeout=60)
        finally:
            self.process.kill()
            os.close(self.master)


@pytest.mark.thorough
def test_what_was_not_said_is_asked(tmp_path: Path) -> None:
    terminal = Terminal("init", TARGET, "--interactive", cwd=tmp_path)
    terminal.answer("Hardware", "h10000")  # is asked again
    terminal.answer("unknown hardware", "h100:1")
    terminal.answer("SGLang version", "0.5.23")
    terminal.until("Number of the speculation method")
    number = re.search(r"(\d+)\. NGRAM", terminal.said)
    assert number is not None
    terminal.answer("Number of the speculation method", number[1])
    terminal.answer("File to write", "")
    assert terminal.end() == 0
    assert "speculation: ngram" in (tmp_path / "qwen3_8b.yaml").read_text()


def test_a_wrong_pair_is_told_the_right_draft(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(
        "python3 -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct "
        "--speculative-algorithm EAGLE3 --speculative-draft-model-path "
        "AQ-MedAI/Kimi-K2-Instruct-eagle3 --speculative-num-steps 3 --speculative-eagle-topk 1 "
        "--speculative-num-draft-tokens 4\n"
    )
    done = run("lint", str(script), *NEWEST, "--output-format", "json", "--select", "SPL409,SPL410")
    (file,) = json.loads(done.stdout)["files"]
    fixes = [one["fix"] for one in file["findings"]]
    assert len(fixes) == 2
    assert all("made for this target: " in fix and "/" in fix for fix in fixes)
    assert any("sglang-EAGLE3" in fix or "SGLang-EAGLE3" in fix for fix in fixes)

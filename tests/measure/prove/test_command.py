"""The command line of `prove` where nothing is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.program import run

RECIPE = "recipe=cpu_ngram"
FORCED = "+engine.env.SGLANG_SIMULATE_ACC_LEN=3"


def prove(*words: str, home: Path) -> tuple[int, str, str]:
    done = run("prove", *words, env={**os.environ, "SPECLAUNCH_HOME": str(home)})
    return done.returncode, done.stdout, done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "message", "remedy"),
    [
        (["recipe=cpu_ngrm"], "unknown recipe 'cpu_ngrm'", "did you mean `cpu_ngram`?"),
        ([RECIPE, "--workload", "chta"], "unknown workload 'chta'", "did you mean `chat`?"),
        ([RECIPE, "--workload", "/none/a.jsonl"], "cannot read /none/a.jsonl: no such file", ""),
        ([RECIPE, "--workload", "random"], "random tokens cannot be used", "or a JSONL file"),
        ([RECIPE, "--concurrency", "1,x"], "'x' is not a number from 1 to 1024", "1,8"),
        ([RECIPE, "--context", "-1"], "'-1' is not a number from 0", ""),
        ([RECIPE, "args.speculative_algorithm=null"], "cpu_ngram does not speculate", "a recipe"),
        ([RECIPE, FORCED], "SGLANG_SIMULATE_ACC_LEN simulates acceptance", "engine.env"),
        (["recipe=pd_mtp_deepseek_v3"], "has several roles", ""),
        ([RECIPE, "--engine", "0.5.22"], "the CPU engine is SGLang 0.5.23", ""),
    ],
)
def test_what_cannot_be_proven_is_refused_before_anything_starts(
    words: list[str], message: str, remedy: str, tmp_path: Path
) -> None:
    code, said, told = prove(*words, "--dry-run", home=tmp_path)
    assert (code, said) == (2, "")
    assert message in told and remedy in told
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_starts_and_keeps_nothing(tmp_path: Path) -> None:
    code, said, told = prove(
        *(RECIPE, "--dry-run", "--workload", "chat", "--workload", "chat", "--context", "0,50"),
        *("--concurrency", "2,8", "--samples", "10", "--output-tokens", "16"),
        home=tmp_path,
    )
    assert (code, told) == (0, "")
    assert said.splitlines() == [
        "starts:   2, both at once: cpu_ngram; cpu_ngram without speculation",
        "requests: 160 to cpu_ngram: 40 prompts at concurrency 2, 8, 16 tokens each; 10 "
        "samples of 4 tokens for 8 of them",
        "          200 to cpu_ngram without speculation, and one more for each answer that differs",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_on_gpus_one_engine_runs_at_a_time(tmp_path: Path) -> None:
    code, said, _ = prove("recipe=eagle3_llama8b", "--dry-run", home=tmp_path)
    assert code == 0
    assert said.startswith("starts:   2, one after the other: eagle3_llama8b; ")


def test_without_an_engine_it_says_so(tmp_path: Path) -> None:
    code, said, told = prove(RECIPE, home=tmp_path)
    assert (code, said) == (1, "")
    assert "the CPU engine is not installed" in told
    assert "Traceback" not in told

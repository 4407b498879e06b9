"""The command line of tune: what it refuses before any start, and what a dry run says."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.program import run

BASE = ("tune", "recipe=eagle3_llama8b", "--hardware", "h100", "--engine", "0.5.23", "--dry-run")


@pytest.mark.thorough
def test_a_dry_run_lists_the_starts_and_their_time(tmp_path: Path) -> None:
    words = ("--objective", "throughput@1,8", "--minutes", "90", "--draft-tokens", "16")
    done = run(*BASE, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "objective:  throughput@1,8" in done.stdout
    assert "steps 3, topk 4, 16 draft tokens" in done.stdout  # the recipe's own
    assert re.search(r"starts: +at most 7", done.stdout)
    assert "5 to compare the best 2" in done.stdout  # blocks on a GPU: A B C C B
    assert re.search(r"minutes: +at most \d+, stops after 90", done.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--objective", "fast"), "unknown objective 'fast'"),
        (("--objective", "goodput@8"), "goodput needs bounds"),
        (("--starts", "4"), "too few for the 5 starts"),
        (("--verify-starts", "2"), "use --verify-starts 1, or at least 3"),
        (
            ("--verify-starts", "3", "--starts", "10"),
            "too few for the 9 starts",
        ),  # A B C, C B A, A B C
        (("--write",), "is shipped with speclaunch and cannot be edited"),
        (("--output-file", "x.yaml", "--verify", "0"), "need --verify of at least 1"),
        (("--output-file", "x.json"), "must end in .yaml"),
        (("--output-file", "there.yaml"), "already exists"),
        (("--adaptive-config", "no/steps.json"), "no such directory"),
        (
            ("--adaptive-config", "s.json", "--engine", "0.5.3"),
            "has no speculative_adaptive_config",
        ),
        (("--draft-tokens", "2", "--workload", "nothing"), "unknown workload"),
    ],
)
def test_what_is_refused_before_any_start(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "there.yaml").touch()
    done = run(*BASE, *words, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_another_algorithm_has_no_file_of_steps(tmp_path: Path) -> None:
    words = ("tune", "recipe=ngram_qwen7b", *BASE[2:], "--adaptive-config", "s.json")
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "EAGLE and EAGLE3 only, not NGRAM" in " ".join(done.stderr.split())


def test_acceptance_that_is_made_up_is_nothing_to_tune(tmp_path: Path) -> None:
    env = {**os.environ, "SGLANG_SIMULATE_ACC_LEN": "3"}
    done = run(*BASE, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "SGLANG_SIMULATE_ACC_LEN simulates acceptance" in " ".join(done.stderr.split())

"""Options of bench that do not fit together, and what a dry run lists; nothing is started."""

from __future__ import annotations

import pytest

from tests.support.program import run

URL = ("--url", "http://127.0.0.1:1")
SHORT = ("recipe=cpu_ngram", "+args.context_length=4096")
"""With a context that is known without the model, which the first launch makes."""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((*URL,), 1, "does not answer"),
        ((*URL, "recipe=cpu_ngram"), 2, "--url cannot be combined with a recipe"),
        ((*URL, "--against", "none"), 2, "cannot be restarted"),
        ((*URL, "--fail-under", "1.1"), 2, "--fail-under needs"),
        ((*URL, "--blocks", "2", "--dry-run"), 2, "is already running"),
        ((*URL, "--starts", "3", "--dry-run"), 2, "cannot be restarted"),
        (("recipe=cpu_ngram", "--starts", "2", "--dry-run"), 2, "use --starts 1, or at least 3"),
        (("recipe=cpu_ngram", "--starts", "7", "--dry-run"), 2, "add --rounds 14"),
        (
            (*SHORT, "--context", "500,9000", "--dry-run"),
            2,
            "cannot fit prompts of 9000 tokens and answers of 128 tokens",
        ),
        (
            (*SHORT, "--workload", "random", "--input-tokens", "9000", "--dry-run"),
            2,
            "--input-tokens 9000",
        ),
        ((*URL, "--goodput", "ttft", "--dry-run"), 2, "not a bound"),
        ((*URL, "--context", "x", "--dry-run"), 2, "--context"),
        ((*URL, "--workload", "random", "--generator", "aiperf", "--dry-run"), 2, "random tokens"),
        (("--url", "host:1"), 2, "not the address"),
        (("--generator", "other"), 2, "other"),
        ((), 2, "no recipe specified"),
    ],
)
def test_words_that_are_refused(words: tuple[str, ...], code: int, said: str) -> None:
    done = run("bench", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_a_dry_run_lists_every_length_of_context() -> None:
    words = ("--against", "recipe=cpu_ngram", "--context", "0,500", "--concurrency", "1")
    done = run("bench", *URL, *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "starts:  1" in done.stdout
    assert "chat at concurrency 1" in done.stdout
    assert "chat with prompts of 500 tokens at concurrency 1" in done.stdout


@pytest.mark.thorough
def test_several_starts_are_started_one_behind_the_other() -> None:
    words = ("--hardware", "h100", "--engine", "0.5.23", "--starts", "3", "--dry-run")
    done = run("bench", "recipe=eagle3_llama8b", *words)
    assert done.returncode == 0, done.stderr
    assert "starts:  6, one engine at a time" in done.stdout

"""lint, import and migrate say the same of what slime does not take, each as a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.deployments.sources.slime import misspelt
from tests.support import program
from tests.support.loops import rows

SCRIPT = """\
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 8
   --sglang-mem-fraction-static 0.7
   {option}
)
ray job submit -- python3 train.py --lr 1 ${{SGLANG_ARGS[@]}}
"""
VERBS = (
    ("lint", "s.sh", "--engine", "0.5.23"),
    ("import", "s.sh", "--engine", "0.5.23"),
    ("migrate", "s.sh", "--to", "0.5.23", "--diff"),
)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("option", "said", "help_"),
    [
        (
            "--speculative-algorithm EAGLE",
            "slime does not accept",
            "--sglang-speculative-algorithm",
        ),
        (
            "--sglang-router-polcy x",
            "slime has no known option",
            "did you mean --sglang-router-policy?",
        ),
        (
            "--sglang-server-concurency 8",
            "slime has no known option",
            "--sglang-server-concurrency?",
        ),
        (
            "--rollout-num-gpu-per-node 8",
            "slime has no known option",
            "--rollout-num-gpus-per-node?",
        ),
    ],
)
def test_the_verbs_agree(option: str, said: str, help_: str, tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text(SCRIPT.format(option=option))
    for words in VERBS:
        done = program.run(*words, cwd=tmp_path)
        shown = " ".join((done.stdout if words[0] == "lint" else done.stderr).split())
        assert done.returncode == 0, (words, shown)
        assert f"{said} `{option.split(maxsplit=1)[0]}`" in shown and help_ in shown
        assert "warning" in shown and "error:" not in shown and "error[" not in shown


@rows(
    "flag, meant",
    [
        ("--sglang-router-ipp", "--sglang-router-ip"),
        ("--sglang-router-request-timeot-sec", "--sglang-router-request-timeout-secs"),
        ("--sglang-router-request-timeout", None),  # a beginning of one
        ("--sglang-router-balance-rel-threshold", None),
        ("--sglang-router-cache-threshold", None),  # unknown, and near to none
        ("--rollout-batch-size", None),
        ("--rollout-num-gpu-per-engine", "--rollout-num-gpus-per-engine"),
        ("--hf-checkpiont", "--hf-checkpoint"),
        ("--ref-checkpoint", None),
        ("--critic-num-nodes", None),
        ("--sglang-server-concurency", "--sglang-server-concurrency"),
        ("--sglang-server-concurrency", None),
        ("--sglang-served-model-name", None),
        ("--seed", None),
    ],
)
def test_a_slip_is_near_to_what_is_known(flag: str, meant: str | None) -> None:
    assert misspelt(flag) == meant

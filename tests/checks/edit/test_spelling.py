"""Misspelt and renamed arguments set right in their place, in every form; nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.edit.test_fix_file import fix

SERVER = "python3 -m sglang.launch_server --model-path m"
COMPOSE = """\
services:
  a:
    image: lmsysorg/sglang:v0.5.23  # pinned
    command:
      - python3
      - -m
      - sglang.launch_server
      - --model-path
      - m
      - "--schedule-polisy"  # as measured
      - lpm
"""
RECIPE = """\
engine: {version: "0.5.23"}
args:
  model_path: m
  'schedule_polisy': lpm  # as measured
  dtype: flot16
"""
SLIME = """\
SGLANG_ARGS=(
  --rollout-num-gpus-per-engine 2
  --sglang-schedule-polisy lpm  # as measured
)
python3 train.py --hf-checkpoint m "${SGLANG_ARGS[@]}"
"""


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [
        ("run.sh", f"{SERVER} \\\n  --schedule-polisy lpm  # why\n", [("polisy", "policy")]),
        ("run.sh", f"A=(--schedule-polisy=lpm)\n{SERVER} ${{A[@]}}\n", [("polisy", "policy")]),
        ("c.yaml", COMPOSE, [("polisy", "policy")]),
        ("r.yaml", RECIPE, [("polisy", "policy"), ("flot16", "float16")]),
        ("run.sh", SLIME, [("polisy", "policy")]),
        (
            "doc.md",
            f"# A\n\n```bash\n{SERVER} --schedule-polisy lpm\n```\n",
            [("polisy", "policy")],
        ),
    ],
)
def test_a_slip_is_set_right(
    tmp_path: Path, name: str, text: str, changes: list[tuple[str, str]]
) -> None:
    (tmp_path / ".git").mkdir()
    wanted = text
    for wrong, right in changes:
        assert wanted.count(wrong) == 1
        wanted = wanted.replace(wrong, right)
    done = fix(tmp_path, text, "SPL001", "SPL003", name=name)
    assert done.after == wanted
    assert done.left == [] and len(done.applied) == len(changes)


def test_a_guess_is_not_safe(tmp_path: Path) -> None:
    text = f"{SERVER} --schedule-polisy lpm\n"
    assert fix(tmp_path, text, "SPL001", unsafe=False).after == text


def test_another_name_of_the_same_argument_is_safe(tmp_path: Path) -> None:
    text = f"{SERVER} --cuda-graph-max-bs 8 \\\n --port 31000\n"
    done = fix(tmp_path, text, "SPL001", "SPL002", unsafe=False)
    assert done.after == text.replace("max-bs", "max-bs-decode")
    assert done.applied[0].fix is not None
    assert done.applied[0].fix.done == "renamed cuda-graph-max-bs to cuda-graph-max-bs-decode"


def test_an_older_release_that_is_asked_for_keeps_its_name(tmp_path: Path) -> None:
    text = f"{SERVER} --cuda-graph-max-bs 8\n"
    done = fix(tmp_path, text, "SPL001", "SPL002", versions=("0.5.8", "0.5.23"))
    assert done.after == text
    assert "0.5.8" in done.left[0].why


def test_without_a_version_the_new_name_is_a_guess(tmp_path: Path) -> None:
    text = f"{SERVER} --cuda-graph-max-bs 8\n"
    done = fix(tmp_path, text, "SPL001", "SPL002", versions=(), unsafe=False)
    assert done.after == text
    assert done.unsafe


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{SERVER} --schedule-polisy lpm --schedule-policy fcfs\n", "is also set"),
        (
            f"A=--schedule-polisy\n{SERVER} $A lpm\n{SERVER} $A lpm --schedule-policy fcfs\n",
            "is also set",
        ),
    ],
)
def test_what_is_left(tmp_path: Path, text: str, why: str) -> None:
    done = fix(tmp_path, text, "SPL001")
    assert done.after == text
    assert why in done.left[0].why

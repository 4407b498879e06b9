"""The proof refuses what is not the same: every kind of damage that an edit could do."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from speclaunch.checks.edit import migrate as migrating
from speclaunch.checks.edit.edits import Change
from speclaunch.checks.edit.migrate import migrate_commands
from speclaunch.checks.edit.round_trip import (
    ExpectedCommand,
    RoundTripError,
    fix_differences,
    meaning_of,
    migration_differences,
    save_texts,
    secrets_of,
    text_differences,
)
from speclaunch.core.errors import ExitCode, Problem
from speclaunch.deployments.sources.files import read_text
from speclaunch.deployments.sources.interface import Reading
from speclaunch.engine.releases.catalogue import load

SCRIPT = """\
D=/models/draft  # the draft
export HF_TOKEN=hf_abcdef
python3 -m sglang.launch_server --model x --api-key sk-123456 \\
  --speculative-draft-model-path $D --tp 2 > log
echo done
"""
WORDS = ("--model", "x", "--api-key", "sk-123456", "--speculative-draft-model-path")


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))


def found(after: str, touched: tuple[int, ...] = ()) -> list[str]:
    before = read_text(SCRIPT, "x.sh", ".sh")
    words = tuple(word.text for word in before.invocations[0].words)
    expected = ExpectedCommand(words, "0.5.23", meaning_of(words, load("0.5.23")))
    return [
        *migration_differences(before, read_text(after, "x.sh", ".sh"), [expected]),
        *text_differences(SCRIPT, after, "x.sh", set(touched), ()),
    ]


def test_the_same_text_is_proven() -> None:
    assert not found(SCRIPT)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("$D", "", "its tokens are"),
        ("=/models/draft", "=", "the definition of D is empty"),
        ("--tp 2", "--tp 4", "its tokens are"),
        ("> log", "", "its redirections and pipes"),
        ("hf_abcdef", "hf_other", "the variable HF_TOKEN"),
        ("echo done\n", "", "an unrelated line was removed"),
        ("python3 -m sglang.launch_server", "python3 -m other", "1 commands became 0"),
        ("echo done", "echo done\necho more", "more new lines"),
    ],
)
def test_damage_is_seen(old: str, new: str, what: str) -> None:
    assert any(what in one for one in found(SCRIPT.replace(old, new), (1, 2, 3, 4)))


def test_yaml_keeps_its_structure() -> None:
    before = "a:\n  - x\n  - y\nb: {c: 1}\n"
    for after in ("a:\n  - x\n  - y\nb: {c: [1]}\n", "a:\n- x\nb: {c: 1}\n", "a: [\n"):
        assert list(text_differences(before, after, "x.yaml", {1, 2, 3, 4, 9}, ())) or list(
            text_differences(before, after, "x.yaml", set(), ())
        )


FOLDED = """\
spec:
  containers:
  - name: a
    args:
    - 'python3 -m sglang.launch_server --model-path m
      --log-requests --enable-http2 --tp 2'
    - b
"""


def test_a_change_inside_of_a_text_that_goes_over_lines_is_one_of_that_text() -> None:
    after = FOLDED.replace(" --enable-http2", "")
    assert not list(text_differences(FOLDED, after, "x.yaml", {6}, ()))
    for damage in (after.replace("    - b", "    -"), after.replace("    - b", "    - [b]")):
        assert list(text_differences(FOLDED, damage, "x.yaml", {6}, ()))


def test_a_problem_that_a_fix_causes_is_reported_not_an_older_one() -> None:
    before = Reading(problems=(Problem("old"),))
    after = Reading(problems=(Problem("old"), Problem("new")))
    found = list(fix_differences(before, after, {}, "0.5.23"))
    assert found == ["part of it could not be read afterwards: new"]


def test_a_removal_in_a_folded_text_of_a_manifest_is_written() -> None:
    text = FOLDED.replace("--enable-http2", "--ds-channel-config-path x")
    made = migrate_commands(text, read_text(text, "x.yaml", ".yaml"), "0.5.20", "0.4.6.post5")
    assert not made.problems
    assert "--ds-channel-config-path" not in made.text.replace("# removed --ds", "")
    assert "--log-requests --tp 2'" in made.text


def test_a_bug_of_ours_writes_nothing_and_keeps_both_texts_without_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = SCRIPT.replace("--tp 2", "--tp 2 --cuda-graph-max-bs 8")

    def broken(text: str, _: list[Change]) -> str:
        return text.replace("--tp 2 ", "").replace("=/models/draft", "=")

    monkeypatch.setattr(migrating, "apply", broken)
    with pytest.raises(RoundTripError) as caught:
        migrate_commands(text, read_text(text, "x.sh", ".sh"), "0.5.23")
    assert caught.value.exit_code is ExitCode.INTERNAL
    (crash,) = (tmp_path / "home").iterdir()
    assert stat.S_IMODE(crash.stat().st_mode) == 0o600
    kept = crash.read_text()
    assert "--- before" in kept and "--- after" in kept and "/models/draft" in kept
    for secret in ("sk-123456", "hf_abcdef"):
        assert secret not in kept and secret not in str(caught.value)
    assert str(crash) in (caught.value.problems[0].help or "")


def test_secrets_are_found_wherever_they_stand() -> None:
    manifest = (
        "kind: Pod\nspec:\n  containers:\n    - command: [python3, -m, sglang.launch_server]\n"
        "      args:\n        - --api-key\n        - sk-list\n        - --model-path\n        - x\n"
        "      env:\n        - {name: HF_TOKEN, value: hf_pod}\n"
    )
    reading = read_text(manifest, "x.yaml", ".yaml")
    hidden = secrets_of(reading.invocations, "0.5.23")
    assert {"sk-list", "hf_pod"} <= set(hidden)
    where = save_texts("migrate", ["why"], manifest, manifest, hidden)
    assert where is not None
    assert "sk-list" not in where.read_text() and "hf_pod" not in where.read_text()

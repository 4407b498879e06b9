"""`speclaunch lint`, `rules`, `explain`, and how `launch` heeds the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.verbs.test_cli import run
from tests.support import program

GOOD = "#!/bin/bash\npython3 -m sglang.launch_server \\\n  --model-path m \\\n  --port 31000\n"
BAD = """#!/bin/bash
# a comment
python3 -m sglang.launch_server \\
  --model-path m \\
  --speculative-algorithm NGRAM \\
  --tp-size 2 --dp-size 2 \\
  --enable-dp-attention
"""
RECIPE = """name: mine
engine: {version: "0.5.23"}
args:
  model_path: m
  speculative_algorithm: NGRAM
  tp_size: 2
  attn_dp_size: 2
"""
COMPOSE = """services:
  engine:
    image: lmsysorg/sglang
    command:
      - python3
      - -m
      - sglang.launch_server
      - --model-path=m
      - --cuda-graph-max-bs=8
"""


def lint_json(*words: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    done = run("lint", "--output-format", "json", *words, cwd=cwd)
    return done.returncode, json.loads(done.stdout)


def found(document: dict[str, Any], severity: str = "error") -> list[str]:
    return [
        f"{finding['code']} {finding['path']}:{finding['line']}:{finding['column']}"
        for file in document["files"]
        for finding in file["findings"]
        if finding["severity"] == severity
    ]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "good.sh").write_text(GOOD)
    (tmp_path / "bad.sh").write_text(BAD)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    (tmp_path / "notes.txt").write_text("sglang")
    return tmp_path


def test_places_are_those_in_the_users_file(files: Path) -> None:
    code, document = lint_json("bad.sh", "--engine", "0.5.10.post1", cwd=files)
    assert code == 1
    assert found(document) == ["SPL211 bad.sh:7:3"]
    finding = next(f for f in document["files"][0]["findings"] if f["code"] == "SPL211")
    assert finding["rule"] == "ngram-dp-attention"
    assert finding["url"] is None  # as long as the documentation is not published
    assert [(one["line"], one["column"]) for one in finding["others"]] == [(5, 3)]
    assert finding["why"]
    assert finding["fix"]
    assert finding["source"]


def test_a_directory_with_everything(files: Path) -> None:
    code, document = lint_json(".", "--engine", "0.5.23", cwd=files)
    assert code == 1
    assert [Path(file["path"]).name for file in document["files"]] == [
        "bad.sh",
        "compose.yaml",
        "good.sh",
        "mine.yaml",
    ]
    assert {line.split()[0] for line in found(document)} == {"SPL211", "SPL002"}
    assert document["summary"]["deployments"] == 4


@pytest.mark.thorough
def test_several_versions_each_have_their_say(files: Path) -> None:
    code, document = lint_json("compose.yaml", "--engine", "0.5.9,0.5.23", cwd=files)
    assert code == 1
    by_engine = {file["engine"]: file["findings"] for file in document["files"]}
    assert [f["code"] for f in by_engine["0.5.23"] if f["severity"] == "error"] == ["SPL002"]
    assert not [f for f in by_engine["0.5.9"] if f["severity"] == "error"]


@pytest.mark.thorough
def test_the_engine_option_overrides_a_pin_and_respects_a_requirement(files: Path) -> None:
    _, document = lint_json("mine.yaml", cwd=files)
    assert document["files"][0]["engine"] == "0.5.23"
    _, document = lint_json("mine.yaml", "--engine", "0.5.9", cwd=files)
    assert document["files"][0]["engine"] == "0.5.9"
    assert "overrides engine.version 0.5.23" in document["files"][0]["note"]
    recipe = files / "mine.yaml"
    recipe.write_text(recipe.read_text().replace('version: "0.5.23"', 'requires: ">=0.5.23"'))
    code, document = lint_json("mine.yaml", "--engine", "0.5.9", cwd=files)
    assert code == 0
    assert "0.5.23" in document["files"][0]["skipped"]
    assert document["files"][0].keys() >= {"unjudged", "unknown", "skipped"}


@pytest.mark.thorough
def test_standard_input(files: Path) -> None:
    done = program.run("lint", "-", "--engine", "0.5.9", given=BAD)
    assert done.returncode == 1
    assert "<stdin>:7:3" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["missing.sh"], 2, "no such file"),
        (["good.sh", "missing.sh"], 2, "no such file"),
        (["notes.txt"], 3, "no SGLang deployment"),
        (["good.sh", "--engine", "0.4.x"], 2, "0.4.x"),
        (["good.sh", "--engine", "0.4.0"], 0, "0.4.6.post5"),
        (["good.sh", "--engine", "9.9"], 0, "newer than every known release"),
        (["good.sh", "--engine", ""], 2, "--engine"),
        (["good.sh", "--select", "SPL9999"], 2, "unknown rule code"),
        (["good.sh", "--ignore", "E501"], 2, "unknown rule code"),
        (["good.sh", "--hardware", "h1000"], 2, "h1000"),
        (["good.sh", "--models", "nowhere"], 2, "no such directory"),
        (["good.sh", "--engine", "0.5.23"], 0, "1 deployment (SGLang 0.5.23)"),
    ],
)
def test_exit_codes(files: Path, words: list[str], code: int, said: str) -> None:
    done = run("lint", *words, cwd=files)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_one_broken_file_hides_nothing(files: Path) -> None:
    (files / "broken.yaml").write_text("args: {model_path: m\nname: sglang\n")
    (files / "open.sh").write_text("python3 -m sglang.launch_server --model-path 'm\n")
    code, document = lint_json(".", "--engine", "0.5.9", cwd=files)
    assert code == 2
    assert {line.split()[0] for line in found(document)} >= {"SPL000", "SPL211"}
    assert len([line for line in found(document) if "SPL000" in line]) == 2


def test_select_and_ignore(files: Path) -> None:
    code, document = lint_json("bad.sh", "--engine", "0.5.9", "--ignore", "SPL2", cwd=files)
    assert code == 0, found(document)
    code, document = lint_json("bad.sh", "--engine", "0.5.9", "--select", "SPL211", cwd=files)
    assert [f["code"] for f in document["files"][0]["findings"]] == ["SPL211"]


@pytest.mark.thorough
def test_an_ignore_comment_silences_and_an_unused_one_is_told(files: Path) -> None:
    text = BAD.replace("# a comment", "# speclaunch: ignore[SPL211] patched engine")
    (files / "bad.sh").write_text(text)
    code, document = lint_json("bad.sh", "--engine", "0.5.9", cwd=files)
    assert code == 0, found(document)
    text = text.replace("NGRAM", "EAGLE")
    (files / "bad.sh").write_text(text)
    _, document = lint_json("bad.sh", "--engine", "0.5.9", cwd=files)
    assert "SPL091 bad.sh:2:1" in found(document, "warning")


@pytest.mark.thorough
def test_strict_makes_warnings_fail(files: Path) -> None:
    (files / "one.sh").write_text(GOOD.replace("--port", "--num-continuous-decode-steps"))
    assert run("lint", "one.sh", "--engine", "0.5.23", cwd=files).returncode == 0
    assert run("lint", "one.sh", "--engine", "0.5.23", "--strict", cwd=files).returncode == 1


def test_what_cannot_be_evaluated_is_said_to_be_unknown(files: Path) -> None:
    (files / "v.sh").write_text(BAD.replace("NGRAM", "$ALGORITHM"))
    code, document = lint_json("v.sh", "--engine", "0.5.9", cwd=files)
    assert code == 0, found(document)
    unjudged = document["files"][0]["unjudged"]
    assert "SPL211" in [one["code"] for one in unjudged]
    assert any("$ALGORITHM" in one["reason"] for one in unjudged)


def test_a_secret_is_not_shown(files: Path) -> None:
    (files / "s.sh").write_text(
        "python3 -m sglang.launch_server --model-path m --api-key sk-very --api-key sk-secret --x\n"
    )
    done = run("lint", "s.sh", "--engine", "0.5.23", cwd=files)
    assert done.returncode == 1
    assert "sk-" not in done.stdout + done.stderr


@pytest.mark.thorough
def test_rules_and_explain() -> None:
    done = run("rules")
    assert done.returncode == 0
    assert "SPL211" in done.stdout
    listed = json.loads(run("rules", "--output-format", "json").stdout)["rules"]
    assert {"code", "name", "severity", "also", "versions", "summary"} == listed[0].keys()
    for name in ("SPL211", "spl211", "ngram-dp-attention", "SPL091"):
        shown = run("explain", name)
        assert shown.returncode == 0
        assert "## Why it matters" in shown.stdout
    wrong = run("explain", "SPL21l")
    assert wrong.returncode == 2
    assert "did you mean" in wrong.stderr


@pytest.mark.thorough
def test_a_launch_is_refused_and_force_is_loud(files: Path) -> None:
    words = ["recipe=mine.yaml", "--dry-run"]
    done = run(*words, cwd=files)
    assert done.returncode == 1
    assert "SPL211" in done.stderr
    assert "mine.yaml:7:3" in done.stderr
    assert done.stdout == ""
    forced = run(*words, "--force", cwd=files)
    assert forced.returncode == 0
    assert "--force" in forced.stderr
    assert "sglang.launch_server" in forced.stdout
    left_out = run(*words, "--ignore", "SPL211", cwd=files)
    assert left_out.returncode == 0


@pytest.mark.thorough
def test_a_variable_that_is_not_set_keeps_nobody_from_checking(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE + "  api_key: ${oc.env:SPECLAUNCH_NOT_SET}\n")
    code, document = lint_json("mine.yaml", cwd=tmp_path)
    assert code == 1 and "SPL000" not in json.dumps(document)  # SPL211
    for words in (
        ("plan", "mine.yaml", "--ignore", "SPL"),
        ("render", "recipe=mine.yaml", "--to", "slime", "--force"),
        ("recipe=mine.yaml", "--dry-run", "--ignore", "SPL"),
    ):
        done = run(*words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
    assert '--api-key "${SPECLAUNCH_NOT_SET:?}"' in done.stdout
    done = run("recipe=mine.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "args.api_key: the environment variable SPECLAUNCH_NOT_SET is not set" in done.stderr
    assert "mine.yaml:8:3" in done.stderr and "export SPECLAUNCH_NOT_SET" in done.stderr


UNREAD = 'command = ["sglang", "serve", "m"]\n'


@pytest.mark.thorough
def test_what_is_not_read_is_named_and_changes_no_exit_code(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text(UNREAD)
    alone = run("lint", ".", cwd=tmp_path)
    assert alone.returncode == 3 and "cannot check any deployment in ." in alone.stderr
    assert "not read: serve.toml: it starts SGLang" in alone.stdout
    code, document = lint_json(".", cwd=tmp_path)
    assert code == 3 and document["not_read"] == ["serve.toml"]
    (tmp_path / "good.sh").write_text(GOOD)
    for number in range(9):
        (tmp_path / f"serve{number}.toml").write_text(UNREAD)
    both = run("lint", ".", cwd=tmp_path)
    assert both.returncode == 0 and "no findings in 1 deployment" in both.stdout
    assert "serve6.toml and 2 more: they start SGLang" in both.stdout
    code, document = lint_json(".", cwd=tmp_path)
    assert code == 0 and len(document["not_read"]) == 10
    (tmp_path / "bad.sh").write_text(BAD)
    assert run("lint", ".", cwd=tmp_path).returncode == 1


def test_versions_are_summed_up_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "good.sh").write_text(GOOD)
    done = run("lint", ".", "--engine", "0.5.23,0.5.9,0.5.10.post1", cwd=tmp_path)
    assert "(SGLang 0.5.9, 0.5.10.post1, 0.5.23)" in done.stdout


def test_what_cannot_be_read_is_told_once_for_all_versions(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(b"\xff sglang")
    (tmp_path / "b.sh").write_text(GOOD + 'python3 -m sglang.launch_server --model-path "m\n')
    code, document = lint_json(".", "--engine", "0.5.9,0.5.23", cwd=tmp_path)
    assert code == 2 and document["summary"]["errors"] == 2
    assert [one["engine"] for one in document["files"] if one["path"] == "b.sh"] == [
        "0.5.9",
        "0.5.23",
    ]


@pytest.mark.thorough
def test_of_the_files_of_a_change_only_those_with_a_deployment_are_read(tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text("plugins: [search\n")
    (tmp_path / "notes.txt").write_text("nothing")
    named = ("mkdocs.yml", "notes.txt")
    assert run("lint", *named, cwd=tmp_path).returncode == 2
    alone = run("lint", "--only-deployments", *named, cwd=tmp_path)
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, "", "")
    (tmp_path / "bad.sh").write_text(BAD)
    beside = run("lint", "--only-deployments", *named, "bad.sh", cwd=tmp_path)
    assert beside.returncode == 1 and "bad.sh:7:" in beside.stdout
    assert "mkdocs" not in beside.stdout + beside.stderr
    (tmp_path / "speclaunch.toml").write_text('exclude = ["vendor/", "bad.sh"]\n')
    (tmp_path / "vendor" / "a").mkdir(parents=True)
    (tmp_path / "vendor" / "a" / "bad.sh").write_text(BAD)
    excluded = run("lint", "--only-deployments", "bad.sh", "vendor/a/bad.sh", cwd=tmp_path)
    assert (excluded.returncode, excluded.stdout) == (0, "")
    assert run("lint", "vendor/a/bad.sh", cwd=tmp_path).returncode == 1
    gone = run("lint", "--only-deployments", "gone.sh", cwd=tmp_path)
    assert gone.returncode == 2 and "no such file" in gone.stdout


@pytest.mark.thorough
def test_a_group_of_a_change_is_checked_through_its_recipes(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "ours.yaml").write_text("# @package args\ntp_sise: 2\n")
    (tmp_path / "r.yaml").write_text("defaults: [model: ours, _self_]\nargs: {model_path: m}\n")
    done = run("lint", "--only-deployments", "model/ours.yaml", cwd=tmp_path)
    assert done.returncode == 1 and "model/ours.yaml:2:1" in done.stdout
    (tmp_path / "model" / "ours.yaml").write_text("# @package args\ntp_size: 2\n")
    assert run("lint", "--only-deployments", "model/ours.yaml", cwd=tmp_path).returncode == 0


def test_what_was_read_out_of_the_engine_is_ignored_with_the_rule_that_explains_it(
    files: Path,
) -> None:
    words = ("bad.sh", "--engine", "0.5.9")
    _, document = lint_json(*words, "--select", "SPL017", cwd=files)
    assert found(document) == []
    _, document = lint_json(*words, cwd=files)
    assert [one.split()[0] for one in found(document)] == ["SPL211"]

"""`lint --output-format`, `--output-file`, `--exit-zero`, and how it is on GitHub Actions."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from junitparser import JUnitXml

from speclaunch.app.verbs.options import LintFormat
from tests.app.verbs.test_lint import BAD, GOOD
from tests.support import program
from tests.support.app.output.formats.made import github_commands

ENGINE = ("--engine", "0.5.23")


def lint(cwd: Path, *words: str, env: Mapping[str, str] = {}) -> CompletedProcess[str]:
    clean = {**os.environ, "GITHUB_ACTIONS": "", "GITHUB_STEP_SUMMARY": "", **env}
    return program.run("lint", *words, cwd=cwd, env=clean)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "good.sh").write_text(GOOD)
    (tmp_path / "bad.sh").write_text(BAD)
    (tmp_path / "notes.txt").write_text("hello")
    return tmp_path


@pytest.mark.parametrize("name", list(LintFormat))
def test_each_format_tells_of_the_error(files: Path, name: str) -> None:
    done = lint(files, "bad.sh", *ENGINE, "--output-format", name)
    assert done.returncode == (0 if name == "sarif" else 1), done.stderr
    assert "SPL211" in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["bad.sh"], 1),
        (["bad.sh", "--exit-zero"], 0),
        (["bad.sh", "--output-format", "sarif"], 0),
        (["bad.sh", "--output-format", "sarif", "--no-exit-zero"], 1),
        (["bad.sh", "--output-format=gitlab", "--exit-zero", "--strict"], 0),
        (["bad.sh", "missing.sh", "--exit-zero"], 2),
        (["notes.txt", "--exit-zero"], 3),
        (["bad.sh", "--output-file", "sarif=x.sarif"], 1),
    ],
)
def test_exit_codes(files: Path, words: list[str], code: int) -> None:
    assert lint(files, *words, *ENGINE).returncode == code


@pytest.mark.thorough
def test_the_text_counts_what_only_info_shows(files: Path) -> None:
    text = GOOD.replace("--model-path m", "--model-path Qwen/Qwen3-8B --host 0.0.0.0")
    (files / "warned.sh").write_text(text)
    details = ("info[SPL801]", "checkpoint facts from", ": SPL257")
    brief = lint(files, "warned.sh", *ENGINE).stdout
    assert not [one for one in details if one in brief]
    assert "info (--info) in 1 deployment" in brief
    assert "the hardware: set --hardware, for example h100:8" in brief
    full = lint(files, "warned.sh", *ENGINE, "--info").stdout
    assert [one for one in details if one in full] == list(details)
    assert "(--info)" not in full
    assert "info[SPL801]" in lint(files, "warned.sh", *ENGINE, "--select", "SPL801").stdout
    assert "SPL801" in lint(files, "warned.sh", *ENGINE, "--output-format", "concise").stdout


def test_files_beside_the_text(files: Path) -> None:
    (files / "x.sarif").write_text("what was there")
    words = ["--output-file", "sarif=x.sarif", "--output-file=junit=j=1.xml"]
    done = lint(files, ".", *ENGINE, *words, "--output-file", "sarif=again.sarif")
    assert done.returncode == 1 and "error[SPL211]" in done.stdout
    assert json.loads((files / "x.sarif").read_text())["version"] == "2.1.0"
    assert (files / "again.sarif").read_text() == (files / "x.sarif").read_text()
    assert JUnitXml.fromfile(str(files / "j=1.xml")).failures == 1
    assert {one.name for one in files.iterdir()} == {
        *("good.sh", "bad.sh", "notes.txt", "x.sarif", "again.sarif", "j=1.xml")
    }


@pytest.mark.thorough
def test_the_suffix_decides_and_each_spelling_of_the_option_counts(files: Path) -> None:
    words = ("-o", "x.sarif", "--output", "j.xml", "--output-file", "x.json")
    assert lint(files, "bad.sh", *ENGINE, *words).returncode == 1
    assert json.loads((files / "x.sarif").read_text())["version"] == "2.1.0"
    assert json.loads((files / "x.json").read_text())["summary"]["errors"] == 1
    assert JUnitXml.fromfile(str(files / "j.xml")).failures == 1


def test_an_old_file_does_not_stay_where_there_is_nothing_to_check(files: Path) -> None:
    (files / "x.sarif").write_text("of yesterday")
    assert lint(files, "notes.txt", "--output-file", "sarif=x.sarif").returncode == 3
    assert json.loads((files / "x.sarif").read_text())["runs"][0]["results"] == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("out.pdf", "use --output-file json=out.pdf"),
        ("pdf=out.pdf", "the formats are text, concise"),
        ("sarif=", "not in the form FORMAT=FILE"),
        ("sarif=nowhere/out.sarif", "no such directory: nowhere"),
        ("sarif=.", "cannot write .: it is a directory"),
    ],
)
def test_what_cannot_be_a_file_is_told_before_anything_is_checked(
    files: Path, said: str, message: str
) -> None:
    done = lint(files, "bad.sh", "--output-file", said)
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    "more",
    [
        ["--output-file", "sarif=bad.sh"],
        ["--output-file", "json=./link.sh"],
        ["--output-file", "json=x", "--output-file", "sarif=./x"],
    ],
)
def test_no_file_is_written_over_or_twice(files: Path, more: list[str]) -> None:
    (files / "link.sh").symlink_to("bad.sh")
    done = lint(files, "bad.sh", "good.sh", *ENGINE, *more)
    assert done.returncode == 2 and "is an input, or is named twice" in done.stderr
    assert (files / "bad.sh").read_text() == BAD and not (files / "x").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written(files: Path) -> None:
    closed = files / "closed"
    closed.mkdir(mode=0o500)
    done = lint(files, "good.sh", "--output-file", "sarif=closed/x.sarif")
    assert done.returncode == 2 and "cannot write closed/x.sarif" in done.stderr


@pytest.mark.thorough
def test_a_full_disk_is_told(files: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    done = lint(files, "good.sh", "--output-file", "json=/dev/full")
    assert done.returncode == 2 and "cannot write /dev/full: No space left" in done.stderr


@pytest.mark.thorough
def test_a_link_stays_one(files: Path) -> None:
    (files / "real.json").write_text("old")
    (files / "link.json").symlink_to("real.json")
    lint(files, "good.sh", "--output-file", "json=link.json")
    assert (files / "link.json").is_symlink()
    assert json.loads((files / "real.json").read_text())["version"] == 1


ON = {"GITHUB_ACTIONS": "true"}


ONE_FIX = """#!/bin/bash
# 漢字 😀
python3 -m sglang.launch_server --model-path 'ü m' --port 31000 \\
  --num-continuous-decode-steps 3 --host 127.0.0.1
"""


def sarif_applied(text: str, result: dict[str, Any]) -> str:
    (change,) = result["fixes"][0]["artifactChanges"]
    lines = text.splitlines(keepends=True)

    def at(region: dict[str, int], edge: str) -> int:
        return sum(map(len, lines[: region[f"{edge}Line"] - 1])) + region[f"{edge}Column"] - 1

    for one in reversed(change["replacements"]):
        region = one["deletedRegion"]
        text = (
            text[: at(region, "start")] + one["insertedContent"]["text"] + text[at(region, "end") :]
        )
    return text


def rdjson_applied(text: str, diagnostic: dict[str, Any]) -> str:
    (suggestion,) = diagnostic["suggestions"]
    data, lines = text.encode(), text.encode().splitlines(keepends=True)

    def at(edge: str) -> int:
        found = suggestion["range"][edge]
        return sum(map(len, lines[: found["line"] - 1])) + found["column"] - 1

    return (data[: at("start")] + suggestion["text"].encode() + data[at("end") :]).decode()


ITS_RECIPE = """name: mine
engine: {version: "0.5.23"}
args:  # 漢字 😀
  model_path: m
  num_continuous_decode_steps: 3
  host: 127.0.0.1
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a b.sh", ONE_FIX),
        ("ü.yaml", ITS_RECIPE),
        ("crlf.yaml", ITS_RECIPE.replace("\n", "\r\n")),
        ("last.yaml", ITS_RECIPE.replace("  host: 127.0.0.1\n", "").rstrip("\n")),
    ],
)
def test_the_edits_are_what_lint_would_do(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode())
    words = (name, *ENGINE, "--select", "SPL006")
    sarif = json.loads(lint(tmp_path, *words, "--output-format", "sarif").stdout)
    rdjson = json.loads(lint(tmp_path, *words, "--output-format", "rdjson").stdout)
    lint(tmp_path, *words, "--unsafe-fixes")
    after = file.read_bytes().decode()
    assert after != text
    assert sarif_applied(text, sarif["runs"][0]["results"][0]) == after
    assert rdjson_applied(text, rdjson["diagnostics"][0]) == after


class TestGithub:
    @pytest.mark.thorough
    def test_it_is_recognised(self, files: Path) -> None:
        summary = files / "summary.md"
        summary.write_text("# before\n")
        done = lint(files, "bad.sh", *ENGINE, env={**ON, "GITHUB_STEP_SUMMARY": str(summary)})
        assert done.returncode == 1
        start, *text = done.stdout.splitlines()
        token = start.removeprefix("::stop-commands::")
        text, commands = text[: text.index(f"::{token}::")], text[text.index(f"::{token}::") + 1 :]
        plain = lint(files, "bad.sh", *ENGINE).stdout.splitlines()
        assert text == plain
        level, properties, _ = github_commands("\n".join((*commands, "")))[0]
        assert level == "error"
        assert (properties["file"], properties["line"], properties["col"]) == ("bad.sh", "7", "3")
        told = summary.read_text()
        assert told.startswith("# before\n### speclaunch: 1 error, ")
        assert "| bad.sh:7:3 | error SPL211 |" in told

    @pytest.mark.thorough
    @pytest.mark.parametrize("name", ["text", "json", "concise"])
    def test_a_format_that_is_named_is_all_there_is(self, files: Path, name: str) -> None:
        there = lint(files, "bad.sh", *ENGINE, "--output-format", name, env=ON)
        here = lint(files, "bad.sh", *ENGINE, "--output-format", name)
        assert there.stdout == here.stdout

    def test_a_summary_that_cannot_be_written_is_no_failure(self, files: Path) -> None:
        done = lint(files, "good.sh", *ENGINE, env={**ON, "GITHUB_STEP_SUMMARY": str(files)})
        assert done.returncode == 0
        assert "warning: cannot write the job summary: Is a directory" in done.stderr

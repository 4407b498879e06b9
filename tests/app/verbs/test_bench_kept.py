"""bench ls, show, compare and --dry-run: words in, streams, files and exit code out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import msgspec.json
import pytest

from speclaunch.app.verbs.completing import candidates
from speclaunch.measure.bench.certificate import single
from speclaunch.measure.bench.measurement import Objection
from speclaunch.measure.bench.schema import CertificateDocument
from tests.app.output.bench.test_schema import SCHEMA
from tests.app.output.plan.test_page import read
from tests.support.app.output.bench.made import OURS, keep, made, measured
from tests.support.program import run

OLD, NEW = "20261101-100000-eagle3", "20261102-100000-eagle3"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def kept() -> None:
    keep(OLD, made(speed_up=1.4, falls=1.0))
    keep(NEW, made(speed_up=1.9, falls=1.0, seed=2))


@pytest.mark.thorough
def test_one_server_alone_is_shown_again() -> None:
    rounds = [one for one in measured() if one.side == OURS]
    found = single(OURS, rounds, (), simulated={})
    keep(OLD, found)
    text = run("bench", "show")
    (cell, *_) = found.cells
    assert text.returncode == 0
    assert f"{cell.candidate.output_tokens_per_second:.1f}" in text.stdout
    said = run("bench", "show", OLD, "--output-format", "json")
    assert json.loads(said.stdout) == json.loads(msgspec.json.encode(found))
    jsonschema.validate(json.loads(said.stdout), json.loads(SCHEMA.read_text())["single"])
    assert run("bench", "show", "--output-format", "markdown").stdout.startswith(
        r"**eagle3\_llama8b**"
    )
    for words in (("--output-format", "html"), ("--fail-under", "1"), ("--output-file", "a.html")):
        refused = run("bench", "show", *words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "single server" in refused.stderr


@pytest.mark.thorough
@pytest.mark.usefixtures("kept")
def test_a_certificate_is_shown_again_in_each_form(tmp_path: Path) -> None:
    text = run("bench", "show")
    assert text.returncode == 0 and "speed-up" in text.stdout and "code: it pays" in text.stdout
    said = run("bench", "show", OLD, "--output-format", "json")
    assert json.loads(said.stdout) == json.loads(
        msgspec.json.encode(made(speed_up=1.4, falls=1.0)).decode()
    )  # fmt: skip
    assert run("bench", "show", "--output-format", "markdown").stdout.startswith("**eagle3")
    assert (
        "What the intervals mean"
        in read(run("bench", "show", "--output-format", "html").stdout).text
    )
    for name, begin in (
        ("a.html", "<!DOCTYPE html>"),
        ("a.json", "{"),
        ("a.md", "**"),
        ("a.txt", "eagle3"),
    ):
        done = run("bench", "show", "--output-file", tmp_path / name)
        assert done.returncode == 0 and done.stdout == text.stdout and "wrote" in done.stderr
        assert (tmp_path / name).read_text().lstrip().startswith(begin), name
    again = msgspec.json.decode((tmp_path / "a.json").read_text(), type=CertificateDocument)
    assert again == made(speed_up=1.9, falls=1.0, seed=2)


@pytest.mark.usefixtures("kept")
def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    for place, why in ((tmp_path, "FORMAT=FILE"), (tmp_path / "none/x.html", "no such directory")):
        done = run("bench", "show", "--output-file", place)
        assert done.returncode == 2 and why in done.stderr and done.stdout == ""
    # said before anything is measured
    done = run("bench", "recipe=cpu_ngram", "--output-file", f"html={tmp_path}")
    assert done.returncode == 2 and "is a directory" in done.stderr


@pytest.mark.thorough
@pytest.mark.usefixtures("kept")
def test_two_are_compared(tmp_path: Path) -> None:
    done = run("bench", "compare", OLD, NEW)
    assert done.returncode == 0 and done.stdout.count("faster") >= 6
    other = tmp_path / "new.json"
    other.write_text(run("bench", "show", NEW, "--output-format", "json").stdout)
    said = run("bench", "compare", OLD, other, "--output-format", "json")
    document = json.loads(said.stdout)
    jsonschema.validate(document, json.loads(SCHEMA.read_text())["difference"])
    assert (document["before"], document["after"]) == (OLD, str(other))
    assert document["verdict"] == "faster" and len(document["cells"]) == 6
    markdown = run("bench", "compare", OLD, NEW, "--output-format", "markdown").stdout
    assert "| code at 1 |" in markdown
    done = run("bench", "compare", OLD, NEW, "--output-file", tmp_path / "x.html")
    assert done.returncode == 2 and "not in the form FORMAT=FILE" in done.stderr


@pytest.mark.thorough
@pytest.mark.usefixtures("kept")
def test_a_comparison_fails_under_a_ratio() -> None:
    assert run("bench", "compare", OLD, NEW, "--fail-under", "1.1").returncode == 0
    done = run("bench", "compare", NEW, OLD, "--fail-under", "0.95")
    assert done.returncode == 1 and "not above --fail-under 0.95" in done.stderr
    assert run("bench", "compare", OLD, OLD, "--fail-under", "0.8").returncode == 0
    assert run("bench", "show", NEW, "--fail-under", "1.2").returncode == 0
    assert run("bench", "show", NEW, "--fail-under", "2.5").returncode == 1


def test_what_has_nothing_to_compare() -> None:
    keep(OLD, made(objections=(Objection("no-drafts", "R: nothing was proposed"),)))
    keep(NEW, made(workloads=("random",)))
    done = run("bench", "compare", OLD, NEW)
    assert done.returncode == 2 and "does not count: R: nothing was proposed" in done.stderr
    assert run("bench", "show", OLD).returncode == 1
    keep("20261103-100000-eagle3", made())
    done = run("bench", "compare", NEW, "last")
    assert done.returncode == 2 and "no cell in common" in done.stderr
    assert "random at 1" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.usefixtures("kept")
def test_a_list() -> None:
    done = run("bench", "ls")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [OLD, NEW]
    said = json.loads(run("bench", "ls", "--output-format", "json").stdout)
    assert [one["state"] for one in said["benches"]] == ["pays", "pays"]


@pytest.mark.thorough
def test_verbs_are_told_from_recipes() -> None:
    done = run("bench", "shwo", "last")
    assert done.returncode == 2 and "did you mean `show`" in done.stderr
    done = run("bench", "cpu_ngrm", "--dry-run")
    assert done.returncode == 2 and "cpu_ngram" in done.stderr
    done = run("bench")
    assert done.returncode == 2 and "no recipe specified" in done.stderr
    helped = run("bench", "--help").stdout
    assert "--concurrency" in helped and "compare" in helped
    assert "--concurrency" in run("bench", "run", "--help").stdout
    assert "BEFORE" in run("bench", "compare", "--help").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("recipe=eagle3_llama8b",), ("eagle3_llama8b",), ("--rounds", "6", "recipe=eagle3_llama8b"),
        ("run", "recipe=eagle3_llama8b"),
    ],
)  # fmt: skip
def test_a_dry_run_says_what_would_be_done(words: tuple[str, ...]) -> None:
    done = run("bench", *words, "--dry-run", "--engine", "0.5.23", "--hardware", "h100")
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "starts:  3, one engine at a time" in said
    assert "rounds: unknown until measured" in said and "(an estimate)" in said
    assert "tokens:" in said


def test_a_recipe_that_is_called_like_a_verb(tmp_path: Path) -> None:
    (tmp_path / "show.yaml").write_text("args: {model_path: m}\n")
    done = run("bench", "recipe=show", "--config-dir", tmp_path, "--dry-run")
    assert done.returncode == 2 and "show does not speculate" in done.stderr


@pytest.mark.usefixtures("kept")
def test_completion_knows_verbs_recipes_options_and_names() -> None:
    def values(*words: str) -> list[str]:
        return [one.value for one in candidates(words)]

    assert {"show", "ls", "compare", "run"} <= set(values("bench", ""))
    assert "recipe=cpu_ngram" in values("bench", "recipe=cpu_n")
    assert "show" not in values("bench", "recipe=cpu_ngram", "")
    assert values("bench", "--concur") == ["--concurrency"]
    assert values("bench", "recipe=cpu_ngram", "--output-format", "h") == ["html"]
    assert values("bench", "show", "") == [OLD, NEW, "last"]
    assert values("bench", "compare", OLD, "20261102") == [NEW]
    assert values("bench", "show", "--output-format", "") == [
        *("text", "json", "markdown", "html", "speculation_profile"),
    ]
    assert os.environ["SPECLAUNCH_HOME"]


@pytest.mark.thorough
def test_secrets_of_a_baseline_are_not_in_its_name() -> None:
    against = "recipe=cpu_ngram +args.api_key=sk-secret args.max_running_requests=4"
    done = run("bench", "recipe=cpu_ngram", "--against", against, "--dry-run", "--engine", "0.5.23")
    assert done.returncode == 0, done.stderr
    assert "sk-secret" not in done.stdout + done.stderr
    assert "+args.api_key=*** args.max_running_requests=4" in done.stdout


def test_one_server_alone_has_no_page() -> None:
    done = run("bench", "--url", "http://127.0.0.1:1", "--output-format", "html", "--dry-run")
    assert done.returncode == 2 and "has no HTML page" in done.stderr


def test_lengths_of_context_are_told() -> None:
    done = run("bench", "recipe=cpu_ngram", "--context", "0,512", "--dry-run", "--engine", "0.5.23")
    assert done.stdout.count("with prompts of 512 tokens") == 2

"""`speclaunch plan`: words, streams, exit codes, files."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.plan import plan as verb
from speclaunch.app.verbs.start_options import PlanOptions
from speclaunch.checks.rules.interface import Severity
from speclaunch.core.errors import InputError
from speclaunch.measure.advice.plan_requests import exit_code
from tests.app.verbs.test_cli import run
from tests.support.app.output.plan.helpers import FAILS, UNKNOWN, planned

RECIPE = "recipe=eagle3_llama8b"
BROKEN = """name: broken
args:
  model_path: m
  speculative_algorithm: NGRAM
  tp_size: 2
  attn_dp_size: 2
"""


def plan(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    done = run("plan", *words, **options)
    assert "Traceback" not in done.stderr
    return done


def plan_json(*words: str, code: int = 0, **options: Any) -> Any:
    done = plan(*words, "--output-format", "json", **options)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.thorough
def test_a_plan_on_standard_output_and_nothing_else() -> None:
    done = plan(RECIPE, "--engine", "0.5.23", "--hardware", "h100", "--full")
    assert done.returncode == 0 and done.stderr == ""
    for said in ("Arguments", "Memory", "CUDA graphs", "Findings", "Command", "h100-80gb"):
        assert said in done.stdout
    for line in done.stdout.splitlines():
        if "speculative_num_steps" in line:
            assert "conf/speculation/eagle3_tree.yaml:5" in line


@pytest.mark.thorough
def test_the_default_is_one_screen() -> None:
    words = (RECIPE, "--engine", "0.5.23", "--hardware", "h100")
    brief, full = plan(*words).stdout, plan(*words, "--full").stdout
    assert len(brief.splitlines()) <= 45 < len(full.splitlines())
    for said in ("Memory\n  fits", "Changes by the engine", "warning[", "--model-path"):
        assert said in brief
    assert "info[" not in brief and "sglang 0.5.23 " not in brief
    assert brief.splitlines()[-1] == full.splitlines()[-1]


@pytest.mark.thorough
def test_recipes_are_named_in_three_ways(tmp_path: Path) -> None:
    words = ("--engine", "0.5.23", "--hardware", "h100")
    named = plan(RECIPE, *words).stdout
    assert plan("eagle3_llama8b", *words).stdout == named
    run("recipes", "cp", "eagle3_llama8b", "mine.yaml", cwd=tmp_path)
    path = plan("mine.yaml", "--hardware", "h100", "--engine", "0.5.23", cwd=tmp_path)
    assert path.returncode == 0 and path.stdout.startswith("mine on SGLang 0.5.23")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ("recipe=eagle3_llama8b", "--engine", "0.5.9"),
        ("recipe=eagle3_llama8b", "--engine", "0.5.23", "args.api_key=sk-secret"),
        ("recipe=cpu_ngram",),
    ],
)
def test_the_command_is_that_of_a_dry_run(words: tuple[str, ...]) -> None:
    text = plan(*words).stdout
    command = run(*words, "--dry-run", COLUMNS="200")
    assert command.returncode == 0
    assert f"\n{command.stdout}\n" in text
    document = plan_json(*words)
    dry = json.loads(run(*words, "--dry-run", "--output-format", "json").stdout)
    for key in ("recipe", "engine", "argv", "env", "notes"):
        assert document[key] == dry[key]


@pytest.mark.thorough
def test_a_cpu_recipe_needs_no_engine(tmp_path: Path) -> None:
    done = plan("recipe=cpu_ngram", "--full", SPECLAUNCH_HOME=str(tmp_path / "none"))
    assert done.returncode == 0
    assert "cpu_ngram on SGLang 0.5.23, cpu" in done.stdout
    assert "a CPU has no CUDA graphs" in done.stdout
    assert not (tmp_path / "none").exists()


@pytest.mark.thorough
def test_without_a_gpu_it_says_so_and_shows_the_rest() -> None:
    done = plan(RECIPE, "--full", "--engine", "0.5.23", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0
    assert "note: the recipe uses this machine's GPUs, but" in done.stdout
    assert "unknown hardware" in done.stdout
    assert "speculative_num_draft_tokens" in done.stdout
    assert "memory use unknown" in done.stdout


@pytest.mark.thorough
def test_two_versions_are_compared() -> None:
    done = plan(RECIPE, "--engine", "0.5.9,0.5.23", "--hardware", "h100")
    assert done.returncode == 0
    assert "eagle3_llama8b: SGLang 0.5.9 → 0.5.23" in done.stdout
    assert "cuda_graph_max_bs → cuda_graph_max_bs_decode" in done.stdout
    assert "- --cuda-graph-max-bs 8" in done.stdout
    document = plan_json(RECIPE, "--engine", "0.5.9,0.5.12,0.5.23", "--hardware", "h100")
    assert [one["engine"] for one in document["plans"]] == ["0.5.9", "0.5.12", "0.5.23"]
    assert [(one["before"], one["after"]) for one in document["comparisons"]] == [(0, 1), (1, 2)]


@pytest.mark.thorough
def test_two_recipes_are_compared_with_overrides_of_each() -> None:
    words = ("--engine", "0.5.23", "--hardware", "h100")
    done = plan("eagle3_llama8b", "ngram_qwen7b", *words)
    assert "eagle3_llama8b → ngram_qwen7b on SGLang 0.5.23" in done.stdout
    same = plan_json(RECIPE, RECIPE, "args.max_running_requests=7", *words)
    (comparison,) = same["comparisons"]
    changed = {one["name"]: one["after"]["effective"] for one in comparison["arguments"]}
    assert changed["max_running_requests"] == 7
    assert comparison["title"].endswith(
        "eagle3_llama8b args.max_running_requests=7 on SGLang 0.5.23"
    )
    both = plan_json("args.max_running_requests=7", RECIPE, "ngram_qwen7b", *words)
    for one in both["plans"]:
        (running,) = [a for a in one["arguments"] if a["name"] == "max_running_requests"]
        assert running["effective"] == 7


@pytest.mark.thorough
def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    done = plan(RECIPE, "--engine", "0.5.23", "--hardware", "h100", "--html", str(page))
    assert done.returncode == 0 and f"wrote {page}" in done.stderr
    assert "Command" in done.stdout
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.html"]
    again = plan(RECIPE, "--engine", "0.5.9,0.5.23", "--html", "plan.html", cwd=tmp_path)
    assert again.returncode == 0 and "0.5.9 → 0.5.23" in page.read_text()
    target = tmp_path / "link.html"
    target.symlink_to(page)
    plan(RECIPE, "--engine", "0.5.23", "--html", str(target))
    assert target.is_symlink() and "0.5.9 →" not in page.read_text()


@pytest.mark.thorough
def test_errors_of_the_rules_are_exit_1(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    words = ("broken.yaml", "--engine", "0.5.23", "--hardware", "h100:2")
    done = plan(*words, cwd=tmp_path)
    assert done.returncode == 1 and "error[SPL" in done.stdout
    codes = {f["code"] for f in plan_json(*words, code=1, cwd=tmp_path)["findings"]}
    assert codes
    ignored = plan(*words, "--ignore", ",".join(codes), cwd=tmp_path)
    assert ignored.returncode == 0 and "no findings" in ignored.stdout
    selected = plan_json(*words, "--select", "SPL9", cwd=tmp_path)
    assert all(f["code"].startswith("SPL9") for f in selected["findings"])


def test_strict_makes_warnings_fail() -> None:
    warned = planned()
    assert warned.count(Severity.WARNING) and not warned.count(Severity.ERROR)
    assert exit_code([warned], strict=False) == 0
    assert exit_code([warned], strict=True) == 1
    assert exit_code([replace(warned, findings=())], strict=True) == 0


def test_a_budget_that_fails_is_exit_1_and_one_that_is_unknown_is_not() -> None:
    assert exit_code([planned(budget=FAILS)], strict=False) == 1
    assert exit_code([planned(), planned(budget=FAILS)], strict=False) == 1
    assert exit_code([planned(budget=UNKNOWN)], strict=False) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "help_"),
    [
        (("--fit", "--hardware", "h100", "args.model_path=my/own"), "the checkpoint my/own"),
        (("--best", "--hardware", "h100", "args.model_path=my/own"), "--models DIR"),
        (("--best", "--requests", "4", "--context", "100"), "--hardware h100:8"),
    ],
)
def test_a_question_without_an_answer_is_exit_3(words: tuple[str, ...], help_: str) -> None:
    """Hardware or checkpoint unknown: the plan is shown, and the exit code says what is missing."""
    done = plan(RECIPE, "--engine", "0.5.23", *words, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3 and "Command" in done.stdout
    assert f"error: {words[0]} has no result: " in done.stderr
    assert help_ in done.stderr and "0 requests" not in done.stdout
    found = plan_json(RECIPE, "--engine", "0.5.23", *words, code=3, CUDA_VISIBLE_DEVICES="")
    assert (found["best"] or found["suggestion"])["fit"] == "unknown"


@pytest.mark.thorough
def test_a_plan_that_fails_stays_exit_1_where_a_question_has_no_answer(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    done = plan("broken.yaml", "--engine", "0.5.23", "--hardware", "h100:2", "--fit", cwd=tmp_path)
    assert done.returncode == 1 and "--fit has no result" in done.stderr


@pytest.mark.thorough
def test_ranks_without_a_gpu_are_not_called_a_lack_of_memory(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    words = ("--engine", "0.5.23", "--hardware", "h100:1", "++args.tp_size=2", "--html", str(page))
    done = plan("ngram_qwen7b", *words)
    assert done.returncode == 1 and "too few GPUs, 1 error" in done.stdout
    assert "memory is too small" not in done.stdout + page.read_text()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        (["recipe=eagle3_lama8b"], {}, "did you mean `eagle3_llama8b`"),
        (["eagle3_lama8b", "ngram_qwen7"], {}, "did you mean `ngram_qwen7b`"),
        (["none.yaml"], {}, "no such file"),
        (["recipe="], {}, "no recipe specified"),
        (["args.port=3"], {}, "no recipe specified"),
        ([RECIPE], {"engine": "nonsense"}, "is not a version"),
        ([RECIPE], {"engine": "0.5.9,nonsense"}, "is not a version"),
        ([RECIPE], {"engine": ","}, "names no version"),
        ([RECIPE], {"engine": "0.4.5"}, "cannot be served by"),
        (["ngram_qwen7b"], {"engine": "0.4.10"}, "cannot be served by"),
        ([RECIPE, "ngram_qwen7b"], {"engine": "0.5.9,0.5.23"}, "cannot compare several recipes"),
        ([RECIPE], {"hardware": "h1000"}, "unknown hardware 'h1000'"),
        ([RECIPE], {"models": [Path("/nonexistent")]}, "no such directory"),
        ([RECIPE], {"select": ["SPL999"]}, "unknown rule code"),
        ([RECIPE, "args.tpp=1"], {"engine": "0.5.23"}, "no server argument `tpp`"),
        ([RECIPE], {"html": Path("/nonexistent/x.html")}, "no such directory: /nonexistent"),
        ([RECIPE], {"html": Path("/")}, "it is a directory"),
        ([RECIPE], {"html": Path("/dev/null")}, "it is not a regular file"),
        ([RECIPE], {"engine": "0.5.9,0.5.23", "fit": True}, "needs a single recipe and version"),
        (["recipe=cpu_ngram"], {"engine": "0.5.11"}, "the CPU engine is SGLang"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_shown(
    words: list[str], options: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as caught:
        verb(PlanOptions(words=tuple(words), **options))
    problems = caught.value.problems
    assert said in " ".join(f"{one.message} {one.help}" for one in problems)
    assert capsys.readouterr().out == ""


@pytest.mark.thorough
def test_a_wrong_command_line_is_one_clear_error_and_exit_2() -> None:
    done = plan("recipe=eagle3_lama8b", COLUMNS="200")
    assert done.returncode == 2 and done.stdout == ""
    assert "did you mean `eagle3_llama8b`" in done.stderr
    assert plan().returncode == 2
    page = plan(RECIPE, "--engine", "0.5.23", "--html", "/proc/plan.html")
    assert page.returncode == 2 and "cannot write /proc/plan.html" in page.stderr


def test_every_version_that_refuses_an_argument_is_named() -> None:
    with pytest.raises(InputError) as caught:
        words = (RECIPE, "args.attn_dp_size=1")
        verb(PlanOptions(words=words, engine="0.4.10,0.5.9,0.5.23"))
    said = [one.message for one in caught.value.problems]
    assert said == [
        "SGLang 0.4.10.post2 has no server argument `attn_dp_size`",
        "SGLang 0.5.9 has no server argument `attn_dp_size`",
    ]


@pytest.mark.thorough
def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    secrets = ("args.api_key=sk-secret", "+engine.env.HF_TOKEN=hf-secret")
    page = tmp_path / "p.html"
    words = ("--engine", "0.5.23", "--hardware", "h100", "--all", "--html", str(page))
    for more in ((), ("--output-format", "json")):
        done = plan(RECIPE, RECIPE, *secrets, *words, *more)
        single = plan(RECIPE, *secrets, *words, *more)
        for text in (done.stdout, done.stderr, single.stdout, single.stderr, page.read_text()):
            assert "sk-secret" not in text and "hf-secret" not in text


@pytest.mark.thorough
def test_on_a_narrow_terminal(tmp_path: Path) -> None:
    """A real terminal of 60 columns: lines fit, but for findings and the command."""
    master, slave = pty.openpty()
    words = ["plan", RECIPE, "--engine", "0.5.23", "--hardware", "h100"]
    process = subprocess.Popen(
        [sys.executable, "-m", "speclaunch", *words],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "60", "LINES": "24", "TERM": "dumb", "NO_COLOR": "1"},
    )
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the terminal is gone with the process
            break
        if not piece:
            break
        written += piece
    os.close(master)
    assert process.wait(timeout=30) == 0
    head = written.decode().replace("\r\n", "\n").partition("\nFindings")[0]
    assert "mem_fraction_static" in head
    assert max(map(len, head.splitlines())) <= 60


@pytest.mark.thorough
def test_help_and_the_list_of_verbs() -> None:
    assert "plan" in run("--help", COLUMNS="100").stdout
    shown = run("plan", "--help", COLUMNS="100").stdout
    for option in ("--engine", "--hardware", "--html", "--all", "--output-format", "--models"):
        assert option in shown
    near = run("plann", COLUMNS="100")
    assert near.returncode == 2 and "plan" in near.stderr


def test_a_mistake_in_the_budget_hides_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stumble(_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("speclaunch.engine.plan.memory.budget.budget", stumble)
    options = {"engine": "0.5.23", "hardware": "h100", "output_format": OutputFormat.JSON}
    assert verb(PlanOptions(words=(RECIPE,), **options)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["budget"]["fit"] == "unknown"
    assert "a bug in the memory budget" in found["budget"]["why"]
    assert found["argv"] and found["hardware"] == "h100-80gb:1"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--best", "--requests", "0"], "--requests"),
        (["--best", "--context", "-5"], "--context"),
        (["--best", "--requests", "many"], "--requests"),
        (["--requests", "4"], "--best"),
        (["--context", "4"], "--best"),
        (["--best", "--fit"], "cannot be combined"),
        (["--best", "ngram_qwen7b"], "single recipe and version"),
        (["--best", "--engine", "0.5.9,0.5.23"], "single recipe and version"),
    ],
)
def test_a_load_that_makes_no_sense(words: list[str], said: str) -> None:
    done = plan(RECIPE, "--hardware", "h100", *words)
    assert done.returncode == 2 and said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_more_ranks_than_gpus_fail_the_plan() -> None:
    words = (RECIPE, "args.tp_size=16", "--engine", "0.5.23")
    found = plan_json(*words, "--hardware", "h200:8", code=1)
    assert "SPL506" in {one["code"] for one in found["findings"]}
    assert found["budget"]["fit"] == "fails" and "needs 16 GPUs" in found["budget"]["why"]
    kind = plan_json(*words, "--hardware", "h200")
    assert "SPL506" not in {one["code"] for one in kind["findings"]}
    assert kind["hardware"] == "h200:16", "as many as are needed"


@pytest.mark.thorough
def test_a_value_from_the_environment_is_json() -> None:
    words = (RECIPE, "args.served_model_name=${oc.env:SERVED,qwen}", "--hardware", "h100")
    rows = {row["name"]: row for row in plan_json(*words)["arguments"]}
    assert rows["served_model_name"]["effective"] == "qwen"


@pytest.mark.thorough
def test_an_empty_default_of_a_variable_is_no_warning() -> None:
    done = plan(RECIPE, "args.served_model_name=${oc.env:SERVED,}", "--hardware", "h100")
    assert done.returncode == 0
    assert "UserWarning" not in done.stderr

"""The CPU engine is asked: a refusal that no rule tells, values of a plan, a launch in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.cpu_engine.programs import ensure_model

from .conftest import speclaunch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SECONDS = 600
SCRIPT = """# a response store in a prefill server
python3 -m sglang.launch_server \\
  --model-path Qwen/Qwen3-8B --tp-size 2 --port $PORT \\
  --enable-response-store --stream-interval 4 \\
  --disaggregation-mode prefill
"""
RECIPE = """name: mine
defaults: [base, model: cpu_cycle, speculation: ngram, override hardware: cpu, _self_]
args:
  speculative_num_draft_tokens: 8
  stream_interval: 4
  enable_response_store: true
  disaggregation_mode: prefill
"""


@pytest.fixture(autouse=True)
def _model(cpu_engine: CpuEngine) -> None:
    """The target of cpu_ngram: without its config the engine is not asked."""
    ensure_model(cpu_engine, "cycle")


@pytest.mark.core(0)
def test_what_no_rule_tells_is_told_at_its_arguments(tmp_path: Path) -> None:
    """The rules are left out, so that none of them explains it, whatever they learn to."""
    path = tmp_path / "serve.sh"
    path.write_text(SCRIPT)
    words = ("--engine", "0.5.23", "--hardware", "h200:2", "--select", "SPL090")
    done = speclaunch(
        *("lint", str(path), "--ask", "always", *words, "--output-format", "json"),
        timeout=SECONDS,
    )
    (found,) = json.loads(done.stdout)["files"][0]["findings"]
    assert (found["code"], found["severity"]) == ("SPL090", "error"), done.stderr
    places = {(found["line"], found["column"])}
    places |= {(one["line"], one["column"]) for one in found["others"]}
    assert places == {(4, 3), (5, 3)}
    assert "--enable-response-store is not supported with" in found["message"]
    assert "srt/arg_groups/validation_hook.py:" in found["why"]
    assert "exact: engine check of SGLang 0.5.23" in found["why"]
    assert done.returncode == 1


def test_several_processes_ask_an_engine_each(tmp_path: Path) -> None:
    for number in range(6):
        text = SCRIPT if number % 3 else SCRIPT.replace("--enable-response-store", "")
        (tmp_path / f"serve{number}.sh").write_text(text.replace("$PORT", f"{30000 + number}"))
    asked = ["--ask", "always", "--no-cache", "--engine", "0.5.23", "--hardware", "h200:2"]
    asked += ["--select", "SPL090"]  # the rules explain it, too
    one, two = (
        speclaunch("lint", str(tmp_path), *asked, "--jobs", jobs, timeout=SECONDS)
        for jobs in ("1", "2")
    )
    assert one.stdout.count("error[SPL090]") == 4, one.stderr
    assert (two.stdout, two.returncode) == (one.stdout, 1), two.stderr


@pytest.mark.core(0)
def test_values_of_a_plan_are_the_engines_own() -> None:
    words = ("plan", "cpu_ngram", "--output-format", "json")
    before = json.loads(speclaunch(*words, "--ask", "never").stdout)
    done = speclaunch(*words, "--ask", "always", timeout=SECONDS)
    after = json.loads(done.stdout)
    said = after["engine_says"]
    assert said["accepted"] is True, said
    assert said["contradictions"] == []
    unknown = {one["name"] for one in before["arguments"] if one["outcome"] == "unknown"}
    assert set(said["filled"]) <= unknown
    rows = {one["name"]: one for one in after["arguments"]}
    for name in said["filled"]:
        assert rows[name]["outcome"] != "unknown"
        assert rows[name]["source"] == "engine check of SGLang 0.5.23"


@pytest.mark.core(0)
def test_a_launch_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE)
    done = speclaunch(
        *("launch", str(path), "--smoke", "--ask", "always", "--select", "SPL090"),
        timeout=SECONDS,
    )
    assert done.returncode == 1, done.stderr
    assert "error[SPL090]" in done.stderr
    assert "mine was not started: 1 finding of error severity" in done.stderr

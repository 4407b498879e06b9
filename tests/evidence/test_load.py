"""What is stored of the engine's runs is still what the rules say, and what the pages tell."""

from __future__ import annotations

import re

import pytest
import yaml

from speclaunch.checks.rules.table import RULES
from speclaunch.core.resources import rule_pages_dir
from tests.support.evidence import engine, judging, pages, stored
from tests.support.evidence.case import Case
from tests.support.evidence.cases import BY_KEY, CASES
from tests.support.loops import over, rows

RUNS = stored.load()
RAN = [case for case in CASES if case.key in RUNS]


def test_every_case_was_run_and_none_is_stored_that_is_no_more() -> None:
    assert list(RUNS) == [case.key for case in CASES]
    assert len(BY_KEY) == len(CASES) >= 60


@pytest.mark.thorough
@over(RAN, lambda case: case.key)
def test_the_rules_say_what_the_engine_did(case: Case) -> None:
    assert judging.problems(case, RUNS[case.key], judging.stand_ins()) == []


@pytest.mark.thorough
@over(RAN, lambda case: case.key)
def test_a_case_is_the_one_that_was_run(case: Case) -> None:
    assert RUNS[case.key].case == stored.identity(case, judging.stand_ins())


def test_a_run_says_all_that_belongs_to_it() -> None:
    for key, run in RUNS.items():
        assert run.phase in engine.PHASES, key
        assert run.serves or run.error, key
        assert run.serves or run.exit_code not in (0, None), key
        assert run.command.count("python -m sglang.launch_server --model-path target") == 1
        assert not re.search(r"(?<![\w.])/(?:\w+/)+", yaml.safe_dump([run.command, run.error])), key


def test_every_rule_that_is_shown_failing_has_a_neighbour_that_serves() -> None:
    failing = {
        case.rules[0]
        for case in RAN
        if not RUNS[case.key].serves and not case.lifted and case.rules[0] != "OTHER"
    }
    sound = {rule for case in RAN if RUNS[case.key].serves for rule in case.rules}
    assert failing - sound == set()


def test_the_pages_carry_the_evidence() -> None:
    for rule in RULES:
        path = rule_pages_dir() / f"{rule.code}.md"
        text = path.read_text(encoding="utf-8")
        assert pages.with_evidence(text, rule.code, RUNS) == text, (
            f"{rule.code}: run `python tools/load_evidence.py pages`"
        )


LOG = """\
[2026-11-23 00:03:48] server_args={'model_path': 'target'}
[2026-11-23 00:03:49] Load weight begin. avail mem=21.72 GB
[2026-11-23 00:03:49] Load weight end. elapsed=0.03 s, type=A, avail mem=21.72 GB, mem usage=0.0 GB.
[2026-11-23 00:03:50] Scheduler hit an exception: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/sglang/srt/managers/scheduler.py", line 12, in run
    x()
  File "/venv/lib/python3.11/site-packages/torch/nn.py", line 7, in f
    y()
ValueError: cannot read /some/where/config.json
and more

[2026-11-23 00:03:51] Received sigquit from a child process. It usually means the child failed.
KeyError: 'of the end'
"""


def test_a_log_is_read_up_to_its_last_exception() -> None:
    run = engine.read(LOG, "start", -9, None)
    assert (run.phase, run.exit_code) == ("target setup", -9)
    assert run.error == "ValueError: cannot read config.json and more"
    assert run.place == "srt/managers/scheduler.py:12 (run)"
    assert run.lines[:2] == ["Load weight begin", "Load weight end. type=A"]


@rows(
    "begun, ended, phase",
    [
        (0, 0, "scheduler startup"),
        (1, 0, "target loading"),
        (2, 1, "draft loading"),
        (2, 2, "draft setup"),
    ],
)
def test_the_weights_that_were_loaded_tell_the_phase(begun: int, ended: int, phase: str) -> None:
    said = "Load weight begin.\n" * begun + "Load weight end.\n" * ended
    assert engine.read(f"{said}{engine.DIED}: \n", "start", -9, None).phase == phase


def test_what_ends_before_there_is_a_scheduler_is_validation() -> None:
    run = engine.read("launch_server.py: error: argument --port: invalid\n", "start", 2, None)
    assert (run.phase, run.error) == ("validation", "SystemExit: argument --port: invalid")
    run = engine.read("server_args={}\nTraceback (most recent call last):\n", "start", 1, None)
    assert run.phase == "server startup"

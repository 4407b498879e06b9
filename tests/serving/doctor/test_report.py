"""What users read of it: fitted to the terminal, and the JSON of the contract."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from speclaunch.app.verbs.doctor import DoctorReport, diagnosis_json, render, show_diagnosis
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.registry import all_rules
from speclaunch.deployments.recipe.load import load
from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.serving.doctor.checks import check_machine
from speclaunch.serving.doctor.facts import (
    CheckLine,
    CheckSection,
    CheckState,
    MachineFacts,
    Process,
)
from speclaunch.serving.doctor.gather import check_recipe
from tests.support.loops import rows
from tests.support.serving.doctor.helpers import HEALTHY, machine, target

COMMAND = "uv pip install --python /a/very/long/path/to/an/environment/bin/python torch==2.13.0"
SECTIONS = (
    CheckSection(
        "Engine",
        (
            CheckLine("engine", CheckState.OK, "SGLang 0.5.18"),
            CheckLine(
                "packages", CheckState.WARNING, "torch 2.9", "built with another", COMMAND, True
            ),
            CheckLine(
                "shared-memory",
                CheckState.ERROR,
                "few words " * 20,
                "a reason " * 20,
                "do so " * 20,
            ),
            CheckLine(
                "disk",
                CheckState.UNKNOWN,
                "/a/path/that/is/longer/than/any/line/of/this/terminal/has",
            ),
            CheckLine("token", CheckState.NOTE, "none"),
        ),
    ),
    CheckSection("Empty", ()),
)


def text(width: int | None, *, unicode: bool = True) -> list[str]:
    return [line.plain for line in render(SECTIONS, width, unicode=unicode)]


@rows("width", [20, 25, 40, 60, 80, 120])
def test_nothing_is_wider_than_the_terminal_but_a_command(width: int) -> None:
    shown = text(width)
    assert any(len(line) > width // 2 for line in shown)  # there is something to be cut
    for line in shown:
        assert len(line) <= max(width, 34) or line.strip() == f"fix: {COMMAND}"


@rows("width", [25, 60, 120, None])
def test_nothing_is_lost(width: int | None) -> None:
    shown = "".join("".join(text(width)).split())
    for line in SECTIONS[0].lines:
        for part in (line.check, line.found, line.why, line.fix or ""):
            assert "".join(part.split()) in shown
    assert "Empty" not in shown


def test_a_pipe_gets_one_line_each() -> None:
    assert text(None)[:4] == [
        "Engine",
        "  ✓ engine         SGLang 0.5.18",
        "  ! packages       torch 2.9",
        "                   built with another",
    ]


def test_letters_that_every_terminal_has() -> None:
    shown = "\n".join(text(80, unicode=False))
    assert shown.isascii()
    assert [line[2] for line in shown.split("\n") if line.startswith("  ") and line[2] != " "] == [
        "+",
        "!",
        "x",
        "?",
        "-",
    ]


def shown(diagnosis: DoctorReport, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    show_diagnosis(Console(file=stream, highlight=False, soft_wrap=True, width=400), diagnosis)
    stream.flush()
    return raw.getvalue().decode(encoding)


@rows("encoding", ["ascii", "latin-1", "utf-8", "shift-jis"])
def test_any_output_takes_it(encoding: str) -> None:
    odd = CheckLine("engines", CheckState.OK, "ünï 日本 … ✓ \udcff")
    said = shown(DoctorReport((CheckSection("S", (odd,)),)), encoding)
    assert "engines" in said
    assert said.count("\n") == 4


def test_ascii_spells_arrows_and_ellipses() -> None:
    odd = CheckLine("engines", CheckState.OK, "a → b …")
    assert "a -> b ..." in shown(DoctorReport((CheckSection("S", (odd,)),)), "ascii")


def test_a_process_cannot_steer_the_terminal() -> None:
    evil = Process(9, 1, "sglang::x", ("sglang::\x1b[2J\x07\x9bevil",), "me", session=7)
    diagnosis = DoctorReport(check_machine(machine(processes=(evil,))))
    assert not set(shown(diagnosis)) & {"\x1b", "\x07", "\x9b"}
    assert "evil" in shown(diagnosis)


def diagnosis(found: MachineFacts, judged: Any = None) -> DoctorReport:
    return DoctorReport(check_machine(found), found.target, judged)


@rows(
    "found, last",
    [
        (HEALTHY, "No problems found."),
        (machine(user="x", limits=UnknownFact("limits", "no")), "1 check without a result."),
        (
            machine(port=UnknownFact("a", "b"), hub=UnknownFact("a", "b")),
            "2 checks without a result.",
        ),
        (machine(target=target()), "No problem prevents r from starting here."),
        (
            machine(target=target(meant_for="8 x h200")),
            "prevents r from starting here (1 warning).",
        ),
        (machine(target=target(gpus=8)), "r would not start here: 1 error."),
        (machine(target=target(elsewhere=True)), "prevents r from starting there."),
    ],
)
def test_the_last_line_sums_it_up(found: MachineFacts, last: str) -> None:
    said = diagnosis(found)
    assert shown(said).rstrip().splitlines()[-1].endswith(last)


def test_the_json() -> None:
    document = diagnosis_json(diagnosis(HEALTHY))
    assert list(document) == ["version", "state", "checks"]
    assert (document["version"], document["state"]) == (1, "ok")
    for check in document["checks"]:
        assert list(check) == ["check", "state", "found", "why", "fix"]
    assert json.loads(json.dumps(document)) == document


def test_the_json_of_a_recipe() -> None:
    recipe = load("ngram_qwen7b", ["args.enable_nonsense=true"])
    judged = check_recipe(recipe, ("0.5.18",), Lookup(), all_rules(), {})
    document = diagnosis_json(diagnosis(machine(target=target()), judged))
    assert (document["recipe"], document["engine"], document["state"]) == ("r", "0.5.18", "error")
    finding = next(f for f in document["findings"] if f["severity"] == "error")
    assert list(finding) == [
        "code",
        "rule",
        "severity",
        "message",
        "why",
        "fix",
        "applicability",
        "path",
        "line",
        "column",
        "source",
        "url",
        "engine",
    ]
    assert {"code", "rule", "reason"} == set(document["unjudged"][0])


def test_the_findings_are_shown_below_the_machine() -> None:
    recipe = load("ngram_qwen7b", ["args.enable_nonsense=true"])
    judged = check_recipe(recipe, ("0.5.18",), Lookup(), all_rules(), {})
    said = shown(diagnosis(machine(target=target(hardware="8 x h200")), judged))
    assert said.index("Machine") < said.index("r on SGLang 0.5.18 and 8 x h200")
    assert "error[SPL001]" in said
    assert "r would not start here: 1 error" in said


def test_rules_that_could_not_be_asked() -> None:
    lost = UnknownFact("the rules", "no answer within 5 s")
    assert "r could not be checked: no answer within 5 s" in shown(
        diagnosis(machine(target=target()), lost)
    )
    assert "findings" not in diagnosis_json(diagnosis(machine(target=target()), lost))

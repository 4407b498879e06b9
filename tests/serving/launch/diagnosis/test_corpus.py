"""The labelled corpus: cause, direction and phase right in every log of it."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from speclaunch.serving.launch.diagnosis.causes import CATALOGUE
from speclaunch.serving.launch.diagnosis.diagnose import diagnose
from speclaunch.serving.launch.diagnosis.interface import Diagnosis
from tests.serving.launch.diagnosis.healthy import others, starts
from tests.support.corpora.cases import LOADER
from tests.support.loops import over
from tools import failure_texts

CORPUS = Path(__file__).parent / "corpus"
LABELS: dict[str, dict[str, Any]] = yaml.load((CORPUS / "labels.yaml").read_text(), LOADER)


def read(name: str, **known: Any) -> Diagnosis:
    with (CORPUS / f"{name}.log").open(errors="replace", newline="\n") as file:
        return diagnose(file, **known)


def fraction(found: Diagnosis) -> str:
    way = found.cause.directions.get("mem_fraction_static") if found.cause else None
    return way.value if way is not None else "none"


@pytest.mark.thorough
@over(LABELS)
def test_each_log_is_diagnosed_as_it_is_labelled(name: str) -> None:
    label, found = LABELS[name], read(name)
    said = {
        "cause": found.cause.name if found.cause else None,
        "fraction": fraction(found),
        "phase": found.phase.value,
        "served": found.served,
        "rule": found.rule,
    }
    assert said == {key: label[key] for key in said}
    assert found.engine
    assert found.failed == (label["cause"] is not None)
    if found.cause is not None:
        assert found.line is not None and found.line_number is not None


@pytest.mark.thorough
@over(LABELS)
def test_knowing_the_version_changes_nothing(name: str) -> None:
    label, found = LABELS[name], read(name, version=LABELS[name]["engine"])
    assert (found.cause.name if found.cause else None) == label["cause"]
    assert fraction(found) == label["fraction"]
    assert found.version == label["engine"]


@pytest.mark.thorough
@over([name for name in LABELS if LABELS[name]["cause"]])
def test_a_cause_holds_for_the_version_that_printed_it(name: str) -> None:
    cause = read(name).cause
    assert cause is not None
    assert cause.versions.contains(LABELS[name]["engine"], prereleases=True)


@pytest.mark.thorough
@over([name for name in LABELS if LABELS[name]["cause"]])
def test_the_quoted_line_stands_where_it_is_said_to_stand(name: str) -> None:
    found = read(name)
    lines = (CORPUS / f"{name}.log").read_text(errors="replace").split("\n")
    assert found.line_number is not None and found.line is not None
    there = lines[found.line_number - 1].rstrip("\r")
    assert found.line.startswith(there)


@pytest.mark.thorough
@over([name for name in LABELS if LABELS[name]["origin"] in ("cpu-engine", "gpu")])
def test_a_log_cut_short_gives_the_same_cause_or_none(name: str) -> None:
    lines = (CORPUS / f"{name}.log").read_text(errors="replace").splitlines(keepends=True)
    for share in (0.3, 0.6, 0.9):
        found = diagnose(lines[: int(len(lines) * share)])
        causes = (None, LABELS[name]["cause"], "warm-up-failed")
        assert (found.cause.name if found.cause else None) in causes, share


def test_every_log_has_a_label_and_every_label_a_log() -> None:
    assert {path.stem for path in CORPUS.glob("*.log")} == set(LABELS)
    origins = Counter(label["origin"] for label in LABELS.values() if label["cause"])
    assert sum(origins.values()) >= 80
    assert set(origins) == {"cpu-engine", "gpu", "issue", "composed"}


def test_the_composed_logs_are_what_the_tool_writes() -> None:
    cases = list(failure_texts.cases())
    assert len(cases) >= 10
    for case in cases:
        written = (CORPUS / f"{case.name}.log").read_bytes()
        assert written == case.wrap(case.log.lines).encode(errors="surrogateescape"), case.name


def test_the_corpus_names_only_causes_of_the_catalogue() -> None:
    names = {known.cause.name for known in CATALOGUE}
    assert {label["cause"] for label in LABELS.values() if label["cause"]} <= names


HEALTHY = dict(starts())
OTHERS = dict(others())


def test_there_are_enough_logs_without_a_failure() -> None:
    assert len(HEALTHY) + len(OTHERS) >= 200


@pytest.mark.thorough
@over(HEALTHY)
def test_a_start_that_serves_has_no_cause(name: str) -> None:
    found = diagnose(HEALTHY[name].splitlines(keepends=True))
    assert found.engine and found.served and not found.failed, found.line
    assert found.phase.value == "ready"


@pytest.mark.thorough
@over(HEALTHY)
def test_a_healthy_start_from_any_line_on_has_no_cause(name: str) -> None:
    lines = HEALTHY[name].splitlines(keepends=True)
    for begin in range(0, len(lines), 7):
        found = diagnose(lines[begin:])
        assert not found.failed, (begin, found.line)


@over(OTHERS)
def test_other_programs_are_no_engines(name: str) -> None:
    found = diagnose(OTHERS[name].split("\n"))
    assert found.cause is None
    assert not found.failed
    assert not found.engine or name.startswith("help")


def test_the_help_of_the_engine_is_no_failure() -> None:
    assert not diagnose(OTHERS["help"].split("\n")).failed


_STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_CAUSES = [name for name in LABELS if LABELS[name]["cause"]]


def mixture(seed: int) -> tuple[str, list[str]]:
    """A failing log with 1 to 30 random lines of a healthy one in it, and the failing one's name.

    The lines of the healthy log have the time of the lines around them.
    """
    chance = random.Random(seed)
    name = chance.choice(_CAUSES)
    lines = (CORPUS / f"{name}.log").read_text(errors="replace").split("\n")
    healthy = chance.choice(list(HEALTHY.values())).split("\n")
    count = min(chance.choice((1, 3, 10, 30)), len(healthy))
    chosen = sorted(chance.sample(range(len(healthy)), count))
    places = sorted(chance.randrange(len(lines) + 1) for _ in chosen)
    for shift, (line, place) in enumerate(zip(chosen, places, strict=True)):
        above = (_STAMP.search(one) for one in reversed(lines[: place + shift]))
        time = next((found for found in above if found), None)
        text = healthy[line]
        if time is not None and (own := _STAMP.match(text)) is not None:
            text = f"[{time[1]}{text[own.end() :]}"
        lines.insert(place + shift, text)
    return name, lines


@pytest.mark.thorough
@pytest.mark.campaign
@pytest.mark.parametrize("hundred", range(10))
def test_lines_of_other_processes_hide_no_cause(hundred: int) -> None:
    """The same cause, or "unclear" with the cause among the candidates."""
    hidden = []
    for seed in range(hundred * 100, hundred * 100 + 100):
        name, lines = mixture(seed)
        found = diagnose(lines)
        names = {one.cause.name for one in found.candidates} if found.unclear else set()
        cause = found.cause.name if found.cause else None
        if LABELS[name]["cause"] not in {cause, *names} or not found.failed:
            hidden.append((seed, name, cause, names))
    assert not hidden

"""On a machine where all is well nothing is wrong, and every fact that is missing is borne."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.serving.doctor.checks import FAMILIES, check_machine
from speclaunch.serving.doctor.facts import (
    CheckLine,
    CheckSection,
    CheckState,
    MachineFacts,
    count,
    worst,
)
from tests.support.serving.doctor.helpers import HEALTHY, machine, target, worse

_FACTS = [
    name
    for name in MachineFacts.__struct_fields__
    if name not in ("own", "user", "volumes", "models", "env", "target")
]


def lines(found: MachineFacts) -> list[CheckLine]:
    return [line for section in check_machine(found) for line in section.lines]


def test_nothing_is_wrong_with_a_healthy_machine() -> None:
    found = lines(HEALTHY)
    assert worst(found) is CheckState.OK
    assert {line.check for line in found} >= {
        "speclaunch",
        "engine",
        "cpu-engine",
        "packages",
        "nvcc",
        "driver",
        "gpu",
        "gpu-memory",
        "memory",
        "processors",
        "shared-memory",
        "limits",
        "disk",
        "engines",
        "port",
        "variables",
        "token",
    }


def test_nor_with_a_recipe_that_fits_it() -> None:
    assert not worse(lines(machine(target=target(gpus=1, mem_fraction=0.8))))


@pytest.mark.parametrize("fact", _FACTS)
@pytest.mark.parametrize("with_recipe", [False, True])
def test_a_fact_that_is_missing_is_said_and_takes_nothing_down(
    fact: str, with_recipe: bool
) -> None:
    found = replace(
        HEALTHY,
        **{fact: UnknownFact(fact, "it does not answer")},
        target=target() if with_recipe else None,
    )
    all_lines = lines(found)
    assert not [line for line in all_lines if "check crashed" in line.found]
    assert fact == "tools" or any("it does not answer" in line.found for line in all_lines)
    stopping = {"runtime", "hardware"}  # without an engine or a GPU it cannot start
    assert with_recipe is False or (fact in stopping) is (worst(all_lines) is CheckState.ERROR)


def test_all_facts_may_be_missing_at_once() -> None:
    found = MachineFacts(own=HEALTHY.own)
    assert not [line for line in lines(found) if "check crashed" in line.found]
    assert not [line for line in lines(replace(found, target=target())) if "crashed" in line.found]


def test_a_check_that_fails_keeps_what_it_said_and_hides_nothing() -> None:
    def broken(found: MachineFacts) -> Iterator[CheckLine]:
        yield CheckLine("x", CheckState.OK, "until here")
        raise ZeroDivisionError

    def whole(found: MachineFacts) -> Iterator[CheckLine]:
        yield CheckLine("y", CheckState.OK, "fine")

    (section,) = check_machine(HEALTHY, {"A": (broken, whole)})
    assert [(line.state, line.found) for line in section.lines] == [
        (CheckState.OK, "until here"),
        (CheckState.UNKNOWN, "this check crashed: ZeroDivisionError"),
        (CheckState.OK, "fine"),
    ]


def _bad(found: MachineFacts) -> Iterator[CheckLine]:
    yield CheckLine("x", CheckState.ERROR, "bad")


@pytest.mark.parametrize(
    ("aim", "state"),
    [
        (None, CheckState.WARNING),
        (target(), CheckState.ERROR),
        (target(elsewhere=True), CheckState.WARNING),
    ],
)
def test_only_what_stops_a_launch_from_here_is_an_error(aim: object, state: CheckState) -> None:
    (section,) = check_machine(machine(target=aim), {"A": (_bad,)})
    assert section.lines[0].state is state


def test_a_recipe_for_another_machine_asks_nothing_of_this_one() -> None:
    away = lines(machine(target=target(elsewhere=True, gpus=8), hardware=HEALTHY.hardware))
    assert not worse(away)
    assert worse(lines(machine(target=target(gpus=8))))


def test_worst_and_count() -> None:
    some = [
        CheckLine("a", CheckState.NOTE, ""),
        CheckLine("a", CheckState.UNKNOWN, ""),
        CheckLine("a", CheckState.OK, ""),
    ]
    assert worst(some) is CheckState.UNKNOWN
    assert worst([]) is CheckState.OK
    assert worst([*some, CheckLine("a", CheckState.WARNING, "")]) is CheckState.WARNING
    assert count(some, CheckState.NOTE) == 1
    assert list(FAMILIES) == [section.title for section in check_machine(HEALTHY)]
    assert isinstance(check_machine(HEALTHY)[0], CheckSection)

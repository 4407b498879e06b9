"""Asks every check about the surroundings; none can take the others down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from speclaunch.doctor.checks import (
    budget,
    compilers,
    disk,
    driver,
    engine,
    engines,
    gpus,
    limits,
    memory,
    models,
    packages,
    paths,
    port,
    proxy,
    python,
    variables,
)
from speclaunch.doctor.line import Line, Section, State
from speclaunch.doctor.surroundings import Surroundings

Check = Callable[[Surroundings], Iterator[Line]]


@dataclass(frozen=True, slots=True)
class Family:
    """Checks that are shown together."""

    title: str
    checks: tuple[Check, ...]


FAMILIES = (
    Family("Engine", (python.check, engine.check, packages.check, compilers.check)),
    Family("GPU", (driver.check, gpus.check)),
    Family("Machine", (memory.check, budget.check, limits.check, disk.check)),
    Family("Processes", (engines.check, port.check)),
    Family("Environment", (variables.check, proxy.check)),
    Family("Models", (models.check, paths.check)),
)


def examine_machine(
    found: Surroundings, families: Iterable[Family] = FAMILIES
) -> tuple[Section, ...]:
    """All lines. Only what stops a launch from here is an error: without a recipe, or with
    hardware that is not this machine's, the worst is a warning."""
    if found.target is not None and found.target.elsewhere:
        found = replace(
            found, target=None, models=(), missing=()
        )  # what it needs, it needs of another
    soften = found.target is None
    sections: list[Section] = []
    for family in families:
        lines = [line for check in family.checks for line in _asked(check, found)]
        if soften:
            lines = [_softened(line) for line in lines]
        sections.append(Section(family.title, tuple(lines)))
    return tuple(sections)


def _asked(check: Check, found: Surroundings) -> list[Line]:
    """What a check says; of one that fails, what it said until then, and that it failed."""
    lines: list[Line] = []
    try:
        lines.extend(check(found))
    except Exception as error:  # the doctor's own mistake must not hide what others found
        name = check.__module__.rpartition(".")[2]
        said = f"this check failed itself: {type(error).__name__}"
        lines.append(Line(name, State.UNKNOWN, said, "a bug in speclaunch"))
    return lines


def _softened(line: Line) -> Line:
    return replace(line, state=State.WARNING) if line.state is State.ERROR else line

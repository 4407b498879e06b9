"""Checks of the machine. Each check is a function from facts to check lines. If one crashes, the
others still run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from speclaunch.serving.doctor.checks.engine import (
    check_compilers,
    check_engine,
    check_packages,
    check_python,
)
from speclaunch.serving.doctor.checks.environment import (
    check_engines,
    check_port,
    check_proxy,
    check_variables,
)
from speclaunch.serving.doctor.checks.machine import (
    check_budget,
    check_disk,
    check_driver,
    check_gpus,
    check_limits,
    check_memory,
)
from speclaunch.serving.doctor.checks.models import check_models, check_paths
from speclaunch.serving.doctor.facts import CheckLine, CheckSection, CheckState, MachineFacts

Check = Callable[[MachineFacts], Iterator[CheckLine]]


FAMILIES: Mapping[str, tuple[Check, ...]] = {
    "Engine": (check_python, check_engine, check_packages, check_compilers),
    "GPU": (check_driver, check_gpus),
    "Machine": (check_memory, check_budget, check_limits, check_disk),
    "Processes": (check_engines, check_port),
    "Environment": (check_variables, check_proxy),
    "Models": (check_models, check_paths),
}


def check_machine(
    found: MachineFacts, families: Mapping[str, tuple[Check, ...]] = FAMILIES
) -> tuple[CheckSection, ...]:
    """Return one section per family. Errors become warnings without a recipe, and if `--hardware`
    describes another machine: only a problem that prevents a launch on this machine is an error."""
    if found.target is not None and found.target.elsewhere:
        found = replace(
            found, target=None, models=(), missing=()
        )  # the recipe needs them on another machine
    soften = found.target is None
    sections: list[CheckSection] = []
    for title, checks in families.items():
        lines = [line for check in checks for line in _run_check(check, found)]
        if soften:
            lines = [
                replace(line, state=CheckState.WARNING) if line.state is CheckState.ERROR else line
                for line in lines
            ]
        sections.append(CheckSection(title, tuple(lines)))
    return tuple(sections)


def _run_check(check: Check, found: MachineFacts) -> list[CheckLine]:
    lines: list[CheckLine] = []
    try:
        lines.extend(check(found))
    except Exception as error:  # a bug of one check must not hide the others' results
        name = check.__name__.removeprefix("check_")
        text = f"this check crashed: {type(error).__name__}"
        lines.append(CheckLine(name, CheckState.UNKNOWN, text, "a bug in speclaunch"))
    return lines

"""The files of the repository that hold something of each release, and which releases they hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import architectures
import auto_memory
import catalogue
import engine_states
import metrics
import refusals
from packaging.version import Version

from tests.support.conformance import data as verdicts
from tests.support.engine.plan import auto_memory as auto_memory_data


@dataclass(frozen=True)
class DataSet:
    """One step of a release, and the data that it makes."""

    name: str
    """As `--skip` names it."""
    held: Callable[[], dict[str, Sequence[str]]]
    """The releases that each of its files holds."""
    remove: Callable[[str], None]
    since: str = "0"
    """The first release that can be asked."""
    chosen: bool = False
    """Not every release is asked, but the newest is."""


def _versions(file: Path) -> list[str]:
    found: list[str] = json.loads(file.read_text())["versions"]
    return found


def _catalogue() -> dict[str, Sequence[str]]:
    files = ("arguments.json", "variables.json", "history.json")
    found: dict[str, Sequence[str]] = {name: _versions(catalogue.DATA / name) for name in files}
    return {"versions.json": catalogue.held(), **found}


def _verdicts() -> dict[str, Sequence[str]]:
    return {"tests/conformance/verdicts": verdicts.versions()}


def _states() -> dict[str, Sequence[str]]:
    found = (one["version"] for one in json.loads(engine_states.OUTPUT.read_text()))
    return {engine_states.OUTPUT.name: list(dict.fromkeys(found))}


def _remove_verdicts(version: str) -> None:
    (verdicts.VERDICTS / f"{version}.jsonl.xz").unlink(missing_ok=True)


SETS = (
    DataSet("catalogue", _catalogue, catalogue.remove_release),
    DataSet(
        "architectures",
        lambda: {architectures.DATA.name: _versions(architectures.DATA)},
        architectures.remove_release,
    ),
    DataSet(
        "metrics", lambda: {metrics.DATA.name: _versions(metrics.DATA)}, metrics.remove_release
    ),
    DataSet(
        "refusals",
        lambda: {refusals.OUTPUT.name: _versions(refusals.OUTPUT)},
        refusals.remove_release,
    ),
    DataSet("states", _states, engine_states.remove_release, "0.5.3"),
    DataSet(
        "memory",
        lambda: {auto_memory_data.DATA.name: list(auto_memory_data.records())},
        auto_memory.remove_release,
        "0.5.3",
    ),
    DataSet("verdicts", _verdicts, _remove_verdicts, "0.5.3", chosen=True),
)


def unequal(sets: Sequence[DataSet] = SETS) -> list[str]:
    """What each file lacks of the catalogue's releases, or has beside them."""
    held = catalogue.held()
    return [
        f"{file}: {problem}"
        for one in sets
        for file, found in one.held().items()
        for problem in _problems(one, found, held)
    ]


def _problems(one: DataSet, found: Sequence[str], held: Sequence[str]) -> list[str]:
    wanted = [version for version in held if Version(version) >= Version(one.since)]
    lacking = [v for v in (wanted[-1:] if one.chosen else wanted) if v not in found]
    beside = [version for version in found if version not in wanted]
    problems = [f"lacks {', '.join(lacking)}"] if lacking else []
    problems += [f"holds {', '.join(beside)}, which the catalogue does not"] if beside else []
    if not problems and list(found) != sorted(found, key=Version):
        problems.append("its releases are not in order")
    return problems

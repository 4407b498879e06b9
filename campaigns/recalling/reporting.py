"""Counts, misses and false alarms of compared command lines."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from packaging.version import Version

from campaigns.recalling.comparing import Line
from campaigns.recalling.generated import section

_REFUSED = ("caught", "chance", "missed")
_ACCEPTED = ("right", "later", "alarm")


def counts(lines: Iterable[Line]) -> dict[tuple[str, str], Counter[str]]:
    """Outcomes by release and machine."""
    table: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in lines:
        table[line.release, line.machine][line.outcome] += 1
    return dict(sorted(table.items(), key=lambda item: (Version(item[0][0]), item[0][1])))


def rows(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """The table: release, machine, each count, recall with and without chance; totals last."""
    table = counts(lines)
    total: Counter[str] = Counter()
    releases: dict[str, Counter[str]] = defaultdict(Counter)
    found = []
    for (release, machine), one in table.items():
        found.append(_row(release, machine, one))
        releases[release].update(one)
        total.update(one)
    found += [_row(release, "all", one) for release, one in releases.items()]
    return [*found, _row("all", "all", total)]


def _row(release: str, machine: str, one: Counter[str]) -> tuple[str, ...]:
    refused = sum(one[name] for name in _REFUSED)
    accepted = sum(one[name] for name in _ACCEPTED)
    any_error = share(one["caught"] + one["chance"], refused)
    return (
        release,
        machine,
        str(refused),
        any_error,
        share(one["caught"], refused),
        str(accepted),
        str(one["alarm"]),
        str(one["later"]),
        str(one["not judged"]),
    )


HEAD = (
    "release",
    "machine",
    "refused",
    "with an error",
    "with one of validation",
    "accepted",
    "alarms",
    "later",
    "not judged",
)


def share(part: int, whole: int) -> str:
    """A percentage; nothing of nothing is none."""
    return f"{part / whole:.1%}" if whole else "-"


def counts_text(lines: Sequence[Line]) -> str:
    """The table for a terminal."""
    return "\n".join(
        "".join(f"{cell:>{24 if i == 4 else 14}}" for i, cell in enumerate(row))
        for row in [HEAD, *rows(lines)]
    )


def alarms(lines: Iterable[Line]) -> str:
    """Every false alarm."""
    return "\n".join(
        f"ALARM {line.release}/{line.machine} {error[0]}: {error[1]}\n        {shown(line)}"
        for line in lines
        if line.outcome == "alarm"
        for error in line.errors
        if error not in line.later
    )


def misses(lines: Iterable[Line], examples: int = 2) -> str:
    """What the engines refuse and no error of ours about validation names, by message."""
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.outcome in ("missed", "chance"):
            groups[place(line)].append(line)
    found = []
    for kind, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        where = sorted({f"{m.release}/{m.machine} {m.said.get('where', '')}" for m in members})
        found.append(f"{len(members):4}  {kind}\n        {'; '.join(where)[:200]}")
        found += [f"        {shown(member)}" for member in members[:examples]]
    return "\n".join(found)


def place(line: Line) -> str:
    """What a refusal is grouped by: the engine's words without numbers."""
    message = re.sub(r"(?<![A-Za-z0-9])\d+(\.\d+)?", "#", line.said.get("message", ""))
    return f"{line.said.get('stage')} {line.said.get('error')}: {message[:160]}"


def shown(line: Line) -> str:
    """A command line in one line."""
    return f"[{line.seed}] {' '.join(line.words)}"


_PAGE = """# What the engines refuse, and what the rules find

<!-- Written by `python -m campaigns recall page`; do not edit. -->

Random command lines, drawn as people write them (`campaigns/recalling/drawing.py`) over {models}
configs of real models. Each release's own argument validation ran on them, as on eight GPUs of a
kind. The rules checked the same lines; only errors count.

- **with an error**: the share of refused lines with at least one error from the rules;
- **of validation**: the same, without errors about a later failure (loading weights, memory);
- **false alarms**: accepted by the engine, refused by the rules;
- **later**: accepted by validation, refused by the rules for what follows it
  (`tests/conformance/exceptions.yaml`);
- **not judged**: cannot be decided here, such as a model whose own code is missing.

{table}

Each campaign was first counted before its results were used. The table has the present results; the
last campaign shows what to expect of new lines.

{campaigns}

## What is missed
The first sentence of the engine's message, and the number of command lines.

{missed}

{single} other messages were missed once each.

## False alarms
{alarms}

## The rows that were read from the engines
[SPL017](../rules/SPL017.md) alone, on the same lines:

- **rows** of a release; **new rows**, which no hand-written rule's message covers;
- **matched** lines; how many of these are **refused**, and how many **with that message**;
- **only rows**: refused lines with errors of the rows alone.

{rows}
"""


def page(lines: Sequence[Line], models: int) -> str:
    """Return the page of a campaign."""
    head = ["release, GPU", "refused", "with an error", "of validation", "accepted", "false alarms"]
    cells = [[*head, *HEAD[7:]], ["---"] + ["---:"] * 7, *_totals(lines)]
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.outcome in ("missed", "chance"):
            groups[_sentence(place(line))].append(line)
    missed = [
        f"| {len(found)} | `{kind.replace('|', '/').replace('`', '')}` "
        f"| {', '.join(sorted({one.release for one in found}, key=Version))} |"
        for kind, found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        if len(found) > 1
    ]
    single = sum(len(found) == 1 for found in groups.values())
    return _PAGE.format(
        models=models,
        table="\n".join(f"| {' | '.join(row)} |" for row in cells),
        campaigns=_campaigns(lines),
        missed="\n".join(["| | refused with | releases |", "|---:|---|---|", *missed]),
        single=single,
        alarms=_alarms_text(lines),
        rows=section(lines),
    )


def _sentence(kind: str) -> str:
    """The first sentence of the message that a refusal is grouped by."""
    first = re.split(r"[.;] ", kind.partition(": ")[2])[0].rstrip(".: ")
    return first or "(no message)"


def _totals(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Rows of the page: each release, each machine, all."""
    releases: dict[str, Counter[str]] = defaultdict(Counter)
    machines: dict[str, Counter[str]] = defaultdict(Counter)
    for (release, machine), one in counts(lines).items():
        releases[release].update(one)
        machines[machine].update(one)
    total = sum(releases.values(), Counter())
    named = [*releases.items(), *sorted(machines.items()), ("all", total)]
    return [(name, *_row(name, "", one)[2:]) for name, one in named]


def _campaigns(lines: Sequence[Line]) -> str:
    """The whole of each first part of the seeds."""
    head = (
        "| campaign | lines | refused | with an error | of validation | accepted | false alarms |"
    )
    table = [head, "|---|---:|---:|---:|---:|---:|---:|"]
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.seed.partition("/")[0].partition("-")[0]].append(line)
    for name, members in sorted(groups.items()):
        total = Counter(line.outcome for line in members)
        cells = _row(name, "all", total)
        table.append(f"| {' | '.join([name, str(len(members)), *cells[2:7]])} |")
    return "\n".join(table)


def campaign(lines: Sequence[Line], models: int) -> dict[str, Any]:
    """What was asked and what came out, as plain data."""
    table = [
        {"release": release, "machine": machine, **dict(sorted(one.items()))}
        for (release, machine), one in counts(lines).items()
    ]
    seeds = sorted({line.seed.partition("/")[0] for line in lines})
    return {"seeds": seeds, "models": models, "counts": table}


def _alarms_text(lines: Iterable[Line]) -> str:
    found = [
        f"- {line.release} on {line.machine}, {code}: `{' '.join(line.words)}`"
        for line in lines
        if line.outcome == "alarm"
        for code, message in line.errors
        if (code, message) not in line.later
    ]
    return "\n".join(found or ["None."])

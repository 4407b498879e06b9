"""Counts, misses and false alarms of compared command lines."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from packaging.version import Version

from recalling.comparing import Line
from recalling.generated import section

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


_PAGE = """# What the engines refuse, and what we say of it

<!-- Written by `python tools/recall.py page`; do not edit. -->

Random command lines, drawn as people write them ({drawing}) over {models} configs of real models,
were judged by the released engines themselves: by their own argument validation, run with the
answers of their platform functions replaced by those of eight GPUs of a kind
(`speclaunch/judge/worker`). speclaunch judged the same words with the same configs and the
machine by its name, by its rules alone; only findings of error severity count.

- **with an error**: of what the engine refuses, how much has at least one error of ours;
- **of validation**: the same without errors that name a later failure, when weights are loaded or
  memory is divided, which the engine may refuse for another reason;
- **false alarms**: what the engine accepts and we refuse; **later**: what its validation accepts,
  and we refuse for what follows it (`tests/conformance/exceptions.yaml` and
  `tools/recalling/comparing.py` say why);
- **not judged**: what neither side can know here, as a model whose own code is not at hand.

{table}

Seeds: {seeds}.

By campaign, in the order in which they were asked. Each was counted before anything was mended by
it; the table has all of them as they are judged now, so that the last one says what to expect of
other lines.

{campaigns}

## What is missed
By the engine's own words, most frequent first; the number is that of command lines.

{missed}

## False alarms
{alarms}

## The rows that were read from the engines
[SPL017](../rules/SPL017.md) alone, asked on the same command lines: how many rows a release has,
how many of them no rule written by hand foretells by its words (some rules list none); on how many
lines a row speaks, how many of these the engine refuses, how many in the words of one of the rows;
and how many of the refused lines have errors of the rows and of no other rule.

{rows}
"""


def page(lines: Sequence[Line], models: int) -> str:
    """The page of a campaign."""
    seeds = sorted({line.seed.partition("/")[0] for line in lines})
    head = [*HEAD[:3], "with an error", "of validation", "accepted", "false alarms", *HEAD[7:]]
    cells = [head, ["---", "---"] + ["---:"] * 7, *rows(lines)]
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line.outcome in ("missed", "chance"):
            groups[place(line)].append(line)
    missed = [
        f"| {len(found)} | `{kind.replace('|', '/').replace('`', '')}` "
        f"| {', '.join(sorted({one.release for one in found}, key=Version))} |"
        for kind, found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return _PAGE.format(
        drawing="`tools/recalling/drawing.py`",
        models=models,
        table="\n".join(f"| {' | '.join(row)} |" for row in cells),
        seeds=", ".join(seeds),
        campaigns=_campaigns(lines),
        missed="\n".join(["| | refused with | releases |", "|---:|---|---|", *missed]),
        alarms=_alarms_text(lines),
        rows=section(lines),
    )


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
    return "\n".join(found or ["There is none."])

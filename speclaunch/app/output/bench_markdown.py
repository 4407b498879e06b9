"""Certificates as Markdown: tables to paste into a change request or an issue on GitHub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from speclaunch.app.output import bench_words as words
from speclaunch.app.output.bench import NOTHING_COUNTS, columns, row, single_columns, single_row
from speclaunch.measure import CertificateDocument, DifferenceDocument, SingleDocument

_MEANS = re.compile(r"([\\`*_{}\[\]<>#|~&@])")
"""Characters that GitHub reads as markup, a mention, or the end of a cell.

A joiner follows each `@`, because a backslash before it does not prevent a mention.
"""
_LIST = re.compile(r"^(\s*)([-+]|\d+[.)])(?=\s)")
_NO_MENTION = "@\N{ZERO WIDTH NON-JOINER}"


def escaped(text: str) -> str:
    """Return the text as one line of Markdown that GitHub shows literally."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = _MEANS.sub(lambda found: _NO_MENTION if found[0] == "@" else f"\\{found[0]}", line)
    return _LIST.sub(r"\1\\\2", line)


def certificate_markdown(found: CertificateDocument) -> str:
    """Return a certificate as Markdown: verdict, table, meaning of intervals, folded commands."""
    lines = [f"**{escaped(found.candidate)}** against **{escaped(found.baseline)}**", ""]
    lines += [f"Note: {escaped(caveat)}\n" for caveat in found.caveats]
    if not found.counts:
        lines += [
            NOTHING_COUNTS,
            "",
            *(f"- {escaped(objection.message)}" for objection in found.objections),
        ]
        return "\n".join([*lines, ""])
    heads = [*columns(found)[:-1], "verdict"]
    rows = [[*row(found, cell), cell.claim] for cell in found.cells]
    lines += [escaped(found.sentence), "", *table(heads, rows), ""]
    shares = [
        f"- accepted by position, {escaped(words.per_cell(cell))}: "
        + words.percents(cell.candidate.accepted_by_position)
        for cell in found.cells
        if cell.candidate.accepted_by_position
    ]
    if memory := words.memory(found):
        shares.append(f"- {escaped(memory)}")
    shares += [f"- {escaped(line)}" for line, _ in words.published(found)]
    lines += [*shares, ""] if shares else []
    lines += words.intervals_mean(found)
    commands = [x for side in found.sides for x in ("", *_code(words.command_text(side)))]
    if commands:
        lines += ["", "<details><summary>Commands</summary>", *commands, "", "</details>"]
    return "\n".join([*lines, ""])


def single_markdown(found: SingleDocument) -> str:
    """Return a table of a single server, for an issue."""
    head = f"**{found.candidate}**\n" + "".join(f"\nNote: {caveat}\n" for caveat in found.caveats)
    if not found.counts:
        objections = "".join(f"- {objection.message}\n" for objection in found.objections)
        return f"{head}\n{NOTHING_COUNTS}\n\n{objections}"
    heads = single_columns(found)
    rows = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    rows += ["| " + " | ".join(single_row(found, cell)) + " |" for cell in found.cells]
    lines = [f"- {escaped(line)}" for line, _ in words.published(found)]
    return "\n".join([head, *rows, "", *lines, found.sentence, ""])


def difference_markdown(found: DifferenceDocument) -> str:
    """Return the comparison of two certificates as Markdown."""
    lines = [f"**{escaped(found.after)}** against **{escaped(found.before)}**", ""]
    lines += [*table(words.DIFFERENCE_COLUMNS, map(words.difference_row, found.cells)), ""]
    remarks = [*words.alone(found), *found.notes]
    lines += [*(f"- {escaped(remark)}" for remark in remarks), ""] if remarks else []
    for diff in found.arguments:
        lines += [f"Arguments of the {diff.side}:", "", *_code("\n".join(diff.lines), "diff"), ""]
    return "\n".join([*lines, escaped(words.difference_means(found)), ""])


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with escaped cells."""
    numbers = {"workload", "cell", "verdict"}
    return [
        f"| {' | '.join(map(escaped, heads))} |",
        f"|{'|'.join('---' if head in numbers else '---:' for head in heads)}|",
        *(f"| {' | '.join(map(escaped, cells))} |" for cells in rows),
    ]


def _code(text: str, language: str = "sh") -> list[str]:
    """Return a code block with a fence that does not occur in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *text.splitlines(), fence]

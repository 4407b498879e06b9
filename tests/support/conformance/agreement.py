"""The table of agreement: each effective value of a plan against the engine's own.

`python -m tests.support.conformance.report --agreement` writes docs/reference/agreement.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support import TESTS
from tests.support.conformance import data
from tests.support.conformance.compare import COMPARED, Comparison

DOCUMENT = TESTS.parent / "docs" / "reference" / "agreement.md"

FIELDS = {
    "speculative_num_steps": "steps",
    "speculative_eagle_topk": "topk",
    "speculative_num_draft_tokens": "draft tokens",
    "max_running_requests": "running requests",
    "cuda_graph_max_bs_decode": "largest graph",
    "cuda_graph_bs_decode": "capture list",
    "mem_fraction_static": "memory fraction",
    "attention_backend": "attention backend",
    "page_size": "page size",
    "chunked_prefill_size": "chunked prefill",
}
"""The values that people ask for first, and what the table calls them."""

_HEAD = """# How the plan agrees with the engines

<!-- Written by `python -m tests.support.conformance.report --agreement`; do not edit. -->

The plan computes what each release makes of its arguments, without starting it. This page compares
{cases} configurations (a command line on a machine, for a release) that both accept. The engine's
values come from its own argument validation, as on an NVIDIA H200, a B200 or a CPU
(`tools/engine_verdicts.py`; records in `tests/conformance/`).

Releases: {versions}.

*Unknown*: the plan leaves the value open, for lack of a fact.
"""


@dataclass(slots=True)
class Count:
    """In how many configurations a value was the same, another one, and left open."""

    agreed: int = 0
    differed: int = 0
    undecided: int = 0


def counts(found: Iterable[Comparison]) -> dict[str, dict[str, Count]]:
    """The counts of each field, by release."""
    table: dict[str, dict[str, Count]] = defaultdict(lambda: defaultdict(Count))
    for comparison in found:
        engine = comparison.said.engine
        for name in comparison.agreed:
            table[name][engine].agreed += 1
        for name in comparison.undecided:
            table[name][engine].undecided += 1
        for difference in comparison.differences:
            table[difference.name][engine].differed += 1
    return table


def document(found: list[Comparison]) -> str:
    """Return the page."""
    told = [c for c in found if c.agreed or c.differences]
    table = counts(found)
    names = [name for name in COMPARED if name in table]
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda name: (name not in FIELDS, names.index(name))):
        alike[_cells(table[name])].append(name)
    parts = [
        _HEAD.format(cases=len(told), versions=", ".join(data.versions())),
        "## Every value that is compared\n\n" + _table(alike),
        "## Every difference\n\n" + _differences(found),
        "## What is left open\n\n" + _open(found),
    ]
    return "\n".join(parts)


def _cells(by_engine: Mapping[str, Count]) -> tuple[str, ...]:
    first = next(one for one in data.versions() if one in by_engine)
    found = by_engine.values()
    agreed = sum(one.agreed for one in found)
    differed = sum(one.differed for one in found)
    return first, str(agreed + differed), str(differed), str(sum(one.undecided for one in found))


def _table(alike: Mapping[tuple[str, ...], Sequence[str]]) -> str:
    """One row for the values whose counts are the same."""
    lines = ["| values | from | compared | different | unknown |", "|---|---|---:|---:|---:|"]
    for cells, names in alike.items():
        lines.append("| " + ", ".join(f"`{name}`" for name in names) + f" | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _differences(found: Iterable[Comparison]) -> str:
    seen: Counter[tuple[str, str, str]] = Counter()
    for comparison in found:
        for one in comparison.differences:
            why = one.explained(comparison.said) or "not explained"
            seen[one.name, comparison.said.engine, why] += 1
    lines = [
        f"- `{name}`, SGLang {engine}, {number} configurations: {why}."
        for (name, engine, why), number in sorted(seen.items())
    ]
    return "\n".join(lines or ["None."]) + "\n"


def _open(found: Iterable[Comparison]) -> str:
    seen: Counter[tuple[str, str]] = Counter()
    for comparison in found:
        for name in comparison.undecided:
            seen[name, comparison.open[name]] += 1
    alike: dict[tuple[str, int], list[str]] = defaultdict(list)
    for (name, why), number in sorted(seen.items()):
        alike[why, number].append(f"`{name}`")
    lines = ["| values | configurations | what is missing |", "|---|---:|---|"]
    lines += [
        f"| {', '.join(names)} | {number} | {why} |"
        for (why, number), names in sorted(alike.items(), key=lambda item: (item[0][0], item[1]))
    ]
    return "\n".join(lines) + "\n"

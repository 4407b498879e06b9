"""How the rules and the resolver agree with the engines: `python -m tests.support.conformance.report`.

    python -m tests.support.conformance.report                     the tables, for all stored engines
    python -m tests.support.conformance.report 0.5.23 --missed     what it refuses and no rule does
    python -m tests.support.conformance.report 0.5.23 --alarms     what a rule refuses and it accepts
    python -m tests.support.conformance.report 0.5.23 --values page_size     where that field differs
    python -m tests.support.conformance.report 0.5.23 --id parallel-1c2d3e4  everything about one
    python -m tests.support.conformance.report --agreement         write docs/reference/agreement.md

`--machine` (h200, b200, cpu) restricts it, `--code SPL2` the alarms to codes, `--examples N` sets
how many command lines are shown of each kind.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tests.support.conformance import data
from tests.support.conformance.compare import NOT_OURS, Comparison, compare, compared

OUTCOMES = ("both refuse", "both accept", "missed", "false alarm", "excused")


def comparisons(version: str, machine: str | None = None) -> list[Comparison]:
    """All comparisons of one engine."""
    return [
        compare(said)
        for said in data.load(version)
        if compared(said) and machine in (None, said.machine)
    ]


def confusion(found: Iterable[Comparison]) -> dict[tuple[str, str], Counter[str]]:
    """Outcomes by engine and machine."""
    table: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for comparison in found:
        table[comparison.said.engine, comparison.said.machine][comparison.outcome] += 1
    return dict(table)


def confusion_text(table: dict[tuple[str, str], Counter[str]]) -> str:
    lines = [f"{'engine':14}{'machine':9}" + "".join(f"{o:>13}" for o in (*OUTCOMES, "agreement"))]
    for (engine, machine), counts in table.items():
        right = counts["both refuse"] + counts["both accept"] + counts["excused"]
        share = f"{right / max(counts.total(), 1):.1%}"
        row = "".join(f"{counts[outcome]:13}" for outcome in OUTCOMES)
        lines.append(f"{engine:14}{machine:9}{row}{share:>13}")
    return "\n".join(lines)


def value_text(found: Iterable[Comparison]) -> str:
    """Agreement of each field: agreed/compared, and how many are undecided, per engine."""
    agreed: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: dict[str, Counter[str]] = defaultdict(Counter)
    unknown: dict[str, Counter[str]] = defaultdict(Counter)
    engines: list[str] = []
    for comparison in found:
        engine = comparison.said.engine
        if engine not in engines:
            engines.append(engine)
        agreed[engine].update(comparison.agreed)
        unknown[engine].update(comparison.undecided)
        wrong[engine].update(d.name for d in comparison.differences)
    names = sorted({n for table in (agreed, wrong, unknown) for c in table.values() for n in c})
    lines = [f"{'field':38}" + "".join(f"{engine:>20}" for engine in engines)]
    for name in names:
        cells = []
        for engine in engines:
            right, bad, open_ = (t[engine][name] for t in (agreed, wrong, unknown))
            cells.append(f"{right}/{right + bad}" + (f" ?{open_}" if open_ else ""))
        lines.append(f"{name:38}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


def grouped(found: Iterable[Comparison], outcome: str, examples: int = 2, code: str = "") -> str:
    """The disagreements of one kind, by the message of the side that refuses."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for comparison in found:
        if comparison.outcome != outcome:
            continue
        said = comparison.said
        if outcome == "missed":
            groups[_kind(f"{said.stage} {said.error}: {said.message}")].append(comparison)
        else:
            for found_code, message in comparison.errors:
                if found_code.startswith(code):
                    groups[_kind(f"{found_code}: {message}")].append(comparison)
    lines = []
    for kind, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        where = sorted({f"{m.said.engine}/{m.said.machine}" for m in members})
        lines.append(
            f"{len(members):4}  {kind}\n        {', '.join(where)} {members[0].said.where}"
        )
        lines += [f"        {shown(member)}" for member in members[:examples]]
    return "\n".join(lines) or f"nothing: {outcome}"


def shown(comparison: Comparison) -> str:
    """A configuration in one line."""
    said = comparison.said
    env = "".join(f"{name}={value} " for name, value in said.env.items())
    return f"[{said.id}] {env}{' '.join(said.words)}"


def _kind(message: str) -> str:
    return re.sub(r"(?<![A-Za-z0-9])\d+(\.\d+)?", "#", message)[:240]


def details(found: Iterable[Comparison], wanted: str) -> str:
    """Everything about the configurations with an id that begins so."""
    lines = []
    for comparison in found:
        said = comparison.said
        if not said.id.startswith(wanted):
            continue
        lines.append(f"{shown(comparison)}\n  {said.engine} {said.machine}: {comparison.outcome}")
        lines.append(f"  engine: {said.verdict} {said.stage} {said.error} {said.message}")
        lines += [f"  ours: {code} {message}" for code, message in comparison.errors]
        lines += [f"  unjudged: {reason}" for reason in comparison.unjudged]
        lines += [
            f"  {d.name}: engine {d.engine!r}, ours {d.ours!r}" for d in comparison.differences
        ]
        lines += [f"    {name} = {value!r}" for name, value in said.values.items()]
    return "\n".join(lines)


def differing(found: Iterable[Comparison], field: str, examples: int) -> str:
    """The configurations in which a field differs, by the two values."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for comparison in found:
        for difference in comparison.differences:
            if difference.name == field:
                kind = f"engine {difference.engine!r}, ours {difference.ours!r}"
                groups[kind].append(comparison)
    lines = []
    for kind, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        where = sorted({f"{m.said.engine}/{m.said.machine}" for m in members})
        lines.append(f"{len(members):4}  {kind}   ({', '.join(where)})")
        lines += [f"        {shown(member)}" for member in members[:examples]]
    return "\n".join(lines) or f"{field}: no difference"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.conformance.report")
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--machine", choices=list(data.MACHINES))
    parser.add_argument("--missed", action="store_true")
    parser.add_argument("--alarms", action="store_true")
    parser.add_argument("--excused", action="store_true")
    parser.add_argument("--values", metavar="FIELD")
    parser.add_argument("--id", metavar="ID")
    parser.add_argument("--code", default="")
    parser.add_argument("--examples", type=int, default=2)
    parser.add_argument("--agreement", action="store_true")
    args = parser.parse_args(argv)
    if args.agreement:
        from tests.support.conformance import agreement

        found = [c for version in data.versions() for c in comparisons(version)]
        agreement.DOCUMENT.write_text(agreement.document(found))
        return 0
    found = [c for v in args.versions or data.versions() for c in comparisons(v, args.machine)]
    kinds = {"missed": args.missed, "false alarm": args.alarms, "excused": args.excused}
    for outcome in (kind for kind, wanted in kinds.items() if wanted):
        print(grouped(found, outcome, args.examples, args.code))
    if args.values:
        print(differing(found, args.values, args.examples))
    if args.id:
        print(details(found, args.id))
    if not (any(kinds.values()) or args.values or args.id):
        print(
            confusion_text(confusion(found)), value_text(found), left_out(args.versions), sep="\n\n"
        )
    return 0


def left_out(versions: Sequence[str]) -> str:
    """What was not compared, and why."""
    reasons: Counter[str] = Counter()
    for version in versions or data.versions():
        for said in data.load(version):
            if said.verdict == "artefact":
                reasons["the pretence failed"] += 1
            reasons.update(why for part, why in NOT_OURS.items() if part in said.message)
    return "\n".join(f"left out: {count} ({why})" for why, count in reasons.items())


if __name__ == "__main__":
    sys.exit(main())

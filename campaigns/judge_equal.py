"""Ask a judge what released engines were asked before, and compare every part of each verdict.

    python -m campaigns judge_equal VERSION --python PY --site DIR [--site DIR …] [--count N]
    python -m campaigns judge_equal VERSION --judge NAME [--count N]
    … --real PY --real-site DIR …     asks a judge with torch, too: of a release that is not stored

The stored verdicts (tests/conformance/verdicts) are those of the releases over a real torch: a
judge without torch is exact where it says the same. Compared are verdict, stage, class and words
of the error, the line that refused, and the resolved values of what is accepted. Half of what is
asked was refused then.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from speclaunch.checks.engine_check.installed_judges import added_judges
from tests.support.conformance import data
from tools.engine_verdicts import ask, cases_for

COMPARED = ("verdict", "stage", "error", "message", "where", "values")


def stored(version: str, machine: str) -> list[data.Said]:
    """What a release said, over a real torch."""
    return [said for said in data.load(version) if said.machine == machine]


def asked_now(
    version: str, machine: str, python: Path, sites: Sequence[Path], count: int
) -> list[data.Said]:
    """The same of a release that is asked now."""
    cases = cases_for(version, machine)
    cases = Random(machine).sample(cases, min(3 * count, len(cases)))  # noqa: S311
    _, verdicts = ask(python, sites, machine, cases)
    return [
        data.Said(
            engine=version,
            machine=machine,
            words=tuple(case["words"]),
            env=case["env"],
            **said,
        )
        for case, said in zip(cases, verdicts, strict=True)
    ]


def chosen(found: Sequence[data.Said], count: int, seed: str) -> list[data.Said]:
    """As many of the accepted ones as of the others, the same ones each time."""
    draw = Random(seed)  # noqa: S311
    accepted = [said for said in found if said.accepts]
    others = [said for said in found if not said.accepts and said.verdict != "artefact"]
    half = count // 2
    return [
        *draw.sample(accepted, min(half, len(accepted))),
        *draw.sample(others, min(count - half, len(others))),
    ]


def differences(said: data.Said, now: dict[str, Any]) -> list[str]:
    """What is other now than it was, a line each."""
    found = []
    for name in COMPARED:
        before, after = getattr(said, name), now.get(name, {} if name == "values" else "")
        if before != after and name != "values":
            found.append(f"{name}: {before!r}, now {after!r}")
        elif before != after:
            found += [
                f"{key}: {before.get(key)!r}, now {after.get(key)!r}"
                for key in sorted({*before, *after})
                if before.get(key) != after.get(key) and key not in DRAWN
            ]
    return found


DRAWN = frozenset({"random_seed"})
"""Values that are drawn anew each time."""


def compare(args: argparse.Namespace) -> tuple[int, int, int]:
    """How many were asked, were refused then, and are judged otherwise; prints the last."""
    asked = refused = wrong = 0
    for machine in data.MACHINES:
        if args.real:
            found = asked_now(args.version, machine, args.real, args.real_site, args.count)
        else:
            found = stored(args.version, machine)
        lines = chosen(found, args.count, f"{args.seed}/{machine}")
        cases = [{"id": s.id, "words": list(s.words), "env": dict(s.env)} for s in lines]
        hello, verdicts = ask(args.python, args.site, machine, cases, light=args.light)
        if machine == next(iter(data.MACHINES)):
            for module, why in hello["failed"].items():
                print(f"not imported: {module}: {why}")
        if hello["sglang"] != args.version:
            raise SystemExit(f"this is SGLang {hello['sglang']}, not {args.version}")
        for said, now in zip(lines, verdicts, strict=True):
            asked, refused = asked + 1, refused + (not said.accepts)
            if others := differences(said, now):
                wrong += 1
                print(f"{machine} {said.id}: {' '.join(said.words)}", *others, sep="\n    ")
    return asked, refused, wrong


def main() -> int:
    """The command line; exit 1 where any verdict differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version")
    parser.add_argument("--judge", help="one that was added, by its name")
    parser.add_argument("--python", type=Path)
    parser.add_argument("--site", type=Path, action="append", default=[])
    parser.add_argument("--light", action="store_true", help="stand in for torch")
    parser.add_argument("--count", type=int, default=100, help="for each machine")
    parser.add_argument("--seed", default="equal")
    parser.add_argument("--real", type=Path, metavar="PY", help="an interpreter with torch")
    parser.add_argument("--real-site", type=Path, action="append", default=[], metavar="DIR")
    args = parser.parse_args()
    if args.judge:
        (found,) = [one for one in added_judges() if one.name == args.judge]
        args.python, args.site, args.light = Path(found.python), list(found.paths), found.light
    asked, refused, wrong = compare(args)
    print(f"{args.version}: {asked} asked, {refused} of them refused then, {wrong} differ")
    return bool(wrong)

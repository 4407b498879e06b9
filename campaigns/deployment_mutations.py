"""Plants mistakes between the parts of deployments; sees whether lint finds them at both places.

    python -m campaigns deployment_mutations run [--deployments 200] [--every 1] [--jobs 2]
    python -m campaigns deployment_mutations kinds

`run` makes the deployments (`deployment_mutating/shapes.py`), lints each as it is, then once for
each kind of mistake (`deployment_mutating/kinds.py`) that it can have, and writes what came of it
to tests/checks/deployments/mutations.json. A mistake is found where a finding of one of its rules
stands at all the places that contradict each other. `--every N` looks at each Nth deployment alone,
and writes nothing. Exits 1 where less than 95 % are found, a kind is missed wholly, or a deployment
without a mistake has a finding.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from campaigns.deployment_mutating.deployed import Lines, Region
from campaigns.deployment_mutating.judge import findings
from campaigns.deployment_mutating.kinds import KINDS, Kind
from campaigns.deployment_mutating.shapes import SHAPES, deployment
from speclaunch.checks.rules.interface import Finding

REPOSITORY = Path(__file__).resolve().parent.parent

STORED = REPOSITORY / "tests" / "checks" / "deployments" / "mutations.json"
DEPLOYMENTS = 200
WANTED = 0.95


@dataclass
class Count:
    """Of one kind: how many mistakes were planted, found, and found at all their places."""

    planted: int = 0
    found: int = 0
    whole: int = 0


@dataclass
class Result:
    """What a campaign came to."""

    deployments: int = 0
    counts: dict[str, Count] = field(default_factory=lambda: {kind.name: Count() for kind in KINDS})
    unmutated: list[str] = field(default_factory=list)
    """Findings on deployments without a mistake."""
    missed: list[str] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Of all mistakes those found at all places."""
        planted = sum(count.planted for count in self.counts.values())
        return sum(count.whole for count in self.counts.values()) / max(planted, 1)

    @property
    def never(self) -> list[str]:
        """The kinds that were missed wholly, or could not be planted."""
        return [name for name, count in self.counts.items() if not count.whole]

    @property
    def is_good(self) -> bool:
        """Whether everything is found, and nothing else."""
        return self.rate >= WANTED and not self.never and not self.unmutated

    def told(self) -> dict[str, object]:
        """As it is stored."""
        return {
            "deployments": self.deployments,
            "shapes": [shape.__name__ for shape in SHAPES],
            "planted": sum(count.planted for count in self.counts.values()),
            "found_at_all_places": round(self.rate, 4),
            "findings_on_unmutated": len(self.unmutated),
            "kinds": {
                name: {"planted": one.planted, "found": one.found, "at_all_places": one.whole}
                for name, one in self.counts.items()
            },
        }


def campaign(numbers: Iterable[int]) -> Result:
    """All kinds of mistakes in the deployments with some numbers."""
    result = Result()
    for number in numbers:
        result.deployments += 1
        whole = deployment(number)
        for one in findings(whole.text()):
            result.unmutated.append(f"{number} {whole.shape}: {one.place} {one.code} {one.message}")
        for kind in KINDS:
            _plant(number, kind, result)
    return result


def together(numbers: Sequence[int], jobs: int) -> Result:
    """The same in several processes."""
    if jobs < 2:
        return campaign(numbers)
    whole = Result()
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(campaign, [numbers[at::jobs] for at in range(jobs)]):
            whole.deployments += part.deployments
            whole.unmutated += part.unmutated
            whole.missed += part.missed
            for name, count in part.counts.items():
                mine = whole.counts[name]
                mine.planted += count.planted
                mine.found += count.found
                mine.whole += count.whole
    return whole


def _plant(number: int, kind: Kind, result: Result) -> None:
    broken = deployment(number)
    spots = kind.plant(broken, Random(f"{number} {kind.name}"))  # noqa: S311
    if spots is None:
        return
    lines = Lines(broken)
    regions = [lines.region(spot) for spot in spots]
    said = [one for one in findings(lines.text) if one.code in kind.codes]
    count = result.counts[kind.name]
    count.planted += 1
    count.found += any(_hits(one, regions[0]) or _hits(one, regions[-1]) for one in said)
    if any(all(_hits(one, region) for region in regions) for one in said):
        count.whole += 1
    else:
        places = [[p.line for p in (one.place, *one.others)] for one in said]
        result.missed.append(f"{number} {broken.shape} {kind.name}: {regions}, found {places}")


def _hits(finding: Finding, region: Region) -> bool:
    first, last = region
    return any(first <= place.line <= last for place in (finding.place, *finding.others))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign, or list the kinds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("run", "kinds"))
    parser.add_argument("--deployments", type=int, default=DEPLOYMENTS)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    asked = parser.parse_args(arguments)
    if asked.what == "kinds":
        for kind in KINDS:
            print(f"{kind.name:20} {', '.join(kind.codes):16} {kind.says}")
        return 0
    result = together(range(0, asked.deployments, asked.every), asked.jobs)
    told = result.told()
    for line in (*result.unmutated, *result.missed[:40]):
        print(line)
    print(
        f"{told['planted']} mistakes of {len(KINDS)} kinds in {result.deployments} deployments: "
        f"{result.rate:.1%} found at all places; {len(result.unmutated)} findings on unmutated ones"
    )
    if result.never:
        print(f"never found: {', '.join(result.never)}")
    if asked.every == 1 and asked.deployments == DEPLOYMENTS:
        STORED.parent.mkdir(exist_ok=True)
        STORED.write_text(f"{json.dumps(told, indent=1)}\n")
    return 0 if result.is_good else 1

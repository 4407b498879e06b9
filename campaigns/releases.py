"""Plant regressions in scripted engines of several releases, and let bisect and upgrade find them.

    python -m campaigns releases bisect|flaky|upgrade [--cases N] [--jobs N] [--whole] [--store]

`bisect`: a regression of each check in 8 to 12 releases; the pair and the number of starts count.
`flaky`: the same with a command that is wrong in a fifth of its runs. `upgrade`: a refusal, value,
output or acceptance length that only the new release has, each with a control without it.
`--whole` starts each engine by a launch, as users do; it takes three times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from speclaunch.measure.bisect.search import most_starts
from tests.support.measure import planted

ROOT = Path(__file__).parent.parent
STORED = ROOT / "tests" / "measure" / "bisect" / "campaign.json"
SHARE = 0.2
"""Share of wrong runs of a flaky command."""


def program(
    *words: str, home: Path, whole: bool, seconds: float = 1800
) -> tuple[int, dict[str, Any], str]:
    """Run speclaunch: exit code, document, messages.

    Unless `whole`, it starts the scripted engines itself, without a launch each.
    """
    own = ["-m", "speclaunch"] if whole else ["-m", "tests.support.measure.planted_program"]
    command = [sys.executable, *own, *words, "--output-format=json"]
    env = {**os.environ, "SPECLAUNCH_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, check=False, env=env, cwd=home, capture_output=True, text=True, timeout=seconds
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def bisect_case(number: int, *, flaky: bool = False, whole: bool = False) -> dict[str, Any]:
    """Plant a regression and return what bisect found."""
    chance = random.Random(f"releases {number}")  # noqa: S311 - no secret
    check = "command" if flaky else list(planted.PLANTS)[number % len(planted.PLANTS)]
    held = planted.releases(chance.randrange(8, len(planted.RELEASES) + 1), chance)
    first = chance.randrange(1, len(held))
    plant = chance.choice(planted.PLANTS[check])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pythons = planted.engines(folder, held, first, plant)
        recipe = planted.recipe(folder, pythons[held[0]])
        words = [str(SHARE), str(folder / "runs"), str(number)] if flaky else []
        text = planted.command(folder, *words) if check == "command" else check
        code, found, told = program(
            "bisect",
            f"recipe={recipe}",
            f"--good={held[0]}",
            f"--bad={held[-1]}",
            f"--check={text}",
            *planted.options(pythons),
            home=folder,
            whole=whole,
        )
    pair = found.get("pair") or {}
    expected = {"good": held[first - 1], "bad": held[first]}
    return {
        "case": number,
        "check": check,
        "releases": len(held),
        "expected": expected,
        "found": pair,
        "right": code == 0 and pair == expected,
        "starts": found.get("starts"),
        "within": bool(found) and found["starts"] <= most_starts(len(held)),
        "told": "" if found else told[-300:],
    }


UPGRADES = {
    "start": planted.PLANTS["start"],
    "value": planted.PLANTS["command"],
    "output": planted.PLANTS["same-output"],
    "acceptance": planted.PLANTS["acceptance>=3"],
}


def upgrade_case(number: int, *, whole: bool = False) -> dict[str, Any]:
    """Plant a regression in the new release (not in a control) and return what upgrade found."""
    chance = random.Random(f"upgrade {number}")  # noqa: S311 - no secret
    aspect = list(UPGRADES)[number // 2 % len(UPGRADES)]
    plant = chance.choice(UPGRADES[aspect]) if number % 2 == 0 else {}
    held = planted.RELEASES[-4:] if chance.random() < 0.5 else planted.RELEASES[-8:-4]
    old, new = sorted(chance.sample(held, 2), key=planted.RELEASES.index)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pythons = planted.engines(folder, (old, new), 1, plant)
        recipe = planted.recipe(folder, pythons[old])
        began = time.monotonic()
        code, found, told = program(
            "upgrade",
            f"recipe={recipe}",
            "args.model_path=meta-llama/Llama-3.1-8B-Instruct",
            f"--from={old}",
            f"--to={new}",
            "--hardware=h100",
            "--run",
            *planted.options(pythons),
            home=folder,
            whole=whole,
        )
    reasons = [reason for one in found.get("deployments", ()) for reason in one["reasons"]]
    observed = {reason["aspect"] for reason in reasons}
    return {
        "case": number,
        "planted": aspect if plant else None,
        "from": old,
        "to": new,
        "verdict": found.get("verdict"),
        "aspects": sorted(observed),
        "right": (aspect in observed and code == 1) if plant else found.get("verdict") == "safe",
        "seconds": round(time.monotonic() - began, 1),
        "told": "" if found else told[-300:],
    }


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "bisect": bisect_case,
    "flaky": partial(bisect_case, flaky=True),
    "upgrade": upgrade_case,
}


def summary(kind: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of a kind's results, and the cases that went wrong."""
    found: dict[str, Any] = {"cases": len(rows), "right": sum(row["right"] for row in rows)}
    if kind == "upgrade":
        plants = [row for row in rows if row["planted"]]
        controls = [row for row in rows if not row["planted"]]
        found["planted"], found["caught"] = len(plants), sum(row["right"] for row in plants)
        found["controls"] = len(controls)
        found["false"] = sum(not row["right"] for row in controls)
    else:
        found["within the bound of starts"] = sum(row["within"] for row in rows)
        found["starts"] = dict(sorted(Counter(str(row["starts"]) for row in rows).items()))
    found["wrong"] = [row for row in rows if not row["right"]]
    return found


def main() -> int:
    """Run the cases of a kind; exit 1 if one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m campaigns releases")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="launch each engine as users do")
    parser.add_argument("--store", action="store_true", help=f"write the counts to {STORED.name}")
    options = parser.parse_args()
    cases = range(2 * options.cases if options.kind == "upgrade" else options.cases)
    rows = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(partial(KINDS[options.kind], whole=options.whole), cases):
            rows.append(row)
            print(json.dumps(row), flush=True)
    found = summary(options.kind, rows)
    print(json.dumps(found, indent=1))
    if options.store:
        stored = json.loads(STORED.read_text()) if STORED.exists() else {}
        STORED.write_text(json.dumps({**stored, options.kind: found}, indent=1) + "\n")
    return 0 if not found["wrong"] else 1

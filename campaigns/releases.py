"""Plant regressions in scripted engines of several releases, and let bisect and upgrade find them.

    python -m campaigns releases bisect|flaky|upgrade [--cases N] [--whole] [--store]
    python -m campaigns releases engine --home DIR [--store]

`bisect`: a regression of each check in 8 to 12 releases; the pair and the number of starts count.
`flaky`: the same with a command that is wrong in a fifth of its runs. `upgrade`: a refusal, value,
output or acceptance length that only the new release has, each with a control without it. `--whole`
runs the command line, which launches each engine as users do; without it, this process starts them.
`engine`: regressions in the CPU engines 0.5.20, 0.5.22 and 0.5.23 in DIR, copies that are edited.
The same command continues an interrupted campaign.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec.json
from msgspec.structs import replace

from campaigns._engine_plants import PLANTS, Plant, planted_engine, restore
from speclaunch.checks import Lookup, all_rules
from speclaunch.core import speclaunch_home
from speclaunch.engine import CpuEngine, declare
from speclaunch.measure.releases import bisect, upgrade_run
from speclaunch.measure.releases.launched import EngineSupply, LaunchedRelease, launched, recipe_for
from speclaunch.measure.releases.search import SearchOutcome, check_of, most_starts
from speclaunch.measure.releases.upgrade import (
    UpgradeReason,
    UpgradeSettings,
    UpgradeVerdict,
    recipe_upgrades,
)
from tests.support.measure import planted

ROOT = Path(__file__).parent.parent
STORED = ROOT / "tests" / "measure" / "releases" / "campaign.json"
SHARE = 0.2
"""Share of wrong runs of a flaky command."""
SECONDS = 120.0
MODEL = "args.model_path=meta-llama/Llama-3.1-8B-Instruct"
HARDWARE = "h100"


def quiet(_: str) -> None:
    """Drop a progress message."""


def program(*words: str, home: Path) -> dict[str, Any]:
    """Run the command line; return its document, empty if it has none."""
    command = [sys.executable, "-m", "speclaunch", *words, "--output-format=json"]
    env = {**os.environ, "SPECLAUNCH_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, env=env, cwd=home, capture_output=True, text=True)
    if not done.stdout:
        print(done.stderr, file=sys.stderr)
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    return found


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
        find = _by_program if whole else _in_process
        outcome, pair, starts = find(folder, recipe, held, text, pythons)
    return {
        "case": number,
        "check": check,
        "releases": len(held),
        "expected": [held[first - 1], held[first]],
        "found": pair,
        "right": outcome == SearchOutcome.FOUND and pair == [held[first - 1], held[first]],
        "starts": starts,
        "within": starts <= most_starts(len(held)),
    }


Found = tuple[str, list[str], int]
"""Outcome, pair, number of starts."""


def _by_program(
    folder: Path, recipe: Path, held: Sequence[str], check: str, pythons: dict[str, Path]
) -> Found:
    words = (f"recipe={recipe}", f"--good={held[0]}", f"--bad={held[-1]}", f"--check={check}")
    found = program("bisect", *words, *planted.options(pythons), home=folder)
    pair = found.get("pair") or {}
    return str(found.get("outcome")), list(pair.values()), int(found.get("starts", -1))


def _in_process(
    folder: Path, recipe: Path, held: Sequence[str], check: str, pythons: dict[str, Path]
) -> Found:
    task = bisect.BisectTask(
        (f"recipe={recipe}",),
        tuple(held),
        check_of(check, SECONDS),
        None,
        SECONDS,
        (),
        {release: str(path) for release, path in pythons.items()},
    )
    os.environ["SPECLAUNCH_HOME"] = str(folder)
    begun = bisect.BisectProgress()
    stored = bisect.StoredBisect.begin("bisect", "planted", task.key, {}, begun, fresh=True)
    with EngineSupply(task.pythons, quiet) as supply:
        end = bisect.search(task, stored, supply, quiet)
    return str(end.outcome), list(end.pair or ()), len(stored.progress.probes)


UPGRADES = {
    "start": planted.PLANTS["start"],
    "value": planted.PLANTS["command"],
    "output": planted.PLANTS["same-output"],
    "acceptance": planted.PLANTS["acceptance>=3"],
}


def upgrade_case(number: int, *, whole: bool = False) -> dict[str, Any]:
    """Plant a regression in the new release (not in a control) and return what upgrade found."""
    chance = random.Random(f"upgrade {number // 2}")  # noqa: S311 - no secret
    aspect = list(UPGRADES)[number // 2 % len(UPGRADES)]
    plant = chance.choice(UPGRADES[aspect]) if number % 2 == 0 else {}
    old, new = sorted(chance.sample(planted.RELEASES[-8:], 2), key=planted.RELEASES.index)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pythons = planted.engines(folder, (old, new), 1, plant)
        recipe = planted.recipe(folder, pythons[old])
        find = _upgraded_by_program if whole else _upgraded
        observed = find(folder, recipe, old, new, pythons)
    return {
        "case": number,
        "planted": aspect if plant else None,
        "releases": [old, new],
        "found": sorted(observed),
        "right": aspect in observed if plant else not observed & set(UPGRADES),
    }


def _upgraded_by_program(
    folder: Path, recipe: Path, old: str, new: str, pythons: dict[str, Path]
) -> set[str]:
    words = (f"recipe={recipe}", MODEL, f"--from={old}", f"--to={new}", f"--hardware={HARDWARE}")
    found = program("upgrade", *words, "--run", *planted.options(pythons), home=folder)
    return {reason["aspect"] for one in found["deployments"] for reason in one["reasons"]}


def _upgraded(folder: Path, recipe: Path, old: str, new: str, pythons: dict[str, Path]) -> set[str]:
    words = (f"recipe={recipe}", MODEL)
    settings = UpgradeSettings(new, old, (), Lookup(hardware=declare(HARDWARE)), all_rules())
    (upgrade,) = recipe_upgrades(words, settings)
    engines = {release: str(path) for release, path in pythons.items()}
    recipes = [recipe_for(words, release, (), python=engines[release]) for release in (old, new)]
    os.environ["SPECLAUNCH_HOME"] = str(folder)
    begun = upgrade_run.UpgradeProgress()
    stored = upgrade_run.StoredUpgrade.begin("upgrade", "planted", "", {}, begun, fresh=True)
    with EngineSupply(engines, quiet) as supply:
        upgrade_run.run_releases(recipes, stored, supply, SECONDS, quiet)
    done = replace(upgrade, reasons=upgrade_run.run_reasons(upgrade, *stored.progress.runs))
    return {reason.aspect.value for reason in done.reasons}


@contextmanager
def without_contract(*words: Any, **more: Any) -> Iterator[LaunchedRelease]:
    """Serve a release as `launched`, without a second server for the contract."""
    with launched(*words, **more) as served:
        yield replace(served, can_run_twice=False)


PAIRS = (("0.5.20", "0.5.22"), ("0.5.20", "0.5.23"), ("0.5.22", "0.5.23"))
RECIPES = ("cpu_standalone", "cpu_ngram")
CONTROLS = [(recipe, *pair) for recipe in RECIPES for pair in PAIRS]
PLANTED = [(recipe, *pair, plant) for recipe, plant in PLANTS for pair in PAIRS]


def engine_case(number: int, *, home: Path) -> dict[str, Any]:
    """Plant a regression in a copied CPU engine, and return what upgrade finds in addition.

    The first cases are controls, one for each recipe and pair of releases: no start, output or
    acceptance may be a reason. A finished case and each unplanted run are stored in `home`.
    """
    path = home / f"case-{number}.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    began = time.monotonic()
    if number < len(CONTROLS):
        recipe, old, new = CONTROLS[number]
        aspects = {reason.aspect.value for reason in _sound_reasons(recipe, old, new, home)}
        is_right = not aspects & {"start", "output", "acceptance"}
        row: dict[str, Any] = {"planted": None, "right": is_right}
    else:
        recipe, old, new, plant = PLANTED[number - len(CONTROLS)]
        row = _planted_case(recipe, old, new, plant, home)
    row |= {"case": number, "recipe": recipe, "releases": [old, new]}
    row["seconds"] = round(time.monotonic() - began)
    path.write_text(json.dumps(row))
    return row


def _planted_case(recipe: str, old: str, new: str, plant: Plant, home: Path) -> dict[str, Any]:
    known, sound = _sound_reasons(recipe, old, new, home), _sound_run(recipe, new, old, home)
    before = _sound_run(recipe, old, None, home)
    (package,) = CpuEngine(home, new).venv.glob("lib/python*/site-packages/sglang")
    with planted_engine(package, plant):
        run = _engine_run(recipe, new, before)
    found = [reason for reason in _run_reasons(recipe, before, run) if reason not in known]
    return {
        "planted": plant.aspect,
        "code": plant.code,
        "found": [reason.text[:200] for reason in found],
        "effective": plant.is_effective(sound, run),
        "right": plant.aspect
        in {reason.aspect for reason in found if reason.verdict is not UpgradeVerdict.UNKNOWN},
    }


def _sound_reasons(recipe: str, old: str, new: str, home: Path) -> tuple[UpgradeReason, ...]:
    before = _sound_run(recipe, old, None, home)
    return _run_reasons(recipe, before, _sound_run(recipe, new, old, home))


def _run_reasons(
    recipe: str, before: upgrade_run.ReleaseRun, after: upgrade_run.ReleaseRun
) -> tuple[UpgradeReason, ...]:
    settings = UpgradeSettings(after.release, before.release, (), Lookup(), all_rules())
    (upgrade,) = recipe_upgrades([f"recipe={recipe}"], settings)
    return upgrade_run.run_reasons(upgrade, before, after)


def _sound_run(recipe: str, release: str, old: str | None, home: Path) -> upgrade_run.ReleaseRun:
    """Return the run of an unplanted engine, compared with `old`; it is started only once."""
    path = home / f"sound-{recipe}-{release}-{old}.json"
    if not path.exists():
        before = [] if old is None else [_sound_run(recipe, old, None, home)]
        path.write_bytes(msgspec.json.encode(_engine_run(recipe, release, *before)))
    return msgspec.json.decode(path.read_bytes(), type=upgrade_run.ReleaseRun)


def _engine_run(
    recipe: str, release: str, *before: upgrade_run.ReleaseRun
) -> upgrade_run.ReleaseRun:
    begun = upgrade_run.UpgradeProgress(before)
    stored = upgrade_run.StoredUpgrade.begin("upgrade", "planted", "", {}, begun, fresh=True)
    found = recipe_for([f"recipe={recipe}"], release, ())
    return upgrade_run.run_release(found, stored, 10 * SECONDS, quiet)


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "bisect": bisect_case,
    "flaky": partial(bisect_case, flaky=True),
    "upgrade": upgrade_case,
    "engine": engine_case,
}


def summary(kind: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of a kind's results, and the cases that went wrong."""
    found: dict[str, Any] = {"cases": len(rows), "right": sum(row["right"] for row in rows)}
    if kind in ("upgrade", "engine"):
        plants = [row for row in rows if row["planted"]]
        controls = [row for row in rows if not row["planted"]]
        found["planted"], found["caught"] = len(plants), sum(row["right"] for row in plants)
        found["controls"] = len(controls)
        found["false"] = sum(not row["right"] for row in controls)
        found["not effective"] = sum(not row.get("effective", True) for row in plants)
    else:
        found["within the bound of starts"] = sum(row["within"] for row in rows)
        found["starts"] = dict(sorted(Counter(str(row["starts"]) for row in rows).items()))
    found["wrong"] = [row for row in rows if not row["right"]]
    return found


def main() -> int:
    """Run the cases of a kind; exit 1 if one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m campaigns releases")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument(
        "--cases",
        type=int,
        default=100,
        help=f"engine: {len(CONTROLS)} controls and {len(PLANTED)} plants",
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--home", type=Path, help="home with the copied CPU engines")
    parser.add_argument("--whole", action="store_true", help="launch each engine as users do")
    parser.add_argument("--store", action="store_true", help=f"write the counts to {STORED.name}")
    options = parser.parse_args()
    more: dict[str, Any] = {"whole": options.whole}
    if options.kind == "engine":
        if options.home is None or options.home.samefile(speclaunch_home()):
            parser.error("--home needs a folder with copies of CPU engines: they are edited")
        os.environ["SPECLAUNCH_HOME"] = str(options.home)
        more = {"home": options.home}
        restore(options.home)
        upgrade_run.launched = without_contract  # type: ignore[attr-defined]
    elif not options.whole:
        bisect.launched = upgrade_run.launched = planted.served  # type: ignore[attr-defined]
    rows = []
    count = 2 * options.cases if options.kind == "upgrade" else options.cases
    for case in range(options.first, options.first + count):
        rows.append(KINDS[options.kind](case, **more))
        print(json.dumps(rows[-1]), flush=True)
    found = summary(options.kind, rows)
    print(json.dumps(found, indent=1))
    if options.store:
        stored = json.loads(STORED.read_text()) if STORED.exists() else {}
        STORED.write_text(json.dumps({**stored, options.kind: found}, indent=1) + "\n")
    return 1 if found["wrong"] else 0

"""How often `speclaunch bench` is wrong, on the real CPU engine: `aa`, `delays`, …, `show`.

* `aa`: a deployment against itself. A certificate that claims a difference is wrong; at an error
  rate of 5 % that may happen to 2 of 40. None is a broken run, so none may be refused.
* `delays`: a deployment against itself behind a proxy that has every part of an answer take so
  many times as long. The interval must hold that factor in 95 % of the cases.
* `forced`: an acceptance length of 1 that is made up, against no speculation. It never pays.
* `ngram`: NGRAM against no speculation, and the same ratio from requests of our own, one after the
  other and without the generator. The interval should hold it.

Results are kept as they come, and a campaign that was interrupted goes on.

    python -m campaigns bench aa --certificates 40
    python -m campaigns bench delays --cases 20
    python -m campaigns bench forced --certificates 10
    python -m campaigns bench ngram --certificates 5
    python -m campaigns bench show
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx

from speclaunch.core.files import write_json
from speclaunch.measure.bench.certificate import certificate
from speclaunch.measure.bench.engines import SIMULATED
from speclaunch.measure.bench.measurement import SpeedClaim
from speclaunch.measure.bench.workload import workload
from tests.support.measure.bench.live.proxy import Through
from tests.support.measure.bench.live.sides import OURS, REQUESTS, THEIRS, Pair

ROOT = Path(__file__).resolve().parent.parent

RESULTS = ROOT / "tests" / "measure" / "bench" / "campaign.json"
RECIPE = "cpu_ngram"
ROUNDS = 6
TOKENS = 48
PLAIN = {OURS: (OURS, Through), THEIRS: (THEIRS, Through)}
PACES = (1.0, 1.6)
"""The least and the largest factor of `delays`."""


def aa(number: int, pair: Pair) -> dict[str, Any]:
    """One certificate of a deployment against itself, at a concurrency of its own."""
    concurrency = (1, 4)[number % 2]
    found = _cell(pair, PLAIN, concurrency)
    return {"number": number, "concurrency": concurrency, **found}


def delays(number: int, pair: Pair) -> dict[str, Any]:
    """One certificate with a known factor."""
    pace = round(random.Random(number).uniform(*PACES), 3)  # noqa: S311 - no secret

    def slow(engine: str) -> Through:
        through = Through(engine)
        through.pace = pace
        return through

    through = {OURS: (OURS, slow), THEIRS: (OURS, Through)}
    found = _cell(pair, through, 1)
    held = not found["objections"] and found["low"] <= 1 / pace <= found["high"]
    return {"number": number, "truth": 1 / pace, "held": held, **found}


def forced(number: int, pair: Pair) -> dict[str, Any]:
    """One certificate of drafts that are never accepted."""
    made_up = pair.sides[OURS].expected.simulated
    assert made_up == SIMULATED[0]
    return {"number": number, **_cell(pair, PLAIN, 1, {OURS: made_up})}


def ngram(number: int, pair: Pair) -> dict[str, Any]:
    """One certificate, and what a clock says of the same requests."""
    found = _cell(pair, PLAIN, 1)
    logs = []
    for turn in range(ROUNDS):
        order = (OURS, THEIRS) if turn % 2 == 0 else (THEIRS, OURS)
        seconds = {name: _clocked(pair, name) for name in order}
        logs.append(math.log(seconds[THEIRS] / seconds[OURS]))
    ratio = math.exp(fmean(logs))
    held = not found["objections"] and found["low"] <= ratio <= found["high"]
    return {"number": number, "independent": ratio, "held": held, **found}


def _clocked(pair: Pair, name: str) -> float:
    """Seconds for the requests of a round, one after the other."""
    prompts = workload("code", TOKENS, 0).texts or ()
    sampling = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    for each, engine in pair.engines.items():
        engine.resume() if each == name else engine.pause()
    with httpx.Client(base_url=pair.engines[name].url, timeout=120) as client:
        client.post("/flush_cache?timeout=30").raise_for_status()
        begun = time.monotonic()
        for text in prompts[:REQUESTS]:
            answer = client.post("/generate", json={"text": text, "sampling_params": sampling})
            assert answer.json()["meta_info"]["completion_tokens"] == TOKENS
        return time.monotonic() - begun


def _cell(
    pair: Pair, through: Any, concurrency: int, simulated: dict[str, str] | None = None
) -> dict[str, Any]:
    measured, objections = pair.judged(
        through, ROUNDS, concurrency=concurrency, output_tokens=TOKENS
    )
    found = certificate(OURS, THEIRS, measured, objections, simulated=simulated)
    kinds = [one.kind for one in objections]
    if not found.cells:
        return {"objections": kinds}
    (cell,) = found.cells
    return {
        "objections": kinds,
        "ratio": cell.speed_up.ratio,
        "low": cell.speed_up.low,
        "high": cell.speed_up.high,
        "claim": cell.claim,
    }


KINDS: dict[str, tuple[Any, str | None, tuple[str, ...]]] = {
    "aa": (aa, f"recipe={RECIPE}", ()),
    "delays": (delays, None, ()),
    "forced": (forced, "none", (f"+engine.env.{SIMULATED[0]}=1",)),
    "ngram": (ngram, "none", ()),
}
"""What makes a certificate, what it is compared with, and how the recipe is changed."""


def campaign(kind: str, total: int, each: int) -> Iterator[dict[str, Any]]:
    """What is missing of `total`, `each` with the same two engines."""
    one, against, words = KINDS[kind]
    done = {found["number"] for found in stored().get(kind, ())}
    missing = [number for number in range(total) if number not in done]
    for first in range(0, len(missing), each):
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(RECIPE, Path(folder), against, words)
            try:
                for number in missing[first : first + each]:
                    yield one(number, pair)
            finally:
                pair.close()


def stored() -> dict[str, list[dict[str, Any]]]:
    """All results."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def summary(results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A line for each campaign."""
    lines = []
    for kind, found in results.items():
        refused = [one for one in found if one["objections"]]
        counted = [one for one in found if not one["objections"]]
        claims = sum(one["claim"] != SpeedClaim.NOT_SHOWN for one in counted)
        told = f"{kind}: {len(found)} certificates, {len(refused)} refused"
        if kind == "aa":
            told += f", {claims} claim a difference"
        if kind in ("forced", "ngram"):
            told += f", {sum(one['claim'] == SpeedClaim.PAYS for one in counted)} pay"
        if kind in ("delays", "ngram"):
            told += f", {sum(one['held'] for one in found)} intervals hold the truth"
        lines.append(told)
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Run a campaign, or show what is stored."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=(*KINDS, "show"))
    parser.add_argument("--certificates", "--cases", type=int, default=40, dest="total")
    parser.add_argument("--each", type=int, default=4, help="of the same two engines")
    args = parser.parse_args(words)
    if args.what != "show":
        for found in campaign(args.what, args.total, args.each):
            results = stored()
            results.setdefault(args.what, []).append(found)
            write_json(RESULTS, results)
            print(json.dumps(found), flush=True)
    print("\n".join(summary(stored())))
    return 0

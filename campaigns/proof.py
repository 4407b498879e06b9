"""Prove the CPU recipes lossless, and engines that are broken on purpose not: `run`, `show`.

* good: each CPU recipe as it is, at three concurrencies; no answer may be wrong.
* verify: the same engine while its verification is broken (tests/support/proof_faults.py), and
  forced acceptance; `prove` must find wrong answers.
* unseen: the same where the tiny target's tokens stay as they are; what `prove` does not see.
* draft: the same while its draft is broken; every answer stays, and the acceptance length falls.
* refused: forced acceptance that the recipe says; nothing is started.

All proofs of a recipe share two engines and are judged by the functions of `prove`; tests/e2e runs
a few of them through the command line.

    python -m campaigns proof run --store
    python -m campaigns proof run --only eagle3
    python -m campaigns proof show
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from msgspec import to_builtins

from speclaunch.app.verbs.prove import Engines, Served
from speclaunch.app.verbs.shared import lookup
from speclaunch.core.errors import LaunchError
from speclaunch.core.files import speclaunch_home
from speclaunch.measure.bench.sides import NONE, SideOptions, baseline, candidate
from speclaunch.measure.bench.workload import shipped, workload
from speclaunch.measure.prove.answers import ProofPrompt
from speclaunch.measure.prove.proof import Proof, Reference, prove_answers, reference, served_dtype
from speclaunch.serving.launch.client import EngineClient
from tests.support.proof_faults import FAULTS, Fault, activate, breakable_shim

ROOT = Path(__file__).resolve().parent.parent

RESULTS = ROOT / "tests" / "measure" / "prove" / "campaign.json"
RECIPES = ("cpu_ngram", "cpu_standalone", "cpu_eagle3", "cpu_mtp_glm")
FORCED = "SGLANG_SIMULATE_ACC_LEN"
LEAST_REQUESTS = 1000
LOWER = 0.9
"""A broken draft has at most so much of the acceptance length of a good one."""
_GOOD_LEVELS, _CONTROL_LEVELS = (1, 2, 3, 4), (1, 3)
_GOOD_PROMPTS, _CONTROL_PROMPTS = 64, 12
_TOKENS = 20
_LEFT_SECONDS = 15.0


@dataclass(frozen=True)
class Run:
    """One proof. `words`: those of the command line, where it goes through that."""

    kind: str
    name: str
    recipe: str
    words: tuple[str, ...] = ()
    fault: Fault | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from others."""
        return self.kind, self.recipe, self.name

    @property
    def head(self) -> dict[str, Any]:
        """What its result begins with."""
        return {"kind": self.kind, "recipe": self.recipe, "name": self.name}


def runs() -> Iterator[Run]:
    """All of a campaign."""
    for recipe in RECIPES:
        yield Run("good", "as it is", recipe)
    for recipe in RECIPES:
        for fault in FAULTS:
            if fault.recipe == recipe:
                yield Run(fault.kind, fault.name, recipe, fault=fault)
    forced = ("--concurrency", "1", f"+engine.env.{FORCED}=3")
    yield Run("refused", "forced acceptance in the recipe", "cpu_standalone", forced)


def results_of(chosen: Sequence[Run], home: Path) -> Iterator[dict[str, Any]]:
    """What they come to, recipe after recipe."""
    for recipe in RECIPES:
        own = [one for one in chosen if one.recipe == recipe and one.kind != "refused"]
        if own:
            yield from _of_recipe(recipe, own, home)
    for one in chosen:
        if one.kind == "refused":
            yield {**one.head, **_by_command([f"recipe={one.recipe}", *one.words], home)}


def _of_recipe(recipe: str, chosen: Sequence[Run], home: Path) -> Iterator[dict[str, Any]]:
    asked = SideOptions((), None, lookup((), None))
    with tempfile.TemporaryDirectory(prefix="proof-campaign-") as text:
        folder = Path(text)
        shim = breakable_shim(folder)
        ours = candidate([f"recipe={recipe}", f"+engine.env.PYTHONPATH={shim}"], asked)
        plain = baseline(NONE, [f"recipe={recipe}"], ours, asked)
        with Engines(folder, _say) as engines:
            engines.begin(ours)
            engines.begin(plain)
            with (
                engines.serving(ours) as served,
                engines.serving(plain) as judging,
                ThreadPoolExecutor(1) as beside,
            ):
                known = beside.submit(_reference, judging)
                for one in chosen:
                    began = time.monotonic()
                    activate(shim, one.fault)
                    _flush(served)
                    found = _proven(one, served, judging, known)
                    yield {**one.head, "seconds": round(time.monotonic() - began), **found}
    left = _left(home)
    if left:
        raise SystemExit(f"{recipe}: processes are left: {left}")


def _reference(judging: Served) -> Reference:
    with judging.queried(3 * _GOOD_PROMPTS) as server:
        return reference(server, _questions(), max(_GOOD_LEVELS), served_dtype(judging.side.plan))


def _proven(run: Run, served: Served, judging: Served, known: Future[Reference]) -> dict[str, Any]:
    good = run.fault is None
    levels = _GOOD_LEVELS if good else _CONTROL_LEVELS
    questions = _questions()[: None if good else _CONTROL_PROMPTS]
    side = served.side
    try:
        with served.queried(len(levels) * len(questions)) as server:
            heard = {level: server(level).answers(questions, logprobs=False) for level in levels}
        plain = known.result().first(len(questions))
        with judging.queried(0) as server:
            proof = Proof(prove_answers(server, plain, heard), plain.tolerance)
    except LaunchError as error:
        return {"said": [str(error)]}
    found = proof.document(side.name, "", side.prepared.version, served_dtype(side.plan))
    return _short(to_builtins(found))


def _questions() -> list[ProofPrompt]:
    """One of each workload in turn, every other one in a longer context."""
    texts = [workload(name, _TOKENS, 0).texts or () for name in shipped()]
    found = []
    for number in range(_GOOD_PROMPTS):
        own = texts[number % len(texts)]
        text = own[number // len(texts)]
        longer = [*own[-3:], text] if number // len(texts) % 2 else [text]
        found.append(ProofPrompt("\n\n".join(longer), _TOKENS))
    return found


def _flush(served: Served) -> None:
    """What a broken kernel left in the KV cache and in the table of n-grams is no prefix of the
    next proof."""
    with EngineClient(served.engine.address) as client:
        answer = client.post("/flush_cache?timeout=30", {}, 60)
        if answer.status_code != 200:
            raise SystemExit(f"/flush_cache answered {answer.status_code}: {answer.text[:200]}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _by_command(words: Sequence[str], home: Path) -> dict[str, Any]:
    began = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "speclaunch", "prove", *words),
            *("--fresh", "--output-format", "json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    found: dict[str, Any] = {
        "seconds": round(time.monotonic() - began),
        "exit": done.returncode,
        "left": _left(home),
    }
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return {**found, "said": done.stderr.strip().splitlines()[-6:]}
    return {**found, **_short(said)}


@contextlib.contextmanager
def private_home() -> Iterator[Path]:
    """A home of speclaunch with the engine that is installed, for us and all that we start."""
    installed = speclaunch_home() / "cpu-engine"
    with tempfile.TemporaryDirectory(prefix="proof-campaign-home-") as text:
        home = Path(text)
        (home / "cpu-engine").symlink_to(installed)
        os.environ["SPECLAUNCH_HOME"] = text
        yield home


def _short(said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "lossless": said["lossless"],
        "tolerance_nats": round(said["tolerance_nats"], 6),
        "concurrencies": [
            {
                "concurrency": one["concurrency"],
                "requests": one["requests"],
                **one["answers"],
                "unspeculated": one["unspeculated"],
                "accept_length": one["accept_length"] and round(one["accept_length"], 3),
            }
            for one in said["concurrencies"]
        ],
        "first_wrong": [
            {key: one[key] for key in ("concurrency", "position", "got", "expected", "gap_nats")}
            for one in said["wrong"][:1]
        ],
    }


def _left(home: Path) -> list[str]:
    """Processes of this run that did not end."""
    mark = f"SPECLAUNCH_HOME={home}".encode()
    until = time.monotonic() + _LEFT_SECONDS
    while True:
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                ours = mark in Path(f"/proc/{process.pid}/environ").read_bytes()
                if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(" ".join(process.cmdline())[:80])
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.2)


def count(result: Mapping[str, Any], what: str) -> int:
    """A count over all concurrencies."""
    return sum(one[what] for one in result.get("concurrencies", ()))


def accept_length(result: Mapping[str, Any]) -> float:
    """Where one request is asked at a time: what is comparable between runs."""
    return float(result["concurrencies"][0]["accept_length"] or 0)


def objections(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is not as it must be."""
    good = {one["recipe"]: one for one in results if one["kind"] == "good"}
    found = [] if set(good) == set(RECIPES) else [f"good runs of {sorted(good)} alone"]
    asked = sum(count(one, "requests") for one in good.values())
    if asked < LEAST_REQUESTS:
        found.append(f"only {asked} requests to good engines")
    known = {_key(one) for one in results}
    found += [f"no result: {', '.join(run.key)}" for run in runs() if run.key not in known]
    faults = {fault.name: fault for fault in FAULTS}
    for one in results:
        reference = good.get(one["recipe"])
        found += [
            f"{one['kind']}: {one['recipe']} {one['name']}: {text}"
            for text in _of(one, reference, faults.get(one["name"]))
        ]
    return found


def _of(
    one: Mapping[str, Any], good: Mapping[str, Any] | None, fault: Fault | None
) -> Iterator[str]:
    if one.get("left"):
        yield f"left {one['left']}"
    if one["kind"] == "refused":
        if one["exit"] != 2 or FORCED not in " ".join(one.get("said", ())):
            yield f"exit {one['exit']}"
        return
    if "lossless" not in one:
        yield f"no result: {one.get('said')}"
        return
    wrong = count(one, "wrong")
    if one["kind"] == "unseen":
        return
    if one["kind"] == "verify":
        if one["lossless"] or not wrong:
            yield f"{wrong} wrong answers"
        alone = one["concurrencies"][0]["wrong"]
        if fault is not None and fault.needs_batch and alone:
            yield f"{alone} wrong answers without a batch"
        return
    if wrong or one.get("exit") or not one["lossless"]:
        yield f"a false alarm: {wrong} wrong answers"
    if one["kind"] == "draft" and good is not None:
        ours, theirs = accept_length(one), accept_length(good)
        if ours > LOWER * theirs:
            yield f"acceptance length {ours:.2f}, {theirs:.2f} as it is"


def _failed(one: Mapping[str, Any]) -> bool:
    """Whether it came to nothing, which a refusal is meant to."""
    return "lossless" not in one and one["kind"] != "refused"


def stored() -> list[dict[str, Any]]:
    """The results of the last campaign."""
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return found


def _key(one: Mapping[str, Any]) -> tuple[str, str, str]:
    return one["kind"], one["recipe"], one["name"]


def store(results: Sequence[Mapping[str, Any]]) -> None:
    """Write results over those of the same runs."""
    order = {run.key: number for number, run in enumerate(runs())}
    kept = {key: one for one in (*stored(), *results) if (key := _key(one)) in order}
    ordered = [kept[key] for key in sorted(kept, key=order.__getitem__)]
    lines = ",\n".join(json.dumps(one) for one in ordered)
    RESULTS.write_text(f"[\n{lines}\n]\n")


def show(results: Sequence[Mapping[str, Any]]) -> int:
    """What they came to; how much is not as it must be."""
    for one in results:
        lengths = " ".join(
            f"{level['accept_length'] or 0:.2f}" for level in one.get("concurrencies", ())
        )
        print(
            f"{one['kind']:8} {one['recipe']:15} {one['name'][:58]:58} "
            f"{count(one, 'requests'):4} asked: {count(one, 'same')} same, {count(one, 'tie')} "
            f"ties, {count(one, 'wrong')} wrong; acceptance {lengths}"
        )
    bad = objections(results)
    for text in bad:
        print(f"not as it must be: {text}")
    return len(bad)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("--only", default="", help="runs whose kind, recipe or name has this text")
    parser.add_argument("--missing", action="store_true", help="runs without a stored result")
    parser.add_argument("--store", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    given = parser.parse_args()
    if given.what == "show":
        sys.exit(1 if show(stored()) else 0)
    known = {_key(one) for one in stored() if given.missing and not _failed(one)}
    chosen = [run for run in runs() if given.only in " ".join(run.key) and run.key not in known]
    results = []
    with private_home() as home:
        for one in results_of(chosen, home):
            results.append(one)
            print(json.dumps(one), flush=True)
            if given.store:
                store([one])
    sys.exit(1 if show(stored() if given.store else results) else 0)

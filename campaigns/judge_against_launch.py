"""Hold a judge's verdicts against the real server: the same command lines, started as a user does.

    python -m campaigns judge_against_launch run FILE --configs DIR [--first N] [--count N]
    python -m campaigns judge_against_launch judge FILE --configs DIR  ask the judge alone again
    python -m campaigns judge_against_launch compare FILE              counts, all disagreements
    python -m campaigns judge_against_launch store FILE --configs DIR  launches.jsonl.xz

A command line is a function of its number: over real configs (campaigns/recalling/drawing.py), each
fourth with speculation over the tiny models of the CPU engine, each tenth with a word that no
parser takes. `python -m sglang.launch_server` of the CPU engine is started in a process of its own
that has nothing of speclaunch/engine_check. It has passed validation once it says `server_args=`
or has started a scheduler; where there are weights, once the draft's are being loaded, since a
judge looks at the draft's config too. Then it is ended. Some ten seconds each; `run` goes on where
it ended.

Another release is started by the CPU engine's interpreter with `--release X --path DIR …`: its own
packages, triton, stand-ins for kernels; without the tiny models.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from campaigns.recalling.drawing import Models, draw
from campaigns.recalling.models import lay_out, read_models
from speclaunch.checks.engine_check.installed_judges import cpu_judge, find_judge
from speclaunch.checks.engine_check.questions import EngineQuestion
from speclaunch.core.files import speclaunch_home
from speclaunch.engine.facts.cpu_engine import SGLANG_VERSION, CpuEngine
from speclaunch.engine.releases.catalogue import load
from speclaunch.serving.cpu_engine.programs import engine_environment, ensure_model
from tests.support.evidence.engine import DIED, READY, read

REPOSITORY = Path(__file__).resolve().parent.parent

STORED = REPOSITORY / "tests" / "checks" / "engine_check" / "launches.jsonl.xz"
SECONDS = 150
TINY = ("tiny/cycle", "tiny/cycle-8", "tiny/glm-mtp")
TINY_DRAFTS = ("tiny/llama-eagle3", "tiny/llama-eagle", "tiny/cycle-draft-5")
_DEVICE = ("--device", "cpu")
_RANKS = {"--tp-size", "--dp-size", "--pp-size", "--nnodes", "--ep-size"}
_BROKEN = (
    ("--speculative-num-stepz", "3"),
    ("--max-running-requests", "many"),
    ("--kv-cache-dtype", "fp3"),
    ("--mem-fraction-static",),
    ("--enable-metrics=yes",),
)
ELSEWHERE = ("needs a package", "needs the model's code")
"""Verdicts that say nothing of the judge: this machine has not what the server asks for first."""
_WEIGHTS = "Load weight begin"
_PASSED = "server_args="
_USAGE = re.compile(r"^(?:sglang serve|launch_server\.py): error: (.*)$", re.M)
_CONFIG = re.compile(r"srt/configs/|srt/utils/hf_transformers")
"""Where the config of a draft is refused, by the scheduler: a judge looks at it, too."""
_PACKAGE = re.compile(r"(?:[\w.]+\.)?(?:ImportError|ModuleNotFoundError|PackageNotFoundError)\b")
"""Errors of an engine that lacks a package, whatever its arguments."""
_OWN_CODE = re.compile(r"does not appear to have a file named \w+\.py")
"""With --trust-remote-code the server runs the code beside a config; a judge never does."""
_PATH = re.compile(r"(?<![\w.])/?(?:[\w.+-]+/)+")


def line(number: int, models: Models, release: str = SGLANG_VERSION) -> list[str]:
    """The words of a number; only the CPU engine's own release has tiny models."""
    catalogue = load(release)
    if number % 4 == 3 and release == SGLANG_VERSION:
        tiny = Models(TINY, TINY_DRAFTS, {name: {} for name in (*TINY, *TINY_DRAFTS)})
        drawn = (draw(f"launch/{number}/{again}", catalogue, tiny) for again in range(10_000))
        words = next(w for w in drawn if "--speculative-algorithm" in w and not _RANKS & set(w))
        words += [] if "--dtype" in words else ["--dtype", "float32"]
    else:
        drawn = (draw(f"launch/{number}/{again}", catalogue, models) for again in range(10_000))
        words = next(w for w in drawn if "--speculative-draft-model-path" not in w)
    words += _DEVICE
    if number % 10 == 9:
        words += Random(number).choice(_BROKEN)  # noqa: S311
    return words


def launched(
    engine: CpuEngine, words: Sequence[str], folder: Path, path: Sequence[Path] = ()
) -> dict[str, Any]:
    """What becomes of the server: `passed`, the error with its place, `phase`, `seconds`.

    `path`: the folders of another release's packages, in the place of the engine's own.
    """
    began, log = time.monotonic(), folder / ".log"
    home = folder / ".home"
    home.mkdir(exist_ok=True)
    env = {**os.environ, **engine_environment(engine), "HOME": str(home)}
    own = env["PYTHONPATH"].split(os.pathsep)[:1]
    env["PYTHONPATH"] = os.pathsep.join(map(str, path) if path else own)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(engine.python), "-m", "sglang.launch_server", *words],
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=folder,
        )
    drafts = words[1].startswith("tiny/") and "NGRAM" not in words
    try:
        while process.poll() is None and time.monotonic() < began + SECONDS:
            said = log.read_text(errors="replace")
            if READY in said or DIED in said or said.count(_WEIGHTS) > 1:
                break
            if not drafts and (_PASSED in said or _schedules(process.pid)):
                break
            time.sleep(0.1)
        if DIED in log.read_text(errors="replace"):
            time.sleep(1)  # the traceback is being written
        passed = _schedules(process.pid) or any(
            mark in log.read_text(errors="replace") for mark in (_PASSED, DIED)
        )
        code = process.poll()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    text = log.read_text(errors="replace").replace(str(folder) + "/", "")
    ran = read(text, "start", code, None)
    found: dict[str, Any] = {"passed": bool(passed), "phase": ran.phase, "code": code}
    found["seconds"] = round(time.monotonic() - began, 1)
    if usage := _USAGE.findall(text):
        found["error"] = f"SystemExit: {usage[-1]}"
    elif (code is not None or DIED in text) and text.count(_WEIGHTS) < 2:
        found |= {"error": ran.error, "place": ran.place.partition(" ")[0]}
    return found


def _schedules(pid: int) -> bool:
    """Whether a process of this session was started by multiprocessing."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (
                    os.getsid(int(folder.name)) == pid
                    and b"multiprocessing.spawn" in (folder / "cmdline").read_bytes()
                ):
                    return True
            except OSError:
                continue
    return False


def verdict(row: Mapping[str, Any]) -> str:
    """What both made of a line: `accepted`, `refused`, or how they differ."""
    real, judged = row["launched"], row["judged"]
    error, place = real.get("error", ""), real.get("place", "")
    refuses = not real["passed"] or bool(_CONFIG.match(place))
    if judged["accepted"] is None:
        return "not judged"
    if refuses and (_PACKAGE.match(error) or _OWN_CODE.search(error)):
        return ELSEWHERE[not _PACKAGE.match(error)]
    if refuses == judged["accepted"]:
        return "judge accepts" if refuses else "judge refuses"
    if not refuses:
        return "accepted"
    return "refused" if _same_words(error, place, judged) else "other words"


def _same_words(error: str, place: str, judged: Mapping[str, Any]) -> bool:
    """Whether both refuse in the same words; of an error without any, at the same line."""
    kind, _, words = error.partition(": ")
    if kind.rpartition(".")[2] != judged["kind"]:
        return False
    same = _neutral(words)[:150] == _neutral(judged["why"])[:150]
    return same or (not words and place == judged["place"])


def _neutral(text: str) -> str:
    without = _PATH.sub("", re.sub(r"https?:\S*", "", text))
    return re.sub(r"\W+", " ", without).strip()


def run(args: argparse.Namespace) -> int:
    """Judge and start line after line."""
    engine, models = CpuEngine(speclaunch_home()), read_models(args.configs)
    done = {row["number"] for row in rows(args.file)} if args.file.exists() else set()
    for number in range(args.first, args.first + args.count):
        if number in done:
            continue
        words = line(number, models, args.release)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            place(args.configs, words, folder, engine)
            real = launched(engine, words, folder, args.path)
        row = {"number": number, "words": words, "launched": real}
        row["judged"] = judged(words, args.configs, engine, args.release)
        with args.file.open("a") as out:
            print(json.dumps(row), file=out)
        print(number, verdict(row), real["seconds"], real.get("error", "")[:90], flush=True)
    return 0


def judge(args: argparse.Namespace) -> int:
    """Ask the judge again, about the lines of a file."""
    engine, found = CpuEngine(speclaunch_home()), list(rows(args.file))
    for row in found:
        row["judged"] = judged(row["words"], args.configs, engine)
    args.file.write_text("".join(json.dumps(row) + "\n" for row in found))
    return compare(args)


def judged(
    words: Sequence[str], configs: Path, engine: CpuEngine, release: str = SGLANG_VERSION
) -> dict[str, Any]:
    """What the judge of a release says of a line; of its own one the CPU engine."""
    one = cpu_judge() if release == SGLANG_VERSION else find_judge(release, None)
    if one is None:
        raise SystemExit(f"no judge of {release}: speclaunch engine install cpu, judge add")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        place(configs, words, folder, engine)
        (said,) = one.ask([EngineQuestion(tuple(words), (), "cpu", folder)], seconds=120)
    why = said.why.replace(str(folder) + "/", "")
    return {"accepted": said.accepted, "kind": said.kind, "why": why, "place": said.place}


def place(configs: Path, words: Sequence[str], folder: Path, engine: CpuEngine) -> None:
    """The models that a line names, as folders below `folder`."""
    named = {word for word in words if "/" in word}
    for name in named & {*TINY, *TINY_DRAFTS}:
        shutil.copytree(ensure_model(engine, name.removeprefix("tiny/")), folder / name)
    with tempfile.TemporaryDirectory() as chosen:
        for name in named:
            for path in configs.glob(f"{name.replace('/', '--')}.*"):
                shutil.copy(path, chosen)
        lay_out(Path(chosen), folder)


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """What a file holds, compressed or not."""
    data = file.read_bytes()
    text = lzma.decompress(data) if file.suffix == ".xz" else data
    return (json.loads(one) for one in text.decode().splitlines())


def compare(args: argparse.Namespace) -> int:
    """Print counts and what differs; 1 where something does."""
    found = list(rows(args.file))
    counts = Counter(verdict(row) for row in found)
    places = sum(
        verdict(row) == "refused" and row["launched"].get("place") == row["judged"]["place"]
        for row in found
    )
    for row in found:
        if verdict(row) not in ("accepted", "refused", *ELSEWHERE):
            print(json.dumps({"verdict": verdict(row), **row}))
    print(f"{len(found)} lines: {dict(counts)}; same line of source: {places}")
    return 0 if set(counts) <= {"accepted", "refused", *ELSEWHERE} else 1


def store(args: argparse.Namespace) -> int:
    """Write the test's data: the lines, and the configs that they name."""
    found = sorted(rows(args.file), key=lambda row: row["number"])
    used = {word.replace("/", "--") for row in found for word in row["words"] if "/" in word}
    configs = {
        path.name: json.loads(path.read_text())
        for path in sorted(args.configs.glob("*.json"))
        if path.name.removesuffix(".json").removesuffix(".hf_quant_config") in used
    }
    text = "".join(json.dumps(one, sort_keys=True) + "\n" for one in [{"configs": configs}, *found])
    STORED.write_bytes(lzma.compress(text.encode(), preset=9))
    print(
        f"{STORED.name}: {len(found)} lines, {len(configs)} configs, {STORED.stat().st_size} bytes"
    )
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    verbs = parser.add_subparsers(required=True)
    for verb in (run, judge, compare, store):
        added = verbs.add_parser(verb.__name__, help=str(verb.__doc__).partition("\n")[0])
        added.set_defaults(verb=verb)
        added.add_argument("file", type=Path)
        if verb is not compare:
            added.add_argument("--configs", type=Path, required=True)
        if verb is run:
            added.add_argument("--first", type=int, default=0)
            added.add_argument("--count", type=int, default=200)
            added.add_argument("--release", default=SGLANG_VERSION)
            added.add_argument("--path", type=Path, action="append", default=[])
    args = parser.parse_args()
    return int(args.verb(args))

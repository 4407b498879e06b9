"""What a verdict costs through `lint --ask always`, against the engine's bare validation.

    python -m campaigns judge_cost --judge NAME [--count N] [--rounds N]

`count` scripts of commands that the release accepts (tests/conformance) are linted; the same
commands go, one after the other, through the release's own functions in one process of the same
interpreter and packages, without fork, walls or answers. Loading is apart from both: of lint counts
what all files take longer than their first third, both with as many processes as lint takes by
itself. Kept verdicts and results do not count. All is repeated in turn.

The engine keeps what it read of a model for the life of its process, and a judge's child reads it
for itself: with `--models each`, the default, every command has models of its own, so that both
read them; with `one` all have the same, which the bare process reads once.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median

from speclaunch.app.verbs.lint import lint
from speclaunch.app.verbs.start_options import LintOptions
from speclaunch.checks.engine_check.engine_judge import command_of, environment_of
from speclaunch.checks.engine_check.installed_judges import AddedJudge, added_judges, all_judges
from speclaunch.engine.facts.project_settings import EngineCheckMode
from tests.support.conformance import data
from tools.verdicts.models import write

REPOSITORY = Path(__file__).resolve().parent.parent

BARE = """
import json, sys, time, os
sys.path.insert(0, sys.argv[1])
from worker.pretend import import_all, places, prepare, pretend
from worker.compiled import use
for site in json.loads(sys.argv[4]):
    use(site)
prepare()
import_all()
from sglang.srt import server_args as module
os.chdir(sys.argv[2])
from worker.verdict import verdict
verdict(["--model-path", "models/llama", "--device", "cpu"], {})
pretend(json.loads(sys.argv[3]))
lines = json.load(sys.stdin)
sys.stdout.flush()
taken = []
for words in lines:
    began = time.perf_counter()
    args = module.prepare_server_args(list(words))
    if hasattr(args, "resolve_once"):
        args.resolve_once()
    args.check_server_args()
    taken.append(time.perf_counter() - began)
print(json.dumps(taken))
"""


def commands(version: str, count: int) -> list[data.Said]:
    """Accepted commands without a draft's config to read: validation alone is compared."""
    found = [
        said
        for said in data.load(version)
        if said.machine == "h200" and said.accepts and not said.env
    ]
    return Random("cost").sample(found, min(count, len(found)))  # noqa: S311


def own_models(words: Sequence[str], folder: Path, number: int) -> tuple[str, ...]:
    """A command whose models nobody else names."""
    (folder / f"models-{number}").symlink_to("models")
    return tuple(re.sub(r"^models/", f"models-{number}/", word) for word in words)


def bare(one: AddedJudge, lines: Sequence[Sequence[str]], folder: Path) -> float:
    """Seconds of the engine's own functions for all of them."""
    command = list(map(str, command_of(Path(one.python), light=one.light)))[:-1]
    worker = REPOSITORY / "speclaunch" / "checks" / "engine_check"
    machine = json.dumps(data.MACHINES["h200"])
    sites = json.dumps([str(path) for path in one.paths])
    done = subprocess.run(
        [*command, "-c", BARE, str(worker), str(folder), machine, sites],
        input=json.dumps(lines),
        env=environment_of(one.paths, folder),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return float(sum(json.loads(done.stdout.splitlines()[-1])))


def linted(paths: list[str], version: str, mode: EngineCheckMode) -> float:
    """Seconds of `lint` on files, a judge's loading included."""
    began = time.perf_counter()
    options = LintOptions(
        paths=tuple(paths),
        engine=version,
        hardware="h200:8",
        ask=mode,
        no_cache=True,
        select=("SPL090",),
    )
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        lint(options)
    return time.perf_counter() - began


def main() -> int:
    """The command line; exit 1 where it costs more than 1.3 times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--judge", required=True)
    parser.add_argument("--count", type=int, default=360)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", choices=("each", "one"), default="each")
    args = parser.parse_args()
    (one,) = [found for found in added_judges() if found.name == args.judge]
    lines = [said.words for said in commands(one.release, args.count)]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write(folder / "models")
        os.chdir(folder)
        if args.models == "each":
            lines = [own_models(words, folder, number) for number, words in enumerate(lines)]
        paths = []
        for number, words in enumerate(lines):
            path = folder / f"{number}.sh"
            path.write_text(f"python3 -m sglang.launch_server {' '.join(words)}\n")
            paths.append(path.name)
        few = len(lines) // 3
        rest = lines[few:]
        each = 1000 / len(rest)
        ratios = []
        for _ in range(args.rounds):
            alone = bare(one, rest, folder)
            with_it, without = (
                linted(paths, one.release, mode) - linted(paths[:few], one.release, mode)
                for mode in (EngineCheckMode.ALWAYS, EngineCheckMode.NEVER)
            )
            ratios.append(with_it / alone)
            print(
                f"{len(rest)} files: bare {alone * each:.1f} ms, lint --ask always"
                f" {with_it * each:.1f} ms, --ask never {without * each:.1f} ms: {ratios[-1]:.2f}"
            )
        for judge in all_judges():
            judge.close()  # type: ignore[attr-defined]
    print(f"{one.release}: {median(ratios):.2f} times")
    return median(ratios) > 1.3

"""A configuration that the engine refuses: how soon we say so, and how soon it does itself."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.ground import SPECLAUNCH, Ground
from benchmarks.measuring import Spent, UnexpectedEndError, in_turn, spend
from benchmarks.rows import Goal, Row
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.engine.releases.command import MODULE
from speclaunch.serving.cpu_engine.programs import ensure_model

GROUP = "refuse"
PATIENCE_SECONDS = 240


@dataclass(frozen=True, slots=True)
class Refused:
    """A wrong configuration, and the part of the engine that notices."""

    by: str
    goal: float
    target: str
    changes: Mapping[str, str]
    """Arguments on top of those of the recipe's groups."""
    says: str
    """What the engine writes then."""


CASES = (
    Refused(
        "parser",
        12,
        "llama",
        {"speculative_draft_model_path": "llama-eagle3", "speculative_num_steps": "three"},
        "invalid int value",
    ),
    Refused(
        "scheduler",
        35,
        "llama",
        {"speculative_draft_model_path": "llama-eagle"},
        "hot_token_id",
    ),
)
"""A number that is a word; and a draft of the older architecture, which is noticed when its layers
are put to use."""

RECIPE = """\
defaults:
  - base
  - model: cpu_{target}
  - speculation: eagle3_chain
  - override hardware: cpu
  - _self_

args:
{args}
"""
ARGUMENTS = {
    "device": "cpu",
    "dtype": "float32",
    "mem_fraction_static": "0.3",
    "max_total_tokens": "8192",
    "max_running_requests": "4",
    "host": "127.0.0.1",
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": "3",
    "speculative_eagle_topk": "1",
    "speculative_num_draft_tokens": "4",
}
"""What the groups of the recipe say, for the engine started by hand."""


def measure(ground: Ground, engine: CpuEngine) -> Iterator[Row]:
    """`lint`, `plan` and a launch of each case, beside the engine started with its arguments."""
    for case in CASES:
        name = f"refused_by_{case.by}"
        models = {
            key: ensure_model(engine, value) if key.endswith("model_path") else value
            for key, value in case.changes.items()
        }
        args = "\n".join(f"  {key}: {value}" for key, value in models.items())
        (ground.folder / f"{name}.yaml").write_text(RECIPE.format(target=case.target, args=args))
        target = ensure_model(engine, case.target)
        said = {**ARGUMENTS, "model_path": str(target), **{k: str(v) for k, v in models.items()}}
        words = [word for key, value in said.items() for word in (_flag(key), value)]
        verbs = {
            "`lint`": ["lint", f"{name}.yaml"],
            "`plan`": ["plan", f"recipe=./{name}.yaml"],
            "a launch": [f"recipe=./{name}.yaml"],
        }
        commands: dict[str, Callable[[], Spent]] = {
            verb: _ours(ground, engine, command) for verb, command in verbs.items()
        }
        commands["engine"] = _by_hand(engine, words, case.says)
        spent = in_turn(commands, ground.rounds)
        took = {key: ground.clock.seconds(each) for key, each in spent.items()}
        for verb in verbs:
            yield Row(
                GROUP,
                f"refused by {verb}",
                f"the engine's own {case.by}",
                took[verb],
                took["engine"],
                Goal.FASTER,
                case.goal,
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _ours(ground: Ground, engine: CpuEngine, words: list[str]) -> Callable[[], Spent]:
    """In a home that has the engine and nothing else. A plan is shown, whatever is wrong."""

    def run() -> Spent:
        home = ground.home()
        (home / ".cache/speclaunch").mkdir(parents=True)
        (home / ".cache/speclaunch/cpu-engine").symlink_to(engine.root)
        ends = (0, 1, 2) if words[0] == "plan" else (1, 2)
        return spend([SPECLAUNCH, *words], ground.folder, ground.environment(home), ends=ends)

    return run


def _by_hand(engine: CpuEngine, words: list[str], says: str) -> Callable[[], Spent]:
    """The engine, until it ends; its workers are ended by it, or by us."""

    def run() -> Spent:
        environment = {**os.environ, **engine.environment(dict(os.environ))}
        with tempfile.TemporaryFile() as log:
            before = _children_seconds()
            began = time.perf_counter()
            process = subprocess.Popen(
                [engine.python, "-m", MODULE, *words, "--port", "31987"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                process.wait(PATIENCE_SECONDS)
            finally:
                wall = time.perf_counter() - began
                _end(process)
            log.seek(0)
            said = log.read().decode(errors="replace")
        if process.returncode == 0 or says not in said:
            raise UnexpectedEndError(f"the engine did not say {says!r}: {said[-2000:]}")
        return Spent(wall, _children_seconds() - before, 0)

    return run


def _children_seconds() -> float:
    times = psutil.Process().cpu_times()
    return float(times.children_user + times.children_system)


def _end(process: subprocess.Popen[bytes]) -> None:
    """What is left of its group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def at_hand(home: Path) -> CpuEngine | None:
    """The CPU engine, if it is installed."""
    engine = CpuEngine(home)
    return engine if engine.manifest.exists() else None

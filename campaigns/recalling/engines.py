"""Asks a released engine about command lines, in a directory with the models."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from campaigns.recalling.machines import GPUS
from speclaunch.checks.engine_check.engine_judge import (
    LOADING_S,
    MEMORY,
    START,
    JsonWorker,
    WorkerError,
    environment_of,
    machine_facts,
)
from tools.engine_verdicts import recorded

_SECONDS = 60
"""For one case; an ordinary one takes a tenth of a second."""
_WARM = "warm/llama"
_SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "vocab_size": 128,
}
"""What the engine is asked about first, before anything is pretended."""


def ask(
    python: Path,
    sites: Sequence[Path],
    machine: str,
    lines: Mapping[str, Sequence[str]],
    models: Path,
    *,
    jobs: int = 1,
) -> tuple[str, list[dict[str, Any]]]:
    """The engine's version and its verdict on each command line (id → words), in order.

    Raises RuntimeError where the interpreter fails.
    """
    folder = models / _WARM
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_SMALL))
    cases = [{"id": key, "words": list(words), "env": {}} for key, words in lines.items()]
    parts = [cases[index::jobs] for index in range(jobs)]
    with ThreadPoolExecutor(jobs) as pool:
        asked = list(pool.map(lambda part: _ask(python, sites, machine, part, models), parts))
    verdicts = {verdict["id"]: verdict for _, found in asked for verdict in found}
    return asked[0][0], [verdicts[key] for key in lines]


def _ask(
    python: Path,
    sites: Sequence[Path],
    machine: str,
    cases: Sequence[Mapping[str, Any]],
    models: Path,
) -> tuple[str, list[dict[str, Any]]]:
    scratch = tempfile.mkdtemp()
    command = ["nice", python.absolute(), "-P", START]
    env = environment_of([site.absolute() for site in sites], Path(scratch))
    worker = JsonWorker(command, env, Path(scratch))
    try:
        setting = {
            "warm": ["--model-path", str(models.absolute() / _WARM)],
            "scratch": scratch,
            "seconds": _SECONDS,
            "memory": MEMORY,
        }
        hello = worker.ask(setting, LOADING_S)
        found = []
        for case in cases:
            question = {"words": case["words"], "env": {}, "cwd": str(models.absolute())}
            said = worker.ask(
                question | {"machine": machine_facts(f"{machine}:{GPUS}")}, _SECONDS + 30
            )
            found.append({"id": case["id"]} | recorded(said))
    except WorkerError as error:
        raise RuntimeError(f"{machine}: the engine's interpreter failed: {error}") from None
    finally:
        worker.end()
        shutil.rmtree(scratch, ignore_errors=True)
    return hello["sglang"], found

"""The engine's file of steps by batch size (`--speculative-adaptive-config`).

0.5.23 speculative/adaptive_spec_params.py: an object whose keys are batch sizes. Each holds
`candidate_steps`, the step counts that the engine switches between by acceptance. A batch uses the
largest key that is not above it (`_find_closest_bs`); smaller batches use the smallest key. It
applies to EAGLE and EAGLE3 with a topk of 1 (`adaptive_unsupported_reason`).
`speculative_num_steps` must be one of the candidates (arg_groups/speculative_hook.py
`_init_adaptive_speculative_params`); the engine builds graphs and buffers for each.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speclaunch.core import COMMAND_LINE, InputError, LaunchError, Place, Problem, children
from speclaunch.engine import ALGORITHMS
from speclaunch.engine import load as load_catalogue
from speclaunch.measure.tune.objective import TrialModels
from speclaunch.measure.tune.space import DraftSetting

OPTION = "speculative_adaptive_config"
_NEAR = 0.97
"""Minimum share of the best speed for a step count to become a candidate for the engine."""
_SECONDS = 300.0
_READER = """
import json, sys
from sglang.srt.speculative import adaptive_spec_params as reader
steps = reader.resolve_candidate_steps_from_config(sys.argv[1])
found = reader.AdaptiveSpeculativeParams(int(sys.argv[2]), sys.argv[1])
routed = {size: found._route(int(size)).candidate_steps for size in sys.argv[3].split(",")}
print(json.dumps({"all": steps, "routed": routed}))
"""
"""Script for the engine's interpreter that parses the file with the engine's own reader."""


def require_adaptive(algorithm: str, version: str, space: Sequence[DraftSetting]) -> None:
    """Raise InputError unless the release and the algorithm support an adaptive file."""
    place = Place(COMMAND_LINE, text="--adaptive-config")
    if load_catalogue(version).by_name(OPTION) is None:
        raise InputError(
            Problem(f"SGLang {version} has no {OPTION}", place, "use a newer release, or remove it")
        )
    if algorithm not in ALGORITHMS:
        raise InputError(
            Problem(f"SGLang adapts the steps of EAGLE and EAGLE3 only, not {algorithm}", place)
        )
    if not any(setting.topk == 1 for setting in space):
        raise InputError(Problem("no chain (topk 1) passes the rules", place))


def configuration(found: TrialModels, space: Sequence[DraftSetting]) -> dict[str, Any]:
    """Return the file's contents: the near-best step counts for each tuned load."""
    chains = [setting for setting in space if setting.topk == 1 and setting.steps]
    file: dict[str, Any] = {}
    for load, model in sorted(found.models.items()):
        speeds = {setting.steps: model.speed(setting) for setting in chains}
        best = max(speeds.values())
        steps = sorted(each for each, speed in speeds.items() if speed >= _NEAR * best)
        file[str(load)] = {"candidate_steps": steps}
    return file


def adaptive_words(file: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Return the overrides that make the engine use the file."""
    steps = max(file[min(file, key=int)]["candidate_steps"])
    return (
        "args.speculative_adaptive=true",
        f"args.{OPTION}={path}",
        "args.speculative_eagle_topk=1",
        f"args.speculative_num_steps={steps}",
        f"args.speculative_num_draft_tokens={steps + 1}",
    )


def checked(file: Mapping[str, Any], python: str, env: Mapping[str, str]) -> None:
    """Raise LaunchError unless the engine parses the file to the same contents."""
    expected = {size: entry["candidate_steps"] for size, entry in file.items()}
    every = sorted({step for steps in expected.values() for step in steps})
    with tempfile.TemporaryDirectory(prefix="speclaunch-") as folder:
        path = Path(folder) / "steps.json"
        path.write_text(json.dumps(file))
        words = [python, "-c", _READER, str(path), str(max(every, default=0))]
        try:
            ran = children.run(
                [*words, ",".join(expected)], env=children.safe_path(env), timeout=_SECONDS
            )
            read = json.loads(ran.stdout.strip().splitlines()[-1]) if not ran.returncode else None
        except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
            raise LaunchError(
                f"{python} could not read the steps by batch size: {error}"
            ) from error
    if read is None:
        message = (ran.stderr.strip().splitlines() or ["no message"])[-1]
        raise LaunchError(f"the engine rejects the steps by batch size: {message}")
    if read != {"all": every, "routed": expected}:
        raise LaunchError(f"the engine reads the steps by batch size differently: {read}")

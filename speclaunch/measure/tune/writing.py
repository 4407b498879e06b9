"""Results of tuning as text: a recipe with a new setting, and the engine's adaptive step file.

This file (`--speculative-adaptive-config`, 0.5.23 speculative/adaptive_spec_params.py) is
an object whose keys are batch sizes. Each value has `candidate_steps`, the step counts between
which the engine switches by acceptance. A batch uses the largest key not above its size
(`_find_closest_bs`); smaller batches use the smallest key. The file applies to EAGLE and EAGLE3
with topk 1 (`adaptive_unsupported_reason`). `speculative_num_steps` must be one of the candidates
(arg_groups/speculative_hook.py `_init_adaptive_speculative_params`); the engine builds graphs and
buffers for each.

A recipe's text is edited in place, verified, and annotated with evidence. Edits and verification
are those of `lint --fix`: the composed recipe has the new arguments and is otherwise unchanged.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from speclaunch.checks import (
    Edit,
    Fix,
    Insertion,
    NotFixableError,
    apply,
    composed,
    data_of,
    fixed_recipe,
    lines_of,
)
from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    LaunchError,
    Place,
    children,
    reads,
    recipes_dir,
)
from speclaunch.deployments import split_recipe
from speclaunch.engine import ADAPTIVE_ALGORITHMS
from speclaunch.engine import load as load_catalogue
from speclaunch.measure.tune.model import DraftSetting, TrialModels

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
    """Raise InputError unless the release, algorithm and settings support an adaptive file."""
    place = Place(COMMAND_LINE, text="--adaptive-config")
    if load_catalogue(version).by_name(OPTION) is None:
        raise InputError(
            f"SGLang {version} has no {OPTION}",
            place,
            "use a newer release, or remove --adaptive-config",
        )
    if algorithm not in ADAPTIVE_ALGORITHMS:
        raise InputError(
            f"SGLang adapts the steps of EAGLE and EAGLE3 only, not {algorithm}",
            place,
            "remove --adaptive-config",
        )
    if not any(setting.topk == 1 for setting in space):
        raise InputError("no chain (topk 1) passes the rules", place, "remove --adaptive-config")


def configuration(found: TrialModels, space: Sequence[DraftSetting]) -> dict[str, Any]:
    """Return the engine's file as an object: the near-best step counts for each tuned load."""
    chains = [setting for setting in space if setting.topk == 1 and setting.steps]
    file: dict[str, Any] = {}
    for load, model in sorted(found.models.items()):
        speeds = {setting.steps: model.speed(setting) for setting in chains}
        best = max(speeds.values())
        steps = sorted(each for each, speed in speeds.items() if speed >= _NEAR * best)
        file[str(load)] = {"candidate_steps": steps}
    return file


def adaptive_words(file: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Return the overrides that make the engine use `file`, stored at `path`."""
    steps = max(file[min(file, key=int)]["candidate_steps"])
    return (
        "args.speculative_adaptive=true",
        f"args.{OPTION}={path}",
        "args.speculative_eagle_topk=1",
        f"args.speculative_num_steps={steps}",
        f"args.speculative_num_draft_tokens={steps + 1}",
    )


def checked(file: Mapping[str, Any], python: str, env: Mapping[str, str]) -> None:
    """Raise LaunchError unless the engine reads the same step counts from `file`."""
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


_OURS = re.compile(r"\s*# tuned \d{4}-\d\d-\d\d: ")
"""Pattern of a comment from an earlier `tune`."""


class Tuned(Struct, frozen=True):
    """Text of a recipe file before and after tuning."""

    path: Path
    before: str
    after: str


def require_own(path: Path, words: Sequence[str]) -> None:
    """Raise InputError for a shipped recipe, which is never edited."""
    if path.is_relative_to(recipes_dir().resolve()):
        name, _ = split_recipe(words)
        raise InputError(
            f"--write: {name} is shipped with speclaunch and cannot be edited",
            help=f"write your own recipe: --output-file {path.stem}_tuned.yaml",
        )


def tuned(
    path: Path,
    setting: DraftSetting,
    version: str,
    evidence: str,
    config_dirs: Sequence[Path] = (),
) -> Tuned:
    """Return a recipe's text before and after tuning. Raises InputError if it cannot be edited."""
    before = reads.read_text(path)
    fix = Fix("", setting.arguments)
    try:
        made = fixed_recipe(before, str(path), path, fix, load_catalogue(version), config_dirs)
    except NotFixableError as error:
        raise InputError(
            f"{path} cannot be edited: {error}", help="use overrides instead"
        ) from None
    return Tuned(path, before, _with_evidence(before, made, evidence))


def elsewhere(change: Tuned, target: Path, config_dirs: Sequence[Path] = ()) -> str:
    """Return the tuned text for a different file, possibly in another folder.

    Raises InputError if the text would compose to different arguments there.
    """
    text = change.after.replace(f"recipe={change.path.stem}", f"recipe={target}")
    here = composed(change.after, str(change.path), change.path, config_dirs).values
    there = composed(text, str(target), target, config_dirs).values
    if here.get("args") != there.get("args"):
        raise InputError(
            f"{target}: its arguments would differ from those in {change.path.parent}",
            help=f"write the recipe next to {change.path}",
        )
    return text


def _with_evidence(before: str, made: str, evidence: str) -> str:
    """Return `made` with an evidence comment above the first line changed from `before`.

    The comment replaces an earlier one, and is omitted if it would change the data.
    """
    old, new = lines_of(before), lines_of(made)
    pairs = zip(old, new, strict=False)
    first = next(
        (number for number, (old_line, new_line) in enumerate(pairs, 1) if old_line != new_line),
        len(old) + 1,
    )
    comment = f"# tuned {evidence}"
    above = new[first - 2] if first >= 2 else ""
    if _OURS.match(above):
        column = len(above) - len(above.lstrip()) + 1
        text = above.strip()
        changed = apply(made, [Edit(first - 1, column, len(text), comment)])
    else:
        changed = apply(made, [Insertion(first, comment)])
    try:
        same = data_of(changed) == data_of(made)
    except yaml.YAMLError:
        same = False
    return changed if same else made

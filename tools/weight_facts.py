"""Makes tests/engine/plan/memory/weights.json: configs of published checkpoints, cut down to what
their weights depend on, and the bytes that the index of their weights says.

    python tools/weight_facts.py FOLDER

FOLDER holds configs as ORGANISATION--MODEL.json. The totals, each with its source, and configs
that the folder lacks stand in tests/engine/plan/memory/weight_totals.json. `--table` prints how far
the bytes worked out from a config are from its index.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.facts.read_checkpoint import from_config
from speclaunch.engine.plan.memory.quantized import ExcludedModules
from speclaunch.engine.plan.memory.weights import counted
from speclaunch.engine.plan.plan import UnknownValueError

TESTS = Path(__file__).resolve().parents[1] / "tests" / "engine" / "plan" / "memory"
TOTALS = TESTS / "weight_totals.json"
OUT = TESTS / "weights.json"
_LISTS = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
_NEEDLESS = frozenset(
    {
        *("auto_map", "bos_token_id", "eos_token_id", "pad_token_id", "id2label", "label2id"),
        *("initializer_range", "transformers_version", "use_cache", "rope_scaling", "rope_theta"),
        *("rope_parameters", "max_position_embeddings", "attention_dropout", "hidden_act"),
        *("hidden_activation", "rms_norm_eps", "bad_words_ids", "task_specific_params"),
        *("pruned_heads", "generation_config", "_name_or_path", "pretraining_tp"),
    }
)


def main(arguments: list[str]) -> int:
    """Writes the file, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    models = {}
    for name, entry in json.loads(TOTALS.read_text()).items():
        config = entry.pop("config", None) or _config(options.folder, name)
        models[name] = {**entry, "config": _needed(name, config)}
    OUT.write_text(json.dumps(models, separators=(",", ":"), sort_keys=True) + "\n")
    if options.table:
        _table(models)
    return 0


def checkpoint_of(name: str, entry: Mapping[str, Any]) -> Checkpoint:
    """The facts that an entry of the file stands for."""
    found = from_config(name, entry["config"])
    return replace(found, mtp_weights=entry.get("mtp_weights"))


def _config(folder: Path, name: str) -> Mapping[str, Any]:
    path = folder / f"{name.replace('/', '--')}.json"
    found: Mapping[str, Any] = json.loads(path.read_text())
    return found


def _needed(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Without what no weight depends on: long lists are cut to names that are met."""
    modules = [matrix.name for matrix in counted(from_config(name, config)).matrices]

    def cut(part: Mapping[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, value in part.items():
            found = cut(value) if isinstance(value, dict) else value
            if key in _LISTS and isinstance(value, list):
                found = [
                    one for one in value if any(m in ExcludedModules.of([one]) for m in modules)
                ]
            if key not in _NEEDLESS and found not in (None, {}, []):
                kept[key] = found
        return kept

    return cut(config)


def _table(models: Mapping[str, Mapping[str, Any]]) -> None:
    for name, entry in models.items():
        try:
            found = counted(checkpoint_of(name, entry)).bytes()
        except UnknownValueError as error:
            print(f"{name:45} unknown: {error}")
            continue
        total = entry["total_bytes"]
        print(f"{name:45} {found:>16,} {total:>16,} {found / total - 1:+.4%}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

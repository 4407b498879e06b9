"""Texts that were not generated: commands that others published, and the repository's recipes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

from speclaunch.engine.releases.catalogue import held_versions
from tests.support.corpora.texts import Text

_STARTS = ("sglang.launch_server", "sglang serve")
RECIPE_VERSIONS = 6


def published(path: Path, seed: int) -> Iterator[Text]:
    """The commands of a JSONL file: `id`, `engine`, and `original_text` or `raw`."""
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        raw, original = record.get("raw") or "", record.get("original_text") or ""
        if original.lstrip().startswith("SGLANG_ARGS=("):
            kind, text = "slime", f'{original}\npython3 train.py "${{SGLANG_ARGS[@]}}"\n'
        elif any(start in raw for start in _STARTS):
            kind, text = "command", f"{raw}\n"
        else:
            continue
        dice = random.Random(f"{seed}/{record['id']}")  # noqa: S311 - not a secret
        held = list(held_versions())
        version = record.get("engine") if record.get("engine") in held else held[-1]
        for told in (True, False):
            to = dice.choice([v for v in held if v != version])
            name = f"published-{'told' if told else 'untold'}-{record['id']}-0"
            yield Text(name, kind, "run.sh", text, str(version), to, told)


def recipes(directory: Path, seed: int) -> Iterator[Text]:
    """Each recipe, to be carried between some pairs of versions."""
    for path in sorted(directory.glob("*.yaml")):
        dice = random.Random(f"{seed}/{path.stem}")  # noqa: S311 - not a secret
        for number in range(RECIPE_VERSIONS):
            version, to = dice.sample(held_versions(), 2)
            yield Text(
                f"recipe-{path.stem}-{number}", "recipe", path.name, path.read_text(), version, to
            )

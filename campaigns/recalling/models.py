"""A directory of configs as models that can be drawn, laid out and read."""

from __future__ import annotations

import json
from pathlib import Path

from campaigns.recalling.drawing import Models
from speclaunch.engine.facts.known_models import targets_of

_SECOND = ".hf_quant_config.json"


def read_models(directory: Path) -> Models:
    """The models of a directory of `ORG--NAME.json` files (and `ORG--NAME.hf_quant_config.json`).

    Left out is what says to run code of its own (`auto_map`) for a model type that SGLang does not
    bring: neither side can read it without the code.
    """
    files = sorted(path for path in directory.glob("*.json") if not path.name.endswith(_SECOND))
    configs = {path.stem.replace("--", "/", 1): json.loads(path.read_text()) for path in files}
    drafts = tuple(name for name in configs if targets_of(name))
    targets = tuple(name for name in configs if name not in drafts)
    return Models(targets, drafts, configs)


def lay_out(directory: Path, at: Path) -> None:
    """Write each model as the directory that its id names, below `at`."""
    for path in directory.glob("*.json"):
        second = path.name.endswith(_SECOND)
        stem = path.name.removesuffix(_SECOND) if second else path.stem
        folder = at / stem.replace("--", "/", 1)
        folder.mkdir(parents=True, exist_ok=True)
        name = "hf_quant_config.json" if second else "config.json"
        (folder / name).write_text(path.read_text())

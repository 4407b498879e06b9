"""Model classes that Transformers has: what the engine serves where it has no class of its own.

The data are made by `tools/transformers_classes.py` from released wheels.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data" / "transformers_classes.json"
ENDINGS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""How the names of the classes end that are listed."""


def in_transformers(architecture: str) -> bool | None:
    """Whether a release that some SGLang pins has it; None for a name of another kind."""
    if not architecture.endswith(ENDINGS):
        return None
    return architecture in _classes()


@lru_cache(maxsize=1)
def _classes() -> frozenset[str]:
    return frozenset(json.loads(DATA.read_bytes())["classes"])

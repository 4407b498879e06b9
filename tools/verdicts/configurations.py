"""The configurations that the engine is asked about: a systematic walk over what can be combined.

Each group below varies a few dimensions around working pairs of target and draft. Where the full
product would be too large, a rotation goes through one dimension as another one is walked, so that
every value meets several values of each other dimension.

Arguments are named as the newest engine names them and spelled for each version later. `words` are
given as they stand, in any version: misspellings, values of the wrong type, old names.
"""

from __future__ import annotations

from tools.verdicts.building import Configuration, restart
from verdicts import attention, features, lines, serving, speculation

GROUPS = (
    speculation.triples,
    attention.backends,
    attention.pages,
    serving.parallel,
    serving.scheduling,
    serving.disaggregation,
    speculation.second_generation,
    speculation.options,
    serving.memory,
    lines.models,
    speculation.names,
    lines.words,
    serving.mixtures,
    features.features,
)


def generate() -> list[Configuration]:
    """All of them, each once, in a fixed order."""
    restart()
    found: dict[str, Configuration] = {}
    for group in GROUPS:
        for configuration in group():
            content = configuration.id.rpartition("-")[2]
            found.setdefault(content, configuration)
    return list(found.values())

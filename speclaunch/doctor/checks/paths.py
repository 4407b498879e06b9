"""What else the recipe names on this machine: templates, adapters, certificates, settings."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.doctor.line import Line, State
from speclaunch.doctor.surroundings import Surroundings
from speclaunch.facts.facts import UnknownFact

_CHECKPOINTS = ("model_path", "speculative_draft_model_path")


def check(found: Surroundings) -> Iterator[Line]:
    """A line for each path that is not there; checkpoints have lines of their own."""
    if isinstance(found.missing, UnknownFact):
        said = f"the paths of the recipe cannot be looked at: {found.missing.why}"
        yield Line("path", State.UNKNOWN, said)
        return
    told = {model.name for model in found.models}
    for one in found.missing:
        if one.name in _CHECKPOINTS and one.path in told:
            continue
        why = "the engine would stop at it, some of them after it has loaded the weights"
        yield Line("path", State.ERROR, one.message, why, one.help)

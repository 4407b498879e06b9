"""The draft's `fc` was made for another number of the target's layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speclaunch.plan.plan import Plan
from speclaunch.rules.checkpoints.subject import examined
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

if TYPE_CHECKING:
    from speclaunch.rules.checkpoints.loader import Misshapen


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the columns of `fc.weight` tell of another number of hidden states."""
    examined_here = examined(plan)
    if examined_here is None:
        return
    found, _, compared = examined_here
    for one in compared.misshapen:
        if not is_about_layers(one):
            continue
        width = found.checkpoint.target_hidden_size or one.expected[0]
        yield Verdict(
            f"{one.name} takes {one.found[1] / width:g} hidden states of the target, the config "
            f"names {one.expected[1] // width}",
            at=(found.argument,),
            why="the engine builds the layer by the config and refuses these weights",
            fix=Fix("use the config.json that belongs to these weights"),
        )


def is_about_layers(one: Misshapen) -> bool:
    """Whether it is `fc.weight`, right but for its number of columns."""
    whole = len(one.found) == 2 and one.name.endswith("fc.weight")
    return whole and one.found[0] == one.expected[0]


RULE = rule("SPL954", "fc-captured-layers", Severity.ERROR, check)

"""The files of a draft hold layers that its config does not claim."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.patterns import lazy
from speclaunch.plan.plan import Plan
from speclaunch.rules.checkpoints.subject import examined
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_LAYER = lazy(r"(?:model\.)?layers\.([0-9]{1,6})\.")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where there are layers behind the last one that the class builds."""
    examined_here = examined(plan)
    if examined_here is None:
        return
    found, loader, compared = examined_here
    if loader.layers is None:
        return
    built = loader.layers
    behind = {
        int(layer[1])
        for name in compared.unread
        if (layer := _LAYER.match(loader.place(name) or "")) and int(layer[1]) >= built
    }
    if behind:
        yield Verdict(
            f"the files hold layer {', '.join(map(str, sorted(behind)[:5]))}, of which the engine "
            f"builds {built}",
            at=(found.argument,),
            why="layers beyond num_hidden_layers are dropped silently: the draft computes "
            "with a part of what was trained",
            fix=Fix("set num_hidden_layers in config.json to what the files hold"),
        )


RULE = rule(
    "SPL958",
    "unclaimed-layers",
    Severity.WARNING,
    check,
    algorithms=("EAGLE", "EAGLE3", "STANDALONE", "DFLASH"),
)

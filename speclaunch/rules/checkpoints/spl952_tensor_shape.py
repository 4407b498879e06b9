"""Tensors have other shapes than the config gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speclaunch.plan.plan import Plan
from speclaunch.rules.checkpoints.spl954_fc_captured_layers import is_about_layers
from speclaunch.rules.checkpoints.subject import examined
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_SHOWN = 3

if TYPE_CHECKING:
    from speclaunch.rules.checkpoints.loader import Misshapen


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict for all of them."""
    examined_here = examined(plan)
    if examined_here is None:
        return
    found, loader, compared = examined_here
    wrong = [one for one in compared.misshapen if not is_about_layers(one)]
    if not wrong:
        return
    turned = all(one.is_transposed for one in wrong)
    told = "; ".join(map(_told, wrong[:_SHOWN]))
    more = f"; {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    yield Verdict(
        f"{loader.name} cannot load what the files hold: {told}{more}",
        at=(found.argument,),
        why="the engine refuses: Attempted to load weight into parameter of another size"
        if not turned
        else "they stand the other way round, and the engine refuses them",
        fix=Fix(
            "transpose them"
            if turned
            else "use the config.json that belongs to these weights, or a draft made for this model"
        ),
    )


def _told(one: Misshapen) -> str:
    return f"{one.name} is {_shape(one.found)}, its config gives {_shape(one.expected)}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"


RULE = rule("SPL952", "tensor-shape", Severity.ERROR, check)

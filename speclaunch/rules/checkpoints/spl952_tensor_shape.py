"""Tensors have other shapes than the config gives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.rules.checkpoints.spl954_fc_captured_layers import is_about_layers
from speclaunch.rules.checkpoints.subject import examined
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_SHOWN = 3
_CUT = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), 0),
    **dict.fromkeys(("o_proj", "down_proj"), 1),
}
"""Matrices that ranks share, and the axis along which each rank takes its part: a longer one is
cut (0.5.23 layers/linear.py:864-872, 1523, 1695; `narrow` in 0.4.6.post5 layers/linear.py:634)."""
_FILLED = ("gate_proj", "up_proj", "o_proj", "down_proj")
"""Those that are filled up with zeros where they are shorter (`pad_or_narrow_weight`)."""
_FILLS = ">=0.5.3"
_CPU_FILLS = ">=0.4.9"
"""From then on a CPU fills up all of them (`narrow_padded_param_and_loaded_weight`)."""

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
    if all(_is_taken(one, plan) for one in wrong):
        yield _misread(loader.name, found.argument, wrong)
        return
    turned = all(one.is_transposed for one in wrong)
    yield Verdict(
        f"{loader.name} cannot load what the files hold: {_all(wrong)}",
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


def _misread(name: str, argument: str, wrong: list[Misshapen]) -> Verdict:
    return Verdict(
        f"{name} loads a part of what the files hold, or fills it up: {_all(wrong)}",
        at=(argument,),
        why="where ranks share a matrix, the engine takes the rows or columns that it expects, and "
        "silently zeros for those that are missing: the model computes nonsense",
        fix=Fix("use the config.json that belongs to these weights"),
        severity=Severity.WARNING,
    )


def _is_taken(one: Misshapen, plan: Plan) -> bool:
    """Whether the engine cuts a matrix, or fills it up, to the size that it expects."""
    module = one.name.split(".")[-2:][0]
    if module not in _CUT or "experts" in one.name or len(one.found) != len(one.expected):
        return False
    axis = _CUT[module]
    differ = [at for at, size in enumerate(one.expected) if one.found[at] != size]
    if differ != [axis]:
        return False
    if one.found[axis] > one.expected[axis]:
        return True
    if module in _FILLED and plan.in_versions(_FILLS):
        return True
    return _is_on_cpu(plan) and plan.in_versions(_CPU_FILLS)


def _is_on_cpu(plan: Plan) -> bool:
    try:
        return plan.device == "cpu"
    except UnknownValueError:  # nobody said that it is one
        return False


def _all(wrong: list[Misshapen]) -> str:
    more = f"; {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return "; ".join(map(_told, wrong[:_SHOWN])) + more


def _told(one: Misshapen) -> str:
    return f"{one.name} is {_shape(one.found)}, its config gives {_shape(one.expected)}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a single number"


RULE = rule(
    "SPL952",
    "tensor-shape",
    Severity.ERROR,
    check,
    also={Severity.WARNING: "where the engine cuts or fills up what ranks share, and goes on"},
)

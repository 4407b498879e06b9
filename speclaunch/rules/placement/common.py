"""How the rules about divisions say what they found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from speclaunch.plan.gpu_ranks import gpu_ranks
from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Check, Fix, Verdict

if TYPE_CHECKING:
    from speclaunch.plan.division import Undivided


def divides(
    what: Literal["undivided_heads", "undivided_experts", "undivided_widths"],
    *,
    at: tuple[str, ...],
    instead: str,
) -> Check:
    """A check with one verdict for each thing that cannot be divided, found by this function of
    `plan/division.py`; `instead` is what to do where no smaller `tp_size` alone helps."""

    def check(plan: Plan) -> Iterator[Verdict]:
        if gpu_ranks(plan).tensor < 2:  # same either way: division.py asks it again
            return
        from speclaunch.plan import division  # noqa: PLC0415  it counts weights

        for one in getattr(division, what)(plan):
            yield _verdict(one, at, instead)

    return check


def _verdict(one: Undivided, at: tuple[str, ...], instead: str) -> Verdict:
    plural = "do" if one.what.endswith("heads") or one.what.endswith("experts") else "does"
    return Verdict(
        f"{one.what} of the {one.whose} {one.model} {plural} not divide by {one.ranks} {one.of}",
        at=at,
        why=f"the engine stops while it builds the model: {one.engine}",
        fix=_fix(one, instead),
    )


def _fix(one: Undivided, instead: str) -> Fix:
    if one.groups is not None:
        return Fix(f"set ep_size to {one.groups}", set={"ep_size": one.groups})
    if not one.works:
        return Fix(instead)
    return Fix(f"set tp_size to {one.works[0]}", set={"tp_size": one.works[0]})

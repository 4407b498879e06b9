"""How the rules about divisions say what they found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speclaunch.plan.division import Undivided
from speclaunch.rules.interface import Fix, Verdict


def verdicts(found: Iterable[Undivided], at: tuple[str, ...], instead: str) -> Iterator[Verdict]:
    """A verdict for each thing that cannot be divided; `instead` is what to do where no smaller
    `tp_size` alone helps."""
    for one in found:
        plural = "do" if one.what.endswith("heads") or one.what.endswith("experts") else "does"
        yield Verdict(
            f"{one.what} of the {one.whose} {one.model} {plural} not divide by {one.ranks} "
            f"{one.of}",
            at=at,
            why=f"the engine stops while it builds the model: {one.engine}",
            fix=_fix(one, instead),
        )


def _fix(one: Undivided, instead: str) -> Fix:
    if not one.works:
        return Fix(instead)
    return Fix(f"set tp_size to {one.works[0]}", set={"tp_size": one.works[0]})

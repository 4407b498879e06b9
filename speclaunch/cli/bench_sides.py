"""The sides of a comparison as its certificate tells them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speclaunch.bench.running import RunningSide
from speclaunch.bench.schema import SideRecord
from speclaunch.bench.sides import AnySide
from speclaunch.launch.journal_header import document
from speclaunch.plan.budget import Fit
from speclaunch.report.console import err_lines

_OF_HERE = ("PATH",)
"""What says more of this machine than of what was measured."""


def told_of(side: AnySide) -> SideRecord:
    """A side without its secrets."""
    if isinstance(side, RunningSide):
        version = side.info.get("version")
        return SideRecord(name=side.name, engine=str(version) if version else None, url=side.url)
    said = document(side.prepared)
    return SideRecord(
        name=side.name,
        engine=side.prepared.version,
        command=tuple(said["argv"]),
        environment={name: value for name, value in said["env"].items() if name not in _OF_HERE},
    )


def memory_warnings(sides: Iterable[AnySide]) -> Iterator[str]:
    """Yield the memory verdicts that speak against a start; the children's output does not show."""
    for side in sides:
        if isinstance(side, RunningSide):
            continue
        memory = side.plan.memory
        if memory.fit in (Fit.TIGHT, Fit.FAILS):
            yield f"{side.name} {memory.fit.text}: {memory.why}"


def hardware_of(side: AnySide) -> str | None:
    """`h100:8`, `cpu`; None where it is unknown."""
    if isinstance(side, RunningSide):
        return None
    if side.prepared.cpu is not None:
        return "cpu"
    found = side.plan.facts.hardware
    if found is None:
        return None
    return f"{found.name}:{found.count}" if found.count > 1 else found.name


def tell_replaced(*sides: AnySide) -> None:
    """Report overrides that are ignored: each engine of a measurement has its own port."""
    found = (one.replaced for one in sides if not isinstance(one, RunningSide))
    for word in dict.fromkeys(word for some in found for word in some):
        note = f"note: {word} is not used: each measured engine gets its own"
        err_lines().print(note, markup=False)

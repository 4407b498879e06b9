"""Cells in words: where speculation pays, and from which concurrency or context length on it no
longer does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from speclaunch.bench.measurement import At
from speclaunch.bench.statistics import Claim
from speclaunch.record import record

CONCURRENCY, CONTEXT = "concurrency", "context"


class Claimed(Protocol):
    """A cell, as far as it is told of here."""

    @property
    def at(self) -> At:
        """What was measured."""

    @property
    def claim(self) -> Claim:
        """What the data say."""

    @property
    def prompt_tokens(self) -> float:
        """Tokens of a prompt, as the engine counted them."""


@record
class Stop:
    """From `start` on, no cell of a workload is claimed to pay: `along` the concurrency, the other
    one (the context length) being `fixed`, or along the context length. Of what was measured."""

    workload: str
    along: str
    fixed: int
    start: int
    claim: Claim
    """`does not pay` where every cell from there on does not, else `not shown`."""
    paid: bool
    """Whether it pays anywhere below."""


def stops(cells: Sequence[Claimed]) -> tuple[Stop, ...]:
    """By workload: along the concurrency at each context length, then the other way round where
    there are several lengths."""
    found: list[Stop] = []
    for workload in dict.fromkeys(cell.at.workload for cell in cells):
        own = [cell for cell in cells if cell.at.workload == workload]
        contexts = list(dict.fromkeys(cell.at.context for cell in own))
        for context in contexts:
            line = [cell for cell in own if cell.at.context == context]
            found += _along(CONCURRENCY, context, sorted(line, key=_concurrency))
        if len(contexts) > 1:
            for concurrency in sorted({cell.at.concurrency for cell in own}):
                line = [cell for cell in own if cell.at.concurrency == concurrency]
                found += _along(CONTEXT, concurrency, sorted(line, key=_prompt))
    return tuple(found)


def _concurrency(cell: Claimed) -> int:
    return cell.at.concurrency


def _prompt(cell: Claimed) -> float:
    return cell.prompt_tokens


def _along(along: str, fixed: int, line: Sequence[Claimed]) -> Iterator[Stop]:
    """The start of the cells at the end that do not pay, and of those that are shown not to."""
    first = _tail(line, (Claim.DOES_NOT_PAY, Claim.NOT_SHOWN))
    shown = _tail(line, (Claim.DOES_NOT_PAY,))
    paid = any(cell.claim is Claim.PAYS for cell in line)
    for start in dict.fromkeys((first, shown)):
        if start < len(line):
            at = line[start].at
            value = at.concurrency if along == CONCURRENCY else at.context
            claim = Claim.DOES_NOT_PAY if start == shown else Claim.NOT_SHOWN
            yield Stop(at.workload, along, fixed, value, claim, paid)


def _tail(line: Sequence[Claimed], claims: Sequence[Claim]) -> int:
    start = len(line)
    while start and line[start - 1].claim in claims:
        start -= 1
    return start


def sentence(cells: Sequence[Claimed]) -> str:
    """The verdict of all cells."""
    told: list[str] = []
    ends = stops(cells)
    for workload in dict.fromkeys(cell.at.workload for cell in cells):
        own = [cell for cell in cells if cell.at.workload == workload]
        contexts = list(dict.fromkeys(cell.at.context for cell in own))
        for context in contexts:
            name = workload if contexts == [0] else f"{workload}, {_prompts(context)}"
            line = sorted((c for c in own if c.at.context == context), key=_concurrency)
            told.append(f"{name}: {_claims(line)}.")
            told += _ends(ends, workload, CONCURRENCY, context)
        for concurrency in sorted({cell.at.concurrency for cell in own}):
            told += _ends(ends, workload, CONTEXT, concurrency)
    return " ".join(told)


def _claims(line: Sequence[Claimed]) -> str:
    parts = []
    for claim, what in (
        (Claim.PAYS, "it pays"),
        (Claim.DOES_NOT_PAY, "it does not pay"),
        (Claim.NOT_SHOWN, "a difference is not shown"),
    ):
        which = [str(cell.at.concurrency) for cell in line if cell.claim is claim]
        if which:
            parts.append(f"{what} at a concurrency of {', '.join(which)}")
    return "; ".join(parts)


def _ends(ends: Sequence[Stop], workload: str, along: str, fixed: int) -> Iterator[str]:
    own = [
        one
        for one in ends
        if (one.workload, one.along, one.fixed) == (workload, along, fixed) and one.paid
    ]
    if not own:
        return
    said = " and ".join(
        f"from {_start(one)} on it "
        + ("does not pay" if one.claim is Claim.DOES_NOT_PAY else "is not shown to pay")
        for one in own
    )
    where = f"At a concurrency of {fixed}, " if along == CONTEXT else ""
    yield f"{where}{said if where else said.capitalize()}."


def _start(one: Stop) -> str:
    if one.along == CONCURRENCY:
        return f"a concurrency of {one.start}"
    return _prompts(one.start)


def _prompts(context: int) -> str:
    return f"prompts of {context} tokens" if context else "prompts as they are"

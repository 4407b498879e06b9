"""The three fractions in words: certain, likely, and the edge."""

from __future__ import annotations

from speclaunch.plan.memory.margins import Choice, Margins
from speclaunch.report.plan import words


def margin_rows(found: Margins, context: int | None) -> list[tuple[str, str]]:
    """A row for each: up to which fraction, and what it gives, in requests of `context` tokens."""
    rows = []
    for name, choice in (("certain", found.certain), ("likely", found.likely)):
        said = "none" if choice is None else f"up to {_said(choice, context)}"
        rows.append((f"mem_fraction_static, {name}", said))
    return [*rows, edge_row(found.least, found.edge.fraction)]


def edge_row(low: float, high: float) -> tuple[str, str]:
    """Between which fractions it is not certain to fail."""
    return "mem_fraction_static, edge", f"{low:.3f} to {high:.3f}, every estimate at its least"


def _said(choice: Choice, context: int | None) -> str:
    said = f"{choice.fraction:.3f}: {words.number(choice.tokens)} tokens"
    if context:
        number = min(choice.tokens // context, choice.running_requests)
        many = "no request" if not number else words.many(number, "request")
        said += f", {many} of {words.number(context)}"
    if choice.spare_bytes:
        said += f"; {words.size(choice.spare_bytes)} to spare at the least of every estimate"
    return said

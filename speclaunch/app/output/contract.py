"""A request contract as text, and as one page to attach to a change request."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from speclaunch.app.output.plan.page import page_environment
from speclaunch.measure import ContractDocument, FieldResult, FieldRow

_WIDTH = 24
_SHOWN = {
    FieldResult.SAME: ("✓", "same", "green", "good"),
    FieldResult.DIFFERS: ("✗", "differs", "red", "bad"),
    FieldResult.NOT_TESTED: ("-", "not tested", "dim", "info"),
}
_DOCUMENTED = ("!", "differs (documented)", "yellow", "odd")


def show_contract(console: Console, found: ContractDocument) -> None:
    """Print the verdict, and a line for each field."""
    style = "bold green" if found.same else "bold red"
    console.print(Text(f"{'✓' if found.same else '✗'} {verdict(found)}", style))
    for row in found.fields:
        mark, label, color, _ = _shown(row)
        head = Text.assemble((f"  {mark} {row.field:<{_WIDTH}}{label}", color))
        console.print(head + Text(f": {row.reason}" if row.reason else ""))
        for note in notes(row):
            console.print(Text(f"    {note}", "dim"))


def contract_page(found: ContractDocument) -> str:
    """Return the page of a contract. It is deterministic, and text from servers is escaped."""
    rows = [(row, *_shown(row)[1::2], list(notes(row))) for row in found.fields]
    template = page_environment().get_template("contract.html.j2")
    return template.render(found=found, rows=rows, verdict=verdict(found))


def verdict(found: ContractDocument) -> str:
    """Return the verdict as a sentence."""
    breaking = [row.field for row in found.fields if row.breaks]
    if breaking:
        return f"{found.speculative} changes the meaning of {', '.join(breaking)}"
    if not found.same:
        return f"{found.speculative}: no request field could be tested"
    documented = found.counts.differs
    more = f", {documented} more differ as documented" if documented else ""
    return f"{found.speculative} keeps the meaning of {found.counts.same} request fields{more}"


def notes(row: FieldRow) -> Iterator[str]:
    """Yield the notes on a difference."""
    if row.documented:
        yield f"documented: {row.documented}"
    if row.advisories:
        yield f"known: {', '.join(row.advisories)} (speclaunch explain {row.advisories[0]})"


def _shown(row: FieldRow) -> tuple[str, str, str, str]:
    """Return the mark, label, terminal color and page color of a row."""
    is_documented = row.result is FieldResult.DIFFERS and row.documented is not None
    return _DOCUMENTED if is_documented else _SHOWN[row.result]

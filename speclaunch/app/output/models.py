"""Output about checkpoints: names, facts, comparison with the hub, tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.findings import show_findings
from speclaunch.app.output.findings_json import finding_json
from speclaunch.app.output.tables import label_line, plain_table
from speclaunch.engine import Checkpoint, CheckpointFile, UnknownFact
from speclaunch.measure import (
    FACTS,
    CheckpointSources,
    ComparedFacts,
    FactsState,
    Inspection,
    fact_value,
)

_COLORS = {
    FactsState.CURRENT: "green",
    FactsState.UPDATED: "green",
    FactsState.STALE: "yellow",
    FactsState.UNKNOWN: "red",
    FactsState.LOCAL: "dim",
}
_MOST_DIFFERENCES = 12


def _plain(fact_value: object) -> Text:
    """Return text of an untrusted file without control characters."""
    return Text(
        "".join(character if character.isprintable() else "?" for character in str(fact_value))
    )


def show_stored(console: Console, found: Iterable[tuple[str, CheckpointFile | str]]) -> None:
    """Print a table of facts files; unreadable files with their reason."""
    table = plain_table(("model", "read", "revision", "source"))
    for name, file in found:
        if isinstance(file, str):
            table.add_row(Text(name, "bold"), _plain("cannot be read: " + file))
        else:
            revision = Text((file.revision or "")[:12])
            table.add_row(Text(name, "bold"), Text(file.read), revision, _plain(file.source))
    console.print(table)


def stored_json(file: CheckpointFile | str) -> dict[str, Any]:
    """Return a facts file, or the reason why it is unreadable, as JSON."""
    if isinstance(file, str):
        return {"error": file}
    row = {"kind": file.kind, "source": file.source, "read": file.read}
    return row | ({"revision": file.revision} if file.revision is not None else {})


def show_known(console: Console, name: str, known: CheckpointSources) -> None:
    """Print the facts of a checkpoint with their source, then the facts from other sources."""
    console.print(Text(name, "bold"))
    used = known.used
    if isinstance(used, UnknownFact):
        console.print(label_line("unknown", _plain(used.why), 9, "yellow"))
    else:
        console.print(label_line("from", _plain(used.origin), 9))
        if used.origin is not None and used.origin.revision is not None:
            console.print(label_line("revision", used.origin.revision, 9))
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        table.add_column(style="dim", no_wrap=True)
        for fact in FACTS:
            value, source = _fact(used, fact)
            if source is not None:
                table.add_row(f"  {fact}", _plain(value), Text(source))
        console.print(table)
    for other in known.others:
        if isinstance(other, UnknownFact):
            console.print(label_line("not read", _plain(other.why), 9, "yellow"))
            continue
        console.print(label_line("also in", _plain(other.origin), 9))
        for line in _differing(used, other):
            console.print(_plain(f"           {line}"))


def known_json(name: str, known: CheckpointSources) -> dict[str, Any]:
    """Return the facts as a JSON document."""
    return {
        "version": 1,
        "model": name,
        **_checkpoint_json(known.used),
        "others": [_checkpoint_json(other) for other in known.others],
    }


def show_checked(console: Console, found: Iterable[ComparedFacts]) -> None:
    """Print each facts file with its state compared with the hub, and the differences."""
    for facts in found:
        why = _plain(f"  {facts.why}" if facts.why else "")
        console.print(
            Text.assemble(
                (f"{facts.state.value:<9}", _COLORS[facts.state]), (facts.name, "bold"), why
            )
        )
        for line in facts.differences[:_MOST_DIFFERENCES]:
            console.print(_plain(f"         {line}"))
        if len(facts.differences) > _MOST_DIFFERENCES:
            console.print(f"         and {len(facts.differences) - _MOST_DIFFERENCES} more")
        if facts.help:
            console.print(Text.assemble(("         help", "bold cyan"), f": {facts.help}"))


def checked_json(facts: ComparedFacts) -> dict[str, Any]:
    """Return the comparison of a facts file as JSON."""
    document: dict[str, Any] = {"model": facts.name, "state": facts.state.value}
    document |= {"differences": list(facts.differences)} if facts.differences else {}
    return document | {key: v for key, v in (("why", facts.why), ("help", facts.help)) if v}


def _fact(found: Checkpoint, fact: str) -> tuple[str, str | None]:
    """Return a fact as text with its source; None as the source if unknown."""
    if fact in found.unread:
        return "unknown", "its source has not been read"
    value = fact_value(found, fact)
    if value is None:
        return "", None
    source = found.origin.provenance.value if found.origin is not None else ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {inner}" for key, inner in value.items())[:200], source
    if isinstance(value, tuple):
        return ", ".join(map(str, value)), source
    return (f"{value:,}" if fact == "weight_bytes" else str(value)), source


def _differing(used: Checkpoint | UnknownFact, other: Checkpoint) -> Iterable[str]:
    if isinstance(used, UnknownFact):
        return
    for fact in FACTS:
        mine, theirs = fact_value(used, fact), fact_value(other, fact)
        if mine != theirs and mine is not None and theirs is not None:
            yield f"{fact}: {_fact(other, fact)[0]}"


def _checkpoint_json(found: Checkpoint | UnknownFact) -> dict[str, Any]:
    if isinstance(found, UnknownFact):
        return {"unknown": found.why} | ({"help": found.help} if found.help else {})
    origin = found.origin
    where: dict[str, Any] = {}
    if origin is not None:
        fields = {"provenance": origin.provenance.value, "where": origin.where, "read": origin.read}
        fields |= {"revision": origin.revision, "doubt": origin.doubt, "assumed": origin.assumed}
        where = {key: value for key, value in fields.items() if value is not None}
    facts = {
        fact: {"value": fact_value(found, fact), "from": where.get("provenance")}
        for fact in FACTS
        if fact not in found.unread and fact_value(found, fact) is not None
    }
    return {"origin": where, "facts": facts, "not_known": sorted(found.unread)}


_MOST_ROWS = 40
_ODD = ("wrong shape", "not read")


def show_inspection(console: Console, found: Inspection) -> None:
    """Print the inspection: use, tensors (if there are many, only the suspicious), findings."""
    console.print(Text.assemble((found.checkpoint.name, "bold"), " ", _about(found)))
    names = list(found.headers)
    if len(names) > _MOST_ROWS:
        names = [name for name in names if found.status(name) in _ODD][:_MOST_ROWS]
    table = Table.grid(padding=(0, 2))
    for name in sorted(names):
        header, status = found.headers[name], found.status(name)
        style = "yellow" if status in _ODD else "dim" if status != "loaded" else ""
        shape = "x".join(map(str, header.shape)) or "1"
        table.add_row(Text(name), Text(header.dtype), Text(shape), Text(status, style))
    if names:
        console.print(table)
    console.print(_sum(found), markup=False, style="dim")
    show_findings(console, found.findings)
    if not found.findings:
        if found.comparison is None:
            console.print("No problem in the files; the engine's requirements are unknown.")
        else:
            console.print(f"It contains everything that SGLang {found.engine} loads.", markup=False)


def _about(found: Inspection) -> str:
    what = found.checkpoint.architecture or "no architecture in its config"
    drafts = f", as a draft of {found.algorithm}" if found.algorithm else ""
    loader = f"; loaded by {found.loader}" if found.loader not in (None, what) else ""
    return f"({what}{drafts}{loader})"


def _sum(found: Inspection) -> str:
    """Return the counts as text: `15 tensors: 14 loaded, 1 skipped; …`."""
    counts = Counter(map(found.status, found.headers))
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{len(found.headers)} tensors: {text}" + "".join(_unsaid(found))


def _unsaid(found: Inspection) -> Iterator[str]:
    if not found.numbers_read:
        yield "; only headers were read: zeros, NaN and token maps are unchecked"
    if found.comparison is None and found.loader is None:
        yield f"; the tensors that SGLang {found.engine} loads for this class are unknown"


def inspection_json(found: Inspection) -> dict[str, Any]:
    """Return the inspection as JSON; see docs/reference/models.md."""
    compared = found.comparison
    return {
        "version": 1,
        "checkpoint": found.checkpoint.name,
        "target": None if found.target is None else found.target.name,
        "engine": found.engine,
        "architecture": found.checkpoint.architecture,
        "algorithm": found.algorithm,
        "loader": found.loader,
        "source": found.source,
        "numbers_read": found.numbers_read,
        "tensors": [
            {
                "name": name,
                "dtype": header.dtype,
                "shape": list(header.shape),
                "status": found.status(name),
            }
            for name, header in sorted(found.headers.items())
        ],
        "missing": {} if compared is None else dict(compared.missing),
        "findings": [finding_json(finding) for finding in found.findings],
    }

"""The ways to speculate for a target, as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.app.output.tables import label_line
from speclaunch.engine import Hardware
from speclaunch.measure import DraftListing, ListedWay, WayMemory, in_gib

VERSION = 1
"""Version of the JSON document."""


def show_drafts(console: Console, found: DraftListing, *, refused: bool = False) -> None:
    """Print each way with its releases, memory and sources.

    Ways that no release accepts are shown with `refused`, or if there are no others.
    """
    target = found.target
    architecture = (
        ", ".join(target.field_or_none("architectures") or ()) or "architecture not known"
    )
    shown = [one for one in found.ways if refused or one.newest] or found.ways
    ways = "1 way" if len(shown) == 1 else f"{len(shown)} ways"
    console.print(Text(f"{target.name} ({architecture})", "bold"))
    _line(console, "facts", str(target.origin))
    _line(console, "speculation", f"{ways}, the best founded first")
    for number, one in enumerate(shown, 1):
        console.print()
        console.print(Text(f"{number}. {heading(one)}", "bold" if one.newest else "dim"))
        _line(console, "engine", releases(one, found))
        for doubt in one.doubts:
            _line(console, "but", doubt)
        if one.changes:
            _line(console, "set also", ", ".join(one.changes))
        _line(console, "founded on", f"{one.way.why}; confidence {one.way.confidence}")
        if one.memory is not None and found.hardware is not None:
            _line(console, "memory", memory(one.memory, found.hardware))
        if one.unjudged:
            _line(console, "not judged", ", ".join(dict.fromkeys(one.unjudged)))
        for source in one.way.sources:
            _line(console, "source", source)
    hidden = len(found.ways) - len(shown)
    if hidden:
        console.print()
        console.print(Text(f"{hidden} more that no release accepts: --all shows why", "dim"))


def heading(one: ListedWay) -> str:
    """Return `EAGLE-3 with ORG/DRAFT`."""
    return f"{one.way.method} with {one.way.draft}" if one.way.draft else str(one.way.method)


def releases(one: ListedWay, found: DraftListing) -> str:
    """Return the releases that accept it as text."""
    if not one.spans:
        return f"no release takes it: {one.refused}"
    newest = found.versions[-1]
    parts = []
    for first, last in one.spans:
        if last == newest and len(found.versions) > 1:
            parts.append(f"{first} and later" if first != last else first)
        else:
            parts.append(first if first == last else f"{first} to {last}")
    text = "SGLang " + ", ".join(parts)
    return f"{text}; {newest}: {one.refused}" if one.refused else text


def memory(found: WayMemory, hardware: Hardware) -> str:
    """Return its memory cost on one GPU as text."""
    where = f"{hardware.name}" if not found.ranks else f"{found.ranks} x {hardware.name}"
    if found.draft_weights is None and found.draft_kv is None:
        return f"on {where}: {found.note or 'not known'}"
    parts = []
    at = "" if found.fraction is None else f" at mem_fraction_static {found.fraction:g}"
    if found.draft_weights is not None:
        parts.append(f"{in_gib(found.draft_weights)} of draft weights a GPU")
    if found.draft_kv is not None:
        parts.append(f"{found.draft_kv:,} bytes of draft KV cache a token")
    if found.tokens is not None:
        parts.append(f"leaves {found.tokens:,} tokens of KV cache{at}")
    if found.draft_weights == 0 and found.draft_kv == 0:
        parts = [f"no draft; leaves {found.tokens or 0:,} tokens of KV cache{at}"]
    text = f"{found.verdict.text} on {where}: {', '.join(parts)}"
    return f"{text}; {found.note}" if found.note else text


def _line(console: Console, label: str, said: str) -> None:
    console.print(label_line(label, Text(said, "default"), 12, indent=3))


def drafts_document(found: DraftListing) -> str:
    """Return the ways as JSON; see docs/reference/drafts.md."""
    hardware = found.hardware
    document = {
        "version": VERSION,
        "target": found.target.name,
        "architectures": list(found.target.field_or_none("architectures") or ()),
        "facts": str(found.target.origin),
        "releases": list(found.versions),
        "hardware": None if hardware is None else hardware.name,
        "ways": [_way(one) for one in found.ways],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _way(one: ListedWay) -> dict[str, Any]:
    way, cost = one.way, one.memory
    return {
        "method": str(way.method),
        "algorithm": way.algorithm,
        "draft": way.draft,
        "arguments": dict(way.arguments),
        "releases": [{"first": first, "last": last} for first, last in one.spans],
        "refused": one.refused or None,
        "warnings": list(one.doubts),
        "changes": list(one.changes),
        "not_judged": list(dict.fromkeys(one.unjudged)),
        "confidence": way.confidence,
        "founded_on": way.why,
        "sources": list(way.sources),
        "memory": None
        if cost is None
        else {
            "gpus": cost.ranks or None,
            "fits": cost.fits,
            "verdict": cost.verdict.value,
            "mem_fraction_static": cost.fraction,
            "draft_weight_bytes": cost.draft_weights,
            "draft_kv_bytes_per_token": cost.draft_kv,
            "tokens": cost.tokens,
            "note": cost.note or None,
        },
    }

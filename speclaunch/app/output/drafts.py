"""Speculation methods for a target, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.app.output.tables import label_line
from speclaunch.engine import Hardware, PublishedAcceptance
from speclaunch.measure import DraftListing, ListedWay, WayMemory, in_gib

VERSION = 1
"""Version of the JSON document."""


def show_drafts(console: Console, found: DraftListing, *, everything: bool = False) -> None:
    """Print each method with its releases, published acceptance, memory and sources.

    `everything`: also print methods that no release accepts, and each published number. If there
    are no other methods, methods that no release accepts are always printed.
    """
    target = found.target
    architecture = ", ".join(target.field_or_none("architectures") or ()) or "unknown architecture"
    shown = [way for way in found.ways if everything or way.newest] or found.ways
    ways = "1 method" if len(shown) == 1 else f"{len(shown)} methods"
    console.print(Text(f"{target.name} ({architecture})", "bold"))
    _line(console, "facts", str(target.origin))
    _line(console, "speculation", f"{ways}, by published acceptance, then by confidence")
    for number, way in enumerate(shown, 1):
        console.print()
        console.print(Text(f"{number}. {heading(way)}", "bold" if way.newest else "dim"))
        _line(console, "engine", releases(way, found))
        for doubt in way.doubts:
            _line(console, "but", doubt)
        if way.changes:
            _line(console, "also set", ", ".join(way.changes))
        if summary := way.way.published_at(way.way.arguments):
            _line(console, "published", summary)
        if everything:
            _show_published(console, way.way.published, target.name)
        _line(console, "based on", f"{way.way.why}; confidence {way.way.confidence}")
        if way.memory is not None and found.hardware is not None:
            _line(console, "memory", memory(way.memory, found.hardware))
        if way.skipped:
            _line(console, "skipped", ", ".join(dict.fromkeys(way.skipped)))
        for source in way.way.sources:
            _line(console, "source", source)
    hidden = len(found.ways) - len(shown)
    if hidden:
        console.print()
        console.print(Text(f"{hidden} more are accepted by no release (--all shows them)", "dim"))


def _show_published(console: Console, found: Sequence[PublishedAcceptance], target: str) -> None:
    for source in dict.fromkeys(each.source for each in found):
        _line(console, "", str(source))
        for each in found:
            if each.source == source:
                _line(console, "", f"  {measured(each, target)}")


def measured(found: PublishedAcceptance, target: str) -> str:
    """Return a measurement as text: `2.50 tokens a step, 1.65 times as fast: mtbench, …`. Names the
    measured target if it is not `target`.
    """
    values = [] if found.length is None else [f"{found.length:.2f} tokens a step"]
    values += [] if found.speedup is None else [f"{found.speedup:.2f} times as fast"]
    other = "" if found.target == target else f", target {found.target}"
    return f"{', '.join(values)}: {found.conditions}{other}"


def heading(way: ListedWay) -> str:
    """Return the name of a method and its draft: `EAGLE-3 with ORG/DRAFT`."""
    return f"{way.way.method} with {way.way.draft}" if way.way.draft else str(way.way.method)


def releases(way: ListedWay, found: DraftListing) -> str:
    """Return as text the releases that accept a method."""
    if not way.spans:
        return f"not accepted by any release: {way.refused}"
    newest = found.versions[-1]
    parts = []
    for first, last in way.spans:
        if last == newest and len(found.versions) > 1:
            parts.append(f"{first} and later" if first != last else first)
        else:
            parts.append(first if first == last else f"{first} to {last}")
    text = "SGLang " + ", ".join(parts)
    return f"{text}; {newest}: {way.refused}" if way.refused else text


def memory(found: WayMemory, hardware: Hardware) -> str:
    """Return the memory cost of a method on one GPU as text."""
    where = f"{hardware.name}" if not found.ranks else f"{found.ranks} x {hardware.name}"
    if found.draft_weights is None and found.draft_kv is None:
        return f"on {where}: {found.note or 'unknown'}"
    parts = []
    at = "" if found.fraction is None else f" at mem_fraction_static {found.fraction:g}"
    if found.draft_weights is not None:
        parts.append(f"{in_gib(found.draft_weights)} of draft weights per GPU")
    if found.draft_kv is not None:
        parts.append(f"{found.draft_kv:,} bytes of draft KV cache per token")
    if found.tokens is not None:
        parts.append(f"leaves {found.tokens:,} tokens of KV cache{at}")
    if found.draft_weights == 0 and found.draft_kv == 0:
        parts = [f"no draft; leaves {found.tokens or 0:,} tokens of KV cache{at}"]
    text = f"{found.verdict.text} on {where}: {', '.join(parts)}"
    return f"{text}; {found.note}" if found.note else text


def _line(console: Console, label: str, text: str) -> None:
    console.print(label_line(label, Text(text, "default"), 12, indent=3))


def drafts_document(found: DraftListing) -> str:
    """Return the methods as JSON; see docs/reference/drafts.md."""
    hardware = found.hardware
    document = {
        "version": VERSION,
        "target": found.target.name,
        "architectures": list(found.target.field_or_none("architectures") or ()),
        "facts": str(found.target.origin),
        "releases": list(found.versions),
        "hardware": None if hardware is None else hardware.name,
        "ways": [_way(way) for way in found.ways],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _way(listed: ListedWay) -> dict[str, Any]:
    way, cost = listed.way, listed.memory
    return {
        "method": str(way.method),
        "algorithm": way.algorithm,
        "draft": way.draft,
        "arguments": dict(way.arguments),
        "releases": [{"first": first, "last": last} for first, last in listed.spans],
        "refused": listed.refused or None,
        "warnings": list(listed.doubts),
        "changes": list(listed.changes),
        "not_judged": list(dict.fromkeys(listed.skipped)),
        "confidence": way.confidence,
        "founded_on": way.why,
        "sources": list(way.sources),
        "setting_why": way.setting_why or None,
        "comparable_accept_length": None if way.score is None else round(way.score, 3),
        "published": [_published(found) for found in way.published],
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


def _published(found: PublishedAcceptance) -> dict[str, Any]:
    steps, topk, tokens = found.setting
    return {
        "target": found.target,
        "benchmark": found.benchmark,
        "accept_length": found.length,
        "speed_up": found.speedup,
        "num_steps": steps,
        "eagle_topk": topk,
        "num_draft_tokens": tokens,
        "temperature": found.temperature,
        "batch_size": found.batch_size,
        "mode": found.mode,
        "engine": found.engine,
        "release": found.release,
        "hardware": found.hardware,
        "note": found.note,
        "source": found.source.title,
        "place": found.source.place,
        "date": found.source.date,
        "url": found.source.url,
    }

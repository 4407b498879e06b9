"""Report of a ready engine: its check, and how to send requests."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from speclaunch.app.output.tables import label_line
from speclaunch.engine import Address
from speclaunch.serving import Verification

_SHOWN_CHARACTERS = 200
_NEXT = (
    "drafts Qwen/Qwen3-8B --hardware h100:1",
    "init Qwen/Qwen3-8B --hardware h100:1 --output mine.yaml",
    "plan recipe=mine.yaml --hardware h100:1",
)
"""Commands to suggest after a smoke test of a tiny model."""


def show_ready(
    console: Console,
    *,
    name: str,
    version: str,
    address: Address,
    seconds: float,
    verification: Verification | None,
    log: Path,
    worker: bool = False,
    tiny: bool = False,
) -> None:
    """Print that the engine serves, and the results of its check."""
    ok = verification is None or verification.ok
    mark, color = ("✓", "bold green") if ok else ("✗", "bold red")
    state = "is serving" if ok else "serves, but not as requested"
    head = Text.assemble((f"{mark} {name} {state}", color), f" at {address.url}")
    if worker:
        head = Text(f"{mark} {name} is ready as a worker of the first rank", color)
    head.append(f"   (SGLang {version}, ready after {seconds:.1f} s)", "dim")
    console.print(head)
    none = [("check", "done by the first rank: this rank serves no requests")]
    for label, text in none if worker else _rows(verification):
        console.print(label_line(label, text, 14, "bold"))
    if tiny:
        console.print(
            "                this tiny model's text is meaningless by design", style="dim"
        )
    console.print(label_line("log", str(log), 14, "bold"))


def show_passed(console: Console, *, tiny: bool) -> None:
    """Print that a smoke test passed and, for a tiny model, how to use another model."""
    console.print("passed", style="bold green")
    if tiny:
        console.print("\nNext, with your own model and hardware:")
        for line in _NEXT:
            console.print(f"  speclaunch {line}", markup=False, highlight=False)


def show_snippets(console: Console, address: Address, model: str) -> None:
    """Print a working curl command and OpenAI client code."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32}
    key_header = ' -H "Authorization: Bearer $API_KEY"' if address.api_key else ""
    insecure = " -k" if address.tls else ""
    key = 'os.environ["API_KEY"]' if address.api_key else '"none"'
    console.print()
    console.print(
        f"  curl{insecure} {address.url}/v1/chat/completions{key_header}"
        f" -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}",
        markup=False,
    )
    console.print()
    for line in (
        *(["import os"] if address.api_key else []),
        "from openai import OpenAI",
        f'client = OpenAI(base_url="{address.url}/v1", api_key={key})',
        f"print(client.chat.completions.create(model={json.dumps(model)}, max_tokens=32,",
        '      messages=[{"role": "user", "content": "Hello"}]).choices[0].message.content)',
    ):
        console.print(f"  {line}", markup=False)


def verification_json(verification: Verification | None) -> Mapping[str, Any] | None:
    """Return the check of an engine as JSON."""
    if verification is None:
        return None
    generation = verification.generation
    return {
        "ok": verification.ok,
        "algorithm": verification.algorithm,
        "acceptance_length": generation.acceptance_length if generation else None,
        "tokens": generation.tokens if generation else None,
        "verifications": generation.verify_count if generation else None,
        "text": generation.text if generation else None,
        "changes": [
            {"name": change.name, "asked": change.requested, "effective": change.effective}
            for change in verification.changes
        ],
        "problems": list(verification.problems),
        "warnings": list(verification.warnings),
    }


def _rows(verification: Verification | None) -> list[tuple[str, str | Text]]:
    if verification is None:
        return [("check", "skipped (launch.verify.enabled=false)")]
    rows: list[tuple[str, str | Text]] = []
    generation = verification.generation
    if generation is not None:
        if generation.acceptance_length is not None:
            rows.append(
                (
                    "speculation",
                    f"{verification.algorithm}, acceptance length"
                    f" {generation.acceptance_length:.2f} ({generation.tokens} tokens in"
                    f" {generation.verify_count} verifications)",
                )
            )
        else:
            rows.append(("speculation", verification.algorithm or "off, as requested"))
        shown = " ".join(generation.text.split())
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[:_SHOWN_CHARACTERS] + "…"
        if shown:
            rows.append(("generated", Text(shown)))
    rows.extend(
        ("changed", f"{change.name}: {change.requested} → {change.effective} (by the engine)")
        for change in verification.changes
    )
    rows.extend(("warning", Text(warning, "yellow")) for warning in verification.warnings)
    rows.extend(("problem", Text(problem, "red")) for problem in verification.problems)
    return rows

"""Output of a start on a terminal, with rich: live progress, and the report of a ready engine."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.launching import OnReady, PlainObserver, WeightSizes, counted
from speclaunch.app.output.terminal import label_line
from speclaunch.engine import Address
from speclaunch.serving import Phase, PhaseStep, PhaseTracker, Verification


class LiveObserver(PlainObserver):
    """Observer that shows phases in a live table."""

    def __init__(
        self,
        console: Console,
        on_ready: OnReady,
        title: str,
        *,
        verbose: bool = False,
        weights: WeightSizes | None = None,
    ) -> None:
        super().__init__(console, on_ready, verbose=verbose, weights=weights)
        self._title = title
        self._terminal = console
        self._last: tuple[PhaseTracker, float] | None = None
        self._checked = False
        self._spinner = Spinner("dots", style="cyan")
        self._live = self._display()

    def spawned(self, pid: int | None, log: Path) -> None:  # noqa: ARG002
        self.log = log
        self._checked = False
        self._last = None
        self._live = self._display()
        self._live.start()

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        self._last = (tracker, seconds)
        if self._live.is_started:
            self._live.update(self._draw(tracker, seconds))

    def ready(self, verification: Verification | None, seconds: float) -> None:
        self._checked = True
        if self._last is not None:
            self._live.update(self._draw(*self._last))
        self._live.stop()
        super().ready(verification, seconds)

    def stopping(self, why: str) -> None:
        self._live.stop()
        super().stopping(why)

    def failed(self, why: str) -> None:
        self._live.stop()
        super().failed(why)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._live.stop()

    def _display(self) -> Live:
        return Live(
            console=self._terminal, refresh_per_second=8, transient=False, vertical_overflow="crop"
        )

    def _draw(self, tracker: PhaseTracker, seconds: float) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=1)
        table.add_column(min_width=22)
        table.add_column(justify="right", min_width=7)
        table.add_column(style="dim", overflow="ellipsis", no_wrap=True)
        for step in tracker.steps:
            detail = counted(tracker, seconds, self._weights) if step is tracker.current else ""
            table.add_row(*self._row(step, seconds, detail))
        head = Text.assemble((self._title, "bold"), (f"   log: {self.log}", "dim"))
        head.no_wrap, head.overflow = True, "ellipsis"
        return Group(head, table)

    def _row(
        self, step: PhaseStep, seconds: float, detail: str
    ) -> tuple[RenderableType, str, str, str]:
        if step.phase is Phase.READY:
            # The engine answers; only our own check is still running.
            mark: RenderableType = Text("✓", "green") if self._checked else self._spinner
            return (mark, "check speculation", f"{seconds - step.started:.1f} s", "")
        if step.ended is None:
            took = f"{seconds - step.started:.1f} s"
            return (self._spinner, step.phase.value, took, detail or step.detail)
        took = f"{step.ended - step.started:.1f} s"
        return (Text("✓", "green"), step.phase.value, took, step.detail)


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
    """Print that the engine serves, and the verification results."""
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
            console.print(f"  speclaunch {line}")


def show_snippets(console: Console, address: Address, model: str) -> None:
    """Print a working curl command and OpenAI client code."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 32}
    key_header = ' -H "Authorization: Bearer $API_KEY"' if address.api_key else ""
    insecure = " -k" if address.tls else ""
    key = 'os.environ["API_KEY"]' if address.api_key else '"none"'
    console.print()
    console.print(
        f"  curl{insecure} {address.url}/v1/chat/completions{key_header}"
        f" -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    )
    console.print()
    for line in (
        *(["import os"] if address.api_key else []),
        "from openai import OpenAI",
        f'client = OpenAI(base_url="{address.url}/v1", api_key={key})',
        f"print(client.chat.completions.create(model={json.dumps(model)}, max_tokens=32,",
        '      messages=[{"role": "user", "content": "Hello"}]).choices[0].message.content)',
    ):
        console.print(f"  {line}")


def verification_json(verification: Verification | None) -> Mapping[str, Any] | None:
    """Return the verification of an engine as JSON; None if it was not verified."""
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

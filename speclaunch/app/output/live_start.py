"""Progress of a start as a live table on a terminal."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.launching import OnReady, PlainObserver, WeightSizes, counted
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
        """Start the display."""
        self.log = log
        self._checked = False
        self._last = None
        self._live = self._display()
        self._live.start()

    def progress(self, tracker: PhaseTracker, seconds: float) -> None:
        """Draw the progress of the start."""
        self._last = (tracker, seconds)
        if self._live.is_started:
            self._live.update(self._draw(tracker, seconds))

    def ready(self, verification: Verification | None, seconds: float) -> None:
        """Leave the finished table on the screen."""
        self._checked = True
        if self._last is not None:
            self._live.update(self._draw(*self._last))
        self._live.stop()
        super().ready(verification, seconds)

    def stopping(self, why: str) -> None:
        """Leave the table unchanged and print that the engine is being stopped."""
        self._live.stop()
        super().stopping(why)

    def failed(self, why: str) -> None:
        """Leave the table of the failed attempt on the screen."""
        self._live.stop()
        super().failed(why)

    def close(self) -> None:
        """Release the terminal."""
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

"""Schedule and progress of a comparison: a progress bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, Task, TextColumn
from rich.text import Text

from speclaunch.app.output.bench import per_cell
from speclaunch.app.output.console import Printer
from speclaunch.core import Heartbeat, beating, duration
from speclaunch.measure import (
    WARM_UP,
    Prompts,
    Round,
    Schedule,
    Step,
    TimeEstimate,
    seconds_left,
    starts_due,
    steps,
)

_SILENT_SECONDS = 60.0
_RATE = 1000
"""Assumed output tokens per second if no rate is known."""


class BenchCourse:
    """Progress of a comparison, updated by engine changes and finished rounds."""

    def __init__(
        self,
        schedule: Schedule,
        done: Sequence[Round],
        due: Sequence[Step],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedule, self._clock = schedule, clock
        self._rounds, self._due = list(done), list(due)
        self._measured: list[Step] = []
        self._between: list[float] = []
        self._starts: list[float] = []
        self._since = clock()
        self._starting = True
        self.total = len(done) + len(due)

    @property
    def done(self) -> int:
        return len(self._rounds)

    @property
    def now(self) -> str:
        """Name of the current round; empty at the end."""
        return round_name(self._due[0]) if self._due else ""

    def engine_changed(self) -> None:
        """Record an engine start or stop; its time does not count as round time."""
        self._starting = True

    def round(self, found: Round) -> None:
        now = self._clock()
        overhead = max(0.0, now - self._since - found.seconds)
        (self._starts if self._starting else self._between).append(overhead)
        self._since, self._starting = now, False
        self._rounds.append(found)
        self._measured += self._due[:1]
        del self._due[:1]

    def left(self) -> float | None:
        """Return the estimated seconds left after the latest round; None if unknown."""
        starts = starts_due(self._schedule, self._measured, self._due)
        return seconds_left(
            self._schedule,
            self._rounds,
            self._due,
            starts,
            between=self._between,
            starting=self._starts,
        )

    def left_now(self) -> str:
        """Return the remaining time as text: `about 3 min left`; empty if unknown."""
        left = self.left()
        if left is None or not self._due:
            return ""
        return f"about {duration(max(0.0, left - (self._clock() - self._since)))} left"


def round_name(step: Step) -> str:
    """Return the name of a round: `cpu_ngram, code at 4`."""
    return f"{step.side.name}, {per_cell(step.at)}"


class LineProgress:
    """Progress as a line per round, with a heartbeat during long rounds."""

    def __init__(self, printer: Printer, course: BenchCourse) -> None:
        self._printer, self._course = printer, course
        self._stack = contextlib.ExitStack()
        self._heart: Heartbeat | None = None
        self._last_text = ""

    def __enter__(self) -> Self:
        self._heart = self._stack.enter_context(
            beating(self._print, self._alive, every=_SILENT_SECONDS)
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        """Print a message about an engine start or stop."""
        self._course.engine_changed()
        self._last_text = text
        self._print(text)

    def round(self, found: Round) -> None:
        name = self._course.now
        self._course.round(found)
        self._last_text = ""
        self._print(round_line(self._course, name, found))

    def _alive(self, seconds: float) -> str:
        left = self._course.left_now()
        what = self._last_text or f"measuring {self._course.now}"
        return f"{what} ({duration(seconds)} so far{f', {left}' if left else ''})"

    def _print(self, text: str) -> None:
        if self._heart is not None:
            self._heart.note_output()
        self._printer.print(text)


class DrawnProgress:
    """Progress as a bar, with messages above it."""

    def __init__(self, console: Console, course: BenchCourse) -> None:
        self._course = course
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _Left(course),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(
            course.now or "done", total=course.total, completed=course.done
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):  # the terminal may have gone away
            self._bar.stop()

    def say(self, text: str) -> None:
        self._course.engine_changed()
        self._bar.console.print(text)

    def round(self, found: Round) -> None:
        name = self._course.now
        self._course.round(found)
        self._bar.console.print(round_line(self._course, name, found), style="dim")
        now = self._course.now or "done"
        self._bar.update(self._task, completed=self._course.done, description=now)


class _Left(TextColumn):
    def __init__(self, course: BenchCourse) -> None:
        super().__init__("")
        self._course = course

    def render(self, task: Task) -> Text:  # noqa: ARG002
        return Text(self._course.left_now())


def round_line(course: BenchCourse, name: str, found: Round) -> str:
    """Return a progress line: `7/20 cpu_ngram, code at 4: 52.1 tokens/s, about 3 min left`."""
    left = course.left_now()
    speed = f"{found.throughput:.1f} tokens/s"
    return f"{course.done}/{course.total} {name}: {speed}{f', {left}' if left else ''}"


@contextlib.contextmanager
def progress(
    console: Console, printer: Printer, course: BenchCourse
) -> Iterator[LineProgress | DrawnProgress]:
    """Yield a progress bar on a terminal, line output elsewhere."""
    shown = (
        DrawnProgress(console, course)
        if console.is_terminal and not console.is_dumb_terminal
        else None
    )
    with shown or LineProgress(printer, course) as found:
        yield found


def show_schedule(console: Console, schedule: Schedule, expected: TimeEstimate) -> None:
    """Print the schedule and the time estimate; start nothing."""
    for line in lines(schedule, expected):
        console.print(line)


def lines(schedule: Schedule, expected: TimeEstimate) -> list[str]:
    """Return lines about the starts, rounds, tokens and time of a schedule."""
    due = steps(schedule)
    how = "one engine at a time" if schedule.blocks else "both running, the waiting engine paused"
    return [
        f"sides:   {', '.join(order.name for order in schedule.sides)}",
        f"starts:  {schedule.starts_in_all}, {how}",
        *(
            f"measure: {prompts.name}{_length(prompts)} at concurrency {concurrency}: "
            f"{schedule.rounds} rounds of {schedule.requests_at(concurrency)} requests, "
            f"{prompts.output_tokens} tokens each, per side"
            for prompts, concurrency in schedule.cells()
        ),
        f"rounds:  {len(due)}, plus {WARM_UP} warm-up rounds of each kind per start",
        f"tokens:  {expected.tokens:,} to generate, including warm-up",
        f"time:    {time_line(expected)}",
    ]


def _length(prompts: Prompts) -> str:
    return f" with prompts of {prompts.context:,} tokens" if prompts.context else ""


def time_line(expected: TimeEstimate) -> str:
    """Return the time estimate and its source as text, with unknown parts marked."""
    starts = (
        "starts: unknown (weight size unknown)"
        if expected.starts is None
        else f"starts: about {duration(expected.starts)}"
    )
    if expected.rounds is None:
        example = duration(expected.tokens / _RATE)
        rounds = f"rounds: unknown until measured (at {_RATE:,} tokens/s: {example})"
    else:
        rounds = f"rounds: about {duration(expected.rounds)}, at the speed of {expected.source}"
    total = f"; about {duration(expected.seconds)} in total" if expected.seconds is not None else ""
    return f"{starts}; {rounds}{total} (an estimate)"

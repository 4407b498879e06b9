"""How far a comparison is: a line a round elsewhere, a bar on a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from speclaunch.app.output.bench_progress import BenchCourse, DrawnProgress, LineProgress, progress
from speclaunch.app.output.console import PlainPrinter
from speclaunch.measure.bench.comparison import steps
from tests.measure.bench.test_estimate import SCHEDULE, of


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def played(shown: LineProgress | DrawnProgress, clock: Clock) -> None:
    """Two starts of 20 seconds, rounds of 2, half a second between them."""
    up: set[str] = set()
    for step in steps(SCHEDULE):
        if step.side.name not in up:
            up.add(step.side.name)
            shown.say(f"starting {step.side.name}")
            clock.now += 20
        clock.now += 2.5
        shown.round(of(step, 2.0))


def test_a_line_a_round_with_what_is_left() -> None:
    clock, stream = Clock(), StringIO()
    course = BenchCourse(SCHEDULE, (), steps(SCHEDULE), clock)
    with LineProgress(PlainPrinter(stream), course) as shown:
        played(shown, clock)
    said = stream.getvalue().splitlines()
    assert said[0] == "starting R"
    assert said[1].startswith("1/16 R, chat at 1: 64.0 tokens/s, about ")  # a start is known
    assert said[3].startswith("2/16 plain, chat at 1: 64.0 tokens/s")
    # 12 rounds of 2 seconds and half a second between
    assert said[5].startswith("4/16 plain, chat at 8: 256.0 tokens/s, about 30 s left")
    assert said[-1] == "16/16 R, chat at 8: 256.0 tokens/s"


def test_rounds_that_are_kept_count() -> None:
    all_steps = steps(SCHEDULE)
    done = [of(step, 2.0) for step in all_steps[:10]]
    course = BenchCourse(SCHEDULE, done, all_steps[10:], Clock())
    assert (course.done, course.total) == (10, 16)
    assert course.left() is None  # how long a start takes here is not known
    assert course.now.endswith("chat at 8")


def test_a_bar_on_a_terminal_and_lines_elsewhere() -> None:
    clock, stream = Clock(), StringIO()
    console = Console(file=stream, force_terminal=True, width=100, legacy_windows=False)
    course = BenchCourse(SCHEDULE, (), steps(SCHEDULE), clock)
    with progress(console, PlainPrinter(StringIO()), course) as shown:
        assert isinstance(shown, DrawnProgress)
        played(shown, clock)
    assert "starting R" in stream.getvalue() and "16/16" in stream.getvalue()
    piped = Console(file=StringIO(), width=100)
    course = BenchCourse(SCHEDULE, (), steps(SCHEDULE), clock)
    with progress(piped, PlainPrinter(StringIO()), course) as shown:
        assert isinstance(shown, LineProgress)


def test_a_sign_of_life_says_what_is_going_on() -> None:
    clock = Clock()
    course = BenchCourse(SCHEDULE, (), steps(SCHEDULE), clock)
    shown = LineProgress(PlainPrinter(StringIO()), course)
    shown.say("starting R")
    assert shown._alive(75) == "starting R (1 min 15 s so far)"
    clock.now += 20
    shown.round(of(steps(SCHEDULE)[0], 2.0))
    assert shown._alive(95).startswith("measuring plain, chat at 1 (1 min 35 s so far, about ")

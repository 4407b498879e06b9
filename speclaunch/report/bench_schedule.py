"""What a comparison would do: its starts, its rounds, and how long that is likely to take."""

from __future__ import annotations

from rich.console import Console

from speclaunch.bench.comparison import WARM_UP, Schedule, steps
from speclaunch.bench.estimate import Estimate
from speclaunch.bench.workload import Prompts
from speclaunch.heartbeat import duration

_RATE = 1000
"""Output tokens a second, for an example where no rate is known."""


def show_schedule(console: Console, schedule: Schedule, expected: Estimate) -> None:
    """Nothing is started."""
    for line in lines(schedule, expected):
        console.print(line, markup=False, highlight=False)


def lines(schedule: Schedule, expected: Estimate) -> list[str]:
    """Starts, rounds, tokens, time."""
    due = steps(schedule)
    how = "one engine at a time" if schedule.blocks else "all up at once, those that wait halted"
    return [
        f"sides:   {', '.join(order.name for order in schedule.sides)}",
        f"starts:  {schedule.starts_in_all}, {how}",
        *(
            f"measure: {prompts.name}{_length(prompts)} at a concurrency of {concurrency}: "
            f"{schedule.rounds} rounds of {schedule.requests_at(concurrency)} requests, "
            f"{prompts.output_tokens} tokens each, each side"
            for prompts, concurrency in schedule.cells()
        ),
        f"rounds:  {len(due)}, and {WARM_UP} of each kind that warm up after a start",
        f"tokens:  {expected.tokens:,} to be generated, those of the warm-up too",
        f"time:    {time_line(expected)}",
    ]


def _length(prompts: Prompts) -> str:
    return f" with prompts of {prompts.context:,} tokens" if prompts.context else ""


def time_line(expected: Estimate) -> str:
    """An estimate, and what it rests on; what is unknown is said to be."""
    starts = (
        "starts: unknown, as is the size of the weights"
        if expected.starts is None
        else f"starts: about {duration(expected.starts)}"
    )
    if expected.rounds is None:
        example = duration(expected.tokens / _RATE)
        rounds = f"rounds: unknown until measured (at {_RATE:,} tokens/s: {example})"
    else:
        rounds = f"rounds: about {duration(expected.rounds)}, as fast as in {expected.source}"
    whole = f"; about {duration(expected.seconds)} in all" if expected.seconds is not None else ""
    return f"{starts}; {rounds}{whole} (an estimate)"

"""What a tuning found, on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from speclaunch.bench.statistics import Claim
from speclaunch.record import record
from speclaunch.tuning.adaptive import adaptive_words
from speclaunch.tuning.model import Trial
from speclaunch.tuning.objective import Aim, Objective
from speclaunch.tuning.setting import Setting
from speclaunch.tuning.verification import Compared, Verdict

_COLUMNS = ("setting", "tokens/s a request", "against own", "accept length", "ms a step")
_CLAIMS = {Claim.PAYS: "faster", Claim.DOES_NOT_PAY: "slower", Claim.NOT_SHOWN: "not shown"}


@record
class Outcome:
    """All that is to be told."""

    recipe: str
    engine: str
    algorithm: str
    objective: str
    own: Setting | None
    order: tuple[Setting, ...]
    """Those that were tried, the best first."""
    trials: tuple[Trial, ...]
    failed: Mapping[str, str]
    verdict: Verdict | None
    """None: nothing was compared."""
    compared_starts: int
    """Of each side of the comparison."""
    ended: str
    starts: int
    seconds: float
    overrides: tuple[str, ...]
    diff: str
    written: Path | None
    adaptive: Mapping[str, Any] | None
    adaptive_file: Path | None

    @property
    def best(self) -> Setting | None:
        """The setting to use."""
        winner = self.verdict.winner if self.verdict is not None else None
        return winner.setting if winner is not None else self.own


def evidence(winner: Compared, aim: Objective, workload: str, date: str) -> str:
    """For a comment in the recipe."""
    ratio = winner.ratio
    what = "as fast" if aim.aim is Aim.LATENCY else f"the {aim.aim.value}"
    where = "" if aim.aim is Aim.LATENCY else f" at {', '.join(map(str, aim.concurrencies))}"
    sure = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return f"{date}: {ratio.ratio:.2f} ({sure}) times {what}{where}, {workload}"


def show_outcome(console: Console, found: Outcome) -> None:
    """A table, the best first; then what the comparison says, and the change of the recipe."""
    console.print(_table(found))

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False)

    for setting, why in found.failed.items():
        say(f"not measured: {setting}: {why}", "dim")
    say(f"ended: {found.ended}; {found.starts} starts", "dim")
    say(_sentence(found))
    if found.verdict is not None and found.verdict.compared and found.compared_starts == 1:
        say(
            "Each side was started once: what differs from start to start is not in the intervals "
            "(--verify-starts 3 measures it).",
            "dim",
        )
    if found.overrides:
        say(" ".join(found.overrides))
    if found.diff:
        say("")
        console.print(found.diff, markup=False, highlight=False, soft_wrap=True, end="")
    if found.written is not None:
        say(f"written: {found.written}")
    if found.adaptive is not None and found.adaptive_file is not None:
        say(f"written, and read by the engine's own reader: {found.adaptive_file}")
        say(" ".join(adaptive_words(found.adaptive, found.adaptive_file)))
        say("It was not measured as such: bench compares it.", "dim")


def _table(found: Outcome) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    several = len({one.concurrency for one in found.trials}) > 1
    columns = (*_COLUMNS[:1], "requests", *_COLUMNS[1:]) if several else _COLUMNS
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for setting in found.order:
        mark = " (the recipe's own)" if setting == found.own else ""
        for one in (trial for trial in found.trials if trial.setting == setting):
            mine = next(
                (
                    other
                    for other in found.trials
                    if (other.setting, other.concurrency) == (found.own, one.concurrency)
                ),
                None,
            )
            table.add_row(
                f"{setting}{mark}",
                *([str(one.concurrency)] if several else []),
                f"{one.speed:.1f}",
                f"{one.speed / mine.speed:.2f}" if mine is not None else "",
                f"{one.accept_length:.2f}",
                f"{1000 * one.step_seconds:.1f}",
            )
    return table


def _sentence(found: Outcome) -> str:
    verdict = found.verdict
    if verdict is None and found.order and found.order[0] == found.own:
        return "The recipe's own setting is the best of those that were tried."
    if verdict is None:
        return "Nothing was compared: one start of each proves little. The recipe stays as it is."
    if verdict.refused:
        return f"The comparison does not count: {'; '.join(verdict.refused)}."
    told = [
        f"{one.setting}: {_CLAIMS[one.ratio.claim]}, {one.ratio.ratio:.2f} times the recipe's own "
        f"({one.ratio.low:.2f} to {one.ratio.high:.2f})"
        for one in verdict.compared
    ]
    if verdict.winner is None:
        told.append("No setting is shown to be faster: the recipe stays as it is.")
    return "\n".join(told)


def document(found: Outcome) -> dict[str, Any]:
    """For programs; times in seconds."""
    verdict = found.verdict

    def arguments(setting: Setting | None) -> dict[str, Any] | None:
        return None if setting is None else dict(setting.arguments(found.algorithm))

    return {
        "version": 1,
        "recipe": found.recipe,
        "engine": found.engine,
        "algorithm": found.algorithm,
        "objective": found.objective,
        "own": arguments(found.own),
        "best": arguments(found.best),
        "trials": [
            {
                "arguments": arguments(one.setting),
                "concurrency": one.concurrency,
                "tokens_per_second": one.speed,
                "output_tokens_per_second": one.throughput,
                "accept_length": one.accept_length,
                "step_seconds": one.step_seconds,
                "accepted_by_position": list(one.accepted),
            }
            for setting in found.order
            for one in found.trials
            if one.setting == setting
        ],
        "failed": [{"setting": name, "why": why} for name, why in found.failed.items()],
        "comparison": None
        if verdict is None
        else {
            "counts": not verdict.refused,
            "objections": list(verdict.refused),
            "starts": found.compared_starts,
            "settings": [
                {
                    "arguments": arguments(one.setting),
                    "claim": _CLAIMS[one.ratio.claim],
                    "ratio": one.ratio.ratio,
                    "low": one.ratio.low,
                    "high": one.ratio.high,
                    "pairs": one.ratio.pairs,
                    "by_concurrency": [
                        {"concurrency": load, "ratio": ratio} for load, ratio in one.by_load
                    ],
                }
                for one in verdict.compared
            ],
        },
        "ended": found.ended,
        "starts": found.starts,
        "seconds": found.seconds,
        "overrides": list(found.overrides),
        "diff": found.diff,
        "written": None if found.written is None else str(found.written),
        "adaptive": None if found.adaptive is None else dict(found.adaptive),
    }

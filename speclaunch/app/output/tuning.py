"""Result of a tuning run, on the terminal and as JSON: a stable contract for scripts.

`docs/reference/tune.schema.json` is generated from these models; a test compares them. Within
version 1, keys are never removed or redefined; new keys may be added.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from speclaunch.app.output.terminal import plain_table
from speclaunch.measure import (
    Aim,
    Compared,
    DraftSetting,
    LoadRatio,
    Trial,
    TuningObjective,
    TuningVerdict,
    adaptive_words,
)

_COLUMNS = ("setting", "tokens/s per request", "vs. recipe", "accept length", "ms per step")
Arguments = dict[str, int]


class TrialRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A setting measured at one load. `step_seconds`: seconds of a verify step and its overhead."""

    arguments: Arguments
    concurrency: int
    tokens_per_second: float
    output_tokens_per_second: float
    accept_length: float
    step_seconds: float
    accepted_by_position: list[float]


class ComparedRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """Comparison of a setting with the recipe's own: speed ratio and its confidence interval."""

    arguments: Arguments
    claim: Literal["faster", "slower", "not shown"]
    ratio: float
    low: float
    high: float
    pairs: int
    by_concurrency: list[LoadRatio]


class TuningComparison(Struct, frozen=True, forbid_unknown_fields=True):
    """The comparison of the best settings; `counts` is false if it is invalid. `starts`: engine
    starts of each side; with several, the intervals include variation between starts."""

    counts: bool
    objections: list[str]
    starts: int
    settings: list[ComparedRecord]


class FailureRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A setting that could not be measured."""

    setting: str
    why: str


class TuneDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Result of `tune`. `best`: the arguments to use; the recipe's own if no others are shown to be
    faster, null if those are unknown."""

    version: Literal[1] = 1
    recipe: str
    engine: str
    algorithm: str
    objective: str
    own: Arguments | None
    published: Arguments | None = None
    """Setting from published evidence, also tried; null if none exists or the rules reject it."""
    best: Arguments | None
    trials: list[TrialRecord]
    failed: list[FailureRecord]
    comparison: TuningComparison | None
    ended: str
    starts: int
    seconds: float
    overrides: list[str]
    diff: str
    written: str | None
    adaptive: dict[str, Any] | None


class TuningOutcome(Struct, frozen=True):
    """Complete result of a tuning run."""

    recipe: str
    engine: str
    algorithm: str
    objective: str
    own: DraftSetting | None
    published: DraftSetting | None
    order: tuple[DraftSetting, ...]
    """Tried settings, best first."""
    trials: tuple[Trial, ...]
    failed: Mapping[str, str]
    verdict: TuningVerdict | None
    """Result of the comparison; None if nothing was compared."""
    compared_starts: int
    """Number of engine starts per side of the comparison."""
    ended: str
    starts: int
    seconds: float
    overrides: tuple[str, ...]
    diff: str
    written: Path | None
    adaptive: Mapping[str, Any] | None
    adaptive_file: Path | None

    @property
    def best(self) -> DraftSetting | None:
        """Setting to use; None if the recipe's own is unknown and none is shown to be faster."""
        winner = self.verdict.winner if self.verdict is not None else None
        return winner.setting if winner is not None else self.own


def evidence(winner: Compared, aim: TuningObjective, workload: str, date: str) -> str:
    """Return the text of the evidence comment in a recipe."""
    ratio = winner.ratio
    what = "as fast" if aim.aim is Aim.LATENCY else f"the {aim.aim.value}"
    where = "" if aim.aim is Aim.LATENCY else f" at {', '.join(map(str, aim.concurrencies))}"
    sure = f"{ratio.low:.2f} to {ratio.high:.2f}"
    return f"{date}: {ratio.ratio:.2f} ({sure}) times {what}{where}, {workload}"


def show_outcome(console: Console, found: TuningOutcome) -> None:
    """Print the settings, best first, then the comparison and the change to the recipe."""
    console.print(_table(found))

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style)

    for setting, why in found.failed.items():
        say(f"not measured: {setting} ({why})", "dim")
    say(f"ended: {found.ended}; {found.starts} starts", "dim")
    say(_sentence(found))
    if found.verdict is not None and found.verdict.compared and found.compared_starts == 1:
        say(
            "Each side was started once: the intervals exclude variation between starts "
            "(use --verify-starts 3).",
            "dim",
        )
    if found.overrides:
        say(" ".join(found.overrides))
    if found.diff:
        say("")
        console.print(found.diff, soft_wrap=True, end="")
    if found.written is not None:
        say(f"written: {found.written}")
    if found.adaptive is not None and found.adaptive_file is not None:
        say(f"written and verified with the engine's reader: {found.adaptive_file}")
        say(" ".join(adaptive_words(found.adaptive, found.adaptive_file)))
        say("Its combination of steps was not measured: use bench to measure it.", "dim")


def _table(found: TuningOutcome) -> Table:
    several = len({trial.concurrency for trial in found.trials}) > 1
    columns = (*_COLUMNS[:1], "requests", *_COLUMNS[1:]) if several else _COLUMNS
    table = plain_table(columns, right=columns[1:], overflow="ellipsis")
    own = {
        trial.concurrency: trial for trial in reversed(found.trials) if trial.setting == found.own
    }
    for setting in found.order:
        mark = " (published)" if setting == found.published else ""
        mark = " (the recipe's own)" if setting == found.own else mark
        for trial in found.trials:
            if trial.setting != setting:
                continue
            mine = own.get(trial.concurrency)
            table.add_row(
                f"{setting}{mark}",
                *([str(trial.concurrency)] if several else []),
                f"{trial.speed:.1f}",
                f"{trial.speed / mine.speed:.2f}" if mine is not None else "",
                f"{trial.accept_length:.2f}",
                f"{1000 * trial.step_seconds:.1f}",
            )
    return table


def _sentence(found: TuningOutcome) -> str:
    verdict = found.verdict
    if verdict is None and found.order and found.order[0] == found.own:
        return "The recipe's own setting is the best of the tried settings."
    if verdict is None:
        return "Nothing was compared. The recipe is unchanged."
    if verdict.refused:
        return f"The comparison does not count: {'; '.join(verdict.refused)}."
    sentences = [
        f"{compared.setting}: {compared.claim}, {compared.ratio.ratio:.2f} times the recipe's own "
        f"({compared.ratio.low:.2f} to {compared.ratio.high:.2f})"
        for compared in verdict.compared
    ]
    if verdict.winner is None:
        sentences.append("No setting is shown to be faster. The recipe is unchanged.")
    return "\n".join(sentences)


def document(found: TuningOutcome) -> TuneDocument:
    """Return the result as a JSON record; times in seconds."""
    verdict, own, best = found.verdict, found.own, found.best
    return TuneDocument(
        recipe=found.recipe,
        engine=found.engine,
        algorithm=found.algorithm,
        objective=found.objective,
        own=None if own is None else own.arguments,
        published=None if found.published is None else found.published.arguments,
        best=None if best is None else best.arguments,
        trials=[
            _trial(trial)
            for setting in found.order
            for trial in found.trials
            if trial.setting == setting
        ],
        failed=[FailureRecord(name, why) for name, why in found.failed.items()],
        comparison=None
        if verdict is None
        else TuningComparison(
            not verdict.refused,
            list(verdict.refused),
            found.compared_starts,
            [_compared(compared) for compared in verdict.compared],
        ),
        ended=found.ended,
        starts=found.starts,
        seconds=found.seconds,
        overrides=list(found.overrides),
        diff=found.diff,
        written=None if found.written is None else str(found.written),
        adaptive=None if found.adaptive is None else dict(found.adaptive),
    )


def _trial(trial: Trial) -> TrialRecord:
    return TrialRecord(
        trial.setting.arguments,
        trial.concurrency,
        trial.speed,
        trial.throughput,
        trial.accept_length,
        trial.step_seconds,
        list(trial.accepted),
    )


def _compared(compared: Compared) -> ComparedRecord:
    ratio = compared.ratio
    return ComparedRecord(
        compared.setting.arguments,
        compared.claim,
        ratio.ratio,
        ratio.low,
        ratio.high,
        ratio.pairs,
        list(compared.by_load),
    )

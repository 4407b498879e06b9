"""Phases of a start and their progress, as a launch shows them."""

from __future__ import annotations

import re

from msgspec import Struct, field
from msgspec.structs import replace

from speclaunch.serving.launch.engine_log import PORT_TAKEN, LogLine, LogMark, Phase, mark_of, read


class PhaseStep(Struct, frozen=True):
    """A phase that began `started` seconds after the engine was spawned."""

    phase: Phase
    started: float
    ended: float | None = None
    detail: str = ""


_PORT_TAKEN = re.compile(PORT_TAKEN)


class PhaseTracker(Struct):
    """Tracker that derives start phases from the engine's output. `steps`: phases so far."""

    steps: list[PhaseStep] = field(default_factory=lambda: [PhaseStep(Phase.IMPORTS, 0.0)])
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    port_taken: bool = False
    """True if the engine could not bind its port. The engine does not exit (seen on 0.5.23)."""
    bar: ProgressBar | None = None
    last_output: float = 0.0
    """Time of the engine's last output, in seconds after the spawn."""
    _weights: int = 0

    @property
    def current(self) -> PhaseStep:
        return self.steps[-1]

    def feed(self, line: str, now: float) -> bool:
        """Process a line that appeared `now` seconds after the spawn; return True if anything
        changed."""
        self.last_output = now
        self.bar = read_bar(line, now) or self.bar
        if _PORT_TAKEN.search(line):
            self.port_taken = True
            return True
        marks = [self._take(record, now) for record in read([line])]
        return any(marks)

    def _take(self, line: LogLine, now: float) -> bool:
        if re.search(r"[1-9]", line.rank):
            return False  # of a rank other than the first
        match mark_of(line.text):
            case LogMark.ARGUMENTS, _:
                self.enter(Phase.SCHEDULER, now)
            case LogMark.LOAD_BEGIN, _:
                self._weights += 1
                self.enter(Phase.WEIGHTS if self._weights == 1 else Phase.DRAFT_WEIGHTS, now)
            case LogMark.LOAD_END, found:
                size = float(found["used_gb"] or 0)
                detail = found["type"] + (f", {size:.2f} GB" if size > 0 else "")
                self.steps[-1] = replace(self.current, ended=now, detail=detail)
            case LogMark.POOL, found:
                self.enter(Phase.KV_POOL, self.current.ended or now)
                detail = f"{int(found['tokens']):,} tokens"
                self.steps[-1] = replace(self.current, detail=detail)
            case LogMark.CAPTURE_BEGIN, _:
                self.enter(Phase.GRAPHS, now)
            case LogMark.SUMMARY, found:
                self.max_total_tokens = int(found["tokens"])
                self.max_running_requests = int(found["requests"])
            case LogMark.SERVING, _:
                self.enter(Phase.WARM_UP, now)
            case _:
                return False
        return True

    def glance(self, unfinished: str, now: float) -> None:
        """Inspect an unfinished line, because a bar is redrawn before its line ends."""
        bar = read_bar(unfinished, now)
        if bar is not None and (self.bar is None or _drawn(bar) != _drawn(self.bar)):
            self.bar, self.last_output = bar, now

    def enter(self, phase: Phase, now: float) -> None:
        """Begin a phase and end the previous phase; do nothing if this phase is current."""
        last = self.steps[-1]
        if last.phase is not phase:
            if last.ended is None:
                self.steps[-1] = replace(last, ended=now)
            self.steps.append(PhaseStep(phase, now))
            self.bar = None


def _drawn(bar: ProgressBar) -> tuple[str, str, str]:
    return bar.what, bar.done, bar.total


# The engine's progress bars.
#
# All of them are tqdm's, and only rank 0 draws them. Up to 0.5.9 the bars of weights end with a
# newline (0.4.6 `model_loader/weight_utils.py:354`, 0.5.9 `utils/common.py:129`). From 0.5.10 on
# they are redrawn with a carriage return (0.5.10 `utils/common.py:125`), as those of CUDA graphs
# always were (0.5.3 `model_executor/cuda_graph_runner.py:461`, 0.5.23
# `model_executor/runner/decode_cuda_graph_runner.py:1326`). A bar's name states what it counts:
#
# - shards: `Loading safetensors|pt|np_cache checkpoint shards` (0.4.6 on), `Multi-thread loading
#   [pt checkpoint] shards` (0.4.8.post1 on);
# - groups of files, one per rank: `… using Fastsafetensor loader` (0.5.7 on);
# - tensors: `… using Runai Model Streamer` (0.4.6 on), `… using InstantTensor` (0.5.22 on);
# - anything else by its own name: `Capturing batches (bs=…)`, `DeepGEMM warmup`, `Fetching 4
#   files`.

_BAR = re.compile(
    r"(?P<what>[A-Za-z][^|]*?): +\d+%(?: Completed \| |\|[^|]*\| *)"
    r"(?P<done>[\d.]+)(?P<unit>[kMGT]?)B?/(?P<total>[\d.]+)(?P<units>[kMGT]?)B? "
    r"\[(?P<elapsed>[\d:]+)<(?P<left>[\d:]+|\?)"
)
_COUNTED = (
    (re.compile(r"shards$"), "shards", True),
    (re.compile(r"Fastsafetensor loader$"), "groups of shards", True),
    (re.compile(r"(?:Runai Model Streamer|InstantTensor)$"), "tensors", False),
    (re.compile(r"^Capturing batches\b"), "batch sizes", False),
    (re.compile(r"^(?:Capturing|Compiling) num tokens\b"), "numbers of tokens", False),
    (re.compile(r"^Capturing prefill shape\b"), "prefill shapes", False),
)
_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_DETAIL = re.compile(r" \(.*\)$")


class ProgressBar(Struct, frozen=True):
    """A progress bar as last drawn, `at` seconds after the spawn."""

    what: str
    """Counted unit: `shards`, or the bar's own name."""
    done: str
    total: str
    fraction: float
    left: float | None
    """Seconds remaining from `at`, as estimated by the engine; None without an estimate."""
    at: float
    of_weights: bool
    """True if `fraction` is roughly the loaded share of the weights' bytes."""


def read_bar(line: str, now: float) -> ProgressBar | None:
    """Return the last bar in a line of output; None if there is none."""
    bars = list(_BAR.finditer(line)) if "%" in line else []
    if not bars:
        return None
    found = bars[-1]
    done = _number(found["done"], found["unit"])
    total = _number(found["total"], found["units"])
    if done is None or total is None or not 0 <= done <= total or not total:
        return None
    name = _DETAIL.sub("", found["what"].strip())
    what, of_weights = name, False
    for pattern, counted, weights in _COUNTED:
        if pattern.search(name):
            what, of_weights = counted, weights
            break
    return ProgressBar(
        what,
        found["done"] + found["unit"],
        found["total"] + found["units"],
        done / total,
        _seconds(found["left"]),
        now,
        of_weights,
    )


def _number(digits: str, unit: str) -> float | None:
    try:
        return float(digits) * _FACTORS[unit]
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    """Return the seconds of tqdm's `01:53` or `1:02:03`; None for `?`."""
    if text == "?":
        return None
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return float(seconds)

"""How far a phase of a start is, read off the engine's progress bars.

All of them are tqdm's, and rank 0 alone draws them. Up to 0.5.9 the bars of weights end with a
newline (0.4.6 `model_loader/weight_utils.py:354`, 0.5.9 `utils/common.py:129`), from 0.5.10 on
they are drawn over each other with a carriage return (0.5.10 `utils/common.py:125`), as those of
CUDA graphs always were (0.5.3 `model_executor/cuda_graph_runner.py:461`, 0.5.23
`model_executor/runner/decode_cuda_graph_runner.py:1326`). What a bar counts stands in its name:

- shards: `Loading safetensors|pt|np_cache checkpoint shards` (0.4.6 on), `Multi-thread loading
  [pt checkpoint] shards` (0.4.8.post1 on);
- groups of files, one a rank: `… using Fastsafetensor loader` (0.5.7 on);
- tensors: `… using Runai Model Streamer` (0.4.6 on), `… using InstantTensor` (0.5.22 on);
- anything else by its own name: `Capturing batches (bs=…)`, `DeepGEMM warmup`, `Fetching 4 files`.
"""

from __future__ import annotations

import re

from speclaunch.record import record

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


@record
class ProgressBar:
    """A progress bar as it was drawn last, `at` seconds after the spawn."""

    what: str
    """What is counted: `shards`, or the bar's own name."""
    done: str
    total: str
    fraction: float
    left: float | None
    """Seconds that the engine expects from then on; None where it does not say."""
    at: float
    of_weights: bool
    """Whether its fraction is one of the weights' bytes, about."""


def read_bar(line: str, now: float) -> ProgressBar | None:
    """The last bar in a line of output; None where there is none."""
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
    """tqdm's `01:53` or `1:02:03`."""
    if text == "?":
        return None
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part or 0)
    return float(seconds)

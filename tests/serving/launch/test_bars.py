"""How far a start is, from the bars that the released engines draw."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from speclaunch.app.output.launching import PlainObserver, WeightSizes, how_far
from speclaunch.serving.launch import supervisor
from speclaunch.serving.launch.phases import PhaseTracker, read_bar
from speclaunch.serving.launch.supervisor import Ending, EngineSpec, supervise
from tests.support.loops import rows

Make = Callable[..., EngineSpec]
STAMP = "[2026-11-21 02:16:12]"


@rows(
    "line, what, done, total, left, of_weights",
    [
        # 0.4.6 to 0.5.7: model_loader/weight_utils.py, `_BAR_FORMAT`
        (
            "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.00it/s]",
            "shards",
            "1",
            "4",
            3.0,
            True,
        ),
        (
            "Multi-thread loading shards:   0% Completed | 0/163 [00:00<?, ?it/s]",
            "shards",
            "0",
            "163",
            None,
            True,
        ),
        (
            "Multi-thread loading pt checkpoint shards:  50% Completed | 8/16 [10:00<1:02:03, 2s/it]",
            "shards",
            "8",
            "16",
            3723.0,
            True,
        ),
        (
            "Loading safetensors using Fastsafetensor loader:  50%|█████     | 2/4 [00:02<00:02, 1it/s]",
            "groups of shards",
            "2",
            "4",
            2.0,
            True,
        ),
        (
            "Loading safetensors using Runai Model Streamer:  10% Completed | 70/700 [00:01<00:09, 70it/s]",
            "tensors",
            "70",
            "700",
            9.0,
            False,
        ),
        (
            "Capturing batches (bs=48 avail_mem=14.40 GB):   2%|2     | 1/47 [00:01<00:53,  1.1s/it]",
            "batch sizes",
            "1",
            "47",
            53.0,
            False,
        ),
        (
            "Capturing num tokens (num_tokens=8192 avail_mem=9.1 GB):  50%|##  | 5/10 [00:05<00:05, 1it/s]",
            "numbers of tokens",
            "5",
            "10",
            5.0,
            False,
        ),
        ("Fetching 4 files:  25%|##5  | 1/4 [00:10<00:30, 10s/it]", "Fetching 4 files", "1", "4", 30.0, False),
        (
            "model.safetensors:  12%|#2   | 1.20G/9.98G [00:30<03:40, 40MB/s]",
            "model.safetensors",
            "1.20G",
            "9.98G",
            220.0,
            False,
        ),
    ],
)  # fmt: skip
def test_bars_of_the_released_engines(
    line: str, what: str, done: str, total: str, left: float | None, of_weights: bool
) -> None:
    bar = read_bar(line, 7.0)
    assert bar is not None
    assert (bar.what, bar.done, bar.total, bar.left, bar.of_weights, bar.at) == (
        what,
        done,
        total,
        left,
        of_weights,
        7.0,
    )


@rows(
    "line",
    [
        "",
        f"{STAMP} Decode batch, #running-req: 1, token usage: 0.12, cuda graph: True",
        f"{STAMP} GPU memory: 50% used, 40/80 GB",
        "shards: 300% Completed | 12/4 [00:01<00:03, 1.00it/s]",  # more than there are
        "shards:  25% Completed | 0/0 [00:01<00:03, 1.00it/s]",
    ],
)
def test_what_is_no_bar(line: str) -> None:
    assert read_bar(line, 0.0) is None


def tracker(*lines: str) -> PhaseTracker:
    found = PhaseTracker()
    for second, line in enumerate(lines):
        found.feed(line, float(second))
    return found


BEGIN = f"{STAMP} Load weight begin. avail mem=78.40 GB"


def test_a_line_says_phase_shards_bytes_and_time_left() -> None:
    found = tracker(
        BEGIN,
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:20<01:10,  20s/it]",
    )
    assert how_far(found, 11.0, WeightSizes(target=16_100_000_000)) == (
        "[  11.0 s] load target weights: 1 of 4 shards, about 4.0 of 16.1 GB, 1 min 0 s left"
    )
    assert how_far(found, 11.0, WeightSizes()) == (
        "[  11.0 s] load target weights: 1 of 4 shards, 1 min 0 s left"
    )


def test_an_estimate_that_has_passed_is_not_repeated_and_silence_is_told() -> None:
    found = tracker(
        BEGIN,
        "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:20<00:10,  3s/it]",
    )
    assert how_far(found, 91.0, WeightSizes()) == (
        "[  91.0 s] load target weights: 1 of 4 shards; no engine output for 1 min 30 s"
    )


def test_the_bar_of_one_phase_does_not_stand_for_the_next() -> None:
    found = tracker(
        BEGIN,
        "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:20<00:00,  3s/it]",
        f"{STAMP} Load weight end. elapsed=20 s, type=LlamaForCausalLM, mem usage=15.0 GB.",
    )
    assert how_far(found, 12.0, WeightSizes()) == (
        "[  12.0 s] load target weights: done 10 s ago; the next step has not started"
    )
    found.feed(f"{STAMP} Capture cuda graph begin. This can take up to several minutes.", 13.0)
    assert how_far(found, 20.0, WeightSizes()) == "[  20.0 s] capture CUDA graphs: for 7 s"


@pytest.mark.thorough
def test_a_start_that_is_not_on_a_terminal_says_how_far_it_is(order: Make) -> None:
    said = io.StringIO()
    observer = PlainObserver(
        Console(file=said, width=400),
        lambda *_: None,
        weights=WeightSizes(target=16_000_000_000),
        every=0.3,
    )
    outcome = supervise(order("loads-shards", ready_timeout_seconds=4), observer)
    assert outcome.ending is Ending.FAILED
    text = said.getvalue()
    assert re.search(
        r"load target weights: 1 of 4 shards, about 4.0 of 16.0 GB, (?:1 min 0|59) s left", text
    ), text
    assert "2 of 4 shards, about 8.0 of 16.0 GB" in text, "drawn over, not ended by a newline"


@pytest.mark.thorough
def test_nothing_is_told_of_a_start_before_the_engine_is_named(
    order: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_STARTING_SECONDS", 0.001)  # looks before its process is known
    said = io.StringIO()
    supervise(
        order("serve", smoke=True), PlainObserver(Console(file=said, width=400), lambda *_: None)
    )
    lines = said.getvalue().splitlines()
    assert lines[0].startswith("engine started (process ")
    assert lines[1].endswith("import SGLang")

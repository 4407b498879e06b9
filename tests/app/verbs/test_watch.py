"""`speclaunch watch`: exit codes, documents for scripts, texts in a pipe and without color."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from rich.text import Text

from speclaunch.app.output.terminal import sparkline
from speclaunch.app.verbs.watch import exit_code, watch_view
from speclaunch.core import ExitCode
from speclaunch.measure.watch_history import RankSpan, WatchedEngine, WatchEvent, WatchProblem
from tests.support.loops import rows
from tests.support.program import run
from tests.support.serving.metrics_server import FakeMetrics, FakeRank, metrics_server

ONCE = ("watch", "--once", "--interval", "0.5")


@pytest.mark.thorough
def test_exit_codes_and_the_document() -> None:
    good, bad = FakeMetrics(), FakeMetrics(ranks=[FakeRank(length=1.0)])
    with metrics_server(good) as well, metrics_server(bad) as wrong:
        assert run(*ONCE, well).returncode == 0
        assert run(*ONCE, well, wrong).returncode == 1
        done = run(*ONCE, well, wrong, "http://127.0.0.1:1", "--output-format", "json")
    assert done.returncode == 2 and done.stderr == ""
    document = json.loads(done.stdout)
    assert document["version"] == 1
    found = [[one["kind"] for one in engine["problems"]] for engine in document["engines"]]
    assert found == [[], ["nothing accepted"], ["unreachable"]]


def test_an_engine_that_starts_is_neither_well_nor_wrong() -> None:
    well, bad = engine("well", problems=[]), engine("bad")
    starting = WatchedEngine(name="s", url="http://h", is_starting=True)
    away = WatchedEngine(name="u", url="http://h", problems=[WatchProblem("unreachable", "x")])
    assert exit_code([well]) is ExitCode.CLEAN
    assert exit_code([well, starting]) is ExitCode.USAGE
    assert exit_code([bad, starting]) is ExitCode.FAILED
    assert exit_code([bad, starting, away]) is ExitCode.USAGE
    assert "1 starting" in watch_view([well, starting], 80, 24).plain
    assert "1 with problems" in watch_view([bad, starting], 80, 24).plain


@pytest.mark.thorough
def test_a_pipe_gets_plain_text() -> None:
    state = FakeMetrics(raw=b'sglang:num_running_reqs{dp_rank="\x1b[31mx"} 1\n')
    state.info["served_model_name"] = "evil\x1b[2Jname"
    with metrics_server(state) as url:
        done = run(*ONCE, url)
    assert "\x1b" not in done.stdout and url.partition("://")[2] in done.stdout
    assert "evil" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("ftp://x",), 2, "is not the address of a server"),
        (("no-such-engine",), 2, "no engine of that name is running"),
        (("--interval", "0"), 2, "--interval"),
    ],
)
def test_mistakes(words: tuple[str, ...], code: int, text: str) -> None:
    done = run("watch", "--once", *words)
    assert done.returncode == code and text in done.stderr and "Traceback" not in done.stderr


APART = WatchProblem("ranks apart", "one rank is apart " * 9)


def engine(name: str, ranks: int = 1, problems: Sequence[WatchProblem] = (APART,)) -> WatchedEngine:
    spans = [
        RankSpan(rank=str(number), accept_length=2.5, accept_length_5m=2.4, running=3, kv_usage=0.5)
        for number in range(ranks)
    ]
    return WatchedEngine(
        name=name,
        url="http://h",
        source="metrics",
        is_reachable=True,
        algorithm="EAGLE3",
        total=spans[0],
        ranks=spans,
        problems=[*problems],
        events=[WatchEvent("2026-11-27T02:31:40Z", "it dropped")],
    )


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 10), (20, 5)])
@pytest.mark.parametrize("count", [1, 8, 40])
def test_the_view_fits_its_terminal(size: tuple[int, int], count: int) -> None:
    records = [
        engine(f"20261127-02200{number}-a-recipe-名前-" + "x" * 60, 4) for number in range(count)
    ]
    lines = watch_view(records, *size).split("\n")
    assert len(lines) <= size[1]
    if size[0] >= 80:
        assert all(Text.from_markup(line.plain).cell_len <= size[0] for line in lines)


def test_ranks_and_problems_are_shown() -> None:
    text = watch_view([engine("e", 2)], 200, 50).plain
    for part in ("rank 1", "2.50", "✗ one rank is apart", "02:31:40  it dropped", "EAGLE3"):
        assert part in text


@rows(
    "values, width, bars",
    [
        ([1.0, 2.0, None, 8.0], 10, "▁▂ █"),
        ([3.0, 3.0], 10, "▄▄"),
        ([1.0, 1.0, 8.0, 8.0], 2, "▁█"),
        ([], 10, ""),
        ([None], 10, ""),
    ],
)
def test_a_sparkline(values: list[float | None], width: int, bars: str) -> None:
    assert sparkline(values, width) == bars

"""A plan on terminals of several widths, without colours, in ASCII, and in a pipe."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from speclaunch.app.output import formatting
from speclaunch.app.output.plan_memory import COLORS, LETTERS, cells, ink, used
from speclaunch.app.output.plan_side_by_side import show_comparison
from speclaunch.app.output.plan_text import show_plan
from speclaunch.app.output.terminal import wrapped
from speclaunch.engine.plan.budget import MemoryShare, MemorySize, MemoryUse, RankBudget
from speclaunch.measure.advice.plan_requests import compared
from tests.support.app.output.plan.helpers import FAILS, FITS, GIB, UNKNOWN, planned, rank, shown
from tests.support.loops import rows

WIDTHS = [(60, True), (80, True), (120, True), (200, True), (400, False)]


@pytest.mark.parametrize(("width", "terminal"), WIDTHS)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_nothing_is_lost_at_any_width(width: int, terminal: bool, encoding: str) -> None:
    found = planned("args.enable_dp_attention=true", version="0.5.10.post1")
    text = shown(show_plan, found, width=width, terminal=terminal, encoding=encoding)
    text.encode(encoding)
    joined = re.sub(r"\s+", "", text)
    for row in found.rows:
        if row.notable:
            assert row.version_name in joined
            for word in formatting.effective(row).split():  # a column may break it between words
                assert word in joined or len(word) > 30, row.name
    for share in FITS.ranks[0].shares:
        assert share.use.value.replace(" ", "") in joined
    for word in ("304,742", "0.231 to 0.912", "ranks 0-3", "80.0 GiB", "captured"):
        assert word.replace(" ", "") in joined
    if terminal:
        head, _, _ = text.partition("\nFindings")  # findings and the command are never broken
        assert max(map(len, head.splitlines())) <= width


def test_a_row_of_a_pipe_is_one_line() -> None:
    text = shown(show_plan, planned(), terminal=False)
    (line,) = [line for line in text.splitlines() if "max_running_requests  " in line]
    assert "48" in line and "speculative decoding defaults this" in line and "sglang" in line


@pytest.mark.thorough
def test_by_default_what_matters_and_with_all_everything() -> None:
    found = planned()
    brief = shown(show_plan, found, terminal=False)
    whole = shown(show_plan, found, terminal=False, everything=True)
    assert "log_level" not in brief and "log_level" in whole
    assert "more at their defaults: --all" in brief
    assert "more at their defaults" not in whole
    for row in found.rows:
        assert row.version_name in whole


def test_silent_changes_are_loud() -> None:
    text = shown(show_plan, planned("args.enable_dp_attention=true", version="0.5.10.post1"))
    assert "!!  1 value changed silently: enable_dp_attention" in text
    assert re.search(r"!! +enable_dp_attention +true → false +changed silently", text)
    assert "changed silently" not in shown(show_plan, planned())


def test_unknown_values_name_the_missing_fact() -> None:
    text = shown(show_plan, planned(hardware=None, budget=UNKNOWN))
    assert re.search(r"\? +attention_backend +→ unknown +the hardware is unknown", text)
    assert "memory use unknown" in text and "missing: the memory of the GPU" in text
    assert "note: no GPU answers" in text


def test_a_budget_that_fails_says_where_with_what_message_and_by_how_much() -> None:
    text = shown(show_plan, planned(budget=FAILS))
    for said in (
        "does not fit",
        "the start fails at: capture CUDA graphs",
        "the engine's message: Capture cuda graph failed: CUDA out of memory",
        "6.2 GiB short",
        "^^^",
        "memory is too small",
    ):
        assert said in text
    (bar,) = [line for line in text.splitlines() if line.startswith("  [R")]
    inside, _, beyond = bar.strip().removeprefix("[").partition("]")
    assert beyond.startswith("G") and "A" in beyond
    assert len(beyond) / len(inside + beyond) == pytest.approx(6.2 / 86.2, abs=0.01)


def test_a_bar_is_as_wide_as_asked_and_in_proportion() -> None:
    for width in (20, 57, 100, 114):
        parts = cells(FITS.ranks[0], width)
        assert sum(part.cells for part in parts) == width
        assert all(part.cells >= 1 and not part.beyond for part in parts)
    parts = {part.use: part.cells for part in cells(FITS.ranks[0], 100)}
    assert parts[MemoryUse.TARGET_KV] == pytest.approx(46.5, abs=2)
    assert parts[MemoryUse.REQUEST_SLOTS] == 1


def test_a_bar_that_is_too_long_goes_past_the_end_of_the_memory() -> None:
    parts = cells(FAILS.ranks[0], 100)
    assert sum(part.beyond for part in parts) == round(100 * 6.2 / 86.2)
    assert not parts[0].beyond and parts[-1].beyond


def test_odd_budgets_are_drawn_all_the_same() -> None:
    empty = RankBudget((0,), 0, ())
    assert cells(empty, 50) == () and used(empty) == ()
    full = RankBudget((0,), GIB, (MemoryShare(MemoryUse.TARGET_WEIGHTS, MemorySize(GIB, "all")),))
    assert cells(full, 40)[0].cells == 40
    budget = replace(FITS, ranks=(empty, full, rank(4, short=100, target_weights=180)))
    text = shown(show_plan, planned(budget=budget))
    assert "rank 4, 80.0 GiB" in text and "100.0 GiB short" in text


def test_every_use_has_a_letter_of_its_own_and_ink_that_can_be_read() -> None:
    assert set(LETTERS) == set(MemoryUse) == set(COLORS)
    assert len(set(LETTERS.values())) == len(MemoryUse)
    for color in filter(None, COLORS.values()):
        assert ink(color) in ("#000000", "#ffffff")
    assert ink("#ffffff") == "#000000" and ink("#000033") == "#ffffff"


def test_what_steers_a_terminal_is_not_passed_on() -> None:
    found = replace(planned(), label="evil\x1b[2J", description="\x1b]0;title\x07")
    assert "\x1b[2J" not in (text := shown(show_plan, found)) and "\x07" not in text
    assert "evil?[2J" in text
    assert "[bold]x[/bold]" in shown(show_plan, replace(found, label="[bold]x[/bold]"))


@rows("width, terminal", WIDTHS)
def test_a_comparison_at_any_width(width: int, terminal: bool) -> None:
    found = compared(
        planned(version="0.5.9", budget=FAILS), planned("args.max_running_requests=64")
    )
    text = shown(show_comparison, found, width=width, terminal=terminal)
    for said in ("Findings lost", "SPL904", "+ --max-running-requests 64", "fails", "304,742"):
        assert said in text
    assert "0.5.9 → 0.5.23" in text
    if terminal:
        tables = text.partition("\nFindings")[0] + text.partition("\nMemory")[2]
        assert max(map(len, tables.splitlines())) <= max(width, 60)


def test_a_comparison_tells_what_means_something_first() -> None:
    found = compared(planned(version="0.5.9"), planned())
    text = shown(show_comparison, found)
    arguments = text.partition("\nMemory")[0]
    assert "renamed, value unchanged: cuda_graph_max_bs → cuda_graph_max_bs_decode" in text
    assert "SPL005" not in text, "that it has another name there is no finding lost"
    assert "hicache_" not in arguments and "mamba_" not in arguments
    assert "more differences in unused features (use --all)" in text
    assert "disable_overlap_schedule" in arguments
    everything = shown(lambda *words: show_comparison(*words, everything=True), found)
    assert "hicache_mem_layout: layer_first → page_first" in everything
    assert "mamba_" in everything and "unused features" not in everything


def test_a_comparison_of_the_same_says_so() -> None:
    assert "no changes" in shown(show_comparison, compared(planned(), planned()))


def test_words() -> None:
    assert formatting.size(80 * GIB) == "80.0 GiB"
    assert formatting.size(131072) == "128 KiB"
    assert formatting.size(int(0.78 * GIB)) == "0.78 GiB"
    assert formatting.size(3) == "3 bytes"
    assert formatting.sizes([1, 2, 3, 4, 8, 12, 16, 30]) == "1-4, 8-16 by 4, 30"
    assert (
        formatting.sizes([1, 2]) == "1, 2"
        and formatting.sizes([]) == ""
        and formatting.sizes([7]) == "7"
    )
    assert (
        formatting.value(None) == "none"
        and formatting.value(True) == "true"
        and formatting.value(1) == "1"
    )
    assert formatting.value([]) == "(empty)" and formatting.value(["a", 1]) == "a, 1"
    assert formatting.value("") == '""' and formatting.value({"a": 1}) == '{"a": 1}'
    assert (
        formatting.ranks((0, 1, 2, 3)) == "ranks 0-3" and formatting.ranks((0, 2)) == "ranks 0, 2"
    )
    assert formatting.ranks((5,)) == "rank 5"
    assert formatting.number(1234567) == "1,234,567"


def test_wrapping_breaks_words_that_are_too_long_and_loses_nothing() -> None:
    text = "a short one and/a/very/long/path/that/no/line/takes end"
    pieces = wrapped(text, 12)
    assert all(len(piece) <= 12 for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


def test_in_colour_it_says_the_same() -> None:
    found = planned(budget=FAILS)
    plain, colored = shown(show_plan, found), shown(show_plan, found, color=True)
    assert colored != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain

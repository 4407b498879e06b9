"""Published acceptance: the file, its sources, and what is concluded from its numbers."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from datetime import date
from itertools import pairwise, permutations
from statistics import fmean
from typing import Any

import pytest

from speclaunch.core.resources import models_dir
from speclaunch.engine.facts import published_acceptance as module
from speclaunch.engine.facts.known_models import drafts_for, index_names
from speclaunch.engine.facts.published_acceptance import (
    COMMON_SETTING,
    FAR_BELOW,
    AcceptanceReference,
    PublishedAcceptance,
    PublishedSource,
    acceptance_reference,
    acceptance_score,
    chain_length,
    published_acceptance,
    published_summary,
    start_setting,
)
from tools import published_acceptance as tool

DOCUMENT: dict[str, Any] = json.loads((models_dir() / module.ACCEPTANCE_FILE).read_text())
ROWS = [(target, row) for target, rows in DOCUMENT["measured"].items() for row in rows]
ALL = [p for target in DOCUMENT["measured"] for p in module._of_target(target)]
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SPECFORGE = "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge"


def test_the_file_has_the_form_and_the_factors_of_its_tool() -> None:
    assert (models_dir() / module.ACCEPTANCE_FILE).read_text() == tool.text_of(DOCUMENT)
    assert tool.factors(DOCUMENT["measured"]) == DOCUMENT["factors"]


def test_every_target_and_draft_is_known_or_named_with_a_reason() -> None:
    known = {*index_names(), *DOCUMENT["not_in_the_index"]}
    named = {target for target, _ in ROWS} | {row["draft"] for _, row in ROWS} - {None}
    assert not {name for name in named - known if not drafts_for(name)}
    assert not set(DOCUMENT["not_in_the_index"]) - named
    assert not set(DOCUMENT["not_in_the_index"]) & set(index_names())
    assert all(DOCUMENT["not_in_the_index"].values())


def test_every_draft_is_of_the_algorithm_that_the_index_states() -> None:
    wrong = []
    for target, row in ROWS:
        pair = next((p for p in drafts_for(target) if p.draft == row["draft"]), None)
        if pair is not None and pair.algorithm != row["algorithm"]:
            wrong.append((target, row["draft"], pair.algorithm))
        assert (row["draft"] is None) == (row["algorithm"] == "MTP")
    assert not wrong


def test_every_number_has_a_source_and_is_plausible() -> None:
    assert len(ALL) > 600
    for p in ALL:
        assert p.source.title and p.source.url.startswith("https://"), p
        assert date(2023, 1, 1) <= date.fromisoformat(p.source.date) <= date(2030, 1, 1)
        assert p.length is not None or p.speedup is not None, p
        steps, topk, tokens = p.setting
        most = tokens or 65
        assert p.length is None or 1 < p.length <= most, p
        assert p.speedup is None or 0.5 < p.speedup < 8, p
        assert steps is None or 1 <= steps <= 16
        assert tokens is None or 2 <= tokens <= 64
        assert topk is None or 1 <= topk <= 16
        if topk == 1 and steps is not None:
            assert tokens == steps + 1, p
        assert p.temperature is None or 0 <= p.temperature <= 1
    used = {row["source"] for _, row in ROWS}
    assert used == set(DOCUMENT["sources"])


def test_every_row_has_one_value_a_setting_and_only_known_keys() -> None:
    keys = {"draft", "algorithm", "source", "named", "settings", "length", "speedup", "place"}
    conditions = {"batch_size", "mode", "temperature", "hardware", "engine", "release", "note"}
    for target, row in ROWS:
        assert row.keys() <= keys | conditions, target
        for values in (*row.get("length", {}).values(), *row.get("speedup", {}).values()):
            assert len(values) == len(row.get("settings", [None])), (target, row["draft"])
    for source in DOCUMENT["sources"].values():
        assert source.keys() <= {"title", "url", "date", "place"} | conditions


def test_longer_chains_accept_more() -> None:
    """A gross slip in a curve would break the order; curves have noise of a few percent."""
    for target, row in ROWS:
        chains = [i for i, s in enumerate(row.get("settings", ())) if s[1] in (None, 1) and s[2]]
        for values in row.get("length", {}).values():
            some = [values[i] for i in chains]
            for before, after in pairwise(some):
                assert after > 0.9 * before, (target, row["draft"], some)


def test_what_is_found_of_a_target_a_draft_and_another_export() -> None:
    found = published_acceptance(LLAMA)
    assert {p.draft for p in found} >= {SPECFORGE, "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"}
    own = published_acceptance(LLAMA, SPECFORGE)
    assert {p.draft for p in own} == {SPECFORGE} and len(own) == 35
    mtbench = next(p for p in own if p.benchmark == "mtbench" and p.setting == (5, 1, 6))
    assert mtbench.conditions == "mtbench, 5/1/6, temperature 0, batch size 1, SGLang, H200"
    assert "SpecForge" in str(mtbench.source) and "data.json" in str(mtbench.source)
    export = published_acceptance("unsloth/Llama-3.1-8B-Instruct", SPECFORGE)
    assert {p.target for p in export} == {LLAMA}
    assert published_acceptance("/models/Llama-3.1-8B-Instruct", SPECFORGE) == own
    assert {p.draft for p in published_acceptance("zai-org/GLM-5.2-FP8", own=True)} == {None}
    assert published_acceptance("o/none") == ()


def test_without_the_file_nothing_is_published(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for cached in (module._table, module._of_target, module._of_model):
        cached.cache_clear()
    monkeypatch.setattr(module, "models_dir", lambda: tmp_path)
    try:
        assert published_acceptance(LLAMA) == () and published_summary(()) == ""
        (tmp_path / module.ACCEPTANCE_FILE).write_text('{"format": 2, "measured": {"a/b": 3}}')
        module._table.cache_clear()
        assert published_acceptance("a/b") == ()
    finally:
        for cached in (module._table, module._of_target, module._of_model):
            cached.cache_clear()


def test_the_conversion_between_chains_is_near_the_published_curves() -> None:
    curves: dict[tuple[Any, ...], dict[int, float]] = defaultdict(dict)
    for p in ALL:
        if p.length is not None and p.setting[2] is not None and p.setting[1] in (None, 1):
            key = (p.target, p.draft, p.benchmark, p.mode, p.source, p.note)
            curves[key][p.setting[2]] = p.length
    errors = sorted(
        (chain_length(curve[a], a, b) - 1) / (curve[b] - 1) - 1
        for curve in curves.values()
        for a, b in permutations(curve, 2)
        if abs(a - b) <= 3
    )
    assert len(errors) > 800
    assert abs(fmean(errors)) < 0.03
    assert errors[len(errors) // 20] > -0.12 and errors[-len(errors) // 20] < 0.16
    assert chain_length(3.0, 5, 5) == pytest.approx(3.0)
    assert chain_length(1.0, 5, 9) == pytest.approx(1.0)


def measured(
    length: float | None, setting: Any = (5, 1, 6), benchmark: str = "mtbench", **more: Any
) -> PublishedAcceptance:
    source = PublishedSource("Someone", "https://example.org", "2026-01-01")
    return PublishedAcceptance(
        "o/target", "o/draft", "EAGLE3", benchmark, setting, source, length, **more
    )


def test_a_reference_prefers_the_same_setting_then_the_nearest_chain() -> None:
    same = acceptance_reference(LLAMA, SPECFORGE, (5, 1, 6))
    assert same is not None and same.scale == 1 and len(same.lengths) == 7
    assert same.lowest == min(same.lengths) < same.typical < same.lengths[-1]
    near = acceptance_reference(LLAMA, SPECFORGE, (4, 1, 5))
    assert near is not None and near.scale != 1
    assert near.published[0].setting == (3, 1, 4)  # of two equally near, the shorter
    assert near.typical < same.typical
    tree = acceptance_reference(LLAMA, SPECFORGE, (5, 3, 6))
    assert tree is not None and {p.setting for p in tree.published} == {(5, 3, 6)}
    assert acceptance_reference(LLAMA, SPECFORGE, (3, 4, 16)) is None
    assert acceptance_reference(LLAMA, SPECFORGE, (None, None, None)) is None
    assert acceptance_reference("o/none", None, (3, 1, 4)) is None


def test_far_below_is_half_of_the_lowest_benchmark() -> None:
    reference = AcceptanceReference((measured(2.0), measured(4.0, benchmark="gsm8k")), 1.0)
    assert not reference.is_far_below(1.5) and reference.is_far_below(1.49)
    assert FAR_BELOW == 0.5


def test_a_benchmark_is_seldom_far_below_the_others() -> None:
    """Why half: a benchmark left out is hardly ever that far below the lowest of the others."""
    groups: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for p in ALL:
        if p.length is not None:
            groups[(p.target, p.draft, p.setting, p.source, p.mode)].append(p.length)
    shares = [
        (length - 1) / (min(some[:i] + some[i + 1 :]) - 1)
        for some in groups.values()
        if len(some) > 2
        for i, length in enumerate(some)
    ]
    assert len(shares) > 450
    assert sum(share < FAR_BELOW for share in shares) / len(shares) < 0.02


def test_a_score_compares_over_benchmarks_and_settings() -> None:
    factors = DOCUMENT["factors"]
    easy = measured(1 + 2 * factors["humaneval"], benchmark="humaneval")
    hard = measured(1 + 2 * factors["financeqa"], benchmark="financeqa")
    assert acceptance_score([easy]) == pytest.approx(3.0)
    assert acceptance_score([hard]) == pytest.approx(3.0)
    short = measured(chain_length(3.0, 6, 3), (2, 1, 3), "none")
    assert acceptance_score([short]) == pytest.approx(3.0, abs=0.01)
    long = measured(9.0, (9, 1, 10), "none")  # the nearest setting counts, not the longest
    assert acceptance_score([short, long]) == pytest.approx(3.0, abs=0.01)
    block = [measured(3.0, (None, None, n), "none") for n in (4, 8)]
    assert acceptance_score(block) == pytest.approx(3.0)
    assert acceptance_score([measured(5.0, (8, 8, 64)), measured(None, speedup=2.0)]) is None


def grid() -> list[dict[str, Any]]:
    return [row for _, row in ROWS if row["source"] == "specforge"]


def regret(pick: Any) -> float:
    """Mean loss of throughput against the best of the five settings, over drafts and benchmarks."""
    lost = []
    for row in grid():
        for name, speeds in row["speedup"].items():
            others = {n: s for n, s in row["speedup"].items() if n != name}
            lost.append(1 - speeds[pick(row, others)] / max(speeds))
    assert len(lost) == 88
    return round(100 * fmean(lost), 1)


def test_the_regret_of_constant_settings_in_the_grid() -> None:
    found = {
        tuple(setting): regret(lambda row, _, s=setting: row["settings"].index(s))
        for setting in grid()[0]["settings"]
    }
    assert found == {
        (3, 1, 4): 7.0, (5, 1, 6): 2.8, (5, 3, 6): 16.2, (7, 1, 8): 3.4, (7, 4, 8): 19.0
    }  # fmt: skip
    assert min(found, key=found.__getitem__) == COMMON_SETTING


def test_the_best_chain_of_a_drafts_other_benchmarks_loses_less_than_any_constant() -> None:
    def best_chain(row: dict[str, Any], others: dict[str, list[float]]) -> int:
        chains = [i for i, setting in enumerate(row["settings"]) if setting[1] == 1]
        return max(chains, key=lambda i: sum(math.log(s[i]) for s in others.values()))

    assert regret(best_chain) == 1.7


def test_the_setting_to_start_from() -> None:
    own = start_setting(published_acceptance(LLAMA, SPECFORGE))
    assert own.setting == (7, 1, 8) and "2.35 times" in own.why and "SpecForge" in own.why
    unknown = start_setting(())
    assert unknown.setting == COMMON_SETTING and "lowest mean loss" in unknown.why
    one = start_setting([measured(3.0, (2, 1, 3), speedup=1.5)])  # nothing to choose from
    assert one.setting == COMMON_SETTING
    trees = [measured(3.0, (5, 3, 6), speedup=3.0), measured(3.0, (7, 4, 8), speedup=3.0)]
    assert start_setting(trees).setting == COMMON_SETTING
    uneven = [
        measured(3.0, (7, 1, 8), "easy", speedup=3.0),
        *(measured(3.0, (s, 1, s + 1), b, speedup=x) for s, x in ((3, 2.0), (5, 2.1))
          for b in ("easy", "hard")),
    ]  # fmt: skip
    assert start_setting(uneven).setting == (5, 1, 6)  # only settings of all benchmarks compare


def test_a_summary_is_one_line_with_its_source() -> None:
    text = published_summary(published_acceptance(LLAMA, SPECFORGE))
    assert text == (
        "2.0\N{EN DASH}4.6 tokens a step, 1.37\N{EN DASH}3.11 times as fast on 7 benchmarks at 5/1/6 "
        "(SpecForge, SpecBundle dashboard)"
    )
    own = published_summary(published_acceptance(LLAMA, SPECFORGE), (7, 1, 8))
    assert "on 7 benchmarks at 7/1/8" in own
    assert published_summary(published_acceptance(LLAMA, SPECFORGE), (2, 1, 3)) == text
    alone = published_summary([measured(2.5, (None, None, 16))])
    assert alone == "2.5 tokens a step on mtbench at 16 draft tokens (Someone)"
    assert published_summary([measured(None, (None,) * 3, speedup=1.5)]) == (
        "1.50 times as fast on mtbench (Someone)"
    )


def test_specforge_and_inferencex_are_read_as_they_are_written(tmp_path: Any) -> None:
    def at(name: str, throughput: float, length: float) -> dict[str, Any]:
        return {"Name": name, "output_throughput": throughput, "accept_length": length}

    draft = "lmsys/SGLang-EAGLE3-Qwen3-30B-A3B-Instruct-2507-SpecForge"
    results = [
        {"batch_size": 8, "steps": s, "topk": 1, "num_draft_tokens": s + 1,
         "metrics": [at(tool.PLAIN, 100.0, 1.0), at(draft, 150.0 + s, 2.0)]}
        for s in (5, 3)
    ]  # fmt: skip
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"Qwen3-8B": {"gsm8k": {"results": results}}}))
    (row,) = tool.specforge(path)["Qwen/Qwen3-8B"]
    assert row["draft"] == f"{draft}-Nex" and row["named"] == draft
    assert row["settings"] == [[3, 1, 4], [5, 1, 6]] and row["speedup"] == {"gsm8k": [1.53, 1.55]}
    for stem in tool.GOLDEN:
        (tmp_path / f"{stem}.yaml").write_text("m:\n  thinking_on:\n    1: 1.8\n    2: 2.4\n")
    found = tool.inferencex(tmp_path)
    (glm,) = found["zai-org/GLM-5.2-FP8"]
    assert glm["settings"] == [[1, 1, 2], [2, 1, 3]] and glm["mode"] == "thinking"
    assert glm["length"] == {"SPEED-Bench coding": [1.8, 2.4]}
    assert found["moonshotai/Kimi-K3"][0]["settings"] == [[None, None, 2], [None, None, 3]]


def test_a_summary_says_that_a_benchmark_is_not_stated() -> None:
    found = [one for one in published_acceptance("Qwen/Qwen3-8B") if one.benchmark == "not stated"]
    assert "on an unstated benchmark (" in published_summary(found)

"""The accounting of the engine's versions, with numbers that were worked out by hand.

An H100 has 81,559 MiB; 1,126 MiB are taken for CUDA: P = 80,433 MiB = 84,340,113,408 bytes.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from speclaunch.engine.facts.hardware import Gpu, Hardware, OtherProcess, declare
from speclaunch.engine.plan.budget import Fit, MemoryBudget, MemoryPhase, MemoryUse
from speclaunch.engine.plan.memory.budget import budget
from speclaunch.engine.plan.memory.kv import PoolLayout
from speclaunch.engine.plan.memory.pool import slot_settings
from tests.engine.plan.memory.deployments import PLAIN, SPECULATING, Sizes, give, plan
from tests.support.work import calls

GIB = 1 << 30
MIB = 1 << 20
P = 80_433 * MIB


@pytest.fixture(autouse=True)
def _sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Sizes())


def share(found: MemoryBudget, use: MemoryUse, rank: int = 0) -> int:
    """Bytes of one use, 0 where it has none."""
    return sum(one.size.bytes for one in found.ranks[rank].shares if one.use is use)


def check_sums(found: MemoryBudget) -> None:
    for rank in found.ranks:
        total = sum(one.size.bytes for one in rank.shares)
        assert total == rank.memory_bytes + rank.short_bytes
        assert rank.short_bytes == 0 or found.fit is not Fit.FITS


def test_draft_beside_the_pool() -> None:
    """0.5.10: R = 0.8 P - 16,060,522,496 = 51,411,568,230; / 131,072 = 392,239.1 tokens."""
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.8}, "0.5.10.post1"))
    rest = int(0.8 * P) - 16_060_522_496
    assert (found.fit, found.tokens) == (Fit.FITS, rest // 131_072) == (Fit.FITS, 392_239)
    assert found.running_requests == 48
    assert found.context_length == 131_072
    assert found.requests_at_context == 2
    assert share(found, MemoryUse.RUNTIME) == 1126 * MIB
    assert share(found, MemoryUse.TARGET_WEIGHTS) == 16_060_522_496
    assert share(found, MemoryUse.DRAFT_WEIGHTS) == 850_000_000
    assert share(found, MemoryUse.TARGET_KV) == 392_240 * 131_072  # a page of 1 for padding
    assert share(found, MemoryUse.DRAFT_KV) == 392_240 * 4_096
    assert share(found, MemoryUse.REQUEST_SLOTS) == 48 * (131_072 + 4 + 4) * 4
    check_sums(found)


def test_draft_in_the_pool() -> None:
    """0.5.23: R = 0.8 P - 16,910,522,496 = 50,561,568,230; / 135,168 = 374,064.6 tokens."""
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.8}, "0.5.23"))
    assert (found.fit, found.tokens) == (Fit.FITS, 374_064)
    assert share(found, MemoryUse.REQUEST_SLOTS) == 49 * (131_072 + 4 + 4) * 4  # a row of padding
    check_sums(found)


def test_tokens_for_drafts_on_top() -> None:
    """Up to 0.5.6: 48 · (3 · 1 + 4) + 100 = 436 tokens that nobody pays for."""
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.8}, "0.5.6.post2"))
    assert found.tokens == 392_239 + 436


def test_requests_that_nobody_limits() -> None:
    """Without speculation 2,048 rows of the full context: 1 GiB that the pool does not pay."""
    old = budget(plan(PLAIN | {"mem_fraction_static": 0.8}, "0.5.10.post1"))
    assert (old.tokens, old.running_requests) == (392_239, 2_048)
    assert share(old, MemoryUse.REQUEST_SLOTS) == 2_048 * (131_072 + 4) * 4
    new = budget(plan(PLAIN | {"mem_fraction_static": 0.8}, "0.5.23"))
    assert (new.tokens, new.running_requests) == (392_239, 2_048)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.4.6.post5", "Not enough memory. Please try to increase --mem-fraction-static."),
        (
            "0.5.6.post2",
            "Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: self.server_args.mem_fraction_static=0.1",
        ),
        (
            "0.5.10.post1",
            "Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: mem_fraction_static=0.1",
        ),
        (  # 16,910,522,496 / P = 0.20050
            "0.5.23",
            "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.1. "
            "Raise --mem-fraction-static above 0.201 (minimum viable = 1 - available/pre = "
            "0.2005). If using speculative decoding, draft weights are now counted.",
        ),
    ],
)
def test_fraction_too_small(version: str, message: str) -> None:
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.1}, version))
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.KV_POOL)
    assert found.message == message
    assert "larger mem_fraction_static" in found.why
    assert found.working_fractions is not None
    least, most = found.working_fractions
    # 0.19 P lacks 268 tokens, and up to 0.5.6 the drafts' 436 are added even then
    expected = {"0.5.23": 0.201, "0.5.10.post1": 0.191}
    assert least == expected.get(version, 0.19)
    assert 0.9 < most < 0.99
    check_sums(found)


def test_fraction_too_large_for_the_draft() -> None:
    """0.5.10: 0.01 P = 0.79 GiB are left for a draft of 0.79 GiB and graphs."""
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.99}, "0.5.10.post1"))
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.DRAFT_WEIGHTS)
    assert found.message == "torch.OutOfMemoryError: CUDA out of memory."
    assert "smaller mem_fraction_static" in found.why
    check_sums(found)


def test_fraction_too_large_for_the_draft_s_pool() -> None:
    """0.5.10: what 0.03 P leave takes the weights of the draft, and not its pool as well."""
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.97}, "0.5.10.post1"))
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.KV_POOL)
    assert found.message == "torch.OutOfMemoryError: CUDA out of memory."


def test_fraction_too_large_for_activations() -> None:
    eager = SPECULATING | {"cuda_graph_backend_prefill": "disabled"}
    found = budget(plan(eager | {"mem_fraction_static": 0.99}, "0.5.23"))
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.SERVING)
    check_sums(found)


def test_fraction_too_large_for_graphs_of_prefill() -> None:
    """0.5.16 and 0.5.17 skip graphs that nobody requested rather than fail."""
    args = SPECULATING | {"mem_fraction_static": 0.975}
    asked = args | {"cuda_graph_backend_prefill": "breakable"}
    for found in (budget(plan(args, "0.5.23")), budget(plan(asked, "0.5.17"))):
        assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.GRAPHS)
        check_sums(found)
    skips = budget(plan(args, "0.5.17"))
    assert skips.fit is Fit.TIGHT
    assert any("skips prefill graphs" in note for note in skips.notes)
    enough = budget(plan(args | {"mem_fraction_static": 0.9}, "0.5.17"))
    assert not any("skips prefill graphs" in note for note in enough.notes)


def test_what_the_draft_holds_while_the_pool_is_sized(monkeypatch: pytest.MonkeyPatch) -> None:
    """R shrinks by it, and it is free afterwards."""
    args = SPECULATING | {"mem_fraction_static": 0.8}
    before = budget(plan(args, "0.5.23"))
    give(monkeypatch, Sizes(freed=135_168 * 10_000))
    found = budget(plan(args, "0.5.23"))
    assert found.tokens == 364_064
    more = share(found, MemoryUse.FREE) - share(before, MemoryUse.FREE)
    more += share(found, MemoryUse.ACTIVATIONS) - share(before, MemoryUse.ACTIVATIONS)
    assert more == 135_168 * 10_000
    assert found.working_fractions is not None and before.working_fractions is not None
    assert found.working_fractions[0] > before.working_fractions[0]
    check_sums(found)
    give(monkeypatch, Sizes(freed=100 << 30))
    failed = budget(plan(args, "0.5.23"))
    assert (failed.fit, failed.phase) == (Fit.FAILS, MemoryPhase.DRAFT_WEIGHTS)


@pytest.mark.parametrize(
    ("version", "name"), [("0.4.6.post5", "CUDA"), ("0.5.10.post1", "cuda"), ("0.5.23", "cuda")]
)
def test_no_room_for_graphs(version: str, name: str) -> None:
    args = PLAIN | {
        "mem_fraction_static": 0.995,
        "max_running_requests": 500,
        "cuda_graph_max_bs" if version < "0.5.2" else "cuda_graph_max_bs_decode": 500,
        "context_length": 2048,
    }
    found = budget(plan(args, version))
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.GRAPHS)
    assert found.message == f"Capture {name} graph failed: CUDA out of memory."


@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.23"])
def test_weights_too_large(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    give(monkeypatch, Sizes(weights=90 * GIB))
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.9}, version))
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.TARGET_WEIGHTS)
    assert found.message == "torch.OutOfMemoryError: CUDA out of memory."
    assert found.working_fractions is None
    assert "no effect" in found.why
    check_sums(found)


@pytest.mark.parametrize("version", ["0.5.13.post1", "0.5.14"])
def test_draft_too_large(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """Up to 0.5.13 a smaller fraction could help; here even the smallest leaves too little."""
    give(monkeypatch, Sizes(draft_weights=70 * GIB))
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.5}, version))
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.DRAFT_WEIGHTS)
    assert found.working_fractions is None
    check_sums(found)


def test_both_directions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that leave 2 GiB, and a draft that needs 2: no fraction works up to 0.5.13."""
    give(monkeypatch, Sizes(weights=P - 2 * GIB, draft_weights=2 * GIB))
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.98}, "0.5.10.post1"))
    assert (found.fit, found.working_fractions) == (Fit.FAILS, None)
    assert any("no mem_fraction_static works" in note for note in found.notes)


@pytest.mark.parametrize("version", ["0.5.10.post1", "0.5.23"])
def test_the_ends_of_the_range_work(version: str) -> None:
    found = budget(plan(SPECULATING, version))
    assert found.working_fractions is not None and found.likely_fractions is not None
    least, most = found.working_fractions
    _, likely = found.likely_fractions
    assert least < likely < most
    for fraction, fit in (
        (least, Fit.FITS),
        (likely, Fit.FITS),
        (likely + 0.001, Fit.TIGHT),
        (most, Fit.TIGHT),
    ):
        args = SPECULATING | {"mem_fraction_static": round(fraction, 3)}
        assert budget(plan(args, version)).fit is fit
    for fraction, phase in ((least - 0.01, MemoryPhase.KV_POOL), (most + 0.001, None)):
        outside = budget(plan(SPECULATING | {"mem_fraction_static": fraction}, version))
        assert outside.fit is Fit.FAILS
        assert phase is None or outside.phase is phase


def test_a_pool_in_the_best_case_alone_is_tight() -> None:
    """R of 0.1904 is positive only if CUDA takes less than is likely: 0.1903 P = 14.95 GiB."""
    found = budget(plan(SPECULATING | {"mem_fraction_static": 0.1903}, "0.5.10.post1"))
    assert found.fit is Fit.TIGHT
    assert "on CUDA's own memory" in found.why


def test_user_limits() -> None:
    args = SPECULATING | {"mem_fraction_static": 0.8, "max_total_tokens": 5_001, "page_size": 16}
    found = budget(plan(args, "0.5.23"))
    assert found.tokens == 4_992
    assert found.requests_at_context == 0
    assert any("does not fit" in note for note in found.notes)
    larger = budget(plan(args | {"max_total_tokens": 10**9, "page_size": 1}, "0.5.23"))
    assert larger.tokens == 374_064
    assert any("max_total_tokens" in note for note in larger.notes)
    none = budget(plan(args | {"max_total_tokens": 10}, "0.5.23"))  # less than a page
    assert (none.fit, none.working_fractions) == (Fit.FAILS, None)
    assert none.message is not None and none.message.startswith("Not enough memory.")


def test_requests_are_lowered_to_what_the_pool_holds() -> None:
    args = SPECULATING | {"mem_fraction_static": 0.8, "max_total_tokens": 60}
    new = budget(plan(args, "0.5.23"))
    assert new.running_requests == 30
    assert any("lowered from 48 to 30" in note for note in new.notes)
    assert budget(plan(args, "0.5.10.post1")).running_requests == 48


@pytest.mark.parametrize(
    ("version", "topk", "extra"),
    [
        ("0.5.10.post1", 4, 4 + 16),
        ("0.5.15.post1", 4, 2 * (2 * 64 * 4)),  # two pages of each of four branches, twice
        ("0.5.23", 4, 2 * (2 * 64 * 4) + 63),
        ("0.5.15.post1", 1, 4 + 4),
        ("0.5.23", 1, 2 * 4 + 63),
    ],
)
def test_rows_are_longer_for_pages_and_trees(version: str, topk: int, extra: int) -> None:
    tokens = 16 if topk > 1 else 4
    args = SPECULATING | {"mem_fraction_static": 0.8, "page_size": 64, "context_length": 4096}
    args |= {"speculative_eagle_topk": topk, "speculative_num_draft_tokens": tokens}
    settings = slot_settings(plan(args | {"attention_backend": "flashinfer"}, version), 4096)
    assert settings.extra == extra


def test_attention_ranks_share_the_requests() -> None:
    args = SPECULATING | {"mem_fraction_static": 0.8, "tp_size": 4, "dp_size": 4}
    args |= {"enable_dp_attention": True, "max_running_requests": 40}
    for version in ("0.5.6.post2", "0.5.10.post1", "0.5.23"):
        assert budget(plan(args, version, "h100-80gb:4")).running_requests == 10


def test_ranks_alike_are_grouped() -> None:
    args = SPECULATING | {"mem_fraction_static": 0.8, "tp_size": 4}
    found = budget(plan(args, "0.5.23", "h100-80gb:4"))
    assert [rank.ranks for rank in found.ranks] == [(0, 1, 2, 3)]
    assert share(found, MemoryUse.RUNTIME) > 1126 * MIB  # NCCL
    check_sums(found)


def probed(*used_gib: float) -> Hardware:
    h100 = declare("h100-80gb")
    memory = 81_559 * MIB
    gpus = tuple(
        Gpu(
            index,
            "H100",
            memory,
            memory - int(used * GIB),
            (OtherProcess(7, "python", int(used * GIB)),) if used > 1 else (),
        )
        for index, used in enumerate(used_gib)
    )
    return replace(h100, count=len(gpus), gpus=gpus, declared=False)


def test_other_processes() -> None:
    args = SPECULATING | {"mem_fraction_static": 0.8}
    found = budget(plan(args, "0.5.23", probed(20)))
    assert share(found, MemoryUse.OTHERS) == 20 * GIB
    assert found.tokens == (int(0.8 * (P - 20 * GIB)) - 16_910_522_496) // 135_168
    check_sums(found)
    idle = budget(plan(args, "0.5.23", probed(0.5)))
    assert share(idle, MemoryUse.OTHERS) == 0
    assert idle.tokens == 374_064
    second = budget(plan(args | {"base_gpu_id": 1}, "0.5.23", probed(20, 0)))
    assert second.tokens == 374_064


def test_the_tightest_gpu_decides() -> None:
    args = SPECULATING | {"mem_fraction_static": 0.8, "tp_size": 2}
    found = budget(plan(args, "0.5.23", probed(4, 0)))
    assert found.fit is Fit.FITS
    assert [rank.ranks for rank in found.ranks] == [(0,), (1,)]
    free = [share(found, MemoryUse.FREE, rank) for rank in (0, 1)]
    assert free[1] - free[0] == pytest.approx(4 * GIB, abs=20)
    check_sums(found)


def test_ranks_that_differ_too_much() -> None:
    args = SPECULATING | {"mem_fraction_static": 0.8, "tp_size": 2}
    found = budget(plan(args, "0.5.23", probed(20, 0)))
    assert found.fit is Fit.FAILS
    assert found.message is not None
    assert found.message.startswith("The memory capacity is unbalanced.")
    off = {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}
    assert budget(plan(args, "0.5.23", probed(20, 0), env=off)).fit is Fit.FITS


def test_unknown_target(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Sizes(weights=None))
    found = budget(plan(SPECULATING, "0.5.23"))
    assert (found.fit, found.unknown) == (Fit.UNKNOWN, ("the target weights are not known",))
    assert found.target_kv is not None and found.target_kv.bytes == 131_072
    assert found.context_length == 131_072
    assert found.mem_fraction_static == 0.83
    assert found.tokens is None


def test_unknown_draft_but_a_target_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Sizes(weights=90 * GIB, draft_weights=None))
    found = budget(plan(SPECULATING, "0.5.23"))
    assert (found.fit, found.phase) == (Fit.FAILS, MemoryPhase.TARGET_WEIGHTS)
    assert found.unknown


def test_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, Sizes(weights=None, draft_weights=None))
    found = budget(plan(SPECULATING, "0.5.23", None, None, None))
    assert found.fit is Fit.UNKNOWN
    assert "the hardware is unknown" in found.unknown
    assert found.working_fractions is None


def test_the_range_is_told_where_the_fraction_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = {"mem_fraction_static": "the fraction is not known"}
    before = plan(SPECULATING, "0.5.23")
    found = budget(replace(before, undecided={**before.undecided, **unknown}))
    assert found.fit is Fit.UNKNOWN
    assert found.unknown == ("the fraction is not known",)
    assert found.working_fractions is not None and found.working_fractions[0] == 0.201


@pytest.mark.parametrize(
    ("args", "env"),
    [
        ({"cpu_offload_gb": 4}, {}),
        ({"enable_lora": True}, {}),
        ({}, {"SGLANG_ENABLE_POST_CAPTURE_KV_SIZING": "1"}),
    ],
)
def test_other_ways_of_sharing_out_memory_are_unknown(
    args: dict[str, object], env: dict[str, str]
) -> None:
    given = SPECULATING | {"mem_fraction_static": 0.8} | args
    found = budget(plan(given, "0.5.23", env=env))
    assert found.fit is Fit.UNKNOWN
    assert len(found.unknown) == 1
    assert found.working_fractions is None


def test_weights_that_are_computed_leave_room_for_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 % more than there is: they may fit, being counted from a config. 5 % more: they do not."""
    give(monkeypatch, Sizes(weights=int(1.01 * P), exact=False))
    may = budget(plan(PLAIN, "0.5.23"))
    assert (may.phase, may.working_fractions) == (MemoryPhase.KV_POOL, None)
    give(monkeypatch, Sizes(weights=int(1.05 * P), exact=False))
    assert budget(plan(PLAIN, "0.5.23")).phase is MemoryPhase.TARGET_WEIGHTS


def test_sliding_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """gpt-oss-20b, half of 24 layers with a window, ratio 0.8: 12 · 2,048 = 24,576 bytes each.

    0.5.10 counts 49,152 bytes for a token and splits 1.11 times that; 0.5.23 counts 44,236.8.
    """
    layout = PoolLayout(12, 24_576, 12, 24_576, 0.8)
    args = PLAIN | {"mem_fraction_static": 0.8}
    give(monkeypatch, Sizes(13 * GIB, 0, layout))
    rest = int(0.8 * P) - 13 * GIB
    old = budget(plan(args, "0.5.10.post1"))
    assert old.tokens == int(rest // 49_152 * 49_152 / (24_576 + 0.8 * 24_576))
    assert share(old, MemoryUse.TARGET_KV) == 24_576 * (old.tokens + int(old.tokens * 0.8) + 2)
    give(monkeypatch, Sizes(13 * GIB, 0, layout, cell=44_237))
    new = budget(plan(args, "0.5.23"))
    assert new.tokens == rest // 44_237
    assert new.tokens == pytest.approx(old.tokens, rel=1e-4)
    check_sums(new)


def test_recurrent_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hybrid model: 0.9 of what the KV cache gets goes to the states of requests."""
    layout = PoolLayout(8, 32_768, state_layers=24, state_request_bytes=50 * MIB)
    give(monkeypatch, Sizes(20 * GIB, 0, layout))
    args = PLAIN | {"mem_fraction_static": 0.8}
    rest = 0.8 * P - 20 * GIB
    found = budget(plan(args, "0.5.10.post1"))
    slots = int(rest * 0.9 / 1.9 // (50 * MIB))
    assert share(found, MemoryUse.STATE) == slots * 50 * MIB
    assert found.tokens == int(rest - slots * 50 * MIB) // 32_768
    assert found.running_requests == slots // 3
    check_sums(found)
    small = budget(plan(args | {"mem_fraction_static": 0.256}, "0.5.23"))
    assert (small.fit, small.phase) == (Fit.FAILS, MemoryPhase.KV_POOL)
    assert small.message is not None and "state cache" in small.message


def test_images_take_their_part() -> None:
    """0.5.18 and later put 100 MiB aside: 104,857,600 / 131,072 = 800 tokens."""
    from tests.engine.plan.memory.deployments import LLAMA_8B

    target = replace(
        LLAMA_8B,
        architectures=("Qwen2_5_VLForConditionalGeneration",),
        is_multimodal=True,
        config={"intermediate_size": 14336, "vision_config": {}, "text_config": {}},
    )
    args = PLAIN | {"mem_fraction_static": 0.8}
    before = budget(plan(args, "0.5.17", target=target)).tokens
    after = budget(plan(args, "0.5.18", target=target)).tokens
    assert before is not None and after is not None
    assert before - after == 800


def test_it_is_little_work() -> None:
    asked = plan(SPECULATING, "0.5.23")
    budget(asked)
    assert calls(lambda: budget(asked)) < 6000  # 3,400

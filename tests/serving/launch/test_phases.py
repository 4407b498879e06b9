from __future__ import annotations

from speclaunch.serving.launch.engine_log import Phase
from speclaunch.serving.launch.phases import PhaseTracker

STAMP = "[2026-11-21 02:16:12]"

# What SGLang 0.5.23 prints for EAGLE3 (CPU engine), and 0.5.10 for EAGLE on two ranks (its source).
NEW = f"""\
{STAMP} server_args={{'model_path': 'm'}}
{STAMP} Load weight begin. avail mem=21.78 GB
Multi-thread loading shards: 100% Completed | 1/1 [00:00<00:00, 484.05it/s]
{STAMP} Load weight end. elapsed=0.03 s, type=LlamaForCausalLM, avail mem=21.77 GB, mem usage=1.50 GB.
{STAMP} Load weight begin. avail mem=21.78 GB
{STAMP} Load weight end. elapsed=0.01 s, type=LlamaForCausalLMEagle3, avail mem=21.77 GB, mem usage=0.00 GB.
{STAMP} KV Cache is allocated. dtype: torch.float32, #tokens: 8192, K size: 0.01 GB, V size: 0.01 GB
{STAMP} Memory pool end. avail mem=20.00 GB
{STAMP} Capture decode CUDA graph begin. backend=full, num_tokens_per_req=4
{STAMP} max_total_num_tokens=8192, chunked_prefill_size=4096, max_prefill_tokens=16384, max_running_requests=4, context_len=2048, available_cpu_mem=20.00 GB
{STAMP} INFO:     Started server process [19713]
{STAMP} INFO:     Application startup complete.
"""
OLD = """\
[2026-01-02 02:16:12 TP0] Load weight begin. avail mem=78.78 GB
[2026-01-02 02:16:12 TP1] Load weight begin. avail mem=78.78 GB
[2026-01-02 02:16:12 TP0] Load weight end. elapsed=2.03 s, type=LlamaForCausalLM, dtype=torch.float16, avail mem=63.77 GB, mem usage=14.98 GB.
[2026-01-02 02:16:12 TP1] Load weight end. elapsed=2.03 s, type=LlamaForCausalLM, dtype=torch.float16, avail mem=63.77 GB, mem usage=14.98 GB.
[2026-01-02 02:16:12 TP0] KV Cache is allocated. #tokens: 300000, K size: 18.00 GB, V size: 18.00 GB
[2026-01-02 02:16:12 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=20.1 GB
[2026-01-02 02:16:12 TP0] Load weight begin. avail mem=18.78 GB
[2026-01-02 02:16:12 TP0] Capture draft cuda graph begin. This can take up to several minutes.
"""


def run(text: str) -> PhaseTracker:
    tracker = PhaseTracker()
    for second, line in enumerate(text.splitlines()):
        tracker.feed(line, float(second))
    return tracker


def test_a_start_of_0_5_23_loads_the_draft_before_the_pool() -> None:
    tracker = run(NEW)
    assert [(step.phase, step.detail) for step in tracker.steps] == [
        (Phase.IMPORTS, ""),
        (Phase.SCHEDULER, ""),
        (Phase.WEIGHTS, "LlamaForCausalLM, 1.50 GB"),
        (Phase.DRAFT_WEIGHTS, "LlamaForCausalLMEagle3"),
        (Phase.KV_POOL, "8,192 tokens"),
        (Phase.GRAPHS, ""),
        (Phase.WARM_UP, ""),
    ]
    assert (tracker.max_total_tokens, tracker.max_running_requests) == (8192, 4)
    assert all(step.ended is not None for step in tracker.steps[:-1])
    assert tracker.current.ended is None


def test_a_start_of_0_5_10_goes_round_twice_and_only_the_first_rank_counts() -> None:
    assert [step.phase for step in run(OLD).steps] == [
        Phase.IMPORTS,
        Phase.WEIGHTS,
        Phase.KV_POOL,
        Phase.GRAPHS,
        Phase.DRAFT_WEIGHTS,
        Phase.GRAPHS,
    ]


def test_words_of_the_engine_in_other_texts_mean_nothing() -> None:
    tracker = run(
        "user asked: Load weight begin.\n"
        f"{STAMP} Prompt: 'Load weight begin. Capture cuda graph begin'\n"
        "[2026-01-02 02:16:12 TP3] Load weight begin. avail mem=1 GB\n"
    )
    assert [step.phase for step in tracker.steps] == [Phase.IMPORTS]


def test_a_port_that_was_taken_is_seen() -> None:
    line = (
        f"{STAMP} ERROR:    [Errno 98] error while attempting to bind on address "
        "('127.0.0.1', 31108): address already in use"
    )
    assert run(line).port_taken


def test_the_phases_that_a_launch_shows_know_what_the_diagnosis_knows() -> None:
    """A bar has no end of line when another line follows it; a CPU's graphs are graphs, too."""
    tracker = run(
        f"Loading shards: 100%|##| 4/4 [00:20<00:00,  3.0s/it]{STAMP} Load weight begin. avail mem=9 GB\n"
        f"\x1b[32m{STAMP} TP0] \x1b[0mno mark\n"
        f"{STAMP} Capture cpu graph begin. This can take up to several minutes. avail mem=9.00 GB\n"
    )
    assert [step.phase for step in tracker.steps] == [Phase.IMPORTS, Phase.WEIGHTS, Phase.GRAPHS]

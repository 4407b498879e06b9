"""Recipes composed through groups, as a team keeps them: no two alike, and each one plausible."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and the ways to speculate for it that the groups have."""

    model: str
    """The option of the group `model`."""
    speculations: tuple[str, ...]
    """Options of the group `speculation`."""
    drafts: tuple[str, ...] = ()
    """Draft models to choose from, where the groups name none."""
    bounds: tuple[str, ...] = (">=0.5.3", ">=0.5.11", ">=0.5.2,<0.5.15", "0.5.23", "0.5.12.post1")


PAIRS = (
    Pair(
        "meta_llama31_8b",
        ("eagle3_tree", "eagle3_chain", "eagle3_wide_tree"),
        ("jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B", "lmsys/sglang-EAGLE3-LLaMA3.1-8B"),
    ),
    Pair(
        "llama31_8b",
        ("dflash", "eagle3_chain", "ngram"),
        ("z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat", "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"),
        (">=0.5.11", "0.5.23", "0.5.16"),
    ),
    Pair("llama2_7b_eagle", ("eagle_tree", "eagle_chain", "eagle_adaptive")),
    Pair("llama3_8b", ("eagle_tree", "ngram"), ("lmsys/sglang-EAGLE-LLaMA3-Instruct-8B",)),
    Pair("qwen25_7b_draft_1_5b", ("standalone_tree", "standalone_chain")),
    Pair("qwen25_7b", ("ngram",)),
    Pair(
        "qwen3_235b",
        ("eagle3_chain", "eagle3_tree"),
        ("lmsys/SGLang-EAGLE3-Qwen3-235B-A22B-Instruct-2507-SpecForge-Meituan",),
    ),
    Pair("deepseek_v3", ("mtp", "mtp_one_step"), bounds=(">=0.4.6.post5", "0.5.23", ">=0.5.4")),
    Pair("deepseek_r1", ("mtp", "mtp_one_step")),
    Pair("glm45", ("mtp",)),
    Pair("glm46", ("mtp", "mtp_one_step")),
    Pair("mimo_7b_rl", ("mtp", "mtp_one_step")),
)

HARDWARE = ("h100:8", "h200:8", "b200:8", "a100-80gb:4", "h100-80gb:2", "l40s", "rtx4090:2", "auto")

PURPOSES = (
    ("the chat front end", "short answers, many users at once"),
    ("rollouts", "long answers, nobody waits for the first token"),
    ("the code assistant", "long prompts, much of the answer repeats them"),
    ("nightly evaluation", "the answers must not differ from run to run"),
    ("document summaries", "prompts of up to 30,000 tokens"),
    ("the agents' gateway", "tools are called in between, and the cache should stay warm"),
)
TEAMS = ("serving", "search", "research", "platform", "rl", "assist")
REASONS = (
    "measured: less left too little for the graphs",
    "the load test of last month",
    "as it was on the old machines",
    "two requests of each user at a time",
    "see the run book",
    "more gained nothing",
)


def recipe(number: int, seed: int = 13) -> str:
    """The text of the recipe of this number (0.8 to 1.8 KB)."""
    dice = random.Random(f"{seed}/recipe/{number}")
    pair = dice.choice(PAIRS)
    speculation = dice.choice(pair.speculations)
    team, (purpose, because) = dice.choice(TEAMS), dice.choice(PURPOSES)
    lines = [
        f"# {pair.model} for {purpose} of team {team}: {because}.",
        "#",
        f"# Run:      speclaunch recipe={team}_{number:04}",
        f"# Override: speclaunch recipe={team}_{number:04} args.port={30000 + number}",
        "defaults:",
        "  - base",
        f"  - model: {pair.model}",
        f"  - speculation: {speculation}",
    ]
    if dice.random() < 0.3:
        lines.append("  - override serving: public")
    if dice.random() < 0.25:
        lines.append(f"  - override engine: {dice.choice(('short_draft', 'spec_v2'))}")
    if dice.random() < 0.2:
        lines.append("  - override recovery: documents")
    lines += ["  - _self_", "", f"description: {speculation} on {pair.model} for {purpose}", ""]
    lines += _engine(dice, pair)
    if dice.random() < 0.7:
        lines += ["hardware:", f"  name: {dice.choice(HARDWARE)}", ""]
    lines += ["args:", *_args(number, dice, pair, speculation)]
    lines += _rest(dice)
    return "\n".join(lines) + "\n"


def _engine(dice: random.Random, pair: Pair) -> list[str]:
    lines = []
    if dice.random() < 0.6:
        lines.append(f'  version: "{dice.choice(pair.bounds)}"')
    if dice.random() < 0.35:
        lines.append("  env:")
        lines.append(f"    OMP_NUM_THREADS: {dice.choice((1, 4, 8))}")
        if dice.random() < 0.5:
            lines.append(f'    NCCL_DEBUG: "{dice.choice(("WARN", "INFO"))}"')
    return ["engine:", *lines, ""] if lines else []


def _args(number: int, dice: random.Random, pair: Pair, speculation: str) -> list[str]:
    """The recipe's own arguments, one or two of them with a reason beside."""
    chosen: list[tuple[str, object]] = []
    if pair.drafts and speculation != "ngram":
        chosen.append(("speculative_draft_model_path", dice.choice(pair.drafts)))
    pool: list[tuple[str, object]] = [
        ("mem_fraction_static", round(dice.uniform(0.55, 0.9), 2)),
        ("cuda_graph_max_bs_decode", dice.choice((4, 8, 16, 32, 64, 128))),
        ("max_running_requests", dice.choice((8, 16, 48, 64, 128, 256))),
        ("context_length", dice.choice((4096, 8192, 16384, 32768))),
        ("attention_backend", dice.choice(("fa3", "flashinfer", "triton"))),
        ("dtype", dice.choice(("bfloat16", "float16", "auto"))),
        ("chunked_prefill_size", dice.choice((2048, 4096, 8192, -1))),
        ("schedule_policy", dice.choice(("fcfs", "lpm"))),
        ("enable_metrics", "true"),
        ("log_level", dice.choice(("info", "warning"))),
        ("served_model_name", f"{pair.model}-{number:04}"),
        ("kv_cache_dtype", dice.choice(("auto", "fp8_e5m2", "fp8_e4m3"))),
        ("watchdog_timeout", dice.choice((300, 600, 1200))),
        ("random_seed", number + 1),
        ("tp_size", dice.choice((1, 2, 4, 8))),
        ("page_size", dice.choice((1, 16, 64))),
        ("decode_log_interval", dice.choice((10, 40, 100))),
        ("disable_radix_cache", "true"),
        ("trust_remote_code", "true"),
        ("stream_interval", dice.choice((1, 4))),
    ]
    if speculation.startswith("eagle") and dice.random() < 0.3:
        pool += [("speculative_num_steps", dice.choice((2, 3, 5)))] * 2
    chosen.append(("port", 30000 + number))
    chosen += dict(dice.sample(pool, dice.randint(4, 9))).items()
    lines = []
    for name, value in chosen:
        if dice.random() < 0.15:
            lines.append(f"  # {dice.choice(REASONS)}")
        aside = f"  # {dice.choice(REASONS)}" if dice.random() < 0.12 else ""
        lines.append(f"  {name}: {value}{aside}")
    return lines


def _rest(dice: random.Random) -> list[str]:
    lines: list[str] = []
    if dice.random() < 0.3:
        lines += ["", "launch:", f"  ready_timeout_seconds: {dice.choice((900, 1800, 7200))}"]
        if dice.random() < 0.5:
            lines += ["  verify:", f"    max_new_tokens: {dice.choice((16, 64, 128))}"]
    if dice.random() < 0.15:
        lines += ["", "recovery:", f"  max_attempts: {dice.choice((2, 4, 6))}"]
    return lines

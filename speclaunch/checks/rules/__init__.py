"""Rules about what will fail, serve wrongly or cost performance.

`table.py` has a row per rule; the module that a row names has its check, registered by its code. A
rule's page is `docs/rules/<CODE>.md`, its cases are `tests/checks/rules/cases/<CODE>.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Family(NamedTuple):
    """Rules about one topic: the numbers for new rules, and the modules of all."""

    numbers: range
    topic: str
    modules: tuple[str, ...]


FAMILIES: Mapping[str, Family] = {
    "arguments": Family(
        range(1, 90),
        "Server arguments and variables that this engine version does not take as written",
        ("arguments",),
    ),
    "parameters": Family(
        range(101, 200),
        "The parameters of speculation: how much is drafted, and what goes with what",
        ("parameters", "speculation_options"),
    ),
    "spec_v2": Family(
        range(201, 300),
        "SpecV2, which overlaps drafting and scheduling: 0.5.3 to 0.5.13",
        ("spec_v2",),
    ),
    "parallel": Family(
        range(201, 300), "Data, pipeline, context and tensor parallelism", ("parallel",)
    ),
    "lora": Family(range(201, 300), "LoRA adapters", ("lora",)),
    "mamba": Family(
        range(201, 300),
        "Hybrid models, which keep Mamba state beside their KV cache",
        ("mamba",),
    ),
    "disaggregation": Family(
        range(201, 300),
        "Prefill and decode on servers of their own, or multiplexed on one GPU",
        ("disaggregation",),
    ),
    "features": Family(
        range(201, 300),
        "Features of a server that exclude one another, need one another, or take certain values "
        "only",
        ("features", "kernels"),
    ),
    "attention": Family(
        range(301, 400),
        "Attention backends of the target and of the draft",
        ("attention", "attention_platforms", "kv_cache_dtypes"),
    ),
    "models": Family(range(401, 500), "Does this draft fit this target", ("drafts", "models")),
    "ngram": Family(
        range(501, 600),
        "NGRAM speculation, which drafts from earlier text instead of with a model",
        ("ngram",),
    ),
    "placement": Family(
        range(501, 600),
        "Ranks and GPUs: where the engine puts a model, and whether it can be divided so",
        ("placement",),
    ),
    "dflash": Family(
        range(601, 700),
        "DFLASH, DSPARK and UNO, which draft a block of tokens at once",
        ("dflash", "dspark"),
    ),
    "performance": Family(
        range(701, 800), "What makes speculation slow, or a capture fail", ("performance",)
    ),
    "serving": Family(
        range(801, 850), "Addresses, keys, and deployments that belong together", ("serving",)
    ),
    "roles": Family(
        range(820, 840),
        "Deployments of several servers: prefill and decode, the ranks of one server, their router",
        ("roles", "ranks"),
    ),
    "deployments": Family(
        range(850, 890),
        "What stands around a server: probes, image, pod, Services, routers, ranks on several "
        "hosts",
        ("probes", "pods", "services"),
    ),
    "changes": Family(range(901, 950), "What the engine changes by itself", ("changes",)),
    "checkpoints": Family(
        range(951, 1000),
        "The files of a checkpoint: do they hold what the engine loads",
        ("tensors",),
    ),
}
"""Families of rules. 000 and 090 to 099 are lint's own."""
FAMILY_OF: Mapping[str, str] = {
    module: name for name, family in FAMILIES.items() for module in family.modules
}
"""The family of each module with rules."""
ELSEWHERE: Mapping[str, str] = {"SPL243": "models", "SPL244": "models"}
"""Codes outside of their family's numbers: they predate the families and never change."""
RETIRED = frozenset({"SPL901", "SPL913", "SPL918", "SPL919", "SPL920", "SPL921"})
"""Codes that no rule may use: those of removed rules (none yet), and those of plan changes that no
rule reports."""

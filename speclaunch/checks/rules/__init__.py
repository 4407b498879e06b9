"""Rules about deployments that fail, serve wrong output or lose performance.

`table.py` has one row per rule, which names the module with the rule's check. A rule's page is
`docs/rules/<CODE>.md`; its cases are `tests/checks/rules/cases/<CODE>.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Family(NamedTuple):
    """Rules about one topic: their number range, and the modules of their checks."""

    numbers: range
    topic: str
    modules: tuple[str, ...]


FAMILIES: Mapping[str, Family] = {
    "arguments": Family(
        range(1, 90),
        "Server arguments and variables that this engine version does not accept",
        ("arguments",),
    ),
    "parameters": Family(
        range(101, 200),
        "Speculation parameters and their combinations",
        ("parameters", "speculation_options"),
    ),
    "spec_v2": Family(
        range(201, 300),
        "SpecV2, which overlaps drafting and scheduling: 0.5.3 to 0.5.13",
        ("speculation_options",),
    ),
    "parallel": Family(
        range(201, 300), "Data, pipeline, context and tensor parallelism", ("parallel",)
    ),
    "lora": Family(range(201, 300), "LoRA adapters", ("lora",)),
    "mamba": Family(range(201, 300), "Hybrid models with Mamba state", ("mamba",)),
    "disaggregation": Family(
        range(201, 300),
        "Prefill and decode on separate servers, or multiplexed on one GPU",
        ("roles",),
    ),
    "features": Family(
        range(201, 300),
        "Server features that exclude or require each other, or accept only certain values",
        ("features", "kernels"),
    ),
    "attention": Family(
        range(301, 400),
        "Attention backends of the target and of the draft",
        ("attention", "attention_platforms"),
    ),
    "models": Family(range(401, 500), "Fit of the draft to the target", ("drafts", "models")),
    "ngram": Family(
        range(501, 600),
        "NGRAM speculation, which drafts from earlier text without a model",
        ("ngram",),
    ),
    "placement": Family(
        range(501, 600), "Ranks and GPUs: placement and division of the model", ("parallel",)
    ),
    "dflash": Family(
        range(601, 700),
        "DFLASH, DSPARK and UNO, which draft a block of tokens at once",
        ("ngram", "dflash"),
    ),
    "performance": Family(
        range(701, 800), "Slow speculation and failing graph captures", ("performance",)
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
        "Server context: probes, image, pod, Services, routers, ranks on several hosts",
        ("probes", "pods", "services"),
    ),
    "changes": Family(range(901, 950), "Settings that the engine changes", ("arguments",)),
    "checkpoints": Family(
        range(951, 1000),
        "Checkpoint files: whether they contain what the engine loads",
        ("tensors",),
    ),
}
"""Families of rules. Lint reports SPL000 and SPL090 to SPL099 without a rule."""
ELSEWHERE: Mapping[str, str] = {"SPL243": "models", "SPL244": "models"}
"""Family of each code outside its family's number range; these codes predate the ranges."""
RETIRED = frozenset({"SPL901", "SPL913", "SPL918", "SPL919", "SPL920", "SPL921"})
"""Codes that new rules must not use, because plan changes without a rule use them."""

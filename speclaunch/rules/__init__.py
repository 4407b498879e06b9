"""What will fail, serve wrongly or cost performance: one module a rule.

A rule's file is `<family>/spl<code>_<name>.py`, its page `docs/rules/<CODE>.md`, its cases
`tests/rules/cases/<CODE>.yaml`. Where several rules share one implementation, all their codes are
in the name (`spl601_621_device.py`; `spl9xx_changes.py`: those of the 9xx without a file of their
own).
"""

from __future__ import annotations

from collections.abc import Mapping

FAMILIES: Mapping[str, range] = {
    "arguments": range(1, 90),
    "parameters": range(101, 200),
    "spec_v2": range(201, 300),
    "parallel": range(201, 300),
    "lora": range(201, 300),
    "mamba": range(201, 300),
    "disaggregation": range(201, 300),
    "features": range(201, 300),
    "attention": range(301, 400),
    "models": range(401, 500),
    "ngram": range(501, 600),
    "placement": range(501, 600),
    "dflash": range(601, 700),
    "performance": range(701, 800),
    "serving": range(801, 850),
    "roles": range(820, 840),
    "deployments": range(850, 890),
    "changes": range(901, 950),
    "checkpoints": range(951, 1000),
}
"""The packages of rules and the numbers that a new rule of each can have; the package's docstring
says what it is about. 000 and 090 to 099 are lint's own."""

ELSEWHERE: Mapping[str, str] = {"SPL243": "models", "SPL244": "models"}
"""Codes outside of their family's numbers: they are older than the families, and never change."""

RETIRED = frozenset({"SPL901", "SPL913", "SPL918", "SPL919", "SPL920", "SPL921"})
"""Codes that no rule may take: those of rules that are gone (none yet), and those that plans once
gave to changes which no rule reports."""

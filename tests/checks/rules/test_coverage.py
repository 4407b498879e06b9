"""docs/reference/coverage.md names rules that exist, and every rule about speculation."""

from __future__ import annotations

import re
from pathlib import Path

from speclaunch.checks.rules.registry import FILE_CODES
from speclaunch.checks.rules.table import RULES

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "coverage.md").read_text()


def test_every_code_exists() -> None:
    known = {rule.code for rule in RULES} | {notice.code for notice in FILE_CODES}
    assert set(re.findall(r"SPL\d{3}", TEXT)) <= known
    for code, page in re.findall(r"\[(SPL\d{3})\]\(\.\./rules/(SPL\d{3})\.md\)", TEXT):
        assert code == page


def test_every_rule_about_speculation_is_named() -> None:
    named = set(re.findall(r"SPL\d{3}", TEXT))
    assert not {r.code for r in RULES if r.code[3] in "123456"} - named


def test_every_row_has_three_cells() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|")]
    assert len(rows) > 60
    assert all(line.count(" | ") == 2 for line in rows if not line.startswith("|-"))

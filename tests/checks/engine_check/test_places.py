"""What 200 refusals are blamed on, against what the engine's source names; stored by
campaigns/minimal_places.py."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from campaigns import minimal_places as tool

ROWS = list(tool.rows(tool.STORED))
OWN = "the model's own quantisation, or that of its draft: what is given says the same"
READ = {
    "srt/configs/model_config.py:1314": "the draft's context is shorter than the target's",
    "srt/configs/model_config.py:2157": OWN,
    "srt/utils/hf_transformers/config.py:228": "no class for the model's config, or its draft's",
    "srt/arg_groups/model_hook.py:538": "the backends are compared through a helper",
    "srt/arg_groups/model_hook.py:656": "the backends are compared through a helper",
    "srt/arg_groups/lora_hook.py:66": "lora_paths switches enable_lora on",
    "srt/arg_groups/kv_cache_hook.py:405": "the mode is tested by the branch before",
    "srt/arg_groups/validation_hook.py:133": "the caller tests pp_size",
    "srt/arg_groups/speculative_hook.py:1417": "the caller tests speculative_adaptive",
    "srt/arg_groups/moe_hook.py:275": "the caller tests the backend",
}
"""Places that neither reader reads, read by hand: what is blamed is what the source tests."""
TOO_MANY = {
    "srt/arg_groups/validation_hook.py:199": {"tp_size"},
}
"""Where one is blamed that the source does not name: without it, another refusal comes first."""


def test_what_is_blamed_is_what_the_source_tests() -> None:
    assert len(ROWS) == 200
    unread = {row["place"] for row in ROWS if tool.judged(row) == "other"}
    assert unread == READ.keys() | TOO_MANY.keys()
    for row in ROWS:
        if row["place"] in TOO_MANY:
            extra = set(row["blamed"]) - set(row["near"]) - set(row["around"])
            assert extra == TOO_MANY[row["place"]]
    assert sum(row["place"] in TOO_MANY for row in ROWS) == 2


def test_what_the_deciding_test_names_is_told() -> None:
    incomplete = Counter(row["place"] for row in ROWS if tool.left_out(row))
    assert incomplete.pop("srt/configs/model_config.py:2157") == 6, OWN
    assert incomplete.pop("srt/utils/hf_transformers/config.py:228") == 2, "trust_remote_code"
    assert sum(incomplete.values()) <= 6, incomplete


SOURCE = """
    def check(self, cfg):
        size = cfg.tp_size * 2
        if cfg.device == "npu":
            return
        if cfg.enable_lora:
            if size > 8:
                raise ValueError("no")
        elif cfg.pp_size > 1:
            assert cfg.page_size % size == 0
"""


@pytest.mark.parametrize(
    ("line", "near", "around"),
    [
        (8, {"tp_size"}, {"tp_size", "enable_lora", "device"}),
        (10, {"page_size", "tp_size"},
         {"page_size", "tp_size", "pp_size", "enable_lora", "device"}),
        (1, set(), set()),
    ],
)  # fmt: skip
def test_the_source_is_read_as_written(
    tmp_path: Path, line: int, near: set[str], around: set[str]
) -> None:
    (tmp_path / "a.py").write_text(dedent(SOURCE))
    assert ast.parse(dedent(SOURCE))
    assert tool.of_source(tmp_path, f"a.py:{line}") == (near, around)


def test_an_argument_of_the_parser_is_its_own_place(tmp_path: Path) -> None:
    assert tool.of_source(tmp_path, "--tp-size") == ({"tp_size"}, set())
    assert tool.of_source(tmp_path, "not/there.py:3") == (set(), set())

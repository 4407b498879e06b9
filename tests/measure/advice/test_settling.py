"""The rules' own fixes are followed until they are content, and no further."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.interface import Severity
from speclaunch.measure.advice.placing import rules_of_the_way, settle

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 32,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "dtype": "bfloat16",
}
HEAD = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}


@pytest.fixture
def lookup(tmp_path: Path) -> Lookup:
    for name, config in {
        "target": LLAMA,
        "head": HEAD,
        "half": {**HEAD, "dtype": "float16"},
        "short": {**HEAD, "max_position_embeddings": 2048},
        "eagle2": {**HEAD, "architectures": ["LlamaForCausalLMEagle"]},
        "strange": {**LLAMA, "architectures": ["NobodysForCausalLM"]},
    }.items():
        folder = tmp_path / "o" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
    return Lookup((tmp_path,))


def asked(draft: str, target: str = "target", **more: Any) -> dict[str, Any]:
    return {
        "model_path": f"o/{target}",
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": f"o/{draft}",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        **more,
    }


def test_what_is_clean_stays_as_it_is(lookup: Lookup) -> None:
    found = settle(asked("head"), "0.5.23", lookup)
    assert found.clean and found.accepted and found.reason == ""
    assert found.arguments == asked("head") and not found.applied and not found.env


def test_a_fix_is_followed_and_says_why(lookup: Lookup) -> None:
    found = settle(asked("half"), "0.5.23", lookup)
    assert found.clean
    assert found.arguments["dtype"] in ("bfloat16", "float16")
    assert "float16" in found.applied["dtype"]


def test_a_variable_is_set_or_the_context_made_shorter(lookup: Lookup) -> None:
    found = settle(asked("short"), "0.5.23", lookup)
    assert found.clean
    assert found.env or found.arguments["context_length"] == 2048


def test_no_fix_makes_another_way_of_it(lookup: Lookup) -> None:
    """The rule would use EAGLE."""
    found = settle(asked("eagle2"), "0.5.23", lookup)
    assert not found.accepted and found.reason.startswith("SPL407")
    assert found.arguments["speculative_algorithm"] == "EAGLE3"


def test_a_class_that_the_release_lacks(lookup: Lookup) -> None:
    found = settle(asked("head", "strange"), "0.5.23", lookup)
    assert not found.accepted and not found.clean
    assert found.reason == "SGLang 0.5.23 has no class NobodysForCausalLM"
    unknown = settle(asked("head", "nowhere"), "0.5.23", lookup)
    assert unknown.reason == "the architecture of the target is unknown"


def test_the_rules_of_the_way_can_all_refuse() -> None:
    for rule in rules_of_the_way():
        assert Severity.ERROR in (rule.severity, *rule.also), rule.code

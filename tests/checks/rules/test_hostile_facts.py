"""No rule stumbles over what a checkpoint says, whatever it is.

The checkpoints of the case files, their configurations changed at random: wrong types, missing
keys, huge numbers.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from speclaunch.checks.rules.examine import BUG, check_rules
from speclaunch.checks.rules.registry import all_rules
from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.facts.read_checkpoint import from_config
from speclaunch.engine.plan.resolve import resolve
from tests.support.checks.rules.harness import CASES, Case, load_cases, request_of


def with_models() -> st.SearchStrategy[Case]:
    """Of the cases of all rules; read when the test runs."""
    found = [case for path in sorted(CASES.glob("*.yaml")) for case in load_cases(path)]
    return st.sampled_from([case for case in found if case.facts.target or case.facts.draft])


KEYS = [
    "architectures",
    "model_type",
    "torch_dtype",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "draft_vocab_size",
    "max_position_embeddings",
    "rope_scaling",
    "sliding_window",
    "quantization_config",
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "target_hidden_size",
    "block_size",
    "dflash_config",
    "eagle_config",
    "text_config",
    "auto_map",
    "layer_types",
    "kv_lora_rank",
    "num_experts",
]
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["LlamaForCausalLM", "DeepseekV3ForCausalLM", "fp8", "bfloat16"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=6) | st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)


def config_of(checkpoint: Checkpoint | None) -> dict[str, Any]:
    if checkpoint is None:
        return {}
    return {
        "architectures": list(checkpoint.architectures),
        "torch_dtype": checkpoint.dtype,
        "hidden_size": checkpoint.hidden_size,
        "vocab_size": checkpoint.vocab_size,
        "num_hidden_layers": checkpoint.num_hidden_layers,
        "max_position_embeddings": checkpoint.context_length,
        **checkpoint.config,
    }


@pytest.mark.thorough
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.deferred(with_models),
    st.dictionaries(st.sampled_from(KEYS), ODD, max_size=6),
    st.dictionaries(st.sampled_from(KEYS), ODD, max_size=6),
)
def test_no_rule_stumbles(case: Case, target: dict[str, Any], draft: dict[str, Any]) -> None:
    facts = replace(
        case.facts,
        target=from_config("t", {**config_of(case.facts.target), **target}),
        draft=from_config("d", {**config_of(case.facts.draft), **draft}),
    )
    request = request_of(case.args, case.argv, case.env, case.engine)
    judgement = check_rules(resolve(request, facts), all_rules())
    assert not [one for one in judgement.skipped if one.reason.startswith(BUG)]

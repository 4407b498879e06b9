"""json_model_override_args updates the config of target and draft."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.read_checkpoint import from_config, overridden
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from tests.support.loops import rows

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "max_position_embeddings": 32768,
    "num_hidden_layers": 28,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "extra": 1},
}


def checkpoint() -> Checkpoint:
    return replace(from_config("m", CONFIG), weight_bytes=7, mtp_weights=False)


def test_a_value_is_replaced_and_the_files_facts_stay() -> None:
    found = overridden(checkpoint(), {"num_hidden_layers": 2, "architectures": ["A"]})
    assert (found.num_hidden_layers, found.architecture) == (2, "A")
    assert (found.weight_bytes, found.mtp_weights) == (7, False)
    assert CONFIG["num_hidden_layers"] == 28


def test_what_the_files_tell_stays() -> None:
    fields = (
        *("mtp_weights", "has_token_map", "has_dspark_folder", "missing_files", "tensors"),
        *("tokenizer_size", "tokenizer_digest", "weight_bytes", "weights_rounded", "origin"),
    )
    told = {field: object() for field in fields}
    changed = overridden(from_config("m", {"hidden_size": 64}, **told), {"hidden_size": 32})
    assert changed.hidden_size == 32
    assert {field: changed.field_or_none(field) for field in told} == told


def test_parts_and_the_scaling_of_positions_are_merged() -> None:
    found = overridden(checkpoint(), {"rope_scaling": {"factor": 2.0}})
    assert found.raw["rope_scaling"] == {"rope_type": "yarn", "factor": 2.0, "extra": 1}
    nested = from_config("m", {"text_config": {"hidden_size": 64, "vocab_size": 100}})
    changed = overridden(nested, {"text_config": {"vocab_size": 200}})
    assert (changed.hidden_size, changed.vocab_size) == (64, 200)


@rows(
    "text, layers",
    [
        ('{"num_hidden_layers": 4}', 4),
        ("{}", 28),
        ("not JSON", 28),
        ("[1]", 28),
        ("null", 28),
        ('{"num_hidden_layers": "many"}', None),
        ("[" * 100_000, 28),
    ],
)
def test_the_plan_has_the_updated_facts(text: str, layers: int | None) -> None:
    words = ["--model-path", "m", "--json-model-override-args", text]
    plan = resolve(from_words(words, {}, load("0.5.23")), Facts(checkpoint(), checkpoint()))
    for found in (plan.facts.target, plan.facts.draft):
        assert found is not None and found.num_hidden_layers == layers


@rows(
    "config, changes, lengths",
    [
        # what 0.5.23 said of each: transformers 5 fills in the original length of what a config.json
        # scales, but not of what is changed afterwards
        ({}, {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, (4096, 4096)),
        ({}, {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, (2048, 4096)),
        ({}, {"rope_scaling": {"type": "yarn", "factor": 2.0}}, (4096, 4096)),
        ({}, {"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, (2048, 2048)),
        (
            {},
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 2.0,
                    "original_max_position_embeddings": 2048,
                }
            },
            (2048, 2048),
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
            {"rope_scaling": {"factor": 4.0}},
            (8192, 2048),
        ),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, {"hidden_size": 64}, (4096, 2048)),
    ],
)
def test_a_scaling_that_is_put_in_counts(
    config: dict[str, Any], changes: dict[str, Any], lengths: tuple[int, int]
) -> None:
    plain = {"model_type": "llama", "max_position_embeddings": 2048}
    found = overridden(from_config("m", plain | config), changes)
    assert (found.context_in("0.5.3"), found.context_in("0.5.23")) == lengths
    if "rope_scaling" in config and "rope_scaling" in changes:
        return  # inside of a part it is replaced, not merged
    inside = from_config("m", {"text_config": plain | config})
    changed = overridden(inside, {"text_config": changes})
    assert (changed.context_in("0.5.3"), changed.context_in("0.5.23")) == lengths

"""Plans of published models, whose sizes are worked out by hand in the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from speclaunch.deployments.sources.requests import from_words
from speclaunch.engine.facts.facts import Checkpoint, Facts
from speclaunch.engine.facts.hardware import declare
from speclaunch.engine.facts.read_checkpoint import from_config
from speclaunch.engine.plan.plan import Plan
from speclaunch.engine.plan.resolve import resolve
from speclaunch.engine.releases.catalogue import load
from tests.support import TESTS

MODELS: Mapping[str, Mapping[str, Any]] = json.loads(
    (TESTS / "engine" / "plan" / "memory" / "weights.json").read_text()
)
"""Made by tools/weight_facts.py: configs, and the bytes that the index of each says."""
NEWEST = "0.5.23"


def published(name: str, **facts: Any) -> Checkpoint:
    """A published checkpoint, known by its config."""
    entry = MODELS[name]
    found = from_config(name, entry["config"])
    return replace(found, mtp_weights=entry.get("mtp_weights"), **facts)


def llama(**keys: Any) -> Checkpoint:
    """A small Llama, with other values for some keys of its config."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 16,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    }
    return from_config(keys.pop("name", "llama"), config | keys)


def eagle3(**keys: Any) -> Checkpoint:
    """An EAGLE-3 draft of that Llama."""
    own = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}
    return llama(**({"name": "eagle3", "draft_vocab_size": 8000} | own | keys))


def plan_of(
    target: Checkpoint | None,
    words: str = "",
    *,
    draft: Checkpoint | None = None,
    version: str = NEWEST,
    hardware: str | None = "h100-80gb:8",
    env: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a command."""
    path = ["--speculative-draft-model-path", draft.name] if draft is not None else []
    asked = from_words(["--model-path", "target", *path, *words.split()], env or {}, load(version))
    machine = declare(hardware) if hardware is not None else None
    return resolve(asked, Facts(target, draft, machine))


STEPS = " --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"

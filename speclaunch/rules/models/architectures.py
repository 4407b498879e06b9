"""What the rules ask about SGLang's model classes."""

from __future__ import annotations

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.architectures import architectures
from speclaunch.plan.plan import Plan

EAGLE3_DRAFTS = {"LlamaForCausalLMEagle3": ">=0.4.6", "Eagle3DeepseekV2ForCausalLM": ">=0.5.12"}
"""Classes that carry `hot_token_id`, which the EAGLE3 worker reads: its drafts."""

EAGLE_HEADS = (
    "LlamaForCausalLMEagle",
    "Qwen2ForCausalLMEagle",
    "MistralForCausalLMEagle",
    "MistralLarge3ForCausalLMEagle",
)
"""EAGLE-2 drafts: they take the target's embedding, output head and hidden states."""

_TRANSFORMERS = "TransformersForCausalLM"
"""The class that runs Transformers' own."""

LLAMA_LIKE = (
    *("LlamaForCausalLM", "LlamaForCausalLMEagle", "LlamaForCausalLMEagle3", "MistralForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2ForCausalLMEagle", "Qwen3ForCausalLM"),
)
"""Classes with the layers of models/llama.py, models/qwen2.py or models/qwen3.py, in every
release."""

_DRAFT_MARKS = ("eagle", "mtp", "nextn", "assistant")
"""Parts of the names of classes that are drafts (in any case)."""

_DELEGATING = ("MiniCPMV", "Mistral3ForConditionalGeneration")
"""How the names of classes begin that hand over what they lack to the model inside
(`__getattr__`)."""


def eagle3_drafts(plan: Plan) -> tuple[str, ...]:
    """The classes that this version takes as an EAGLE-3 draft."""
    return tuple(name for name, versions in EAGLE3_DRAFTS.items() if plan.in_versions(versions))


def drafts_for_itself(architecture: str | None, plan: Plan) -> bool:
    """Whether this version has a multi-token-prediction class for a target."""
    known = architectures(plan.request.version)
    return architecture in known.draft_map or architecture in known.mtp_default_draft_path


def is_draft_class(architecture: str) -> bool:
    """Whether an architecture names a draft, and not a whole language model."""
    return any(mark in architecture.lower() for mark in _DRAFT_MARKS)


def lacks_eagle3(architecture: str, plan: Plan) -> bool:
    """Whether a target's class is known to have no hook for EAGLE-3 in this version."""
    known = architectures(plan.request.version)
    if architecture.startswith(_DELEGATING):
        return False
    return architecture in known.registered and architecture not in known.eagle3_hooks


def lacks_shared_embedding(architecture: str, plan: Plan) -> bool:
    """Whether a target's class is known to have no `get_embed_and_head` in this version."""
    known = architectures(plan.request.version)
    if architecture.startswith(_DELEGATING):
        return False
    return architecture in known.registered and architecture not in known.shares_embedding


def has_no_class(checkpoint: Checkpoint, plan: Plan) -> bool:
    """Whether neither this version nor Transformers is known to have a class for a checkpoint.

    0.4.6 has no way to Transformers' classes (0.4.6.post5 model_loader/utils.py:22; 0.4.7.post1
    model_loader/utils.py:28).
    """
    known = architectures(plan.request.version)
    names = checkpoint.architectures
    is_held = known.asked == known.version  # a later release, or a fork, may have it
    if not names or not is_held or not known.registered.isdisjoint(names):
        return False
    from speclaunch.plan.transformers_classes import in_transformers  # noqa: PLC0415  (rarely)

    brought = checkpoint.config.get("auto_map")
    if isinstance(brought, dict) and "AutoModel" in brought:
        return False
    if any(in_transformers(name) is None for name in names):
        return False
    return _TRANSFORMERS not in known.registered or not any(map(in_transformers, names))

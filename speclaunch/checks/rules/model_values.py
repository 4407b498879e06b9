"""Model facts shared by rules: architectures, drafts, contexts."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.engine import (
    PATH,
    Checkpoint,
    Plan,
    UnknownValueError,
    architectures,
    in_transformers,
    own_path,
)

EAGLE3_DRAFTS = {"LlamaForCausalLMEagle3": ">=0.4.6", "Eagle3DeepseekV2ForCausalLM": ">=0.5.12"}
"""EAGLE-3 draft classes: they have `hot_token_id`, which the EAGLE3 worker reads."""
EAGLE_HEADS = (
    "LlamaForCausalLMEagle",
    "Qwen2ForCausalLMEagle",
    "MistralForCausalLMEagle",
    "MistralLarge3ForCausalLMEagle",
)
"""EAGLE-2 drafts: they use the target's embedding, output head and hidden states."""
_TRANSFORMERS = "TransformersForCausalLM"
"""The class that runs Transformers' models."""
LLAMA_LIKE = (
    *("LlamaForCausalLM", "LlamaForCausalLMEagle", "LlamaForCausalLMEagle3", "MistralForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2ForCausalLMEagle", "Qwen3ForCausalLM"),
)
"""Classes with the layers of models/llama.py, models/qwen2.py or models/qwen3.py, in every
release."""
_DRAFT_MARKS = ("eagle", "mtp", "nextn", "assistant")
"""Parts of the names of draft classes (in any case)."""
DELEGATING = ("MiniCPMV", "Mistral3ForConditionalGeneration")
"""Prefixes of classes that delegate missing attributes to the model inside (`__getattr__`)."""


def eagle3_drafts(plan: Plan) -> tuple[str, ...]:
    """Return the classes that this version accepts as an EAGLE-3 draft."""
    return tuple(name for name, versions in EAGLE3_DRAFTS.items() if plan.in_versions(versions))


def drafts_for_itself(architecture: str | None, plan: Plan) -> bool:
    """True if this version has a multi-token-prediction class for a target."""
    known = architectures(plan.request.version)
    return architecture in known.draft_map or architecture in known.mtp_default_draft_path


def is_draft_class(architecture: str) -> bool:
    """True if an architecture is a draft and not a full language model."""
    return any(mark in architecture.lower() for mark in _DRAFT_MARKS)


def lacks_eagle3(architecture: str, plan: Plan) -> bool:
    """True if a target's class is known to have no EAGLE-3 hook in this version."""
    known = architectures(plan.request.version)
    if architecture.startswith(DELEGATING):
        return False
    return architecture in known.registered and architecture not in known.eagle3_hooks


def lacks_shared_embedding(architecture: str, plan: Plan) -> bool:
    """True if a target's class is known to have no `get_embed_and_head` in this version."""
    known = architectures(plan.request.version)
    if architecture.startswith(DELEGATING):
        return False
    return architecture in known.registered and architecture not in known.shares_embedding


def has_no_class(checkpoint: Checkpoint, plan: Plan) -> bool:
    """True if neither this version nor Transformers is known to have a class for a checkpoint.

    0.4.6 cannot run Transformers' classes (0.4.6.post5 model_loader/utils.py:22; 0.4.7.post1
    model_loader/utils.py:28).
    """
    known = architectures(plan.request.version)
    names = checkpoint.architectures
    is_held = known.requested == known.version  # a later release, or a fork, may have it
    if not names or not is_held or not known.registered.isdisjoint(names):
        return False

    brought = checkpoint.config.get("auto_map")
    if isinstance(brought, dict) and "AutoModel" in brought:
        return False
    if any(in_transformers(name) is None for name in names):
        return False
    return _TRANSFORMERS not in known.registered or not any(map(in_transformers, names))


PLUGINS = "SGLANG_EXTERNAL_MODEL_PACKAGE"
"""Variable that adds custom model classes, which may provide what SGLang's own lack."""
OVERWRITE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
"""Variable that lets a model run beyond the context length of its config."""


def draft_of(plan: Plan) -> Checkpoint | None:
    """Return the draft; None if the target drafts for itself.

    Raises UnknownValueError if the draft is unknown.
    """
    path = own_path(plan)
    if path is None:
        return None
    if plan.facts.draft is None:
        raise UnknownValueError(f"the draft checkpoint {path} is unknown")
    return plan.facts.draft


def pair(plan: Plan) -> tuple[Checkpoint, Checkpoint] | None:
    """Return target and draft; None if the target drafts for itself. Raises UnknownValueError."""
    draft = draft_of(plan)
    if draft is None:
        return None
    if plan.facts.target is None:
        raise UnknownValueError("the target checkpoint is unknown")
    return plan.facts.target, draft


def llama_like(plan: Plan) -> Iterator[tuple[str, Checkpoint]]:
    """Yield the models with Llama-like layers, by the argument that names each."""
    models = [("model_path", plan.facts.target)]
    if own_path(plan) is not None:
        models.append(("speculative_draft_model_path", plan.facts.draft))
    for name, checkpoint in models:
        if checkpoint is not None and checkpoint.architecture in LLAMA_LIKE:
            yield name, checkpoint


def served_context(plan: Plan) -> int | None:
    """Return the context length that the target serves: the requested, else its own."""
    requested = plan.value("context_length")
    if requested is not None:
        return int(requested)
    return context_of(plan.facts.target, plan)


def context_of(checkpoint: Checkpoint | None, plan: Plan) -> int | None:
    """Return a checkpoint's own context length, as this release derives it."""
    return checkpoint.context_in(plan.request.version) if checkpoint is not None else None


def context_overwritten(plan: Plan) -> bool:
    """True if this engine continues with a context longer than the model's own.

    The variable is on by default up to 0.4.10. Up to 0.5.2 only `true` and `1` enable it (utils.py
    get_bool_env_var). SGLang's own CI also continues (configs/model_config.py), with `yes` and `y`
    from 0.5.5 on (utils.py:362; 0.5.4.post3 test/test_utils.py).
    """
    default = "true" if plan.in_versions("<0.5.1") else "false"
    if (plan.env(OVERWRITE) or default).strip().lower() in _yes(plan, since="0.5.3"):
        return True
    return (plan.env("SGLANG_IS_IN_CI") or "").strip().lower() in _yes(plan, since="0.5.5")


def _yes(plan: Plan, since: str) -> tuple[str, ...]:
    """Return the values that enable a variable that environ.py's EnvBool reads from `since` on."""
    return ("true", "1", "yes", "y") if plan.in_versions(f">={since}") else ("true", "1")


_MADE_AS = {"EAGLE": ("EAGLE", "NEXTN")}
"""Names in the index for an algorithm's drafts, if they differ from its own."""
_MOST_NAMED = 2


def known_drafts(plan: Plan) -> str:
    """Return the known drafts of the index, as the end of a sentence that suggests a draft.

    Prefers drafts for the plan's algorithm to others. Excludes drafts in a different layout, or of
    a doubtful pair. Empty if the index has none.
    """
    setting = plan.request.values.get(PATH)
    here = setting.value if setting is not None else None
    algorithm = str(plan.algorithm)
    algorithms = _MADE_AS.get(algorithm, (algorithm,))
    usable = [
        pairing
        for pairing in plan.facts.made_for_target
        if pairing.form is None and pairing.confidence != "low" and pairing.draft != here
    ]
    fitting = [pairing.draft for pairing in usable if pairing.algorithm in algorithms]
    if fitting:
        return f": {' or '.join(fitting[:_MOST_NAMED])}"
    others = [f"{pairing.draft} ({pairing.algorithm})" for pairing in usable]
    return f"; there is {' or '.join(others[:_MOST_NAMED])}" if others else ""

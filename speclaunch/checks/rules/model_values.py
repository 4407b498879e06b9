"""What rules about models share: architectures, drafts, contexts."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.engine import PATH, Checkpoint, Plan, UnknownValueError, architectures, own_path

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
DELEGATING = ("MiniCPMV", "Mistral3ForConditionalGeneration")
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
    if architecture.startswith(DELEGATING):
        return False
    return architecture in known.registered and architecture not in known.eagle3_hooks


def lacks_shared_embedding(architecture: str, plan: Plan) -> bool:
    """Whether a target's class is known to have no `get_embed_and_head` in this version."""
    known = architectures(plan.request.version)
    if architecture.startswith(DELEGATING):
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
    from speclaunch.engine import in_transformers  # noqa: PLC0415  (rarely)

    brought = checkpoint.config.get("auto_map")
    if isinstance(brought, dict) and "AutoModel" in brought:
        return False
    if any(in_transformers(name) is None for name in names):
        return False
    return _TRANSFORMERS not in known.registered or not any(map(in_transformers, names))


PLUGINS = "SGLANG_EXTERNAL_MODEL_PACKAGE"
"""The variable that adds model classes of one's own: what SGLang's own lack may be there."""
OVERWRITE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
"""The variable that lets a model run beyond the context length of its config."""


def draft_of(plan: Plan) -> Checkpoint | None:
    """The facts of the draft; None where the target drafts for itself.

    Raises UnknownValueError when there is a draft and nothing is known of it.
    """
    path = own_path(plan)
    if path is None:
        return None
    if plan.facts.draft is None:
        raise UnknownValueError(f"the draft checkpoint {path} is not known")
    return plan.facts.draft


def pair(plan: Plan) -> tuple[Checkpoint, Checkpoint] | None:
    """Target and draft; None where the target drafts for itself. Raises UnknownValueError."""
    draft = draft_of(plan)
    if draft is None:
        return None
    if plan.facts.target is None:
        raise UnknownValueError("the target checkpoint is not known")
    return plan.facts.target, draft


def llama_like(plan: Plan) -> Iterator[tuple[str, Checkpoint]]:
    """The models whose class has Llama's layers or their like, by the argument that names each."""
    models = [("model_path", plan.facts.target)]
    if own_path(plan) is not None:
        models.append(("speculative_draft_model_path", plan.facts.draft))
    for name, checkpoint in models:
        if checkpoint is not None and checkpoint.architecture in LLAMA_LIKE:
            yield name, checkpoint


def served_context(plan: Plan) -> int | None:
    """The context length that the target serves: the one asked for, else its own."""
    asked = plan.value("context_length")
    if asked is not None:
        return int(asked)
    return context_of(plan.facts.target, plan)


def context_of(checkpoint: Checkpoint | None, plan: Plan) -> int | None:
    """A checkpoint's own context length, as this release derives it."""
    return checkpoint.context_in(plan.request.version) if checkpoint is not None else None


def context_overwritten(plan: Plan) -> bool:
    """Whether this engine goes on with a context that is longer than the model's own.

    The switch is on by default up to 0.4.10. Up to 0.5.2 only `true` and `1` switch it on
    (utils.py get_bool_env_var); SGLang's own CI goes on as well (configs/model_config.py), for
    `yes` and `y` from 0.5.5 on (utils.py:362; 0.5.4.post3 test/test_utils.py).
    """
    default = "true" if plan.in_versions("<0.5.1") else "false"
    if (plan.env(OVERWRITE) or default).strip().lower() in _yes(plan, since="0.5.3"):
        return True
    return (plan.env("SGLANG_IS_IN_CI") or "").strip().lower() in _yes(plan, since="0.5.5")


def _yes(plan: Plan, since: str) -> tuple[str, ...]:
    """What switches a variable on that is read by environ.py's EnvBool since then."""
    return ("true", "1", "yes", "y") if plan.in_versions(f">={since}") else ("true", "1")


_MADE_AS = {"EAGLE": ("EAGLE", "NEXTN")}
"""What the index calls the drafts of an algorithm, where that is not its own name alone."""
_MOST_NAMED = 2


def known_drafts(plan: Plan) -> str:
    """How a sentence ends that asks for a draft of the target: with those that the index knows.

    The ones for the algorithm of the plan; where there are none, those for another. Empty where
    the index knows none. A draft in another layout, or whose pair is doubtful, is not named.
    """
    given = plan.request.given.get(PATH)
    here = given.value if given is not None else None
    algorithm = str(plan.algorithm)
    asked = _MADE_AS.get(algorithm, (algorithm,))
    usable = [
        one
        for one in plan.facts.made_for_target
        if one.form is None and one.confidence != "low" and one.draft != here
    ]
    fitting = [one.draft for one in usable if one.algorithm in asked]
    if fitting:
        return f": {' or '.join(fitting[:_MOST_NAMED])}"
    others = [f"{one.draft} ({one.algorithm})" for one in usable]
    return f"; there is {' or '.join(others[:_MOST_NAMED])}" if others else ""

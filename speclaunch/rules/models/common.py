"""What the rules about draft and target ask a plan for."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.drafts import own_path
from speclaunch.rules.models.architectures import LLAMA_LIKE

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

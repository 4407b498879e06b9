"""Values of a plan that several rules share: numbers, backends, models, contexts, secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speclaunch.core import COMMAND_LINE, holds_secret, is_literal_secret, is_secret_variable
from speclaunch.engine import (
    BOTH,
    DRAFT_PATH,
    FA3_GIVES_WAY,
    PHASES,
    UNKNOWN_HARDWARE,
    Checkpoint,
    Hardware,
    Plan,
    RequestedValue,
    UnknownValueError,
    Vendor,
    architectures,
    in_transformers,
    is_secret_argument,
    own_path,
)
from speclaunch.engine import draft_of as known_draft


def number(plan: Plan, name: str) -> int | None:
    """Return an integer argument's effective value; None if unset. Raises UnknownValueError."""
    value = plan.value(name)
    return None if value is None else int(value)


def tree_capacity(steps: int, topk: int) -> int:
    """Return the maximum number of tokens to verify in a draft tree, including the target's token.

    The first step scores `topk` tokens, each later step `topk` for each of `topk` branches
    (select_top_k_tokens in 0.4.6 speculative/eagle_utils.py to 0.5.23 speculative/spec_utils.py).
    """
    return 1 + topk + (steps - 1) * topk * topk


def attention_backend(plan: Plan, name: str = BOTH) -> str | None:
    """Return the effective value of one of the three backend arguments; None if unset.

    If resolution lacks a fact, return the user's value. Raises UnknownValueError if the engine may
    replace that value (plan/resolution/attention_models.py, attention.py).
    """
    try:
        found = plan.value(name)
    except UnknownValueError:
        found = plan.user_value(name)
        if found is None and name not in PHASES and runs_on_cpu(plan):
            return "intel_amx"
        inherited = plan.user_value(BOTH) is not None or runs_on_cpu(plan)
        if (found is None and not inherited) or _may_change_it(plan):
            raise
    return None if found is None else str(found)


def runs_on_cpu(plan: Plan) -> bool:
    """True if the engine is known to run on a CPU.

    The default backend is then intel_amx, or torch_native without AMX; callers treat both alike.
    """
    try:
        return plan.device == "cpu"
    except UnknownValueError:
        return False


def _may_change_it(plan: Plan) -> bool:
    """True if the engine may replace a backend that the user set."""
    if plan.value("enable_hierarchical_cache") and plan.in_versions(FA3_GIVES_WAY):
        return True  # fa3 is replaced for decode
    target = architecture(plan.facts.target)
    if target is not None:
        return target.startswith("DeepseekV4")
    return "v4" in str(plan.user_value("model_path")).lower()


def attention_backends(plan: Plan) -> tuple[str | None, str | None]:
    """Return the backends of prefill and decode: each phase's, or else `attention_backend`."""
    prefill, decode = (attention_backend(plan, name) or attention_backend(plan) for name in PHASES)
    return prefill, decode


def verifying_backend(plan: Plan) -> str | None:
    """Return the backend with which the target verifies drafts; None if unset.

    This is prefill's if `speculative_attention_mode` is not decode. Raises UnknownValueError.
    """
    prefill, decode = attention_backends(plan)
    return decode if plan.value("speculative_attention_mode") == "decode" else prefill


def runs_on(plan: Plan, backend: str, phases: tuple[int, ...] = (0, 1)) -> bool:
    """True if one of `phases` (0: prefill, 1: decode) runs on `backend`.

    Raises UnknownValueError only if no known phase runs on it and a phase is unknown.
    """
    unknown: UnknownValueError | None = None
    for phase in phases:
        try:
            if (attention_backend(plan, PHASES[phase]) or attention_backend(plan)) == backend:
                return True
        except UnknownValueError as error:
            unknown = error
    if unknown is not None:
        raise unknown
    return False


def hardware_of(plan: Plan) -> Hardware:
    """Return the hardware. Raises UnknownValueError if it is unknown."""
    if plan.facts.hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    return plan.facts.hardware


def architecture(checkpoint: Checkpoint | None) -> str | None:
    """Return the first architecture of a checkpoint; None if unknown."""
    return None if checkpoint is None else checkpoint.architecture


def generation(plan: Plan) -> int | None:
    """Return the major compute capability; None unless the device is an NVIDIA GPU.

    Raises UnknownValueError.
    """
    if plan.device != "cuda":
        return None
    hardware = hardware_of(plan)
    if hardware.vendor is not Vendor.NVIDIA:
        return None
    if hardware.capability is None:
        raise UnknownValueError(f"the compute capability of {hardware.name} is unknown")
    return hardware.capability // 10


def page_size(plan: Plan) -> int:
    """Return the effective page size; the user's if resolution cannot determine it."""
    try:
        found = plan.value("page_size")
    except UnknownValueError:
        found = plan.user_value("page_size")
        if found is None:
            raise
    return 1 if found is None else int(found)


EAGLE3_DRAFTS = {"LlamaForCausalLMEagle3": ">=0.4.6", "Eagle3DeepseekV2ForCausalLM": ">=0.5.12"}
"""EAGLE-3 draft classes and their releases. They have `hot_token_id`, which the EAGLE3 worker
reads."""
EAGLE_HEADS = (
    "LlamaForCausalLMEagle",
    "Qwen2ForCausalLMEagle",
    "MistralForCausalLMEagle",
    "MistralLarge3ForCausalLMEagle",
)
"""EAGLE-2 draft classes: they use the target's embedding, output head and hidden states."""
_TRANSFORMERS = "TransformersForCausalLM"
"""Class that runs a model with its implementation in Transformers."""
LLAMA_LIKE = (
    *("LlamaForCausalLM", "LlamaForCausalLMEagle", "LlamaForCausalLMEagle3", "MistralForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2ForCausalLMEagle", "Qwen3ForCausalLM"),
)
"""Classes with the layers of models/llama.py, models/qwen2.py or models/qwen3.py, in every
release."""
_DRAFT_MARKS = ("eagle", "mtp", "nextn", "assistant")
"""Substrings that identify the name of a draft class, ignoring case."""
DELEGATING = ("MiniCPMV", "Mistral3ForConditionalGeneration")
"""Prefixes of classes that delegate missing attributes to the wrapped model (`__getattr__`)."""


def eagle3_drafts(plan: Plan) -> tuple[str, ...]:
    """Return the classes that this version accepts as an EAGLE-3 draft."""
    return tuple(name for name, versions in EAGLE3_DRAFTS.items() if plan.in_versions(versions))


def drafts_for_itself(architecture: str | None, plan: Plan) -> bool:
    """True if this version has a multi-token-prediction class for `architecture`."""
    known = architectures(plan.request.version)
    return architecture in known.draft_map or architecture in known.mtp_default_draft_path


def is_draft_class(architecture: str) -> bool:
    """True if an architecture is a draft, not a full language model."""
    return any(mark in architecture.lower() for mark in _DRAFT_MARKS)


def lacks_eagle3(architecture: str | None, plan: Plan) -> bool:
    """True if a target's class is known to have no EAGLE-3 hook in this version."""
    known = architectures(plan.request.version)
    without = known.registered - known.eagle3_hooks
    return architecture in without and not architecture.startswith(DELEGATING)


def lacks_shared_embedding(architecture: str | None, plan: Plan) -> bool:
    """True if a target's class is known to have no `get_embed_and_head` in this version."""
    known = architectures(plan.request.version)
    without = known.registered - known.shares_embedding
    return architecture in without and not architecture.startswith(DELEGATING)


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
"""Variable that names a package of custom models, with methods that SGLang's classes may lack."""
OVERWRITE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
"""Variable that lets a model run beyond the context length of its config."""


def draft_of(plan: Plan) -> Checkpoint | None:
    """Return the draft; None if the target drafts for itself.

    Raises UnknownValueError if the draft is unknown.
    """
    return None if own_path(plan) is None else known_draft(plan)


def pair(plan: Plan) -> tuple[Checkpoint, Checkpoint] | None:
    """Return target and draft; None if the target drafts for itself. Raises UnknownValueError."""
    draft = draft_of(plan)
    if draft is None:
        return None
    if plan.facts.target is None:
        raise UnknownValueError("the target checkpoint is unknown")
    return plan.facts.target, draft


def llama_like(plan: Plan) -> Iterator[tuple[str, Checkpoint]]:
    """Yield the argument and checkpoint of each model with Llama-like layers."""
    models = [("model_path", plan.facts.target)]
    if own_path(plan) is not None:
        models.append(("speculative_draft_model_path", plan.facts.draft))
    for name, checkpoint in models:
        if checkpoint is not None and checkpoint.architecture in LLAMA_LIKE:
            yield name, checkpoint


def served_context(plan: Plan) -> int | None:
    """Return the context length to serve: the user's, or else the target's; None if unknown."""
    requested = plan.value("context_length")
    if requested is not None:
        return int(requested)
    return context_of(plan.facts.target, plan)


def context_of(checkpoint: Checkpoint | None, plan: Plan) -> int | None:
    """Return a checkpoint's own context length, as this release derives it; None if unknown."""
    return checkpoint.context_in(plan.request.version) if checkpoint is not None else None


def context_overwritten(plan: Plan) -> bool:
    """True if this engine continues with a context longer than the model's own.

    The variable `OVERWRITE` is on by default before 0.5.1. Up to 0.5.2 only `true` and `1` enable
    it (utils.py get_bool_env_var). SGLANG_IS_IN_CI has the same effect (configs/model_config.py),
    with `yes` and `y` from 0.5.5 on (utils.py:362; 0.5.4.post3 test/test_utils.py).
    """
    default = "true" if plan.in_versions("<0.5.1") else "false"
    if (plan.env(OVERWRITE) or default).strip().lower() in _yes(plan, since="0.5.3"):
        return True
    return (plan.env("SGLANG_IS_IN_CI") or "").strip().lower() in _yes(plan, since="0.5.5")


def _yes(plan: Plan, since: str) -> tuple[str, ...]:
    """Return the values that enable a variable; environ.EnvBool reads it since release `since`."""
    return ("true", "1", "yes", "y") if plan.in_versions(f">={since}") else ("true", "1")


_MADE_AS = {"EAGLE": ("EAGLE", "NEXTN")}
"""All names under which the checkpoint index lists an algorithm's drafts, if there are several."""
_MOST_NAMED = 2


def known_drafts(plan: Plan) -> str:
    """Return the target's known drafts, as the end of a sentence; empty if none is known.

    Prefers the plan's algorithm. Excludes doubtful pairs, and layouts other than SGLang's.
    """
    setting = plan.request.values.get(DRAFT_PATH)
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


KEYS_OF_A_COMMAND = ("api_key", "admin_api_key")
"""Secret arguments. On a command line their values are visible in the process list."""


def written_secrets(plan: Plan) -> tuple[RequestedValue, ...]:
    """Return the arguments and variables whose secret value is in the file.

    If an argument reads its value from such a variable, only the variable is returned, with the
    place of its value.
    """
    requested, env = plan.request.values.values(), plan.request.env.values()
    variables = [
        variable
        for variable in env
        if _is_written_secret(variable, named=is_secret_variable(variable.name))
    ]
    in_variables = {_literal(variable) for variable in variables}
    arguments = [
        argument
        for argument in requested
        if _is_written_secret(argument, named=is_secret_argument(argument.name))
    ]
    return (
        *(argument for argument in arguments if _literal(argument) not in in_variables),
        *variables,
    )


def _is_written_secret(value: RequestedValue, *, named: bool) -> bool:
    text = _literal(value)
    written = value.value if text and isinstance(value.value, Mapping) else text
    return holds_secret(written) or (named and is_literal_secret(text))


def _literal(value: RequestedValue) -> str:
    if value.place.path == COMMAND_LINE:
        return ""
    if value.literal is not None:
        return value.literal
    return str(value.value) if value.known else ""

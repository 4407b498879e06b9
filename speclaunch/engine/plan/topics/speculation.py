"""Drafts, the properties that the engine reads from them, and adaptive speculation.

`adaptive_unsupported_reason` (0.5.23 speculative/adaptive_spec_params.py:56, 0.5.11 :18) decides on
adaptive speculation. From 0.5.14 it runs before the parameters are filled in, so an unset topk
counts as 1. In earlier releases it runs afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.plan.settings import Settings, UnknownValueError
from speclaunch.engine.plan.topics.parallel import attention_ranks
from speclaunch.engine.plan.topics.spec_v2 import OVERLAP

STEPS = "speculative_num_steps"
TOPK = "speculative_eagle_topk"
TOKENS = "speculative_num_draft_tokens"
DRAFT_PATH = "speculative_draft_model_path"
UNKNOWN_DRAFT = "the draft checkpoint is unknown"
ASSISTANTS_SINCE = "0.5.12"
"""The first release that drafts with a Gemma 4 assistant (0.5.12 server_args.py:116)."""
_GEMMA4_ASSISTANTS = {
    "Gemma4AssistantForCausalLM": f">={ASSISTANTS_SINCE}",
    "Gemma4UnifiedAssistantForCausalLM": ">=0.5.13",
}
"""Gemma 4 assistants, with the releases that support them as drafts. EAGLE runs them as
FROZEN_KV_MTP; EAGLE3 rejects them (0.5.23 arg_groups/speculative_hook.py:110, 0.5.12
server_args.py:116)."""
_DSPARK_KEYS = ("block_size", "markov_rank", "noise_token_id", "target_layer_ids")
_SETS_PARAMETERS = "IQuestQ1ForCausalLM"


def own_path(settings: Settings, *, as_configured: bool = True) -> str | None:
    """Return the draft's path; None if it is unset or the same as the target's.

    `as_configured`: use the path that the user set, not the engine's default for an unset path.
    Raises UnknownValueError.
    """
    path = settings.user_value(DRAFT_PATH) if as_configured else settings.value(DRAFT_PATH)
    return None if path is None or path == settings.value("model_path") else str(path)


def draft_checkpoint(settings: Settings, *, as_configured: bool = False) -> Checkpoint | None:
    """Return the draft's own checkpoint, else the target's; None if unknown.

    `as_configured`: use the path that the user set. Raises UnknownValueError.
    """
    own = own_path(settings, as_configured=as_configured)
    return settings.facts.target if own is None else settings.facts.draft


def draft_of(settings: Settings, *, as_configured: bool = False) -> Checkpoint:
    """Return `draft_checkpoint`. Raises UnknownValueError if it is unknown."""
    found = draft_checkpoint(settings, as_configured=as_configured)
    if found is None:
        raise UnknownValueError(UNKNOWN_DRAFT)
    return found


def gemma4_assistant(settings: Settings, draft: Checkpoint) -> str | None:
    """Return the draft's class name if this version supports it as a Gemma 4 assistant, or None."""
    known = (name for name in draft.architectures if name in _GEMMA4_ASSISTANTS)
    return next(
        (
            architecture
            for architecture in known
            if settings.in_versions(_GEMMA4_ASSISTANTS[architecture])
        ),
        None,
    )


def bundles_dspark(config: Mapping[str, Any]) -> bool:
    """True if a target's config states that it includes a DSPARK draft
    (`checkpoint_bundles_dspark_draft`, 0.5.16 and later)."""
    return any(config.get(f"dspark_{key}") is not None for key in _DSPARK_KEYS)


COMPARES_VOCABULARIES = ">=0.5.15"
"""Releases that require a STANDALONE draft and its target to have vocabularies of the same size
(speculative/standalone_worker_v2.py)."""
DSPARK_FOLDER = ">=0.5.23"
"""Releases that also search the target's subdirectory `dspark` for a draft."""


def draft_sets_parameters(settings: Settings) -> bool:
    """True if the target's own draft determines steps, topk and tokens (0.5.21 and later,
    `_handle_iquest_q1_mtp_draft`)."""
    target = settings.facts.target
    named = target is not None and target.architecture == _SETS_PARAMETERS
    return named and settings.in_versions(">=0.5.21")


def is_windowed_or_causal(draft: Checkpoint) -> bool:
    """True if a DFLASH draft's config sets `is_causal`, or a sliding window for all layers."""
    layers = draft.config.get("layer_types") or ()
    windows = set(layers) == {"sliding_attention"} and len(layers) == draft.num_hidden_layers
    return windows or draft.config.get("is_causal") is True


def dflash_backends(settings: Settings) -> tuple[str, ...]:
    """Return the attention backends that a DFLASH draft's worker supports, except trtllm_mha."""
    found = ["flashinfer", "fa3", "fa4", "triton"]
    found += ["ascend"] if settings.in_versions(">=0.5.13") else []
    found += ["intel_xpu"] if settings.in_versions(">=0.5.20") else []
    return tuple(found)


def dflash_drafts_on(settings: Settings, backend: str) -> bool:
    """True if a DFLASH draft supports the requested backend. Raises UnknownValueError.

    trtllm_mha supports drafts that are windowed or causal (0.5.17 and later).
    """
    if backend == "trtllm_mha" and settings.in_versions(">=0.5.17"):
        if settings.facts.draft is None:
            raise UnknownValueError(UNKNOWN_DRAFT)
        return is_windowed_or_causal(settings.facts.draft)
    return backend in dflash_backends(settings)


ADAPTIVE = "speculative_adaptive"
ADAPTIVE_ALGORITHMS = ("EAGLE", "EAGLE3")
ADAPTIVE_DECIDED_FIRST = ">=0.5.14"
_ADAPTIVE_NOT_WITH = ("enable_multi_layer_eagle", "enable_two_batch_overlap", "enable_pdmux")


def adaptive_refusal(settings: Settings) -> str | None:
    """Return why the engine drops `speculative_adaptive`; None if it does not. Raises
    UnknownValueError."""
    return next(_adaptive_refusals(settings), None)


def _adaptive_refusals(settings: Settings) -> Iterator[str]:
    """Yield the reasons against adaptive speculation, in the engine's order."""
    algorithm = settings.algorithm
    if algorithm not in ADAPTIVE_ALGORITHMS:
        yield (
            f"only EAGLE and EAGLE3 support adaptive speculation, not {algorithm}"
            if algorithm
            else "speculation is off"
        )
    early = settings.in_versions(ADAPTIVE_DECIDED_FIRST)
    topk = settings.user_value(TOPK) if early else settings.value(TOPK)
    if topk != 1 and not (early and topk is None):
        yield f"adaptive speculation needs speculative_eagle_topk 1, not {topk}"
    if attention_ranks(settings) > 1:
        yield "DP attention ranks would not agree on the steps"
    if settings.in_versions("<0.5.12") and not settings.value(OVERLAP):
        yield "0.5.11 supports adaptive speculation only without the overlap schedule"
    for switch in _ADAPTIVE_NOT_WITH:
        if settings.value(switch):
            yield f"{switch} does not support adaptive speculation"


def candidate_steps(settings: Settings) -> tuple[int, ...]:
    """Return the step counts that adaptive speculation switches between if no file sets them.

    The middle count is the initial one (`candidate_steps` of 0.5.23
    speculative/adaptive_spec_params.py, also in 0.5.13).
    """
    found = {1, 3, 7}
    found |= {0} if settings.in_versions(ADAPTIVE_DECIDED_FIRST) else set()
    found |= {5} if settings.in_versions(">=0.5.20") else set()
    return tuple(sorted(found))


FIRST_STEPS = 3
"""Initial number of draft steps in adaptive speculation."""


def adaptive_fills_parameters(settings: Settings) -> bool:
    """True if adaptive speculation sets missing steps and topk (0.5.14 and later,
    arg_groups/speculative_hook.py:487). Raises UnknownValueError."""
    if not settings.in_versions(ADAPTIVE_DECIDED_FIRST) or not settings.user_value(ADAPTIVE):
        return False
    return adaptive_refusal(settings) is None

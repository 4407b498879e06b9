"""Drafts: which checkpoint one is read from, and what of it the engine goes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.engine.facts.checkpoint import Checkpoint
from speclaunch.engine.plan.settings import Settings, UnknownValueError

PATH = "speculative_draft_model_path"
UNKNOWN_DRAFT = "the draft checkpoint is not known"
ASSISTANTS_SINCE = "0.5.12"
"""The first release that drafts with an assistant of Gemma 4 (0.5.12 server_args.py:116)."""
_GEMMA4_ASSISTANTS = {
    "Gemma4AssistantForCausalLM": f">={ASSISTANTS_SINCE}",
    "Gemma4UnifiedAssistantForCausalLM": ">=0.5.13",
}
"""Drafts that EAGLE runs as FROZEN_KV_MTP, and EAGLE3 refuses (0.5.23
arg_groups/speculative_hook.py:110, 0.5.12 server_args.py:116)."""
_DSPARK_KEYS = ("block_size", "markov_rank", "noise_token_id", "target_layer_ids")
_SETS_PARAMETERS = "IQuestQ1ForCausalLM"


def own_path(settings: Settings, *, as_given: bool = True) -> str | None:
    """The path of the draft, where it is another checkpoint than the target; None otherwise.

    `as_given`: as the user wrote it, whatever the engine makes of a path that is left out. Raises
    UnknownValueError.
    """
    path = settings.given(PATH) if as_given else settings.value(PATH)
    return None if path is None or path == settings.value("model_path") else str(path)


def draft_checkpoint(settings: Settings, *, as_given: bool = False) -> Checkpoint | None:
    """The checkpoint that the draft is read from: its own, else the target's; None: not known.

    `as_given`: whether the target is its own draft need not be decided. Raises UnknownValueError.
    """
    own = own_path(settings, as_given=as_given)
    return settings.facts.target if own is None else settings.facts.draft


def draft_of(settings: Settings, *, as_given: bool = False) -> Checkpoint:
    """The same. Raises UnknownValueError where it is not known."""
    found = draft_checkpoint(settings, as_given=as_given)
    if found is None:
        raise UnknownValueError(UNKNOWN_DRAFT)
    return found


def gemma4_assistant(settings: Settings, draft: Checkpoint) -> str | None:
    """The name of the draft's class, where it is an assistant of Gemma 4 that this version has."""
    known = (name for name in draft.architectures if name in _GEMMA4_ASSISTANTS)
    return next((one for one in known if settings.in_versions(_GEMMA4_ASSISTANTS[one])), None)


def bundles_dspark(config: Mapping[str, Any]) -> bool:
    """Whether a target's config says that it holds a DSPARK draft
    (`checkpoint_bundles_dspark_draft`, 0.5.16 and later)."""
    return any(config.get(f"dspark_{key}") is not None for key in _DSPARK_KEYS)


COMPARES_VOCABULARIES = ">=0.5.15"
"""The sizes of the vocabularies of a STANDALONE draft and its target have to be the same
(speculative/standalone_worker_v2.py)."""
DSPARK_FOLDER = ">=0.5.23"
"""A folder `dspark` in the target's directory holds one, too."""


def sets_parameters(settings: Settings) -> bool:
    """Whether the target is one whose own draft gives steps, topk and tokens (0.5.21 and later,
    `_handle_iquest_q1_mtp_draft`)."""
    target = settings.facts.target
    named = target is not None and target.architecture == _SETS_PARAMETERS
    return named and settings.in_versions(">=0.5.21")


def is_windowed_or_causal(draft: Checkpoint) -> bool:
    """Whether all layers of a DFLASH draft have a window, or it says that it is causal."""
    layers = draft.config.get("layer_types") or ()
    windows = set(layers) == {"sliding_attention"} and len(layers) == draft.num_hidden_layers
    return windows or draft.config.get("is_causal") is True


def dflash_backends(settings: Settings) -> tuple[str, ...]:
    """The attention backends that the worker of a DFLASH draft has, besides trtllm_mha."""
    found = ["flashinfer", "fa3", "fa4", "triton"]
    found += ["ascend"] if settings.in_versions(">=0.5.13") else []
    found += ["intel_xpu"] if settings.in_versions(">=0.5.20") else []
    return tuple(found)


def dflash_drafts_on(settings: Settings, backend: str) -> bool:
    """Whether a DFLASH draft runs on a backend that was asked for. Raises UnknownValueError.

    trtllm_mha is for drafts that are windowed or causal (0.5.17 and later).
    """
    if backend == "trtllm_mha" and settings.in_versions(">=0.5.17"):
        if settings.facts.draft is None:
            raise UnknownValueError(UNKNOWN_DRAFT)
        return is_windowed_or_causal(settings.facts.draft)
    return backend in dflash_backends(settings)

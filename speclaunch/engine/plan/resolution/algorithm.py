"""Resolves the speculative algorithm and its draft."""

from __future__ import annotations

from speclaunch.engine.plan.changes import ChangeKind
from speclaunch.engine.plan.plan import UnknownValueError
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics import drafts
from speclaunch.engine.plan.topics.algorithms import EAGLE_HANDLER


def resolve_algorithm(working: Working) -> None:
    """Normalize the algorithm's name for the engine's handlers.

    NEXTN is an alias of EAGLE in every version (0.4.6 server_args.py:374). From 0.5.12 case is
    ignored (server_args.py:3560); earlier parsers accept only uppercase.
    """
    with working.deciding("speculative_algorithm"):
        requested = working.user_value("speculative_algorithm")
        if requested is None:
            return
        if working.user_value("enable_return_aux_hidden_states"):
            working.set(
                "speculative_algorithm",
                None,
                f"{requested} only selects the hidden states to return; speculation is off",
                "sglang 0.5.23 arg_groups/validation_hook.py:697",
            )
            return
        name = str(requested).upper() if working.in_versions(">=0.5.12") else str(requested)
        if name in ("EAGLE", "NEXTN") and _has_gemma4_draft(working):
            working.change(
                ChangeKind.ALGORITHM,
                "speculative_algorithm",
                "FROZEN_KV_MTP",
                f"the draft is a Gemma 4 assistant, which {requested} runs as FROZEN_KV_MTP",
                "sglang 0.5.23 arg_groups/speculative_hook.py:110, 0.5.12 server_args.py:116",
            )
            return
        final = "EAGLE" if name == "NEXTN" else name
        why = "set by the user"
        if name == "NEXTN":
            why = "NEXTN is an alias of EAGLE in every version"
        elif final != requested:
            why = f"the engine uses upper-case names: {requested} is {final}"
        working.set(
            "speculative_algorithm",
            final,
            why,
            "sglang 0.5.23 arg_groups/speculative_hook.py:109, 0.4.6 server_args.py:374",
        )


def _has_gemma4_draft(working: Working) -> bool:
    """True if the draft turns EAGLE into FROZEN_KV_MTP (0.5.12 and later)."""
    if working.in_versions("<0.5.12"):
        return False
    path = working.user_value("speculative_draft_model_path")
    if path is None:
        return False
    draft, target = working.plan.facts.draft, working.plan.facts.target
    if draft is not None and draft.architectures:
        return drafts.gemma4_assistant(working, draft) is not None
    names = (str(path), *(target.architectures if target is not None else ()))
    if any("gemma" in name.lower() for name in names):
        raise UnknownValueError(drafts.UNKNOWN_DRAFT)
    return False  # only Gemma 4 has such drafts, and their names contain it


def resolve_device(working: Working) -> None:
    """Remove the index from the device, such as `cuda:0` (0.5.11 and later)."""
    with working.deciding("device"):
        device = working.user_value("device")
        if device is not None and ":" in str(device) and working.in_versions(">=0.5.11"):
            working.set(
                "device",
                str(device).partition(":")[0],
                f"the engine drops the index of {device}",
                "sglang 0.5.23 arg_groups/serving_hook.py:658, 0.5.11 server_args.py:1068",
            )


def resolve_draft(working: Working) -> None:
    """Set the draft's path, revision and quantization."""
    _quantization(working)
    names = ("speculative_draft_model_path", "speculative_draft_model_revision")
    with working.deciding(*names):
        if working.is_set(names[0]):
            _revision(working)
            return
        algorithm = working.algorithm
        if algorithm in EAGLE_HANDLER:
            _own_draft(working)
        elif algorithm == "DSPARK":
            _bundled_draft(working)


def _own_draft(working: Working) -> None:
    """Use a target with multi-token prediction as its own draft (speculative_hook.py:1121)."""
    if working.architecture not in working.architectures.mtp_default_draft_path:
        return
    working.change(
        ChangeKind.TARGET_IS_DRAFT,
        "speculative_draft_model_path",
        working.user_value("model_path"),
        f"a {working.architecture} checkpoint contains its own draft layers",
        "sglang 0.5.23 arg_groups/speculative_hook.py:1121, 0.4.6 server_args.py:394",
        logged=False,
    )
    if working.in_versions(">=0.5.6"):
        working.set(
            "speculative_draft_model_revision",
            working.user_value("revision"),
            "the draft is in the target's own checkpoint, at the target's revision",
            "sglang 0.5.23 arg_groups/speculative_hook.py:1147, 0.5.6 server_args.py:1779",
        )


def _bundled_draft(working: Working) -> None:
    """Use the DSPARK draft that a target bundles, if any (`checkpoint_bundles_dspark_draft`)."""
    config = working.target.config
    if not config:
        raise UnknownValueError("the config of the target is unknown")
    if not drafts.bundles_dspark(config):
        if not working.in_versions(drafts.DSPARK_FOLDER):
            return
        raise UnknownValueError(
            "the presence of a dspark draft in the target's directory is unknown"
        )
    working.change(
        ChangeKind.TARGET_IS_DRAFT,
        "speculative_draft_model_path",
        working.user_value("model_path"),
        "the target checkpoint bundles a DSPARK draft",
        "sglang 0.5.23 arg_groups/speculative_hook.py:718, 0.5.16 :284",
    )
    working.set(
        "speculative_draft_model_revision",
        working.user_value("revision"),
        "the draft is in the target's own checkpoint, at the target's revision",
        "sglang 0.5.23 arg_groups/speculative_hook.py:730",
    )


def _revision(working: Working) -> None:
    """Default the draft's revision to `main` (0.5.6 and later), regardless of the target's."""
    name = "speculative_draft_model_revision"
    with working.deciding(name):
        if working.in_versions(">=0.5.6") and working.user_value(name) is None:
            revision = working.user_value("revision")
            if revision is not None and revision != "main":
                working.change(
                    ChangeKind.DRAFT_REVISION,
                    name,
                    "main",
                    f"revision {revision} applies to the target only",
                    "sglang 0.5.23 arg_groups/speculative_hook.py:121, 0.5.6 server_args.py:1723",
                    logged=False,
                )
            else:
                working.set(
                    name,
                    "main",
                    "the draft's revision defaults to main",
                    "sglang 0.5.23 arg_groups/speculative_hook.py:130, 0.5.6 server_args.py:1727",
                )


def _quantization(working: Working) -> None:
    """Default the draft's quantization to the target's (0.5.7 and later)."""
    name = "speculative_draft_model_quantization"
    with working.deciding(name):
        if working.in_versions("<0.5.7"):
            return
        own, target = working.user_value(name), working.user_value("quantization")
        if own == "unquant":
            working.set(
                name,
                None,
                "unquant means that the draft is not quantized",
                "sglang 0.5.23 arg_groups/serving_hook.py:708",
            )
        elif own is None and target not in (None, "unquant"):
            if working.algorithm is None:
                why = f"defaults to the target's, {target}; no draft runs"
                working.set(name, target, why, "sglang 0.5.23 arg_groups/serving_hook.py:689")
                return
            working.change(
                ChangeKind.DRAFT_QUANTIZATION,
                name,
                target,
                "a draft without its own quantization inherits the target's",
                "sglang 0.5.23 arg_groups/serving_hook.py:685, 0.5.7 server_args.py:774",
                logged=False,
            )

"""Resolves the speculative algorithm, its draft, steps, topk and draft tokens.

Values that the engine would reject remain unchanged, and a rule reports them.
"""

from __future__ import annotations

from collections.abc import Mapping

from speclaunch.engine.plan.plan import ChangeKind, UnknownValueError
from speclaunch.engine.plan.resolution.working import Working
from speclaunch.engine.plan.topics import speculation
from speclaunch.engine.plan.topics.algorithms import EAGLE_HANDLER
from speclaunch.engine.plan.topics.speculation import STEPS, TOKENS, TOPK


def resolve_algorithm(working: Working) -> None:
    """Normalize the algorithm's name for the engine's handlers.

    NEXTN is an alias of EAGLE in every version (0.4.6 server_args.py:374). From 0.5.12 on, case is
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
        return speculation.gemma4_assistant(working, draft) is not None
    names = (str(path), *(target.architectures if target is not None else ()))
    if any("gemma" in name.lower() for name in names):
        raise UnknownValueError(speculation.UNKNOWN_DRAFT)
    return False  # only Gemma 4 has such drafts, and their names contain it


def resolve_device(working: Working) -> None:
    """Remove the index from a device such as `cuda:0` (0.5.11 and later)."""
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
    """Use the target as its own draft if it has multi-token-prediction layers
    (speculative_hook.py:1121)."""
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
    if not speculation.bundles_dspark(config):
        if not working.in_versions(speculation.DSPARK_FOLDER):
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


_NGRAM_TOKENS = 12
_DFLASH_TOKENS = 16
_DSPARK_GAMMA = 7


def resolve_parameters(working: Working) -> None:
    """Set steps, topk and draft tokens as the algorithm's handler does."""
    with working.deciding(STEPS, TOPK, TOKENS):
        algorithm = working.algorithm
        if algorithm in EAGLE_HANDLER:
            _adaptive(working)
            _eagle(working)
        elif algorithm == "NGRAM":
            _ngram(working)
        elif algorithm == "DFLASH":
            _dflash(working)
        elif algorithm == "DSPARK":
            _dspark(working)
        elif algorithm == "UNO":
            _uno(working)


def _adaptive(working: Working) -> None:
    """Apply adaptive speculation, which sets the draft tokens, and steps and topk if unset (0.5.14
    and later, speculative_hook.py:487)."""
    if not working.in_versions(speculation.ADAPTIVE_DECIDED_FIRST) or not working.value(
        speculation.ADAPTIVE
    ):
        return
    if working.user_value("speculative_adaptive_config") is not None:
        if working.user_value(STEPS) is None:
            raise UnknownValueError("the file named by speculative_adaptive_config was not read")
    elif working.user_value(STEPS) is None:
        candidates = " ".join(map(str, speculation.candidate_steps(working)))
        why = f"adaptive speculation starts in the middle of its candidates, {candidates}"
        source = "sglang 0.5.23 arg_groups/speculative_hook.py:1413"
        working.set(STEPS, speculation.FIRST_STEPS, why, source)
    if working.user_value(TOPK) is None:
        source = "sglang 0.5.23 arg_groups/speculative_hook.py:1406"
        working.set(TOPK, 1, "adaptive speculation drafts a chain", source)
    steps = working.number(STEPS)
    working.set(
        TOKENS,
        steps + 1,
        f"with adaptive speculation, a chain of {steps} steps has {steps + 1} tokens to verify",
        "sglang 0.5.23 arg_groups/speculative_hook.py:1426",
    )


def _eagle(working: Working) -> None:
    steps, topk, tokens = (working.value(name) for name in (STEPS, TOPK, TOKENS))
    if speculation.draft_sets_parameters(working):
        _own_slots(working)
        return
    if steps is None:
        if topk is not None or tokens is not None:
            return  # rejected: topk or tokens without steps
        _automatic(working)
    elif topk is None:
        return  # rejected from 0.5.2 on; in earlier releases the worker fails
    if working.in_versions("<0.4.9"):
        _topk_of_pages(working)
    if working.value(TOPK) == 1:
        _tokens_of_steps(working)


def _automatic(working: Working) -> None:
    algorithm = working.algorithm
    if algorithm == "STANDALONE" and working.in_versions(">=0.5.2"):
        chosen = working.architectures.auto_parameters("", algorithm)
        reason = "STANDALONE has one default for every target"
    else:
        architecture = working.architecture
        chosen = working.architectures.auto_parameters(architecture)
        reason = f"the default of a {architecture} target"
    for name, value in zip((STEPS, TOPK, TOKENS), chosen, strict=True):
        working.change(
            ChangeKind.CHOSEN_PARAMETERS,
            name,
            value,
            reason,
            "sglang 0.5.23 arg_groups/speculative_hook.py:1430, 0.4.6 server_args.py:1588",
            logged=False,
        )


def _topk_of_pages(working: Working) -> None:
    """Lower topk to 1 if pages are larger than 1, as 0.4.6 to 0.4.8 do.

    The page size is final at this step (0.4.6 server_args.py:414, 0.4.8.post1 :488).
    """
    topk, page = working.number(TOPK), working.number("page_size", 1)
    if page > 1 and topk > 1:
        working.change(
            ChangeKind.TOPK_LOWERED,
            TOPK,
            1,
            f"a tree (topk {topk}) needs a page size of 1, not {page}",
            "sglang 0.4.8.post1 server_args.py:488, 0.4.6 server_args.py:414",
        )


def _tokens_of_steps(working: Working) -> None:
    steps, tokens = working.number(STEPS), working.value(TOKENS)
    if tokens == steps + 1:
        return
    why = f"a chain (topk 1) of {steps} steps has {steps + 1} tokens to verify"
    source = "sglang 0.5.23 arg_groups/speculative_hook.py:1254, 0.4.6 server_args.py:422"
    if tokens is None:
        working.set(TOKENS, steps + 1, why, source)
    else:
        working.change(ChangeKind.CHAIN_TOKENS, TOKENS, steps + 1, why, source)


def _own_slots(working: Working) -> None:
    """Set IQuest Q1's parameters, with steps from the config (`_handle_iquest_q1_mtp_draft`)."""
    steps = working.value(STEPS)
    if steps is None:
        steps = speculation.draft_of(working, as_configured=True).config.get("num_draft_slots")
        if steps is None:
            raise UnknownValueError("num_draft_slots of the draft is unknown")
        working.change(
            ChangeKind.CHOSEN_PARAMETERS,
            STEPS,
            int(steps),
            "from the draft's config (num_draft_slots)",
            "sglang 0.5.23 arg_groups/speculative_hook.py:1051",
            logged=False,
        )
    if working.value(TOPK) is None:
        why = "IQuest Q1 drafts a chain"
        working.set(TOPK, 1, why, "sglang 0.5.23 arg_groups/speculative_hook.py:1056")
    if working.value(TOKENS) is None:
        why = f"a chain of {steps} steps has {int(steps) + 1} tokens to verify"
        source = "sglang 0.5.23 arg_groups/speculative_hook.py:1057"
        working.set(TOKENS, int(steps) + 1, why, source)


def _ngram(working: Working) -> None:
    """Set NGRAM's parameters, with the search breadth as topk (`_handle_ngram`)."""
    breadth = working.number("speculative_ngram_max_bfs_breadth", 10)
    why = f"NGRAM's topk is speculative_ngram_max_bfs_breadth, which is {breadth}"
    source = "sglang 0.5.23 arg_groups/speculative_hook.py:1312, 0.5.3 server_args.py:1286"
    if working.user_value(TOPK) in (None, breadth):
        working.set(TOPK, breadth, why, source)
    else:
        working.change(ChangeKind.NGRAM_TOPK, TOPK, breadth, why, source, logged=False)
    if working.value(TOKENS) is None:
        window = "speculative_ngram_max_match_window_size"
        tokens = _NGRAM_TOKENS if working.in_versions(">=0.5.10") else working.number(window, 12)
        what = f"NGRAM verifies {tokens} tokens by default"
        if working.in_versions("<0.5.10"):
            what = f"NGRAM verifies as many tokens as its window has ({window}): {tokens}"
        source = "sglang 0.5.23 arg_groups/speculative_hook.py:1318, 0.5.3 server_args.py:1283"
        working.set(TOKENS, tokens, what, source)
    if working.in_versions(">=0.5.14") and working.value(STEPS) is None and breadth > 0:
        tokens = working.number(TOKENS)
        why = f"{tokens} draft tokens divided by a breadth of {breadth}"
        source = "sglang 0.5.23 arg_groups/speculative_hook.py:1328"
        working.set(STEPS, tokens // breadth, why, source)


def _set_single(working: Working, name: str, algorithm: str, source: str) -> None:
    why = f"{algorithm} drafts one block at a time"
    if working.user_value(name) in (None, 1):
        working.set(name, 1, why, source)
    else:
        working.change(ChangeKind.ONE_BLOCK, name, 1, why, source)


def _dflash(working: Working) -> None:
    """Set DFLASH's parameters, with the block size as num_draft_tokens (`_handle_dflash`)."""
    source = "sglang 0.5.23 arg_groups/speculative_hook.py:335, 0.5.11 server_args.py:3322"
    for name in (STEPS, TOPK):
        _set_single(working, name, "DFLASH", source)
    block = working.user_value("speculative_dflash_block_size")
    if block is not None:
        if working.user_value(TOKENS) is None:
            why = f"speculative_dflash_block_size is {block}"
            working.set(TOKENS, block, why, "sglang 0.5.23 arg_groups/speculative_hook.py:386")
        return
    if working.user_value(TOKENS) is None:
        found = _block_size(working)
        why = f"the draft's config has blocks of {found}"
        if not found:
            why = f"the draft's config has no block_size; the default is {_DFLASH_TOKENS}"
        source = "sglang 0.5.23 arg_groups/speculative_hook.py:424, 0.5.11 server_args.py:3419"
        working.set(TOKENS, found or _DFLASH_TOKENS, why, source)


def _dspark(working: Working) -> None:
    """Set DSPARK's parameters, with gamma (the block size) plus one as num_draft_tokens
    (`_handle_dspark`)."""
    source = "sglang 0.5.23 arg_groups/speculative_hook.py:765, 0.5.16 :309"
    for name in (STEPS, TOPK):
        _set_single(working, name, "DSPARK", source)
    if working.user_value(TOKENS) is not None:
        return
    gamma = working.user_value("speculative_dspark_block_size")
    if gamma is None:
        gamma = speculation.draft_of(working, as_configured=True).config.get("dspark_block_size")
    if gamma is None:
        gamma = _block_size(working) or _DSPARK_GAMMA
    working.set(
        TOKENS,
        int(gamma) + 1,
        f"a block of {gamma} tokens (gamma) and the token before it",
        "sglang 0.5.23 arg_groups/speculative_hook.py:838",
    )


def _uno(working: Working) -> None:
    """Set steps and topk to 1 for UNO unless the user sets a tree (`_handle_uno`)."""
    if (working.user_value(TOPK) or 1) > 1:
        return
    for name in (STEPS, TOPK):
        _set_single(working, name, "UNO", "sglang 0.5.23 arg_groups/speculative_hook.py:593")


def _block_size(working: Working) -> int | None:
    """Return a draft's `block_size`, preferably from `dflash_config`; None if not set
    (parse_dflash_draft_config)."""
    draft = speculation.draft_of(working, as_configured=True)
    nested = draft.config.get("dflash_config")
    inner = nested.get("block_size") if isinstance(nested, Mapping) else None
    return inner if isinstance(inner, int) else draft.block_size

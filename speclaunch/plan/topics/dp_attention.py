"""What the engine refuses of DP attention, whoever speculates.

Where a release switches DP attention off for a single rank, it does so before it looks.
"""

from __future__ import annotations

from speclaunch.plan.settings import Settings
from speclaunch.plan.topics.parallel import (
    HEAD,
    HEAD_RESET,
    OWN_ARGUMENT,
    REPLICAS,
    SWITCH,
    attention_ranks,
)
from speclaunch.plan.topics.refusal import Refusal

CONTEXT = "attn_cp_size"
_DFLASH_SINCE = "0.5.23"
"""DFLASH goes with DP attention from here on, with what it needs; on an NPU from 0.5.20."""
_DFLASH = f">={_DFLASH_SINCE}"
_BY_FLAG = "<0.5.18"
"""0.5.16 and 0.5.17 ask DSPARK for the flag as it was given, which one rank switches off later."""


def _spread(settings: Settings) -> bool:
    return attention_ranks(settings) > 1


NGRAM = Refusal(
    "Currently ngram speculative decoding does not support dp attention.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:1370, 0.5.3 server_args.py:1160",
    _spread,
    ">=0.5.3",
    "NGRAM",
)
STANDALONE = Refusal(
    "Currently standalone speculative decoding does not support dp attention.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:1083, 0.5.2 server_args.py:728",
    _spread,
    ">=0.5.2",
    "STANDALONE",
)


def _dflash_without(settings: Settings) -> bool:
    on_npu = settings.in_versions(">=0.5.20")
    return _spread(settings) and not (on_npu and settings.device == "npu")


DFLASH = Refusal(
    "Currently DFLASH speculative decoding does not support dp attention",
    "sglang 0.5.22 arg_groups/speculative_hook.py:298, 0.5.11 server_args.py:3322",
    _dflash_without,
    f"<{_DFLASH_SINCE}",
    "DFLASH",
)


def _dflash_beside(settings: Settings) -> bool:
    return _spread(settings) and settings.device != "npu"


DFLASH_HEAD = Refusal(
    "DFLASH with dp attention requires --enable-dp-lm-head.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:308",
    lambda settings: _dflash_beside(settings) and not settings.value(HEAD),
    _DFLASH,
    "DFLASH",
)
DFLASH_CONTEXT = Refusal(
    "DFLASH with dp attention does not support context parallel.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:311",
    lambda settings: _dflash_beside(settings) and int(settings.value(CONTEXT) or 1) != 1,
    _DFLASH,
    "DFLASH",
)


def dspark_by_flag(settings: Settings) -> bool:
    """Whether the release asks for `enable_dp_attention` as it was given, and it was."""
    return settings.in_versions(_BY_FLAG) and bool(settings.given(SWITCH))


def dspark_is_spread(settings: Settings) -> bool:
    """Whether DSPARK would be checked for DP attention. Raises UnknownValueError."""
    return attention_ranks(settings) > 1 or dspark_by_flag(settings)


def _no_dspark_head(settings: Settings) -> bool:
    by_flag = dspark_by_flag(settings)
    return not (settings.given(HEAD) if by_flag else settings.value(HEAD))


DSPARK_HEAD = Refusal(
    "DSpark with dp attention requires --enable-dp-lm-head.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:676, 0.5.16 :282",
    lambda settings: dspark_is_spread(settings) and _no_dspark_head(settings),
    ">=0.5.16",
    "DSPARK",
)
DSPARK_CONTEXT = Refusal(
    "DSpark with dp attention does not support context parallel (attn_cp_size={}).",
    "sglang 0.5.23 arg_groups/speculative_hook.py:699, 0.5.16 :290",
    lambda settings: dspark_is_spread(settings) and int(settings.value(CONTEXT) or 1) > 1,
    ">=0.5.16",
    "DSPARK",
)
NO_RANKS = Refusal(
    "Please set a dp-size > 1. You can use 1 < dp-size <= tp-size",
    "sglang 0.5.1 server_args.py:536, 0.4.6 server_args.py:294",
    lambda settings: bool(settings.value(SWITCH)) and attention_ranks(settings) == 1,
    "<0.5.2",
)
REPLICAS_TOO = Refusal(
    "data-parallel replicas combined with attention data parallelism are not supported.",
    "sglang 0.5.23 arg_groups/parallel_hook.py:290",
    lambda settings: (
        (settings.given("attn_dp_size") or 1) > 1 and (settings.given(REPLICAS) or 1) > 1
    ),
    OWN_ARGUMENT,
)


def _keeps_head(settings: Settings) -> bool:
    """Whether no single rank switches it off before it is looked at."""
    return not settings.in_versions(HEAD_RESET) or int(settings.given(REPLICAS) or 1) > 1


HEAD_ALONE = Refusal(
    "Please enable dp attention when setting enable_dp_lm_head.",
    "sglang 0.5.16 arg_groups/overrides.py:1953, 0.5.2 server_args.py:649; in other words 0.5.23 "
    "arg_groups/overrides.py:1424",
    lambda settings: (
        bool(settings.given(HEAD)) and attention_ranks(settings) == 1 and _keeps_head(settings)
    ),
)
NODES = Refusal(
    "multi-node data parallel is not supported unless dp attention!",
    "sglang 0.5.21 arg_groups/validation_hook.py:118, 0.5.2 server_args.py:2264; in other words "
    "0.5.23 arg_groups/validation_hook.py:199",
    lambda settings: (
        (settings.value("nnodes") or 1) != 1
        and (settings.value(REPLICAS) or 1) > 1
        and attention_ranks(settings) == 1
    ),
)

"""Data parallelism: attention ranks that share a batch, replicas with separate GPUs, and the
engine's refusals of both.

Up to 0.5.21, `dp_size` counts attention ranks if `enable_dp_attention` is set. From 0.5.22 the
engine first moves that count to `attn_dp_size`, and `dp_size` counts only replicas (0.5.23
arg_groups/parallel_hook.py:39, 0.5.2 server_args.py:509). A release that switches DP attention off
for a single rank does so before it checks for refusals.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from speclaunch.engine.plan.settings import Settings, UnknownValueError

ATTENTION_RANKS = "attn_dp_size"
REPLICAS = "dp_size"
SWITCH = "enable_dp_attention"
OWN_ARGUMENT = ">=0.5.22"
"""Releases with a separate argument for the number of attention ranks."""
HEAD = "enable_dp_lm_head"
RESET = ">=0.5.2"
"""Releases that switch DP attention off for a single rank (0.5.2 server_args.py:509)."""
HEAD_RESET = ">=0.5.3"
"""Releases that also switch `enable_dp_lm_head` off for a single rank."""
_MOST = 1 << 16
"""Maximum number of ranks in a deployment."""


def attention_ranks(settings: Settings) -> int:
    """Return the number of data-parallel attention ranks; 1 without DP attention. Raises
    UnknownValueError."""
    if settings.in_versions(OWN_ARGUMENT):
        return count(settings, ATTENTION_RANKS)
    return count(settings, REPLICAS) if settings.value(SWITCH) else 1


def is_on(settings: Settings) -> bool:
    """True if attention counts as data-parallel before the engine resets it for a single rank.

    Applies to the steps for memory and prefill graphs. Up to 0.5.21 it depends on
    `enable_dp_attention` alone. Raises UnknownValueError.
    """
    if settings.in_versions(OWN_ARGUMENT):
        return attention_ranks(settings) > 1
    return bool(settings.value(SWITCH))


def replicas(settings: Settings) -> int:
    """Return the number of complete copies of the model, each on separate GPUs. Raises
    UnknownValueError."""
    if not settings.in_versions(OWN_ARGUMENT) and settings.value(SWITCH):
        return 1
    return count(settings, REPLICAS)


def expert_ranks(settings: Settings) -> int:
    """Return the number of rank groups that hold different experts. Raises UnknownValueError.

    An all-to-all backend, or a switch in older releases, sets `ep_size` to `tp_size`.
    """
    tensor = count(settings, "tp_size")
    found = count(settings, "ep_size")
    switched = settings.value("enable_ep_moe") or settings.value("enable_deepep_moe")
    if switched or str(settings.value("moe_a2a_backend") or "none") != "none":
        return max(found, tensor)
    return found


def count(settings: Settings, name: str, default: int = 1, least: int = 1) -> int:
    """Return an argument's value, or `default` if it is None. Raises UnknownValueError for values
    that are not counts."""
    value = settings.value(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
        raise UnknownValueError(f"`{name}` is {value}, not a valid count")
    return value


_ANY = "{}"
_SOMETHING = ".{1,200}?"


class KnownRefusal(Struct, frozen=True):
    """A known refusal of the engine to start.

    `message`: the engine's own message. `source`: its file and line in some releases.
    """

    message: str
    source: str
    when: Callable[[Settings], bool]
    """Returns True if the settings meet the condition, whatever the algorithm. Raises
    UnknownValueError."""
    versions: str = ""
    algorithm: str | None = None
    """The algorithm that the refusal applies to; None if it applies to every algorithm and
    without speculation."""

    def applies(self, settings: Settings) -> bool:
        own = self.algorithm is None or self.algorithm == settings.algorithm
        return own and self.holds(settings)

    def holds(self, settings: Settings) -> bool:
        """True if the release and the settings match, whatever the algorithm. Raises
        UnknownValueError."""
        return settings.in_versions(self.versions) and self.when(settings)


def beginning(message: str) -> str:
    """Return a regular expression for messages that begin with `message`. `{}` matches text that
    varies between starts.

    Matches with and without a final period, because releases differ in that.
    """
    parts = message.removesuffix(".").split(_ANY)
    return _SOMETHING.join(re.escape(part) for part in parts)


CONTEXT = "attn_cp_size"
_DFLASH_SINCE = "0.5.23"
"""The first release that supports DFLASH with DP attention, under conditions. On an NPU, 0.5.20 is
the first."""
_DFLASH = f">={_DFLASH_SINCE}"
_BY_FLAG = "<0.5.18"
"""Releases whose DSPARK checks read the user's `enable_dp_attention`, before it is reset for a
single rank."""


def _spread(settings: Settings) -> bool:
    return attention_ranks(settings) > 1


NGRAM = KnownRefusal(
    "Currently ngram speculative decoding does not support dp attention.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:1370, 0.5.3 server_args.py:1160",
    _spread,
    ">=0.5.3",
    "NGRAM",
)
STANDALONE = KnownRefusal(
    "Currently standalone speculative decoding does not support dp attention.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:1083, 0.5.2 server_args.py:728",
    _spread,
    ">=0.5.2",
    "STANDALONE",
)


def _dflash_without(settings: Settings) -> bool:
    on_npu = settings.in_versions(">=0.5.20")
    return _spread(settings) and not (on_npu and settings.device == "npu")


DFLASH = KnownRefusal(
    "Currently DFLASH speculative decoding does not support dp attention",
    "sglang 0.5.22 arg_groups/speculative_hook.py:298, 0.5.11 server_args.py:3322",
    _dflash_without,
    f"<{_DFLASH_SINCE}",
    "DFLASH",
)


def _dflash_with_dp(settings: Settings) -> bool:
    return _spread(settings) and settings.device != "npu"


DFLASH_HEAD = KnownRefusal(
    "DFLASH with dp attention requires --enable-dp-lm-head.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:308",
    lambda settings: _dflash_with_dp(settings) and not settings.value(HEAD),
    _DFLASH,
    "DFLASH",
)
DFLASH_CONTEXT = KnownRefusal(
    "DFLASH with dp attention does not support context parallel.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:311",
    lambda settings: _dflash_with_dp(settings) and int(settings.value(CONTEXT) or 1) != 1,
    _DFLASH,
    "DFLASH",
)


def dspark_by_flag(settings: Settings) -> bool:
    """True if the release checks the user's `enable_dp_attention` and the user sets it."""
    return settings.in_versions(_BY_FLAG) and bool(settings.user_value(SWITCH))


def dspark_is_spread(settings: Settings) -> bool:
    """True if the engine's checks for DSPARK with DP attention apply. Raises UnknownValueError."""
    return attention_ranks(settings) > 1 or dspark_by_flag(settings)


def _no_dspark_head(settings: Settings) -> bool:
    by_flag = dspark_by_flag(settings)
    return not (settings.user_value(HEAD) if by_flag else settings.value(HEAD))


DSPARK_HEAD = KnownRefusal(
    "DSpark with dp attention requires --enable-dp-lm-head.",
    "sglang 0.5.23 arg_groups/speculative_hook.py:676, 0.5.16 :282",
    lambda settings: dspark_is_spread(settings) and _no_dspark_head(settings),
    ">=0.5.16",
    "DSPARK",
)
DSPARK_CONTEXT = KnownRefusal(
    "DSpark with dp attention does not support context parallel (attn_cp_size={}).",
    "sglang 0.5.23 arg_groups/speculative_hook.py:699, 0.5.16 :290",
    lambda settings: dspark_is_spread(settings) and int(settings.value(CONTEXT) or 1) > 1,
    ">=0.5.16",
    "DSPARK",
)
NO_RANKS = KnownRefusal(
    "Please set a dp-size > 1. You can use 1 < dp-size <= tp-size",
    "sglang 0.5.1 server_args.py:536, 0.4.6 server_args.py:294",
    lambda settings: bool(settings.value(SWITCH)) and attention_ranks(settings) == 1,
    "<0.5.2",
)
REPLICAS_TOO = KnownRefusal(
    "data-parallel replicas combined with attention data parallelism are not supported.",
    "sglang 0.5.23 arg_groups/parallel_hook.py:290",
    lambda settings: (
        (settings.user_value("attn_dp_size") or 1) > 1 and (settings.user_value(REPLICAS) or 1) > 1
    ),
    OWN_ARGUMENT,
)


HEAD_ALONE = KnownRefusal(
    "Please enable dp attention when setting enable_dp_lm_head.",
    "sglang 0.5.16 arg_groups/overrides.py:1953, 0.5.2 server_args.py:649; in other words 0.5.23 "
    "arg_groups/overrides.py:1424",
    lambda settings: (
        bool(settings.user_value(HEAD))
        and attention_ranks(settings) == 1
        # a single rank switches `HEAD` off before the check
        and (not settings.in_versions(HEAD_RESET) or int(settings.user_value(REPLICAS) or 1) > 1)
    ),
)
NODES = KnownRefusal(
    "multi-node data parallel is not supported unless dp attention!",
    "sglang 0.5.21 arg_groups/validation_hook.py:118, 0.5.2 server_args.py:2264; in other words "
    "0.5.23 arg_groups/validation_hook.py:199",
    lambda settings: (
        (settings.value("nnodes") or 1) != 1
        and (settings.value(REPLICAS) or 1) > 1
        and attention_ranks(settings) == 1
    ),
)

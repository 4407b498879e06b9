"""Speculative algorithms: names, releases, handlers, and limits on running requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from speclaunch.engine.plan.settings import Settings

EAGLE_HANDLER = frozenset({"EAGLE", "EAGLE3", "STANDALONE"})
"""Algorithms of `_handle_eagle_family`, which checks steps, topk and tokens together (from 0.5.13).
Earlier releases handle these algorithms in one branch of the resolver."""
EAGLE_FAMILY = EAGLE_HANDLER | {"FROZEN_KV_MTP"}
"""Algorithms with an EAGLE worker for the draft. NEXTN is absent, because it is resolved to
EAGLE."""
BLOCK_FAMILY = frozenset({"DFLASH", "DSPARK"})
"""Algorithms whose draft model drafts a block at a time."""
SPECULATIVE = EAGLE_HANDLER | BLOCK_FAMILY | {"NGRAM"}
"""Algorithms whose batches the performance rules model. The engine limits their
`max_running_requests` if it is not set. Excludes FROZEN_KV_MTP, whose batches differ."""

_ADDED = (
    ("0", ("EAGLE", "EAGLE3", "NEXTN")),
    ("0.5.2", ("STANDALONE",)),
    ("0.5.3", ("NGRAM",)),
    ("0.5.11", ("DFLASH",)),
    ("0.5.12", ("FROZEN_KV_MTP", "NONE")),
    ("0.5.16", ("DSPARK",)),
    ("0.5.20", ("UNO",)),
)
"""Algorithm names that each release added (speculative/spec_info.py; before 0.5.12 the parser's
choices)."""
FIRST_WITH = {name: since for since, names in _ADDED for name in names}
"""The first release with each algorithm name; `0` if all known releases have the name."""

REJECTION = "speculative_use_rejection_sampling"
BLOCKS = "speculative_use_block_verification"


def blocks_need_rejection(settings: Settings) -> bool:
    """True if block verification switches rejection sampling on (EAGLE and EAGLE3; 0.5.23
    arg_groups/speculative_hook.py:173). Raises UnknownValueError."""
    return bool(settings.value(BLOCKS)) and settings.algorithm in ("EAGLE", "EAGLE3")


def algorithm_names(settings: Settings) -> frozenset[str]:
    """Return the speculative algorithms of this version, excluding plugins."""
    return frozenset(
        name for since, names in _ADDED if settings.in_versions(f">={since}") for name in names
    )


RUNNING = "max_running_requests"
LIMITED = SPECULATIVE | EAGLE_FAMILY
"""Algorithms for which the engine limits the running requests if the user sets no limit."""
WHEN_SPECULATING = 48
"""Default limit on running requests for the algorithms in `LIMITED` (0.5.23
arg_groups/speculative_hook.py:1084, 0.4.6 server_args.py:384)."""

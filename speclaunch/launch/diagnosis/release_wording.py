"""Which releases say it so: the engine does not log its version, its wording tells.

Each entry was checked in the released wheels on both sides of the change (0.4.6.post5 to 0.5.23).
The names of the arguments in `server_args=` tell most: the catalogue knows when each existed.
"""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.version import Version

from speclaunch.engine.catalogue import held_versions, history
from speclaunch.plan.topics.memory import FIRST_IN_POOL
from speclaunch.record import record

_WORDINGS: tuple[tuple[re.Pattern[str], str | None, str | None], ...] = (
    # model_executor/model_runner.py: `elapsed=` from 0.5.9; bootstrap.py replaced it in 0.5.21
    (re.compile(r"Init torch distributed ends\. mem usage="), None, "0.5.8.post1"),
    (re.compile(r"Init torch distributed ends\. elapsed="), "0.5.9", "0.5.20"),
    (re.compile(r"Memory baseline taken\."), "0.5.21", None),
    (re.compile(r"Load weight end\. elapsed="), "0.5.9", None),
    (re.compile(r"Load weight end\. type="), None, "0.5.8.post1"),
    # mem_cache/memory_pool.py
    (re.compile(r"KV Cache is allocated\. #tokens"), None, "0.5.12.post1"),
    (re.compile(r"KV Cache is allocated\. dtype: "), "0.5.13", None),
    # speculative/eagle_worker*.py
    (re.compile(r"Capture draft (?:extend )?cuda graph (?:begin|end)"), None, "0.5.13.post1"),
    (re.compile(r"Capture (?:target|draft) [\w ]{1,20} CUDA graph"), "0.5.14", None),
    # server_args.py resolved_dict
    (re.compile(r"server_args=ServerArgs\("), None, "0.5.18"),
    (re.compile(r"server_args=\{"), "0.5.19", None),
    (re.compile(r"Loaded weights leave no GPU memory"), FIRST_IN_POOL, None),
)
_SAYS = tuple(
    (pattern, Version(first) if first else None, Version(last) if last else None)
    for pattern, first, last in _WORDINGS
)
_ARGUMENT = re.compile(r"[(,{] ?'?(?P<name>[a-z][a-z0-9_]{2,60})'?[=:]")
_SETTING = (
    "mem_fraction_static|max_running_requests|max_total_tokens|context_length|chunked_prefill_size"
    "|cuda_graph_max_bs(?:_decode|_prefill)?|speculative_num_steps|speculative_eagle_topk"
    "|speculative_num_draft_tokens|tp_size|dp_size|pp_size|port|mamba_full_memory_ratio"
    "|max_mamba_cache_size|hicache_ratio|hicache_size"
)
_SETTINGS = re.compile(
    rf"[(,{{] ?'?(?P<name>{_SETTING})'?(?:=|: )(?P<value>-?\d{{1,12}}(?:\.\d{{1,12}})?)(?=[,)}}])"
)
_ON_CPU = re.compile(r"[(,{] ?'?device'?(?:=|: )'cpu'")


@record(frozen=False)
class Wording:
    """The narrowest range of releases that all lines so far allow."""

    first: Version | None = None
    last: Version | None = None

    def hear(self, text: str) -> None:
        """Take in a line that may tell."""
        for pattern, first, last in _SAYS:
            if pattern.match(text):
                self._narrow(first, last)
        if text.startswith("server_args="):
            names = {found["name"] for found in _ARGUMENT.finditer(text)}
            for name in sorted(names):
                self._narrow(*_bounds(name))
            if "cuda_graph_max_bs" in names:  # a flag until 0.5.19, a field until 0.5.13
                self._narrow(None, Version("0.5.13.post1"))

    def _narrow(self, first: Version | None, last: Version | None) -> None:
        low = self.first if first is None else max(self.first or first, first)
        high = self.last if last is None else min(self.last or last, last)
        if low is None or high is None or low <= high:  # a contradiction tells nothing
            self.first, self.last = low, high

    def allows(self, version: str) -> bool:
        """Whether a release may have printed this."""
        one = Version(version)
        return (self.first is None or one >= self.first) and (self.last is None or one <= self.last)

    @property
    def newest(self) -> str | None:
        """The newest held release that may have; None where nothing tells."""
        if self.first is None and self.last is None:
            return None
        fitting = [version for version in held_versions() if self.allows(version)]
        return fitting[-1] if fitting else None

    @property
    def draft_in_pool(self) -> bool | None:
        """Whether the draft is paid from the pool; None where unknown."""
        if self.first is not None and self.first >= Version(FIRST_IN_POOL):
            return True
        if self.last is not None and self.last < Version(FIRST_IN_POOL):
            return False
        return None


@lru_cache(maxsize=4096)
def _bounds(argument: str) -> tuple[Version | None, Version | None]:
    """The first and the last release with an argument of this name; None for the ends."""
    known = history(argument)
    if known is None or len(known.spans) != 1:
        return None, None
    oldest = held_versions()[0]
    return (
        None if known.first == oldest else Version(known.first),
        None if known.current else Version(known.last),
    )


def settings(text: str) -> dict[str, float]:
    """What `server_args=…` says of the arguments that a remedy may turn."""
    return {found["name"]: float(found["value"]) for found in _SETTINGS.finditer(text)}


def on_cpu(text: str) -> bool:
    """Whether `server_args=…` names the CPU as its device."""
    return _ON_CPU.search(text) is not None

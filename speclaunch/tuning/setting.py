"""The settings that can be tuned, and which of them there are for an algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speclaunch.plan.topics.algorithms import EAGLE_HANDLER
from speclaunch.record import record
from speclaunch.rules.values import tree_capacity

_STEPS = (1, 2, 3, 4, 5, 6, 7, 8)
_TOPK = (1, 2, 4, 8)
_TREES = (4, 6, 8, 12, 16, 24, 32, 48, 64)
_NGRAM = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)
NGRAM = "NGRAM"


@record
class Setting:
    """How speculation drafts: `steps` 0 for NGRAM, which looks up a whole tree at once."""

    steps: int
    topk: int
    tokens: int
    """Tokens that a verify step judges, the root included."""

    def arguments(self, algorithm: str) -> dict[str, Any]:
        """As server arguments."""
        if algorithm == NGRAM:
            return {"speculative_num_draft_tokens": self.tokens}
        return {
            "speculative_num_steps": self.steps,
            "speculative_eagle_topk": self.topk,
            "speculative_num_draft_tokens": self.tokens,
        }

    def __str__(self) -> str:
        if not self.steps:
            return f"{self.tokens} draft tokens"
        return f"steps {self.steps}, topk {self.topk}, {self.tokens} draft tokens"


def settings(algorithm: str, most: int | None = None) -> tuple[Setting, ...]:
    """All that are worth a thought, with at most so many draft tokens; a release and a memory may
    refuse some of them."""
    return tuple(one for one in _settings(algorithm) if most is None or one.tokens <= most)


def _settings(algorithm: str) -> Iterator[Setting]:
    if algorithm == NGRAM:
        for tokens in _NGRAM:
            yield Setting(0, 1, tokens)
    elif algorithm in EAGLE_HANDLER:  # others have a width that is their draft's own
        for steps in _STEPS:
            for topk in _TOPK:
                if topk == 1:
                    yield Setting(steps, 1, steps + 1)
                    continue
                for tokens in _TREES:
                    if steps < tokens <= tree_capacity(steps, topk):
                        yield Setting(steps, topk, tokens)

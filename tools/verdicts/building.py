"""What configurations are made of: pairs of target and draft, draft trees, and how to vary them."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Args = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One configuration: server arguments, environment, and words given as they stand."""

    group: str
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """As it is stored; what is empty is left out."""
        fields = {"args": dict(self.args), "env": dict(self.env), "words": list(self.words)}
        return {"id": self.id, **{name: value for name, value in fields.items() if value}}

    @property
    def id(self) -> str:
        """The group and a digest of the content: it stays when others are added."""
        content = json.dumps([dict(self.args), dict(self.env), self.words], sort_keys=True)
        return f"{self.group}-{hashlib.sha256(content.encode()).hexdigest()[:7]}"


def model(name: str, **args: Any) -> Args:
    """The arguments that name a target."""
    return {"model_path": f"models/{name}", **args}


def speculate(algorithm: str, target: str, draft: str | None = None, **args: Any) -> Args:
    """The arguments that name an algorithm, a target and a draft."""
    named = {"speculative_draft_model_path": f"models/{draft}"} if draft else {}
    return {**model(target), "speculative_algorithm": algorithm, **named, **args}


BASES: dict[str, Args] = {
    "eagle3": speculate("EAGLE3", "llama", "llama-eagle3"),
    "eagle": speculate("EAGLE", "llama", "llama-eagle"),
    "mtp": speculate("EAGLE", "deepseek-v3", tp_size=8),
    "nextn": speculate("NEXTN", "glm-4.5", tp_size=8),
    "standalone": speculate("STANDALONE", "llama", "llama-3.2-1b"),
    "ngram": speculate("NGRAM", "llama"),
    "dflash": speculate("DFLASH", "qwen3", "qwen3-dflash"),
    "dspark": speculate("DSPARK", "qwen3", "qwen3-dspark"),
}
"""One working pair of target and draft for each algorithm."""

EAGLE_LIKE = ("eagle3", "eagle", "mtp", "nextn", "standalone")

CHAIN: Args = {
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
TREE: Args = {
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 4,
    "speculative_num_draft_tokens": 16,
}


def parameters(
    steps: int | None = None, topk: int | None = None, tokens: int | None = None
) -> Args:
    """The three numbers of a draft tree; None is left out."""
    named = {
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens,
    }
    return {name: value for name, value in named.items() if value is not None}


def chain_for(base: str) -> Args:
    """A chain for the algorithms that have one, on every other call."""
    return CHAIN if base in EAGLE_LIKE and next(rotate_of("chain", [True, False])) else {}


_turns: dict[str, Iterator[Any]] = {}


def rotate(values: Sequence[Any]) -> Iterator[Any]:
    """The values, over and over."""
    return itertools.cycle(values)


def rotate_of(name: str, values: Sequence[Any]) -> Iterator[Any]:
    """The rotation by a name, which goes on where it stopped."""
    return _turns.setdefault(name, itertools.cycle(values))


def restart() -> None:
    """Begin every rotation anew."""
    _turns.clear()

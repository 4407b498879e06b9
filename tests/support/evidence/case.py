"""One case: a deployment that a rule speaks about, or a sound neighbour of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .models import Made

DEFAULTS: Mapping[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "mem_fraction_static": 0.3,
    "max_total_tokens": 4096,
    "max_running_requests": 4,
}
EAGLE3 = Made("cycle-8"), Made("llama-eagle3")
EAGLE = Made("cycle-8"), Made("llama-eagle")
STANDALONE = Made("cycle"), Made("cycle-draft-5")
MTP = Made("glm-mtp"), None
NARROW = {"hidden_size": 32, "head_dim": 8, "intermediate_size": 64}
OVERWRITE = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}


@dataclass(frozen=True)
class Case:
    """A deployment; `speaks`: how the rule speaks of it ("" where it does not)."""

    rules: tuple[str, ...]
    """The rule it is about first, then others that it is a sound neighbour for."""
    name: str
    about: str
    """What is special about it, for the rule's page."""
    speaks: str
    target: Made
    draft: Made | None
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    lifted: bool = False
    """The engine's check that DFLASH runs on this device is lifted; the rules are asked for a GPU."""

    late: bool = False
    """It fails only with a token that these requests do not bring about: an error all the same."""
    missed: bool = False
    """It fails, and no rule foretells it yet: a gap that is known."""

    @property
    def key(self) -> str:
        return f"{self.rules[0] if self.rules else 'SOUND'}/{self.name}"

    def arguments(self) -> dict[str, Any]:
        """All of its arguments; the checkpoints are the folders `target` and `draft`."""
        found = {"model_path": "target", **DEFAULTS}
        if self.draft is not None:
            found["speculative_draft_model_path"] = "draft"
        return {key: value for key, value in (found | self.args).items() if value is not None}


def chain(algorithm: str, steps: int = 3, topk: int = 1, tokens: int | None = 4) -> dict[str, Any]:
    """The arguments of speculation."""
    found: dict[str, Any] = {
        "speculative_algorithm": algorithm,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
    }
    return found if tokens is None else found | {"speculative_num_draft_tokens": tokens}

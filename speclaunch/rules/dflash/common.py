"""What several rules of the family read from a plan and from a draft's config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.facts.partial_config import merged
from speclaunch.plan.plan import Plan
from speclaunch.reads.safe_json import mapping


def block_tokens(plan: Plan) -> int:
    """The tokens of a DFLASH block, which resolution always sets. Raises UnknownValueError."""
    return int(plan.value("speculative_num_draft_tokens"))


def dflash_config(plan: Plan) -> Mapping[str, Any]:
    """`dflash_config` of the draft over its outer keys, as the engine reads most of its fields
    (parse_dflash_draft_config); empty when the draft is not known."""
    draft = plan.facts.draft
    if draft is None:
        return {}
    nested = draft.config.get("dflash_config")
    return merged(draft.config, mapping(nested))


def outer_and_nested(plan: Plan, name: str) -> tuple[Any, Any]:
    """A field of the draft's config outside of `dflash_config`, and in it."""
    draft = plan.facts.draft
    config = {} if draft is None else draft.config
    nested = config.get("dflash_config")
    return config.get(name), nested.get(name) if isinstance(nested, Mapping) else None


def captured_layers(plan: Plan) -> tuple[int, ...]:
    """The layers of the target that the draft says it reads (resolve_target_layer_ids); empty when
    it says nothing, or is not known."""
    config = dflash_config(plan)
    names: tuple[str, ...] = ("target_layer_ids",)
    if plan.algorithm == "DSPARK":
        names = ("dspark_target_layer_ids", *names)
    found = next((config[name] for name in names if config.get(name)), ())
    return tuple(layer for layer in found if isinstance(layer, int))

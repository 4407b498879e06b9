"""Compares the parameters that an entry's config describes with the published size."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from msgspec.structs import replace

from model_indexing.entries import Entry
from speclaunch.engine.facts.checkpoint_file import expanded
from speclaunch.engine.facts.facts import Checkpoint
from speclaunch.engine.facts.read_checkpoint import (
    from_config,
    quantization_config_in,
    quantization_in,
)
from speclaunch.engine.plan.memory.matrices import ModelConfig, WeightRole
from speclaunch.engine.plan.memory.models import head, is_draft_model
from speclaunch.engine.plan.memory.weights import counted, size_of
from speclaunch.engine.plan.plan import UnknownValueError

EXACT, ROUNDED, UNCHECKED = "exact", "rounded", "unchecked"
_NEAR = 0.01
_HEADERS = 0.001
"""Part of a rounded size that headers of files and scales of no matrix may take."""
_DEPENDS = frozenset({"architectures", "quantization_config", "torch_dtype", "config"})
"""Unread keys without which the size of the weights is anybody's guess."""


class Parameters(NamedTuple):
    """What the comparison gave: `exact`, `rounded` or `unchecked`, and why where unchecked."""

    found: str
    why: str = ""


def checkpoint_of(entry: Entry) -> Checkpoint:
    """The facts of an entry as of a config.json and what lies beside it, with no key unread."""
    found = from_config(entry["model"], expanded(entry.get("config", {})))
    beside = expanded(entry.get("quantization_file", {}))
    method = quantization_in(beside)
    if found.quantization is None and method is not None:
        inner = quantization_config_in(beside)
        found = replace(found, quantization=method, quantization_config=inner)
    return replace(found, mtp_weights=entry.get("mtp_weights"))


def parameters_of(entry: Entry) -> Parameters:
    """Whether the shapes give the size: within 1 % of an exact one, within another's rounding."""
    weights = entry.get("weights")
    if weights is None:
        return Parameters(UNCHECKED, "no published size")
    unread = sorted(_DEPENDS & set(entry.get("unread", ())))
    if unread:
        return Parameters(UNCHECKED, f"{', '.join(unread)} not read")
    try:
        choices = possible_bytes(checkpoint_of(entry))
    except UnknownValueError as error:
        return Parameters(UNCHECKED, str(error))
    size = weights["bytes"]
    nearest = min(choices, key=lambda one: abs(one - size))
    off = nearest / size - 1
    if weights["exact"]:
        near = abs(off) <= _NEAR
    else:
        near = abs(nearest - size) <= weights.get("rounding", 0) + _HEADERS * size
    if near:
        return Parameters(EXACT if weights["exact"] else ROUNDED)
    return Parameters(UNCHECKED, f"the shapes give {off:+.1%} of the published size")


def possible_bytes(checkpoint: Checkpoint) -> list[float]:
    """The bytes that the files may have by the config: with and without what it does not tell (a
    head that is tied, the embedding of a draft, MTP layers). Raises UnknownValueError."""
    found = counted(checkpoint)
    config = ModelConfig.of(checkpoint)
    sizes = dict(found.by_role)
    optional = [sizes.pop(WeightRole.MTP_COPY)]
    if not sizes[WeightRole.HEAD] and sizes[WeightRole.EMBEDDING]:
        optional.append(size_of(head(config), found.stored, found.element))
    if checkpoint.mtp_weights is None:
        optional.append(sizes.pop(WeightRole.MTP))
    if is_draft_model(config.architecture):
        optional += [sizes.pop(WeightRole.EMBEDDING), sizes.pop(WeightRole.HEAD)]
    fixed = sum(sizes.values())
    return [
        fixed + sum(size for size, taken in zip(optional, chosen, strict=True) if taken)
        for chosen in product((True, False), repeat=len(optional))
    ]

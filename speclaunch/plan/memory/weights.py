"""Bytes of weights on one GPU rank, target and draft.

From the index of the files where the checkpoint has one, divided among ranks as the config says
the weights are; else from the config alone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.budget import Size
from speclaunch.plan.memory.checkpoint_bytes import Counted, counted, size_of
from speclaunch.plan.memory.draft_models import is_draft_model
from speclaunch.plan.memory.drafts import Draft, draft_of, target_of
from speclaunch.plan.memory.language import head, padded
from speclaunch.plan.memory.loaded import loaded_in, stage_bytes
from speclaunch.plan.memory.matrices import Role
from speclaunch.plan.memory.model_config import ELEMENT_BYTES, ModelConfig, serving_dtype
from speclaunch.plan.memory.quantized import NOT_QUANTISED, online
from speclaunch.plan.memory.ranks import Ranks, ranks_of
from speclaunch.plan.plan import Plan, UnknownValueError

_GIB = 1 << 30
_MODEL = frozenset({Role.BODY, Role.EMBEDDING, Role.HEAD, Role.VISION})
_MTP = frozenset({Role.MTP, Role.MTP_COPY})
_CLOSE = 0.001
_FAR = 0.25
"""Where count and files differ by more, the config does not describe the files."""


def weight_size(plan: Plan, *, draft: bool = False) -> Size:
    """Bytes of the weights on the rank that has most, once they are loaded.

    A draft that shares embedding and head with the target (EAGLE, MTP, DFLASH) counts without
    them; `why` says what its own take until they are freed. Raises UnknownValueError.
    """
    if not draft:
        checkpoint = target_of(plan)
        return _size(plan, checkpoint, _MODEL, plan.value("quantization"))
    found = draft_of(plan)
    if found is None:
        return Size(0, "no draft model")
    name = "speculative_draft_model_quantization"
    method = plan.value(name) if plan.has_argument(name) else plan.value("quantization")
    kept = _kept(plan, found)
    size = _size(plan, found.checkpoint, kept, None if method == "unquant" else method)
    if Role.EMBEDDING in kept:
        return size
    return replace(size, why=size.why + _peak(plan, found, kept))


def config_bytes(checkpoint: Checkpoint) -> Size:
    """Bytes of the whole checkpoint from its config alone: what the index of its weights says,
    within two per cent. Raises UnknownValueError."""
    found = counted(checkpoint)
    exact = found.stored is NOT_QUANTISED and not _has_vision(found)
    return Size(found.bytes(), f"{found.parameters:,} parameters", exact)


def _kept(plan: Plan, draft: Draft) -> frozenset[Role]:
    """What of a draft's checkpoint stays in memory.

    `init_lm_head` (0.5.23 eagle_worker_v2.py:336, 0.4.6 eagle_worker.py:125): EAGLE and MTP take
    the target's embedding and head, EAGLE-3 the embedding alone, unless it has no head.
    """
    if draft.is_mtp:
        return frozenset({Role.MTP})
    if plan.algorithm == "EAGLE3":
        own_head = draft.checkpoint.draft_vocab_size is not None
        return frozenset({Role.BODY, Role.HEAD} if own_head else {Role.BODY})
    if plan.algorithm in ("EAGLE", "DFLASH", "DSPARK"):
        return frozenset({Role.BODY})
    return _MODEL


def _size(plan: Plan, checkpoint: Checkpoint, roles: frozenset[Role], method: object) -> Size:
    ranks = ranks_of(plan)
    quantised = None
    if method is not None and checkpoint.quantization is None:
        quantised = online(method)  # what its files take says nothing of it
    try:
        found = counted(checkpoint)
    except UnknownValueError as error:
        if quantised is not None:
            raise
        return _evenly(checkpoint, ranks, roles, str(error))
    stored = found.stored if quantised is None else quantised
    if roles <= _MTP and not any(matrix.role is Role.MTP for matrix in found.matrices):
        if not is_draft_model(checkpoint.architecture or "") and checkpoint.mtp_weights is False:
            raise UnknownValueError(f"{checkpoint.name} has no multi-token-prediction layers")
        return _evenly(checkpoint, ranks, roles, "their layers are not known")
    element = ELEMENT_BYTES[serving_dtype(checkpoint, plan.value("dtype"))]
    loaded = loaded_in(plan, stored, element, ranks)
    config = ModelConfig.of(checkpoint)
    own = [matrix for matrix in found.matrices if matrix.role in roles]
    most = max(stage_bytes(plan, config, own, loaded))
    ratio = _ratio_to_files(checkpoint, config, found)
    if ratio is None:
        return _evenly(checkpoint, ranks, roles, "the config does not describe the files")
    exact = stored is NOT_QUANTISED and abs(ratio - 1) < _CLOSE and not _has_vision(found)
    source = "config" if checkpoint.weight_bytes is None else "files"
    whole = sum(size_of(matrix, stored, element) for matrix in own) * ratio
    parts = f", {most * ratio / whole:.3g} of it on a rank" if _is_divided(ranks) and whole else ""
    why = f"{whole / _GIB:.2f} GiB by the {source}{parts}"
    return Size(round(most * ratio), why, exact)


def _ratio_to_files(checkpoint: Checkpoint, config: ModelConfig, found: Counted) -> float | None:
    """The files' bytes by the config's; 1 without files, None where they are of something else.

    Files may lack or repeat what the config does not tell: a head that is tied, the embedding of a
    draft, MTP layers and their copies. The nearest of these is what they hold.
    """
    total = checkpoint.weight_bytes
    if total is None:
        return 1.0
    sizes = {role: found.bytes([role]) for role in Role}
    sizes[Role.BODY] += sizes.pop(Role.VISION)
    extra = 0
    if not sizes[Role.HEAD] and sizes[Role.EMBEDDING]:
        extra = round(size_of(head(config), found.stored, found.element))
    draft = is_draft_model(config.architecture)
    optional = [sizes[Role.MTP_COPY], extra]
    if checkpoint.mtp_weights is None:
        optional.append(sizes[Role.MTP])
    if draft:
        optional += [sizes[Role.EMBEDDING], sizes[Role.HEAD]]
    fixed = sum(sizes.values()) + extra - sum(optional)
    choices = [
        fixed + sum(size for size, taken in zip(optional, chosen, strict=True) if taken)
        for chosen in product((True, False), repeat=len(optional))
    ]
    nearest = min(choices, key=lambda size: abs(size - total))
    if nearest <= 0:
        return None
    ratio = total / nearest
    return ratio if abs(ratio - 1) <= _FAR else None


def _evenly(checkpoint: Checkpoint, ranks: Ranks, roles: frozenset[Role], why: str) -> Size:
    """The files, divided evenly among ranks. Raises UnknownValueError where that tells nothing."""
    total = checkpoint.weight_bytes
    own = is_draft_model(checkpoint.architecture or "")
    if total is None or (roles <= _MTP and not _is_mtp_alone(checkpoint)):
        raise UnknownValueError(why)
    parts = ranks.tensor * (1 if own else ranks.stages)
    text = f"{total / _GIB:.2f} GiB by the files"
    text += f", divided by {parts}" if parts > 1 else ""
    return Size(round(total / parts), text, False, counted=False)


def _is_mtp_alone(checkpoint: Checkpoint) -> bool:
    return (checkpoint.architecture or "").endswith(("NextN", "MTP"))


def _peak(plan: Plan, draft: Draft, kept: frozenset[Role]) -> str:
    """What a draft's own embedding and head take until the target's are put in their place."""
    config = draft.config
    try:
        element = ELEMENT_BYTES[serving_dtype(draft.checkpoint, plan.value("dtype"))]
        rows, hidden = config.count("vocab_size"), config.hidden
    except UnknownValueError:
        return ""
    if plan.algorithm in ("DFLASH", "DSPARK"):
        return "; embedding and head are the target's"
    ranks = ranks_of(plan)
    more = padded(rows) * hidden * element / ranks.embedding
    if Role.HEAD in kept:
        return f"; the embedding is the target's, {more / _GIB:.2f} GiB more while it loads"
    more += padded(rows) * hidden * element / ranks.head
    return f"; embedding and head are the target's, {more / _GIB:.2f} GiB more while it loads"


def _has_vision(found: Counted) -> bool:
    return any(matrix.role is Role.VISION for matrix in found.matrices)


def _is_divided(ranks: Ranks) -> bool:
    return ranks.tensor > 1 or ranks.stages > 1

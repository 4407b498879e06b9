"""Which attention backend a draft runs on, and which ones each release has for it."""

from __future__ import annotations

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.attention import DRAFT
from speclaunch.rules.values import attention_backend, attention_backends, verifying_backend

_BACKENDS = (
    ("0", ("flashinfer", "triton", "fa3", "flashmla")),
    ("0.5.0rc2", ("aiter",)),
    ("0.5.1", ("trtllm_mha", "trtllm_mla")),
    ("0.5.2", ("hybrid_linear_attn",)),
    ("0.5.4", ("nsa",)),
    ("0.5.4.post2", ("ascend",)),
    ("0.5.10", ("fa4",)),
    ("0.5.12", ("dsv4", "tokenspeed_mla")),
    ("0.5.13", ("cutedsl_mla", "dsa")),
    ("0.5.16", ("intel_amx",)),
    ("0.5.20", ("intel_xpu", "qsa")),
)
"""What each release added to the map of draft backends; `compressed` and (0.5.23) `tokenspeed_mla`
are other names of dsv4 and cutedsl_mla."""


def draft_backends(plan: Plan) -> frozenset[str]:
    """The backends that this version has for the steps of a draft."""
    return frozenset(
        name for since, names in _BACKENDS if plan.in_versions(f">={since}") for name in names
    )


def extend_backends(plan: Plan) -> frozenset[str]:
    """The backends that this version has for what was accepted (draft extend).

    Those of the steps, but that 0.5.2 has no flashmla (speculative/eagle_worker.py:230).
    """
    known = draft_backends(plan)
    return known - {"flashmla"} if plan.in_versions(">=0.5.2,<0.5.3") else known


def backends_of_draft(plan: Plan) -> tuple[str | None, str | None]:
    """The backends of a draft for its steps and for what was accepted (draft extend).

    Its own argument (0.5.7 and later), else those of the target's decode and, by
    `speculative_attention_mode`, of prefill or decode; up to 0.5.1 `attention_backend` alone.
    """
    own = plan.value(DRAFT)
    if own is not None:
        return own, own
    if plan.in_versions("<0.5.2"):
        both = attention_backend(plan)
        return both, both
    return attention_backends(plan)[1], verifying_backend(plan)


def is_mla(checkpoint: Checkpoint | None) -> bool:
    """Whether a checkpoint has multi-head latent attention. Raises UnknownValueError."""
    if checkpoint is None or not checkpoint.architectures:
        raise UnknownValueError("the checkpoint is not known")
    return checkpoint.kv_lora_rank is not None

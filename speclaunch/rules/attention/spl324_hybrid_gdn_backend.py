"""A hybrid model with gated delta networks on a backend that it has none of on Blackwell."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.attention import BACKENDS, BOTH, PHASES
from speclaunch.plan.topics.target import is_one_of
from speclaunch.rules.attention.gpu import generation
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_backend, attention_backends

_EARLY = ("Qwen3NextForCausalLM",)
_TARGETS = (*_EARLY, "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
"""From 0.5.9 on all of them; what is rarer (JetNemotron, Intern-S2) is not judged."""
_ALLOWED = (
    (">=0.5.21", (10, 11), ("triton", "trtllm_mha", "fa4", "flashinfer")),
    (">=0.5.16", (10, 11), ("triton", "trtllm_mha", "fa4")),
    (">=0.5.16", (12,), ("triton", "trtllm_mha", "flashinfer")),
    (">=0.5.10", (10, 11, 12), ("triton", "trtllm_mha", "fa4", "flashinfer")),
    (">=0.5.9", (11,), ("triton", "trtllm_mha")),
    (">=0.5.5", (10, 12), ("triton", "trtllm_mha")),
    (">=0.5.4", (12,), ("triton",)),
    (">=0.5.3", (10,), ("triton",)),
)
"""Versions, GPU generations, and what runs there: the first row counts."""
_ONE_FIELD = "<0.5.16"
"""Only `attention_backend` is looked at, even where each phase has its own."""
_BOTH_OR_ONE = "<0.5.18"
"""The phases are looked at where both have their own."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a backend that is not in the list."""
    targets = _EARLY if plan.in_versions("<0.5.9") else _TARGETS
    if not is_one_of(plan, targets):
        return
    gpu = generation(plan)
    rows = (row for row in _ALLOWED if gpu in row[1] and plan.in_versions(row[0]))
    allowed = next((backends for _, _, backends in rows), None)
    if allowed is None:
        return
    for backend in dict.fromkeys(_looked_at(plan)):
        if backend in (*allowed, "fa3"):  # fa3 is refused before, whatever the model is: SPL319
            continue
        name = plan.facts.target.architecture if plan.facts.target is not None else "the target"
        yield Verdict(
            f"{name} does not run on {backend} on Blackwell GPUs in SGLang {plan.version}",
            at=BACKENDS,
            why=f"the engine stops while it starts: only {', '.join(allowed)} are supported on "
            "Blackwell GPUs for hybrid GDN models",
            fix=Fix(
                "use triton",
                set={"attention_backend": "triton", **dict.fromkeys(PHASES)},
            ),
        )


def _looked_at(plan: Plan) -> tuple[str | None, ...]:
    if plan.in_versions(_ONE_FIELD):
        return (attention_backend(plan),)
    if plan.in_versions(_BOTH_OR_ONE) and not all(attention_backend(plan, one) for one in PHASES):
        return (attention_backend(plan, BOTH),)
    return attention_backends(plan)


RULE = rule(
    "SPL324",
    "hybrid-gdn-backend",
    Severity.ERROR,
    check,
    says=(
        "triton backend is the only supported backend on Blackwell GPUs for hybrid GDN models",
        "triton or trtllm_mha backend are the only supported backends on Blackwell GPUs for",
        "triton, trtllm_mha, fa4, or flashinfer backend are the only supported backends on",
        "Only {} backends are supported on Blackwell GPUs for hybrid GDN models.",
    ),
)

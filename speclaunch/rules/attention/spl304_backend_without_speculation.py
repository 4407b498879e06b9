"""An attention backend that does not speculate."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.attention import BACKENDS, BOTH, PHASES
from speclaunch.record import record
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import runs_on

_SPARSE = "DeepseekV32ForCausalLM"


@record
class _Backend:
    name: str
    said: str
    versions: str = ""
    of_both: bool = False
    """Only `attention_backend` itself is asked about."""


_BACKENDS = (
    _Backend(
        "flex_attention",
        "Speculative decoding is currently not supported with Flex Attention backend",
        of_both=True,
    ),
    _Backend(
        "trtllm_mla",
        "trtllm_mla backend does not support speculative decoding yet.",
        ">=0.4.10,<0.5.1",
        of_both=True,
    ),
    _Backend("nsa", "Spec decoding is not supported for NSA backend now", ">=0.5.3,<0.5.4"),
    _Backend("hpc_ops", "hpc_ops backend does not support speculative decoding for now."),
    _Backend(
        "intel_xpu",
        "XPUAttentionBackend doesn't support speculative decoding yet, please use "
        "--attention-backend triton instead.",
        "<0.5.20",
    ),
    _Backend("minicpm_flashattn", "MiniCPM backend does not support speculative decoding"),
    _Backend("minicpm_flashinfer", "MiniCPM backend does not support speculative decoding"),
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a backend that is used."""
    if plan.algorithm is None:
        return
    for row in _BACKENDS:
        if plan.in_versions(row.versions) and _is_used(plan, row):
            yield Verdict(
                f"the {row.name} backend of SGLang {plan.request.version} does not support "
                "speculative decoding",
                at=(*BACKENDS, "speculative_algorithm"),
                why=f"the engine stops: {row.said}",
                fix=Fix(
                    "use another backend, or let the engine choose",
                    set={name: None for name in BACKENDS if plan.is_given(name)},
                ),
            )


def _is_used(plan: Plan, row: _Backend) -> bool:
    """0.5.3 takes nsa for DeepSeek V3.2 by itself."""
    if row.of_both:  # never a default
        both = all(plan.given(name) == row.name for name in PHASES)
        return both or plan.given(BOTH) == row.name
    target = plan.facts.target
    sparse = target is not None and target.architecture == _SPARSE
    if row.name == "nsa" and sparse and not plan.is_given("attention_backend"):
        return True
    return runs_on(plan, row.name)


RULE = rule(
    "SPL304",
    "backend-without-speculation",
    Severity.ERROR,
    check,
    says=(
        *dict.fromkeys(row.said for row in _BACKENDS),
        # the same in other words: of other releases, or later in the start
        "The hpc_ops attention backend does not support spec",
        "XPUAttentionBackend does not support speculative",
        "Speculative decoding is not supported for NSA",
        "NSA backend doesn't support speculative",
    ),
)

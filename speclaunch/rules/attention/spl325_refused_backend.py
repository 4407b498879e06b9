"""An attention backend that the target's model class refuses."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "attention_backend"
_FIRST = "{} does not support triton attention backend, as the first layer might not be an "
_FIRST += "attention layer"
_REFUSED = (
    ("NemotronHForCausalLM", ">=0.5.7,<0.5.19", "triton", _FIRST),
    ("NemotronHPuzzleForCausalLM", ">=0.5.13,<0.5.19", "triton", _FIRST),
    ("Lfm2ForCausalLM", ">=0.5.9", "triton", _FIRST),
    ("Lfm2MoeForCausalLM", ">=0.5.17", "triton", _FIRST),
    (
        "Olmo2ForCausalLM",
        ">=0.5.4",
        "flashinfer",
        "FlashInfer backend can significantly degrade the performance of Olmo3 models.",
    ),
)
"""Architecture, versions, backend, and the engine's words."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where the backend was asked for; a default passes the check by."""
    asked = plan.given(_NAME)
    target = plan.facts.target
    for architecture, versions, backend, said in _REFUSED:
        if target is None or asked != backend or target.architecture != architecture:
            continue
        if plan.in_versions(versions):
            yield Verdict(
                f"{architecture} does not run on {backend} in SGLang {plan.version}",
                at=(_NAME,),
                why=f"the engine refuses: {said.format(architecture)}",
                fix=Fix("let the engine choose the backend", set={_NAME: None}),
            )


RULE = rule(
    "SPL325",
    "refused-backend",
    Severity.ERROR,
    check,
    says=(
        "{} does not support triton attention backend",
        "FlashInfer backend can significantly degrade the performance of Olmo3 models.",
    ),
)

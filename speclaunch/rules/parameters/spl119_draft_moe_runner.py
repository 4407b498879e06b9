"""A MoE runner that the release refuses for the draft."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_NAME = "speculative_moe_runner_backend"


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict where such a runner is asked for."""
    asked = plan.given(_NAME)
    drafts = plan.given("speculative_algorithm") is not None
    if str(asked).startswith("lora_") and drafts:
        yield Verdict(
            f"{asked} serves adapters, which a draft has not",
            at=(_NAME,),
            why="the engine refuses: it is not supported: the LoRA MoE runner serves adapter "
            "traffic on the target model",
            fix=Fix("let the engine choose", set={_NAME: None}),
        )
    if asked == "flashinfer_trtllm" and plan.in_versions(">=0.5.7,<0.5.12"):
        yield Verdict(
            f"SGLang {plan.version} refuses flashinfer_trtllm for the draft",
            at=(_NAME,),
            why="the engine asserts that the speculative MoE runner backend is not "
            "flashinfer_trtllm, which gave wrong results with some drafts",
            fix=Fix("use triton, or let the engine choose", set={_NAME: "triton"}),
        )


RULE = rule(
    "SPL119",
    "draft-moe-runner",
    Severity.ERROR,
    check,
    says=(
        "--speculative-moe-runner-backend {} is not supported: the LoRA MoE runner",
        "Currently speculative MoE runner backend cannot be flashinfer_trtllm",
        "Currently speculative MoE runner backend doesn't support flashinfer_trtllm",
    ),
)

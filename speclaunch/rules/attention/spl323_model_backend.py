"""A backend that the target's model class does not run on."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.attention import BACKENDS
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_backend, attention_backends, runs_on_cpu

_GPT_OSS = (
    ("0.5.1", ("triton", "trtllm_mha", "fa3")),
    ("0.5.3", ("fa4",)),
    ("0.5.8", ("ascend",)),
    ("0.5.10", ("aiter",)),
    ("0.5.11", ("intel_xpu",)),
    ("0.5.13", ("intel_amx",)),
)
_LLAMA4 = (
    ("0", ("fa3",)),
    ("0.5.1", ("aiter",)),
    ("0.5.2", ("triton",)),
    ("0.5.4", ("trtllm_mha",)),
    ("0.5.5", ("intel_xpu",)),
    ("0.5.10", ("ascend",)),
)
_GEMMA4 = (
    ("0.5.13", ("triton", "trtllm_mha", "intel_xpu")),
    ("0.5.14", ("ascend",)),
    ("0.5.18", ("intel_amx",)),
    ("0.5.20", ("aiter",)),
    ("0.5.22", ("fa4",)),
)
_EXAONE = (("0.5.9", ("fa3", "triton", "trtllm_mha")),)
"""Where the layers slide, by `sliding_window_pattern`."""
_TARGETS = {
    "Exaone4ForCausalLM": _EXAONE,
    "ExaoneMoEForCausalLM": _EXAONE,
    "GptOssForCausalLM": _GPT_OSS,
    "Llama4ForConditionalGeneration": _LLAMA4,
    "Llama4ForCausalLM": _LLAMA4,
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "Gemma4UnifiedForConditionalGeneration": _GEMMA4,
}


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a backend that is not in the list."""
    target = plan.facts.target
    if target is None or target.architecture not in _TARGETS:
        return
    rows = _TARGETS[target.architecture]
    known = [name for since, names in rows if plan.in_versions(f">={since}") for name in names]
    used: tuple[str | None, ...]
    if rows is _EXAONE and target.raw.get("sliding_window_pattern") is None:
        return
    if rows is _GPT_OSS and plan.in_versions(">=0.5.3"):
        used = attention_backends(plan)
    elif plan.in_versions(">=0.5.3") and runs_on_cpu(plan):
        return
    elif rows is _GEMMA4:
        used = attention_backends(plan)
    elif (rows is _LLAMA4 and plan.in_versions("<0.5.6")) or (
        rows is _EXAONE and plan.in_versions("<0.5.15")
    ):
        used = (plan.given("attention_backend"),)
    else:
        used = (attention_backend(plan),)
    for backend in dict.fromkeys(used):
        if known and backend not in known:
            said = f"does not run on {backend}" if backend else "needs an attention_backend"
            yield Verdict(
                f"{target.architecture} {said} in SGLang {plan.request.version}",
                at=BACKENDS,
                why=f"the engine stops: it requires one of {', '.join(known)}",
                fix=Fix(
                    f"use {known[0]}",
                    set={
                        "attention_backend": known[0],
                        "prefill_attention_backend": None,
                        "decode_attention_backend": None,
                    },
                ),
            )


RULE = rule(
    "SPL323",
    "model-backend",
    Severity.ERROR,
    check,
    versions=">=0.4.9.post4",
)

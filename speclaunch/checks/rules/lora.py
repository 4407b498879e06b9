"""Rules about LoRA adapters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import number
from speclaunch.engine import Plan, serves_adapters

_TARGET_ONLY = ("EAGLE", "EAGLE3", "DFLASH", "DSPARK")
_STREAM = "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"
_RAGGED = "SGLANG_RAGGED_VERIFY_MODE"


@rule("SPL231")
def lora_speculation(plan: Plan) -> Iterator[Verdict]:
    """Report LoRA with speculation that does not support adapters."""
    if not serves_adapters(plan) or plan.algorithm in (None, "NGRAM"):
        return
    names = ("lora_paths", "enable_lora", "speculative_algorithm")
    if plan.in_versions("<0.5.19"):
        yield Verdict(
            f"LoRA works only with NGRAM speculation in SGLang {plan.request.version}, not with "
            f"{plan.algorithm}",
            at=names,
            why="the engine refuses: Currently LoRA is only compatible with NGRAM speculative "
            "decoding.",
            fix=Fix("use NGRAM, or SGLang 0.5.19 or later, which also serves adapters with EAGLE"),
        )
        return
    if plan.algorithm not in _TARGET_ONLY:
        yield Verdict(
            f"LoRA does not work with {plan.algorithm} speculation",
            at=names,
            why="the engine refuses: LoRA is only compatible with NGRAM, EAGLE, NEXTN, EAGLE3, "
            "DFLASH, or DSPARK speculative decoding",
            fix=Fix("use one of these algorithms, or remove the adapters"),
        )
        return
    for name, refused in _refused_with_adapters(plan):
        if refused:
            yield Verdict(
                f"{name} does not work with LoRA and {plan.algorithm} speculation",
                at=(name,),
                why="the engine refuses: LoRA with EAGLE/NEXTN/EAGLE3 speculative decoding does "
                f"not support {name}",
                fix=Fix(f"remove {name}"),
            )


def _refused_with_adapters(plan: Plan) -> Iterator[tuple[str, bool]]:
    ragged = plan.algorithm == "DSPARK" and (plan.env(_RAGGED) or "static") != "static"
    yield _RAGGED, ragged
    yield "speculative_adaptive", bool(plan.value("speculative_adaptive"))
    for runner in ("moe_runner_backend", "speculative_moe_runner_backend"):
        yield runner, plan.value(runner) == "experimental_sgl_trtllm"
    yield _STREAM, plan.env_flag(_STREAM)


_WITHOUT_CACHE = "<0.5.0rc2"
_OVERLAP = "enable_lora_overlap_loading"


@rule("SPL261")
def lora_setup(plan: Plan) -> Iterator[Verdict]:
    """Report LoRA if a requirement is missing."""
    paths = plan.value("lora_paths")
    # an empty list counts, because the engine only checks for None
    refused = plan.in_versions(_WITHOUT_CACHE) and paths is not None
    if refused and not plan.value("disable_radix_cache"):
        yield Verdict(
            f"lora_paths needs disable_radix_cache in SGLang {plan.request.version}",
            at=("lora_paths",),
            why="the engine stops: AssertionError: compatibility of lora and radix attention is "
            "in progress",
            fix=Fix(
                "set disable_radix_cache, or use SGLang 0.5.1 or later",
                set={"disable_radix_cache": True},
            ),
        )
    if not serves_adapters(plan):
        return
    modules = plan.value("lora_target_modules")
    if not paths and not (plan.value("max_lora_rank") and modules):
        yield _verdict(
            "LoRA without lora_paths needs max_lora_rank and lora_target_modules",
            "When no initial --lora-paths is provided, you need to specify both --max-lora-rank "
            "and --lora-target-modules for LoRA initialization.",
            Fix("set both, or list the adapters in lora_paths"),
        )
    if modules and "all" in modules and len(modules) > 1:
        yield _verdict(
            f"lora_target_modules is {' '.join(modules)}: 'all' must be the only entry",
            "If 'all' is specified in --lora-target-modules, it should be the only module "
            "specified.",
            Fix("set it to 'all'", set={"lora_target_modules": ["all"]}, safe=True),
            "lora_target_modules",
        )
    yield from _loaded(plan, paths)


def _loaded(plan: Plan, paths: Any) -> Iterator[Verdict]:
    loaded = number(plan, "max_loaded_loras")
    batch = number(plan, "max_loras_per_batch") or 0
    if plan.value(_OVERLAP) and (loaded is None or loaded > 2 * batch):
        yield _verdict(
            f"{_OVERLAP} needs max_loaded_loras of at most {2 * batch}, twice max_loras_per_batch",
            "Enabling LoRA overlap loading requires pinning LoRA adapter weights in CPU memory, so "
            "--max-loaded-loras must be less than or equal to double --max-loras-per-batch",
            Fix(f"set max_loaded_loras to {2 * batch}", set={"max_loaded_loras": 2 * batch}),
            _OVERLAP,
        )
    if loaded is None:
        return
    if loaded < batch:
        yield _verdict(
            f"max_loaded_loras {loaded} is below max_loras_per_batch {batch}",
            "max_loaded_loras should be greater than or equal to max_loras_per_batch.",
            Fix(f"set it to at least {batch}", set={"max_loaded_loras": batch}),
            "max_loaded_loras",
        )
    if len(paths or ()) > loaded:
        enough = max(len(paths), batch)
        yield _verdict(
            f"{len(paths)} adapters are more than max_loaded_loras {loaded}",
            "The number of LoRA paths should not exceed max_loaded_loras.",
            Fix(f"set max_loaded_loras to {enough}", set={"max_loaded_loras": enough}),
            "max_loaded_loras",
        )


def _verdict(message: str, engine_message: str, fix: Fix, name: str = "enable_lora") -> Verdict:
    return Verdict(
        message, at=(name,), why=f"the engine stops: AssertionError: {engine_message}", fix=fix
    )

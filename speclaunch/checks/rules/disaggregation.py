"""Rules about prefill and decode on separate servers, or multiplexed on one GPU."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import number
from speclaunch.engine import Plan, spec_v2

_DECODE_CACHE = "disaggregation_decode_enable_radix_cache"
_SINCE = {"DSPARK": ">=0.5.21", "EAGLE": ">=0.5.23", "EAGLE3": ">=0.5.23"}
"""Algorithms that support it, and the first release of each."""


@rule("SPL232")
def decode_radix_cache(plan: Plan) -> Iterator[Verdict]:
    """Report the radix cache of a decode server with speculation."""
    if not plan.value(_DECODE_CACHE) or plan.value("disaggregation_mode") != "decode":
        return
    if plan.algorithm is None:
        return
    supported = _SINCE.get(plan.algorithm)
    if supported is not None and plan.in_versions(supported):
        return
    yield Verdict(
        f"the radix cache of a decode server does not work with {plan.algorithm} speculation in "
        f"SGLang {plan.request.version}",
        at=(_DECODE_CACHE, "speculative_algorithm"),
        why="the engine refuses: --disaggregation-decode-enable-radix-cache is incompatible with "
        "speculative decoding",
        fix=Fix("remove it", set={_DECODE_CACHE: None}, safe=True),
    )


_DECODE_OFFLOAD_SPEC_V2_NAME = "disaggregation_decode_enable_offload_kvcache"


@rule("SPL233")
def decode_offload_spec_v2(plan: Plan) -> Iterator[Verdict]:
    """Report the KV cache offload of a decode server with SpecV2."""
    if (
        not plan.value(_DECODE_OFFLOAD_SPEC_V2_NAME)
        or plan.value("disaggregation_mode") != "decode"
    ):
        return
    if spec_v2.is_requested(plan):
        yield Verdict(
            "SpecV2 and the KV cache offload of a decode server cannot be combined in SGLang "
            f"{plan.request.version}",
            at=(_DECODE_OFFLOAD_SPEC_V2_NAME, spec_v2.VARIABLE),
            why="the engine refuses: Spec v2 and decode offload kv cache are incompatible and "
            "cannot be enabled together.",
            fix=Fix("remove one of them", set={_DECODE_OFFLOAD_SPEC_V2_NAME: None}),
        )


_ROLE_SWITCH_NAME = "enable_pd_role_switch"
_SIZES = ("ep_size", "pp_size", "dcp_size")


@rule("SPL234")
def role_switch(plan: Plan) -> Iterator[Verdict]:
    """Report a role switch with features that it does not rebuild."""
    if not plan.value(_ROLE_SWITCH_NAME) or plan.value("disaggregation_mode") not in (
        "prefill",
        "decode",
    ):
        return
    found = [name for name in _SIZES if int(plan.value(name)) > 1]
    if plan.value("moe_a2a_backend") != "none":
        found.append("moe_a2a_backend")
    if plan.algorithm is not None:
        found.append("speculative_algorithm")
    if found:
        yield Verdict(
            f"a server that switches its role does not support {', '.join(found)}",
            at=(_ROLE_SWITCH_NAME, *found),
            why="the engine refuses: --enable-pd-role-switch does not rebuild role-specific state "
            "for these features",
            fix=Fix("remove enable_pd_role_switch", set={_ROLE_SWITCH_NAME: None}),
        )


_PREFILL_COORDINATION_NAME = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"


@rule("SPL245")
def prefill_coordination(plan: Plan) -> Iterator[Verdict]:
    """Report coordinated DP prefill with an algorithm that does not support it."""
    if not plan.env_flag(_PREFILL_COORDINATION_NAME):
        return
    known = ("EAGLE", "EAGLE3", "DSPARK") if plan.in_versions(">=0.5.22") else ("EAGLE", "EAGLE3")
    if plan.algorithm in known and not plan.value("enable_multi_layer_eagle"):
        return
    yield Verdict(
        f"{_PREFILL_COORDINATION_NAME} works only with single-layer {', '.join(known)}",
        at=(_PREFILL_COORDINATION_NAME, "speculative_algorithm"),
        why="the engine refuses: DP spec/prefill coordination requires single-layer EAGLE or "
        "EAGLE3 (0.5.22 and later: or DSPARK)",
        fix=Fix("unset the variable", env={_PREFILL_COORDINATION_NAME: None}, safe=True),
    )


@rule("SPL260")
def pd_multiplexing(plan: Plan) -> Iterator[Verdict]:
    """Report PD multiplexing with features that it does not support."""
    if not plan.value("enable_pdmux"):
        return
    for wrong, name, expected, message in (
        (
            plan.value("pp_size") != 1,
            "pp_size",
            1,
            "is only supported with pipeline parallelism disabled (pp_size=1).",
        ),
        (
            plan.user_value("chunked_prefill_size") != -1,
            "chunked_prefill_size",
            -1,
            "is not compatible with chunked prefill.",
        ),
        (
            plan.value("disaggregation_mode") != "null",
            "disaggregation_mode",
            None,
            "is not compatible with disaggregation mode.",
        ),
        (
            not plan.value("disable_overlap_schedule"),
            "disable_overlap_schedule",
            True,
            "is not compatible with overlap schedule.",
        ),
    ):
        if wrong:
            yield Verdict(
                f"enable_pdmux needs {name} {expected or 'null'}",
                at=(name, "enable_pdmux"),
                why=f"the engine stops: AssertionError: PD-Multiplexing {message}",
                fix=Fix("set it to that value", set={name: expected}),
            )


_PREFILL_ROUND_ROBIN_NAME = "prefill_round_robin_balance"


@rule("SPL263")
def prefill_round_robin(plan: Plan) -> Iterator[Verdict]:
    """Report a decode server of several ranks without prefill round-robin balance."""
    if plan.value("disaggregation_mode") != "decode" or plan.value(_PREFILL_ROUND_ROBIN_NAME):
        return
    ranks = number(plan, "dp_size") or 1
    if ranks > 1 and not plan.env_flag("SGLANG_IS_IN_CI"):
        yield Verdict(
            f"a decode server with dp_size {ranks} needs {_PREFILL_ROUND_ROBIN_NAME}",
            at=("dp_size", "disaggregation_mode"),
            why="the engine stops: AssertionError: Prefill round robin balance is required when "
            "dp size > 1. The prefill server needs load_balance_method round_robin",
            fix=Fix("set it", set={_PREFILL_ROUND_ROBIN_NAME: True}),
        )


_BACKEND = "disaggregation_transfer_backend"
_OTHER_SIDE = ("disaggregation_decode_tp", "disaggregation_decode_dp")
"""Prefill arguments about the decode server, which decode must not set (up to 0.5.9)."""
_CARRIES_CACHE = (
    ("<0.5.12", ("nixl",)),
    ("<0.5.14", ("nixl", "mooncake")),
)
"""Transfer backends that the radix cache of a decode server requires; later releases refuse
`fake`."""


@rule("SPL268")
def disaggregation_role(plan: Plan) -> Iterator[Verdict]:
    """Report arguments that a disaggregated server's role refuses."""
    mode = plan.value("disaggregation_mode")
    if mode == "prefill":
        yield from _prefill(plan)
    elif mode == "decode":
        yield from _decode(plan)


def _prefill(plan: Plan) -> Iterator[Verdict]:
    if plan.value(_BACKEND) == "fake" and plan.in_versions(">=0.5.10"):
        yield Verdict(
            "a prefill server does not accept the transfer backend fake",
            at=(_BACKEND,),
            why="the engine stops: AssertionError: Prefill server does not support 'fake' as the "
            "transfer backend",
            fix=Fix("remove it: the default is mooncake", set={_BACKEND: None}),
        )
    name = _OTHER_SIDE[0]
    decode, prefill = number(plan, name), number(plan, "tp_size")
    if not decode or not prefill:
        return
    if max(decode, prefill) % min(decode, prefill):
        yield Verdict(
            f"neither {name} {decode} nor tp_size {prefill} is a multiple of the other",
            at=(name, "tp_size"),
            why="the engine stops: AssertionError: Different tp size is supported only when one tp "
            "is multiple of the other.",
            fix=Fix(f"give both servers tp_size {prefill}", set={name: prefill}),
        )


def _decode(plan: Plan) -> Iterator[Verdict]:
    for name in _OTHER_SIDE:
        if plan.user_value(name) is not None:
            flag = name.replace("_", "-")
            yield Verdict(
                f"{name} is for the prefill server",
                at=(name,),
                why=f"the engine stops: AssertionError: Cannot set --{flag} for the decode engine.",
                fix=Fix("remove it", set={name: None}, safe=True),
            )
    if not plan.value(_DECODE_CACHE):
        return
    backend = plan.value(_BACKEND)
    known = next((names for until, names in _CARRIES_CACHE if plan.in_versions(until)), None)
    if backend == "fake" if known is None else backend not in known:
        yield _no_cache(
            f"the radix cache of a decode server does not work with the transfer backend {backend}",
            f"requires --disaggregation-transfer-backend {' or '.join(known)}"
            if known is not None
            else "is incompatible with --disaggregation-transfer-backend fake",
            _BACKEND,
        )
    if plan.value("enable_hisparse"):
        yield _no_cache(
            "the radix cache of a decode server does not work with enable_hisparse",
            "is incompatible with --enable-hisparse",
            "enable_hisparse",
        )


def _no_cache(message: str, refusal: str, other: str) -> Verdict:
    return Verdict(
        message,
        at=(_DECODE_CACHE, other),
        why=f"the engine refuses: --disaggregation-decode-enable-radix-cache {refusal}",
        fix=Fix("remove it", set={_DECODE_CACHE: None}),
    )

"""A disaggregated server with arguments that its role refuses."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import number

_BACKEND = "disaggregation_transfer_backend"
_CACHE = "disaggregation_decode_enable_radix_cache"
_OTHER_SIDE = ("disaggregation_decode_tp", "disaggregation_decode_dp")
"""What the prefill server is told of the decode one, which is not told its own (up to 0.5.9)."""
_CARRIES_CACHE = (
    ("<0.5.12", ("nixl",)),
    ("<0.5.14", ("nixl", "mooncake")),
)
"""Transfer backends that the radix cache of a decode server needs; later ones refuse `fake`."""


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict an argument in the way of the role."""
    mode = plan.value("disaggregation_mode")
    if mode == "prefill":
        yield from _prefill(plan)
    elif mode == "decode":
        yield from _decode(plan)


def _prefill(plan: Plan) -> Iterator[Verdict]:
    if plan.value(_BACKEND) == "fake" and plan.in_versions(">=0.5.10"):
        yield Verdict(
            "a prefill server does not take the transfer backend fake",
            at=(_BACKEND,),
            why="the engine stops: AssertionError: Prefill server does not support 'fake' as the "
            "transfer backend",
            fix=Fix("leave it out: the default is mooncake", set={_BACKEND: None}),
        )
    name = _OTHER_SIDE[0]
    decode, prefill = number(plan, name), number(plan, "tp_size")
    if not decode or not prefill:
        return
    if max(decode, prefill) % min(decode, prefill):
        yield Verdict(
            f"neither of {name} {decode} and tp_size {prefill} is a multiple of the other",
            at=(name, "tp_size"),
            why="the engine stops: AssertionError: Different tp size is supported only when one tp "
            "is multiple of the other.",
            fix=Fix(f"give both servers tp_size {prefill}", set={name: prefill}),
        )


def _decode(plan: Plan) -> Iterator[Verdict]:
    for name in _OTHER_SIDE:
        if plan.given(name) is not None:
            flag = name.replace("_", "-")
            yield Verdict(
                f"{name} is for the prefill server",
                at=(name,),
                why=f"the engine stops: AssertionError: Cannot set --{flag} for the decode engine.",
                fix=Fix("remove it", set={name: None}, safe=True),
            )
    if not plan.value(_CACHE):
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


def _no_cache(message: str, said: str, other: str) -> Verdict:
    return Verdict(
        message,
        at=(_CACHE, other),
        why=f"the engine refuses: --disaggregation-decode-enable-radix-cache {said}",
        fix=Fix("remove it", set={_CACHE: None}),
    )


RULE = rule(
    "SPL268",
    "disaggregation-role",
    Severity.ERROR,
    check,
    says=(
        "Prefill server does not support 'fake' as the transfer backend",
        "Different tp size is supported only when one tp is multiple of the other.",
        "Cannot set --disaggregation-decode-tp for the decode engine.",
        "Cannot set --disaggregation-decode-dp for the decode engine.",
        "--disaggregation-decode-enable-radix-cache currently requires",
        "--disaggregation-decode-enable-radix-cache is incompatible with --enable-hisparse",
        "--disaggregation-decode-enable-radix-cache is incompatible with --disaggregation-transfer",
    ),
)

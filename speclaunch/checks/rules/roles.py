"""Rules about prefill and decode: in one server, on one GPU, and across servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from typing import Any

from msgspec import Struct

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule, rule_across
from speclaunch.checks.rules.values import number, served_context
from speclaunch.core import Place
from speclaunch.engine import LATENT, Group, Plan, UnknownValueError, gpu_ranks, spec_v2

_DECODE_CACHE = "disaggregation_decode_enable_radix_cache"
_SINCE = {"DSPARK": ">=0.5.21", "EAGLE": ">=0.5.23", "EAGLE3": ">=0.5.23"}
"""Algorithms that support the radix cache on decode servers, and the first release of each."""


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
        fix=Fix(f"remove {_DECODE_CACHE}", set={_DECODE_CACHE: None}, safe=True),
    )


_OFFLOAD = "disaggregation_decode_enable_offload_kvcache"


@rule("SPL233")
def decode_offload_spec_v2(plan: Plan) -> Iterator[Verdict]:
    """Report the KV cache offload of a decode server with SpecV2."""
    decodes = plan.value(_OFFLOAD) and plan.value("disaggregation_mode") == "decode"
    if decodes and spec_v2.is_requested(plan):
        yield Verdict(
            "SpecV2 and the KV cache offload of a decode server cannot be combined in SGLang "
            f"{plan.request.version}",
            at=(_OFFLOAD, spec_v2.VARIABLE),
            why="the engine refuses: Spec v2 and decode offload kv cache are incompatible and "
            "cannot be enabled together.",
            fix=Fix(f"remove {_OFFLOAD}, or unset {spec_v2.VARIABLE}", set={_OFFLOAD: None}),
        )


_ROLE_SWITCH = "enable_pd_role_switch"
_NOT_REBUILT = ("ep_size", "pp_size", "dcp_size")


@rule("SPL234")
def role_switch(plan: Plan) -> Iterator[Verdict]:
    """Report a role switch with features that it does not rebuild."""
    if not plan.value(_ROLE_SWITCH) or plan.value("disaggregation_mode") not in (PREFILL, DECODE):
        return
    found = [name for name in _NOT_REBUILT if int(plan.value(name)) > 1]
    if plan.value("moe_a2a_backend") != "none":
        found.append("moe_a2a_backend")
    if plan.algorithm is not None:
        found.append("speculative_algorithm")
    if found:
        yield Verdict(
            f"a server that switches its role does not support {', '.join(found)}",
            at=(_ROLE_SWITCH, *found),
            why="the engine refuses: --enable-pd-role-switch does not rebuild role-specific state "
            "for these features",
            fix=Fix("remove enable_pd_role_switch", set={_ROLE_SWITCH: None}),
        )


_COORDINATION = "SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION"


@rule("SPL245")
def prefill_coordination(plan: Plan) -> Iterator[Verdict]:
    """Report coordinated DP prefill with an algorithm that does not support it."""
    if not plan.env_flag(_COORDINATION):
        return
    known = ("EAGLE", "EAGLE3", "DSPARK") if plan.in_versions(">=0.5.22") else ("EAGLE", "EAGLE3")
    if plan.algorithm in known and not plan.value("enable_multi_layer_eagle"):
        return
    yield Verdict(
        f"{_COORDINATION} works only with single-layer {', '.join(known)}",
        at=(_COORDINATION, "speculative_algorithm"),
        why="the engine refuses: DP spec/prefill coordination requires single-layer EAGLE or "
        "EAGLE3 (0.5.22 and later: or DSPARK)",
        fix=Fix(f"unset {_COORDINATION}", env={_COORDINATION: None}, safe=True),
    )


_MULTIPLEXED = {
    "pp_size": (1, "is only supported with pipeline parallelism disabled (pp_size=1)."),
    "chunked_prefill_size": (-1, "is not compatible with chunked prefill."),
    "disaggregation_mode": ("null", "is not compatible with disaggregation mode."),
    "disable_overlap_schedule": (True, "is not compatible with overlap schedule."),
}
"""Values that PD multiplexing needs, and the engine's messages for other values, by argument."""


@rule("SPL260")
def pd_multiplexing(plan: Plan) -> Iterator[Verdict]:
    """Report PD multiplexing with features that it does not support."""
    if not plan.value("enable_pdmux"):
        return
    found = {
        "pp_size": plan.value("pp_size"),
        "chunked_prefill_size": plan.user_value("chunked_prefill_size"),
        "disaggregation_mode": plan.value("disaggregation_mode"),
        "disable_overlap_schedule": bool(plan.value("disable_overlap_schedule")),
    }
    for name, (needed, message) in _MULTIPLEXED.items():
        if found[name] != needed:
            yield Verdict(
                f"enable_pdmux needs {name} {str(needed).lower()}",
                at=(name, "enable_pdmux"),
                why=f"the engine stops: AssertionError: PD-Multiplexing {message}",
                fix=Fix(
                    f"set {name} to {str(needed).lower()}",
                    set={name: None if needed == "null" else needed},
                ),
            )


_ROUND_ROBIN = "prefill_round_robin_balance"


@rule("SPL263")
def prefill_round_robin(plan: Plan) -> Iterator[Verdict]:
    """Report a decode server of several ranks without prefill round-robin balancing."""
    if plan.value("disaggregation_mode") != "decode" or plan.value(_ROUND_ROBIN):
        return
    ranks = number(plan, "dp_size") or 1
    if ranks > 1 and not plan.env_flag("SGLANG_IS_IN_CI"):
        yield Verdict(
            f"a decode server with dp_size {ranks} needs {_ROUND_ROBIN}",
            at=("dp_size", "disaggregation_mode"),
            why="the engine stops: AssertionError: Prefill round robin balance is required when "
            "dp size > 1. The prefill server needs load_balance_method round_robin",
            fix=Fix(f"set {_ROUND_ROBIN}: true", set={_ROUND_ROBIN: True}),
        )


_BACKEND = "disaggregation_transfer_backend"
_OTHER_SIDE = ("disaggregation_decode_tp", "disaggregation_decode_dp")
"""Prefill arguments that describe the decode server. Up to 0.5.9 a decode server must not set
them."""
_CARRIES_CACHE = (("<0.5.12", ("nixl",)), ("<0.5.14", ("nixl", "mooncake")))
"""Transfer backends that the radix cache of a decode server requires, by release. Later releases
refuse `fake`."""


@rule("SPL268")
def disaggregation_role(plan: Plan) -> Iterator[Verdict]:
    """Report arguments that do not fit a disaggregated server's role."""
    mode = plan.value("disaggregation_mode")
    if mode == "prefill":
        yield from _as_prefill(plan)
    elif mode == "decode":
        yield from _as_decode(plan)


def _as_prefill(plan: Plan) -> Iterator[Verdict]:
    if plan.value(_BACKEND) == "fake" and plan.in_versions(">=0.5.10"):
        yield Verdict(
            "a prefill server does not accept the transfer backend fake",
            at=(_BACKEND,),
            why="the engine stops: AssertionError: Prefill server does not support 'fake' as the "
            "transfer backend",
            fix=Fix(f"remove {_BACKEND}: the default is mooncake", set={_BACKEND: None}),
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
            fix=Fix(f"set tp_size to {prefill} on both servers", set={name: prefill}),
        )


def _as_decode(plan: Plan) -> Iterator[Verdict]:
    for name in _OTHER_SIDE:
        if plan.user_value(name) is not None:
            flag = name.replace("_", "-")
            yield Verdict(
                f"a decode server does not accept {name}",
                at=(name,),
                why=f"the engine stops: AssertionError: Cannot set --{flag} for the decode engine.",
                fix=Fix("remove it", set={name: None}, safe=True),
            )
    if not plan.value(_DECODE_CACHE):
        return
    backend = plan.value(_BACKEND)
    known = next((names for until, names in _CARRIES_CACHE if plan.in_versions(until)), None)
    conflicts = {}
    if backend == "fake" if known is None else backend not in known:
        refusal = f"requires --disaggregation-transfer-backend {' or '.join(known or ())}"
        if known is None:
            refusal = "is incompatible with --disaggregation-transfer-backend fake"
        conflicts[_BACKEND] = f"the transfer backend {backend}", refusal
    if plan.value("enable_hisparse"):
        conflicts["enable_hisparse"] = "enable_hisparse", "is incompatible with --enable-hisparse"
    for other, (what, refusal) in conflicts.items():
        yield Verdict(
            f"the radix cache of a decode server does not work with {what}",
            at=(_DECODE_CACHE, other),
            why=f"the engine refuses: --disaggregation-decode-enable-radix-cache {refusal}",
            fix=Fix(f"remove {_DECODE_CACHE}", set={_DECODE_CACHE: None}),
        )


# Servers that work together: prefill with decode, and the ranks of one server. If a file groups
# them (`Request.server_context`), that decides. Otherwise prefill and decode servers belong
# together if they serve one model and are in one directory.


NODES, RANK, ADDRESS = "nnodes", "node_rank", "dist_init_addr"
"""Arguments that spread a server over several hosts."""
PREFILL, DECODE = "prefill", "decode"


class Conflict(Struct, frozen=True):
    """A difference between a prefill and a decode server.

    `at`: the arguments that cause it. A server's place is that of the first of them that it sets.
    """

    message: str
    at: tuple[str, ...]
    why: str
    fix: Fix
    severity: Severity | None = None


class RolePair(Struct, frozen=True):
    """A decode server and the prefill servers that may send it a request."""

    decode: Plan
    prefills: tuple[Plan, ...]
    is_grouped: bool
    """True if a file groups the servers. Otherwise any prefill server may be the partner, so a
    verdict requires that all of them conflict with the decode server."""


def mode(plan: Plan) -> str | None:
    """Return `prefill` or `decode`; None for any other server, or if the mode is unknown."""
    found = plan.value_or_none("disaggregation_mode")
    return found if found in (PREFILL, DECODE) else None


def is_side(plan: Plan) -> bool:
    """True if a server is a prefill or decode server."""
    return mode(plan) is not None


def model_of(plan: Plan) -> str | None:
    """Return the name of a server's model without its directories; None if unknown."""
    found = plan.value_or_none("model_path")
    return None if found is None else PurePath(str(found).rstrip("/")).name.lower()


def groups(plans: Sequence[Plan]) -> list[tuple[Group, list[Plan]]]:
    """Return each deployment that a file groups, with its plans."""
    found: list[tuple[Group, list[Plan]]] = []
    for plan in plans:
        if (context := plan.request.server_context) is not None:
            known = next((some for group, some in found if group == context.group), None)
            if known is None:
                found.append((context.group, known := []))
            known.append(plan)
    return found


def pairs(plans: Sequence[Plan]) -> Iterator[RolePair]:
    """Yield each decode server with the prefill servers of its model, or else all of its group."""
    for _, group in groups(plans):
        for decode in group:
            prefills = [plan for plan in group if mode(plan) == PREFILL]
            if mode(decode) == DECODE and prefills:
                same = [plan for plan in prefills if model_of(plan) == model_of(decode)]
                yield RolePair(decode, tuple(same or prefills), is_grouped=True)
    alone = [plan for plan in plans if plan.request.server_context is None]
    for decode in alone:
        home = _home(decode)
        same = [plan for plan in alone if mode(plan) == PREFILL and _home(plan) == home]
        if mode(decode) == DECODE and home is not None and same:  # same either way: it fits itself
            yield RolePair(decode, tuple(same), is_grouped=False)


Compare = Callable[[Plan, Plan], Conflict | None]
"""Comparison of a prefill and a decode server. An unknown value is not a conflict."""


def rule_of_roles(code: str, *, of_any_model: bool = False) -> Callable[[Compare], Compare]:
    """Return a decorator like that of `rule_across`, for a comparison of prefill and decode.

    Servers of different models are compared only with `of_any_model` (SPL822).
    """

    def register(compare: Compare) -> Compare:
        check = partial(_conflicts, compare=compare, of_any_model=of_any_model)
        rule_across(code, compares=is_side)(check)
        return compare

    return register


def _conflicts(
    plans: Sequence[Plan], compare: Compare, *, of_any_model: bool
) -> Iterator[tuple[Plan, Verdict]]:
    """Yield each decode server that conflicts with its prefill servers, with a verdict.

    The verdict has both servers' places.
    """
    for pair in pairs(plans):
        model, *_ = map(model_of, pair.prefills)
        if model != model_of(pair.decode) and not of_any_model:
            continue
        differing = []
        for prefill in pair.prefills:
            with suppress(UnknownValueError):
                if conflict := compare(prefill, pair.decode):
                    differing.append((conflict, prefill))
        if differing and (pair.is_grouped or len(differing) == len(pair.prefills)):
            conflict, prefill = differing[0]
            yield (
                pair.decode,
                Verdict(
                    conflict.message,
                    place=place_of(pair.decode, conflict.at),
                    why=conflict.why,
                    fix=conflict.fix,
                    severity=conflict.severity,
                    others=(place_of(prefill, conflict.at),),
                ),
            )


def place_of(plan: Plan, names: Sequence[str]) -> Place:
    """Return the place of the first of `names` that the user set, or the server's if none."""
    written = (plan.place(name) for name in names if name in plan.request.values)
    return next(written, plan.request.place)


def _home(plan: Plan) -> Any:
    """Return the directory, model and release that group servers; None if the model is unknown."""
    model = plan.value_or_none("model_path")
    directory = str(PurePath(plan.request.place.path).parent)
    return None if model is None else (directory, str(model), plan.request.version)


_AT = ("page_size", "attention_backend", "decode_attention_backend", "prefill_attention_backend")
"""Arguments that decide the page size: some backends set their own."""
_ROLE_PAGE_SIZE_COMPARED = ">=0.5.8"
"""Releases whose decode server compares page sizes when it first meets a prefill server."""


@rule_of_roles("SPL820")
def role_page_size(prefill: Plan, decode: Plan) -> Conflict | None:
    """Report prefill and decode servers with different page sizes."""
    (theirs, sure), (ours, also_sure) = _pages(prefill), _pages(decode)
    if theirs == ours:
        return None
    why = "each request fails in the decode server: RuntimeError: Page size mismatch"
    if not decode.in_versions(_ROLE_PAGE_SIZE_COMPARED):
        why = "before 0.5.8 SGLang does not compare them: it writes pages to the wrong addresses, "
        why += "and the output is wrong"
    return Conflict(
        f"page_size is {ours} for decode and {theirs} for prefill",
        _AT,
        why,
        Fix("set the same page_size in both roles"),
        None if sure and also_sure else Severity.WARNING,
    )


def _pages(plan: Plan) -> tuple[object, bool]:
    """Return the tokens per page, and True if that number is certain.

    If an unknown fact decides whether the backend sets the page size, return the user's value and
    False.
    """
    try:
        return plan.value("page_size"), True
    except UnknownValueError:
        if plan.user_value("page_size") is None:
            raise
        return plan.user_value("page_size"), False


_ROLE_KV_DTYPE_COMPARED = ">=0.5.10"
"""Releases whose decode server compares dtype names when it first meets a prefill server."""
_WIDE = ("auto", "bf16", "bfloat16")
"""Dtypes that releases before 0.5.10 treat alike: all have two bytes (`auto` for nearly every
checkpoint)."""


@rule_of_roles("SPL821")
def role_kv_dtype(prefill: Plan, decode: Plan) -> Conflict | None:
    """Report prefill and decode servers with different KV cache dtypes."""
    theirs, ours = prefill.value("kv_cache_dtype"), decode.value("kv_cache_dtype")
    compared = decode.in_versions(_ROLE_KV_DTYPE_COMPARED)
    if theirs == ours or (not compared and theirs in _WIDE and ours in _WIDE):
        return None
    why = "each request fails in the decode server: RuntimeError: KV cache dtype mismatch"
    if not compared:
        why = "before 0.5.10 SGLang does not compare them: decode reads one type as another"
    return Conflict(
        f"kv_cache_dtype is {ours} for decode and {theirs} for prefill",
        ("kv_cache_dtype",),
        why,
        Fix("set the same kv_cache_dtype in both roles"),
    )


@rule_of_roles("SPL822", of_any_model=True)
def role_model(prefill: Plan, decode: Plan) -> Conflict | None:
    """Report prefill and decode servers with different models, or different revisions."""
    if model_of(prefill) != model_of(decode):
        theirs, ours = prefill.value("model_path"), decode.value("model_path")
        return Conflict(
            f"decode serves {ours}, but prefill serves {theirs}",
            ("model_path",),
            "decode continues from the KV cache of another model: the output is wrong, or the "
            "transfer fails",
            Fix("serve the same model in both roles"),
        )
    theirs, ours = prefill.value("revision"), decode.value("revision")
    if theirs == ours:
        return None
    return Conflict(
        f"revision is {ours or 'not set'} for decode and {theirs or 'not set'} for prefill",
        ("revision", "model_path"),
        "decode continues from a KV cache of other weights: SGLang does not compare them, and the "
        "output may differ",
        Fix("set the same revision in both roles"),
    )


@rule_of_roles("SPL823")
def role_transfer_backend(prefill: Plan, decode: Plan) -> Conflict | None:
    """Report prefill and decode servers that transfer the KV cache with different libraries."""
    theirs, ours = _library(prefill), _library(decode)
    if theirs == ours:
        return None
    return Conflict(
        f"{_BACKEND} is {ours} for decode and {theirs} for prefill",
        (_BACKEND,),
        "each library has its own handshake: requests wait until they time out",
        Fix(f"set the same {_BACKEND} in both roles"),
    )


def _library(plan: Plan) -> str:
    """Return the transfer library; `mooncake_tcp` is mooncake over TCP.

    See 0.5.23 arg_groups/pd_disaggregation_hook.py:30.
    """
    return str(plan.value(_BACKEND)).removesuffix("_tcp")


_SIZES = ("tp_size", "attn_dp_size", "dp_size", "enable_dp_attention")
_EQUAL = "<0.4.8"
"""Releases that require equal numbers of attention ranks unless attention is latent."""


@rule_of_roles("SPL824")
def role_attention_ranks(prefill: Plan, decode: Plan) -> Conflict | None:
    """Report prefill and decode servers with incompatible attention rank counts."""
    theirs, ours = gpu_ranks(prefill).attention, gpu_ranks(decode).attention
    if theirs == ours:
        return None
    written = [{name: s.value for name, s in p.request.values.items()} for p in (prefill, decode)]
    at = tuple(name for name in _SIZES if written[0].get(name) != written[1].get(name))
    difference = f"attention has {ours} ranks for decode and {theirs} for prefill"
    if max(theirs, ours) % min(theirs, ours):
        return Conflict(
            f"{difference}: neither divides the other",
            at,
            "the engine assigns entire prefill ranks to decode ranks by integer division: "
            "requests go to missing ranks, or lack parts of the KV cache",
            Fix(f"set decode's attention ranks (tp_size / DP attention ranks) to {theirs}"),
        )
    if _is_latent(decode):
        return None
    if decode.in_versions(_EQUAL):
        return Conflict(
            difference,
            at,
            "each request fails: AssertionError: PD with different TP sizes per DP rank is not "
            "yet supported for non-MLA models",
            Fix("set the same number of attention ranks in both roles"),
        )
    return Conflict(
        difference,
        at,
        "without MLA each head is extracted and sent separately; the engine warns: Performance "
        "is NOT guaranteed when using different TP sizes for non-MLA models",
        Fix("set the same number of attention ranks in both roles"),
        Severity.WARNING,
    )


def _is_latent(plan: Plan) -> bool:
    target = plan.facts.target
    if target is None:
        raise UnknownValueError("unknown whether the model uses MLA")
    return target.kv_lora_rank is not None or target.architecture in LATENT


@rule_of_roles("SPL825")
def role_pipeline_stages(prefill: Plan, decode: Plan) -> Conflict | None:
    """Report decode servers whose pipeline stage count is neither 1 nor the prefill server's."""
    theirs, ours = prefill.value("pp_size"), decode.value("pp_size")
    if ours in (1, theirs):
        return None
    return Conflict(
        f"pp_size is {ours} for decode and {theirs} for prefill",
        ("pp_size",),
        f"each request fails: AssertionError: Decode pp size ({ours}) should be equal to prefill "
        f"pp size ({theirs}) or 1",
        Fix("set decode's pp_size to 1 or to prefill's pp_size"),
    )


@rule_of_roles("SPL826")
def role_context_length(prefill: Plan, decode: Plan) -> Conflict | None:
    """Report decode servers with a shorter context length than their prefill servers."""
    theirs, ours = served_context(prefill), served_context(decode)
    if theirs is None or ours is None or theirs <= ours:
        return None
    return Conflict(
        f"context_length is {ours} for decode and {theirs} for prefill",
        ("context_length", "model_path"),
        "prefill accepts requests that decode refuses: such a request fails after prefill computed "
        "its KV cache",
        Fix("set the same context_length in both roles"),
    )

"""Rules about prefill and decode servers of one deployment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

from msgspec import Struct

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule_across
from speclaunch.checks.rules.model_values import served_context
from speclaunch.core import Place
from speclaunch.engine import LATENT, Group, Plan, UnknownValueError, gpu_ranks

# Servers that work together: prefill with decode, and the ranks of one server. If a file groups
# them (`Request.server_context`), that decides. Otherwise prefill and decode servers belong
# together if they serve one model and are in one directory.


NODES, RANK, ADDRESS = "nnodes", "node_rank", "dist_init_addr"
"""Arguments that make a server one of several hosts."""
PREFILL, DECODE = "prefill", "decode"


class Conflict(Struct, frozen=True):
    """A difference between two servers.

    `at`: the arguments that decide it; the first that the user set gives a server's place.
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
    """True if a file groups them. Otherwise a verdict requires that all of them differ, because any
    may be its partner."""


def mode(plan: Plan) -> str | None:
    """Return `prefill` or `decode`; None for any other server, or if it is unknown."""
    try:
        found = plan.value("disaggregation_mode")
    except UnknownValueError:
        return None
    return found if found in (PREFILL, DECODE) else None


def is_side(plan: Plan) -> bool:
    """True if a server is a prefill or decode server."""
    return mode(plan) is not None


def model_of(plan: Plan) -> str | None:
    """Return the name of a server's model without its directories; None if unknown.

    One side may load it from a hub and the other from a disk.
    """
    try:
        found = plan.value("model_path")
    except UnknownValueError:
        return None
    return None if found is None else PurePath(str(found).rstrip("/")).name.lower()


def groups(plans: Sequence[Plan]) -> list[list[Plan]]:
    """Return the plans of each deployment that a file groups."""
    found: list[tuple[Group, list[Plan]]] = []
    for plan in plans:
        context = plan.request.server_context
        if context is None:
            continue
        known = next((some for group, some in found if group == context.group), None)
        if known is None:
            found.append((context.group, [plan]))
        else:
            known.append(plan)
    return [some for _, some in found]


def pairs(plans: Sequence[Plan]) -> Iterator[RolePair]:
    """Yield each decode server with its prefill servers: those of its model, if any."""
    for group in groups(plans):
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


def conflicts(
    plans: Sequence[Plan],
    compare: Callable[[Plan, Plan], Conflict | None],
    *,
    of_any_model: bool = False,
) -> Iterator[tuple[Plan, Verdict]]:
    """Yield a verdict for each decode server in conflict with its prefill servers.

    The verdict has both places. `compare` receives prefill and decode; an unknown value is not a
    conflict. Servers of different models are compared only with `of_any_model` (SPL822).
    """
    for pair in pairs(plans):
        model, *_ = map(model_of, pair.prefills)
        if model != model_of(pair.decode) and not of_any_model:
            continue
        found = [
            (prefill, _conflict_or_none(compare, prefill, pair.decode)) for prefill in pair.prefills
        ]
        differing = [(prefill, conflict) for prefill, conflict in found if conflict is not None]
        if differing and (pair.is_grouped or len(differing) == len(found)):
            yield pair.decode, verdict(differing[0][1], pair.decode, differing[0][0])


def verdict(conflict: Conflict, plan: Plan, other: Plan) -> Verdict:
    """Return a conflict between two servers as a verdict, with one place of each."""
    return Verdict(
        conflict.message,
        place=place_of(plan, conflict.at),
        why=conflict.why,
        fix=conflict.fix,
        severity=conflict.severity,
        others=(place_of(other, conflict.at),),
    )


def differing_arguments(first: Plan, second: Plan, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of `names` that two servers set differently, or only one sets."""

    def value_of(plan: Plan, name: str) -> Any:
        setting = plan.request.values.get(name)
        return None if setting is None else setting.value

    return tuple(name for name in names if value_of(first, name) != value_of(second, name))


def place_of(plan: Plan, names: Sequence[str]) -> Place:
    """Return the place of the first of `names` that the user set, else the server's."""
    request = plan.request
    written = (name for name in names if name in request.values)
    name = next(written, None)
    return request.place if name is None else plan.place(name)


def _conflict_or_none(
    compare: Callable[[Plan, Plan], Conflict | None], prefill: Plan, decode: Plan
) -> Conflict | None:
    try:
        return compare(prefill, decode)
    except UnknownValueError:
        return None


def _home(plan: Plan) -> Any:
    """Return the key that servers of one deployment share; None if unknown."""
    try:
        model = plan.value("model_path")
    except UnknownValueError:
        return None
    directory = str(PurePath(plan.request.place.path).parent)
    return None if model is None else (directory, str(model), plan.request.version)


@rule_across("SPL820", compares=is_side)
def role_page_size(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report prefill and decode with different page sizes."""
    return conflicts(plans, _conflict_of_role_page_size)


_AT = ("page_size", "attention_backend", "decode_attention_backend", "prefill_attention_backend")
"""Arguments that decide it: a backend may have its own page size."""
_ROLE_PAGE_SIZE_COMPARED = ">=0.5.8"
"""Releases whose decode server compares the sizes when it first meets a prefill server."""


def _conflict_of_role_page_size(prefill: Plan, decode: Plan) -> Conflict | None:
    (theirs, sure), (ours, also_sure) = _pages(prefill), _pages(decode)
    if theirs == ours:
        return None
    why = "each request fails in the decode server: RuntimeError: Page size mismatch"
    if not decode.in_versions(_ROLE_PAGE_SIZE_COMPARED):
        why = "before 0.5.8 nothing compares them: pages are written to the wrong addresses, and "
        why += "the output is wrong"
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


@rule_across("SPL821", compares=is_side)
def role_kv_dtype(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report prefill and decode with different KV cache types."""
    return conflicts(plans, _conflict_of_role_kv_dtype)


_ROLE_KV_DTYPE_COMPARED = ">=0.5.10"
"""Releases whose decode server compares the names when it first meets a prefill server."""
_WIDE = ("auto", "bf16", "bfloat16")
"""Equal in releases that do not compare names: two bytes each, for nearly every checkpoint."""


def _conflict_of_role_kv_dtype(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = prefill.value("kv_cache_dtype"), decode.value("kv_cache_dtype")
    compared = decode.in_versions(_ROLE_KV_DTYPE_COMPARED)
    if theirs == ours or (not compared and theirs in _WIDE and ours in _WIDE):
        return None
    why = "each request fails in the decode server: RuntimeError: KV cache dtype mismatch"
    if not compared:
        why = "before 0.5.10 nothing compares them: the bytes of one type are read as another"
    return Conflict(
        f"kv_cache_dtype is {ours} for decode and {theirs} for prefill",
        ("kv_cache_dtype",),
        why,
        Fix("set the same kv_cache_dtype in both roles"),
    )


@rule_across("SPL822", compares=is_side)
def role_model(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report prefill and decode servers with different models, or different revisions."""
    return conflicts(plans, _conflict_of_role_model, of_any_model=True)


def _other_model(prefill: Plan, decode: Plan) -> Conflict:
    theirs, ours = prefill.value("model_path"), decode.value("model_path")
    return Conflict(
        f"decode serves {ours}, but prefill serves {theirs}",
        ("model_path",),
        "decode continues from the KV cache of another model: the output is wrong, or the transfer "
        "fails",
        Fix("serve the same model in both roles"),
    )


def _conflict_of_role_model(prefill: Plan, decode: Plan) -> Conflict | None:
    if model_of(prefill) != model_of(decode):
        return _other_model(prefill, decode)
    theirs, ours = prefill.value("revision"), decode.value("revision")
    if theirs == ours:
        return None
    return Conflict(
        f"revision is {ours or 'not set'} for decode and {theirs or 'not set'} for prefill",
        ("revision", "model_path"),
        "decode continues from a KV cache of other weights: nothing compares them, and the "
        "output may differ",
        Fix("set the same revision in both roles"),
    )


@rule_across("SPL823", compares=is_side)
def role_transfer_backend(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report prefill and decode servers that transfer the KV cache with different libraries."""
    return conflicts(plans, _conflict_of_role_transfer_backend)


_NAME = "disaggregation_transfer_backend"


def _conflict_of_role_transfer_backend(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = _library(prefill), _library(decode)
    if theirs == ours:
        return None
    return Conflict(
        f"{_NAME} is {ours} for decode and {theirs} for prefill",
        (_NAME,),
        "each library has its own handshake: requests wait until they time out",
        Fix(f"set the same {_NAME} in both roles"),
    )


def _library(plan: Plan) -> str:
    """Return the transfer library; `mooncake_tcp` is mooncake over TCP.

    See 0.5.23 arg_groups/pd_disaggregation_hook.py:30.
    """
    return str(plan.value(_NAME)).removesuffix("_tcp")


@rule_across("SPL824", compares=is_side)
def role_attention_ranks(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report incompatible attention ranks of prefill and decode."""
    return conflicts(plans, _conflict_of_role_attention_ranks)


_SIZES = ("tp_size", "attn_dp_size", "dp_size", "enable_dp_attention")
_EQUAL = "<0.4.8"
"""Releases that require equal numbers unless attention is latent."""


def _conflict_of_role_attention_ranks(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = gpu_ranks(prefill).attention, gpu_ranks(decode).attention
    if theirs == ours:
        return None
    at = differing_arguments(prefill, decode, _SIZES)
    difference = f"attention has {ours} ranks for decode and {theirs} for prefill"
    if max(theirs, ours) % min(theirs, ours):
        return Conflict(
            f"{difference}: neither divides the other",
            at,
            "the engine assigns entire prefill ranks to decode ranks by integer division: "
            "requests go to missing ranks, or lack parts of the KV cache",
            Fix("choose tp_size / DP attention ranks so that one side divides the other"),
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


@rule_across("SPL825", compares=is_side)
def role_pipeline_stages(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report decode servers whose pipeline stages differ from prefill's."""
    return conflicts(plans, _conflict_of_role_pipeline_stages)


def _conflict_of_role_pipeline_stages(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = prefill.value("pp_size"), decode.value("pp_size")
    if ours in (1, theirs):
        return None
    return Conflict(
        f"pp_size is {ours} for decode and {theirs} for prefill",
        ("pp_size",),
        f"each request fails: AssertionError: Decode pp size ({ours}) should be equal to prefill "
        f"pp size ({theirs}) or 1",
        Fix("set pp_size of decode to 1, or to prefill's pp_size"),
    )


@rule_across("SPL826", compares=is_side)
def role_context_length(plans: Sequence[Plan]) -> Iterator[tuple[Plan, Verdict]]:
    """Report decode servers that accept shorter requests than prefill."""
    return conflicts(plans, _conflict_of_role_context_length)


def _conflict_of_role_context_length(prefill: Plan, decode: Plan) -> Conflict | None:
    theirs, ours = served_context(prefill), served_context(decode)
    if theirs is None or ours is None or theirs <= ours:
        return None
    return Conflict(
        f"context_length is {ours} for decode and {theirs} for prefill",
        ("context_length", "model_path"),
        "prefill accepts requests that decode refuses: they fail after prefill computed their "
        "KV cache",
        Fix("set the same context_length in both roles"),
    )

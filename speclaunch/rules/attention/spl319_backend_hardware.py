"""An attention backend on a GPU that it was not made for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.topics.attention import BEFORE_RENAMED, BOTH, DECODE, PHASES
from speclaunch.record import record
from speclaunch.rules.attention.draft import is_mla
from speclaunch.rules.attention.gpu import generation
from speclaunch.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.rules.values import attention_backend

_ARGUMENTS = (*PHASES, BOTH)


@record
class _Backend:
    """A backend, the phases and versions that it is about, and the GPU generations it runs on."""

    name: str
    versions: str
    generations: tuple[int, ...]
    said: str
    phases: tuple[int, ...] = ()
    """The phases that run on it: 0 prefill, 1 decode; else `names` are looked at as they are."""
    names: tuple[str, ...] = _ARGUMENTS
    """The arguments of which one is enough, whatever another one says."""


_BOTH = (BOTH,)
_DECODES = (BOTH, DECODE)
_MLA = "TRTLLM MLA backend is only supported on Blackwell GPUs"
_MHA = "TRTLLM MHA backend is only supported on Blackwell GPUs (SM100)."
_PREFILL = "TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100)."
_ALL = "TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120 GPUs."
_DECODE = "TRTLLM MHA backend for decode is only supported on Hopper (SM90), Blackwell (SM100) "
_FA3 = "FlashAttention v3 Backend requires SM>=80 and SM<=90."
_AMPERE = 8
"""Only fa3 runs there, and without latent attention."""
_CUTE = "CuteDSL MLA backend is only supported on Blackwell GPUs (SM100)."
_BACKENDS = (
    _Backend("trtllm_mla", ">=0.4.10,<0.5.1", (10,), _MLA, names=_BOTH),
    _Backend("trtllm_mla", ">=0.5.1,<0.5.4.post2", (10,), _MLA, names=_DECODES),
    _Backend("trtllm_mla", ">=0.5.4.post2,<0.5.9", (10, 12), _MLA, names=_DECODES),
    _Backend("trtllm_mla", ">=0.5.9", (10, 11, 12), _MLA, names=_DECODES),
    _Backend("trtllm_mha", ">=0.5.1,<0.5.10", (10,), _MHA),
    _Backend("trtllm_mha", ">=0.5.10,<0.5.19", (10,), _PREFILL, (0,)),
    _Backend("trtllm_mha", ">=0.5.19", (9, 10, 12), _ALL, (0,)),
    _Backend("trtllm_mha", ">=0.5.10", (9, 10, 12), _DECODE + "and (SM120) GPUs.", (1,)),
    _Backend(
        "tokenspeed_mla",
        f">=0.5.12,{BEFORE_RENAMED}",
        (10, 11, 12),
        "tokenspeed_mla backend is only supported on Blackwell GPUs (SM100/SM12x).",
        names=_DECODES,
    ),
    _Backend("cutedsl_mla", ">=0.5.13", (10,), _CUTE),
    _Backend("fa3", ">=0.4.6.post2", (8, 9), _FA3, (0, 1)),
)


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a backend that the GPU does not run."""
    given = {name: _effective(plan, name) for name in _ARGUMENTS if plan.given(name) is not None}
    seen: set[str] = set()
    for row in _BACKENDS:
        if row.name in seen or not plan.in_versions(row.versions):
            continue
        at = _where(given, row)
        if at is None or _runs(plan, row):
            continue
        seen.add(row.name)
        yield Verdict(
            f"{row.name} does not run on {_hardware(plan)} in SGLang {plan.request.version}",
            at=(at,),
            why=f"the engine stops: {row.said}",
            fix=Fix("let the engine choose the backend", set=dict.fromkeys(_ARGUMENTS)),
        )


def _effective(plan: Plan, name: str) -> str | None:
    """What becomes of a backend that was given: fa3 gives way to triton for some caches."""
    try:
        return attention_backend(plan, name)
    except UnknownValueError:  # the engine's own choice always runs
        return str(plan.given(name))


def _where(given: Mapping[str, str | None], row: _Backend) -> str | None:
    """The argument by which the backend runs; None where it does not, or is the engine's own."""
    for phase in row.phases:
        name = _ARGUMENTS[phase] if given.get(_ARGUMENTS[phase]) else "attention_backend"
        if given.get(name) == row.name:
            return name
    names = () if row.phases else row.names
    return next((name for name in names if given.get(name) == row.name), None)


def _runs(plan: Plan, row: _Backend) -> bool:
    found = generation(plan)
    if found not in row.generations:
        return False
    return found != _AMPERE or not is_mla(plan.facts.target)


def _hardware(plan: Plan) -> str:
    hardware = plan.facts.hardware
    if hardware is None or hardware.capability is None:  # same either way: only the words
        return "this hardware"
    return f"{hardware.name} (SM{hardware.capability})"


RULE = rule("SPL319", "backend-hardware", Severity.ERROR, check)

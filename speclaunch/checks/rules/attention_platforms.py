"""Rules about attention backends by model, GPU and phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from speclaunch.checks.rules.attention import backends_of_draft, is_mla
from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import attention_backend, attention_backends, runs_on_cpu
from speclaunch.engine import (
    BACKENDS,
    BEFORE_RENAMED,
    BOTH,
    DECODE,
    DRAFT,
    EAGLE_HANDLER,
    PHASES,
    UNKNOWN_HARDWARE,
    Checkpoint,
    Plan,
    UnknownValueError,
    Vendor,
    draft_checkpoint,
    has_architecture,
)


def generation(plan: Plan) -> int | None:
    """Return the major compute capability; None unless the device is an NVIDIA GPU.

    Raises UnknownValueError.
    """
    hardware = plan.facts.hardware
    if plan.device != "cuda":
        return None
    if hardware is None:
        raise UnknownValueError(UNKNOWN_HARDWARE)
    if hardware.vendor is not Vendor.NVIDIA:
        return None
    if hardware.capability is None:
        raise UnknownValueError(f"the compute capability of {hardware.name} is unknown")
    return hardware.capability // 10


_MLA_BACKEND_LATENT = ("trtllm_mla", "tokenspeed_mla", "cutedsl_mla")
_MIXED = ("trtllm_mha", "hpc_ops")


@rule("SPL315")
def mla_backend(plan: Plan) -> Iterator[Verdict]:
    """Report a latent-attention backend for a model without latent attention, or vice versa."""
    for backend in _different(tuple(plan.user_value(name) for name in BACKENDS)):
        if _unfit(backend, plan.facts.target):
            yield _verdict_of_mla_backend(backend, "target", Fix("use another backend"))
    if plan.algorithm not in EAGLE_HANDLER:
        return
    draft = draft_checkpoint(plan)
    if draft is plan.facts.target:
        return
    for backend in _different(backends_of_draft(plan)):
        if _unfit(backend, draft):
            fix = Fix("set a separate backend for the draft", set={DRAFT: "flashinfer"}, safe=True)
            if not plan.has_argument(DRAFT):  # same either way: only the remedy differs
                fix = Fix("use another backend for both, or SGLang 0.5.7 or later")
            yield _verdict_of_mla_backend(backend, "draft", fix)


def _different(backends: tuple[str | None, ...]) -> tuple[str, ...]:
    found = {name for name in backends if name in _MLA_BACKEND_LATENT or name in _MIXED}
    return tuple(sorted(name for name in found if name is not None))


def _unfit(backend: str, checkpoint: Checkpoint | None) -> bool:
    return is_mla(checkpoint) is (backend in _MIXED)


def _verdict_of_mla_backend(backend: str, role: str, fix: Fix) -> Verdict:
    latent = backend in _MLA_BACKEND_LATENT
    kind, models = ("without", "MLA") if latent else ("with", "non-MLA")
    return Verdict(
        f"{backend} does not support a {role} {kind} multi-head latent attention",
        at=(DRAFT, *BACKENDS),
        why=f"the engine stops: ValueError: {backend} backend can only be used with {models} "
        "models.",
        fix=fix,
    )


_ARGUMENTS = (*PHASES, BOTH)


class _Backend(Struct, frozen=True):
    """A backend, the GPU generations it runs on, and the arguments that the engine checks."""

    name: str
    versions: str
    generations: tuple[int, ...]
    engine_message: str
    phases: tuple[int, ...] = ()
    """Phases that the engine checks: 0 prefill, 1 decode. If empty, it checks `names`."""
    names: tuple[str, ...] = _ARGUMENTS
    """Arguments that the engine checks one by one, without the others. Unused with `phases`."""


_BOTH = (BOTH,)
_DECODES = (BOTH, DECODE)
_MLA = "TRTLLM MLA backend is only supported on Blackwell GPUs"
_MHA = "TRTLLM MHA backend is only supported on Blackwell GPUs (SM100)."
_PREFILL = "TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100)."
_ALL = "TRTLLM MHA backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120 GPUs."
_DECODE = "TRTLLM MHA backend for decode is only supported on Hopper (SM90), Blackwell (SM100) "
_FA3 = "FlashAttention v3 Backend requires SM>=80 and SM<=90."
_AMPERE = 8
"""GPU generation (SM8x) on which only fa3 of these backends runs, and not with MLA."""
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


@rule("SPL319")
def backend_hardware(plan: Plan) -> Iterator[Verdict]:
    """Report an attention backend that does not run on the GPU."""
    explicit = {
        name: _effective(plan, name) for name in _ARGUMENTS if plan.user_value(name) is not None
    }
    seen: set[str] = set()
    for row in _BACKENDS:
        if row.name in seen or not plan.in_versions(row.versions):
            continue
        at = _where(explicit, row)
        if at is None or _runs(plan, row):
            continue
        seen.add(row.name)
        yield Verdict(
            f"{row.name} does not run on {_hardware(plan)} in SGLang {plan.request.version}",
            at=(at,),
            why=f"the engine stops: {row.engine_message}",
            fix=Fix("let the engine choose the backend", set=dict.fromkeys(_ARGUMENTS)),
        )


def _effective(plan: Plan, name: str) -> str | None:
    """Return the effective backend of a user's setting: some caches replace fa3 with triton."""
    try:
        return attention_backend(plan, name)
    except UnknownValueError:  # a backend that the engine chooses always runs
        return str(plan.user_value(name))


def _where(backends: Mapping[str, str | None], row: _Backend) -> str | None:
    """Return the argument that selects the backend; None if none does, or the engine chose it."""
    for phase in row.phases:
        name = _ARGUMENTS[phase] if backends.get(_ARGUMENTS[phase]) else "attention_backend"
        if backends.get(name) == row.name:
            return name
    names = () if row.phases else row.names
    return next((name for name in names if backends.get(name) == row.name), None)


def _runs(plan: Plan, row: _Backend) -> bool:
    found = generation(plan)
    if found not in row.generations:
        return False
    return found != _AMPERE or not is_mla(plan.facts.target)


def _hardware(plan: Plan) -> str:
    hardware = plan.facts.hardware
    if hardware is None or hardware.capability is None:  # same either way: only the wording differs
        return "this hardware"
    return f"{hardware.name} (SM{hardware.capability})"


@rule("SPL320")
def backend_phase(plan: Plan) -> Iterator[Verdict]:
    """Report a backend for a phase that it does not serve."""
    if plan.in_versions(">=0.5.4,<0.5.8"):
        for name in ("attention_backend", "decode_attention_backend"):
            if plan.user_value(name) == "fa4":
                yield Verdict(
                    f"fa4 supports only prefill in SGLang {plan.request.version}: {name} cannot "
                    "be fa4",
                    at=(name,),
                    why="the engine refuses: FA4 backend is only supported for prefill. Please "
                    "use `--prefill-attention-backend fa4` instead.",
                    fix=Fix(
                        "set prefill_attention_backend to fa4",
                        set={name: None, "prefill_attention_backend": "fa4"},
                    ),
                )
    if plan.user_value("prefill_attention_backend") == "cutedsl_mla":
        yield Verdict(
            "cutedsl_mla supports only decode: prefill_attention_backend cannot be cutedsl_mla",
            at=("prefill_attention_backend",),
            why="the engine stops: AssertionError: CuteDSL MLA only supports decoding for now",
            fix=Fix(
                "set decode_attention_backend to cutedsl_mla",
                set={
                    "prefill_attention_backend": None,
                    "decode_attention_backend": "cutedsl_mla",
                },
            ),
        )


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
"""Releases and EXAONE backends for sliding layers (`sliding_window_pattern`)."""
_MODEL_BACKEND_TARGETS = {
    "Exaone4ForCausalLM": _EXAONE,
    "ExaoneMoEForCausalLM": _EXAONE,
    "GptOssForCausalLM": _GPT_OSS,
    "Llama4ForConditionalGeneration": _LLAMA4,
    "Llama4ForCausalLM": _LLAMA4,
    "Gemma4ForCausalLM": _GEMMA4,
    "Gemma4ForConditionalGeneration": _GEMMA4,
    "Gemma4UnifiedForConditionalGeneration": _GEMMA4,
}


@rule("SPL323")
def model_backend(plan: Plan) -> Iterator[Verdict]:
    """Report a backend that the target's model class does not run on."""
    target = plan.facts.target
    if target is None or target.architecture not in _MODEL_BACKEND_TARGETS:
        return
    rows = _MODEL_BACKEND_TARGETS[target.architecture]
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
        used = (plan.user_value("attention_backend"),)
    else:
        used = (attention_backend(plan),)
    for backend in dict.fromkeys(used):
        if known and backend not in known:
            problem = f"does not run on {backend}" if backend else "needs an attention_backend"
            yield Verdict(
                f"{target.architecture} {problem} in SGLang {plan.request.version}",
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


_HYBRID_GDN_BACKEND_EARLY = ("Qwen3NextForCausalLM",)
_HYBRID_GDN_BACKEND_TARGETS = (
    *_HYBRID_GDN_BACKEND_EARLY,
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)
"""Targets from 0.5.9 on; rarer targets (JetNemotron, Intern-S2) are not checked."""
_ALLOWED = (
    (">=0.5.21", (10, 11), ("triton", "trtllm_mha", "fa4", "flashinfer")),
    (">=0.5.16", (10, 11), ("triton", "trtllm_mha", "fa4")),
    (">=0.5.16", (12,), ("triton", "trtllm_mha", "flashinfer")),
    (">=0.5.10", (10, 11, 12), ("triton", "trtllm_mha", "fa4", "flashinfer")),
    (">=0.5.9", (11,), ("triton", "trtllm_mha")),
    (">=0.5.5", (10, 12), ("triton", "trtllm_mha")),
    (">=0.5.4", (12,), ("triton",)),
    (">=0.5.3", (10,), ("triton",)),
)
"""Versions, GPU generations and allowed backends; the first matching row counts."""
_ONE_FIELD = "<0.5.16"
"""Releases that check only `attention_backend`, even if each phase has its own."""
_BOTH_OR_ONE = "<0.5.18"
"""Releases that check the phases if both have their own."""


@rule("SPL324")
def hybrid_gdn_backend(plan: Plan) -> Iterator[Verdict]:
    """Report a hybrid model with gated delta networks on an unsupported backend on Blackwell."""
    targets = (
        _HYBRID_GDN_BACKEND_EARLY if plan.in_versions("<0.5.9") else _HYBRID_GDN_BACKEND_TARGETS
    )
    if not has_architecture(plan, targets):
        return
    gpu = generation(plan)
    rows = (row for row in _ALLOWED if gpu in row[1] and plan.in_versions(row[0]))
    allowed = next((backends for _, _, backends in rows), None)
    if allowed is None:
        return
    for backend in dict.fromkeys(_looked_at(plan)):
        if backend in (*allowed, "fa3"):  # fa3 is refused earlier for any model: SPL319
            continue
        name = plan.facts.target.architecture if plan.facts.target is not None else "the target"
        yield Verdict(
            f"{name} does not run on {backend} on Blackwell GPUs in SGLang {plan.version}",
            at=BACKENDS,
            why=f"the engine stops while it starts: only {', '.join(allowed)} are supported on "
            "Blackwell GPUs for hybrid GDN models",
            fix=Fix(
                "use triton",
                set={"attention_backend": "triton", **dict.fromkeys(PHASES)},
            ),
        )


def _looked_at(plan: Plan) -> tuple[str | None, ...]:
    if plan.in_versions(_ONE_FIELD):
        return (attention_backend(plan),)
    if plan.in_versions(_BOTH_OR_ONE) and not all(
        attention_backend(plan, phase) for phase in PHASES
    ):
        return (attention_backend(plan, BOTH),)
    return attention_backends(plan)


_REFUSED_BACKEND_NAME = "attention_backend"
_FIRST = "{} does not support triton attention backend, as the first layer might not be an "


_FIRST += "attention layer"


_REFUSED_BACKEND_REFUSED = (
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
"""Architecture, versions, backend, and the engine's message."""


@rule("SPL325")
def refused_backend(plan: Plan) -> Iterator[Verdict]:
    """Report an attention backend that the target's model class refuses."""
    requested = plan.user_value(_REFUSED_BACKEND_NAME)
    target = plan.facts.target
    for architecture, versions, backend, message in _REFUSED_BACKEND_REFUSED:
        if target is None or requested != backend or target.architecture != architecture:
            continue
        if plan.in_versions(versions):
            yield Verdict(
                f"{architecture} does not run on {backend} in SGLang {plan.version}",
                at=(_REFUSED_BACKEND_NAME,),
                why=f"the engine refuses: {message.format(architecture)}",
                fix=Fix("let the engine choose the backend", set={_REFUSED_BACKEND_NAME: None}),
            )

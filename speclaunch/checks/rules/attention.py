"""Rules about attention backends that speculation cannot use."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import (
    attention_backend,
    attention_backends,
    number,
    page_size,
    runs_on,
    runs_on_cpu,
    verifying_backend,
)
from speclaunch.engine import (
    BACKENDS,
    BOTH,
    DRAFT,
    PHASES,
    Checkpoint,
    Plan,
    UnknownValueError,
    attention,
    draft_of,
)

_DRAFT_BACKENDS = (
    ("0", ("flashinfer", "triton", "fa3", "flashmla")),
    ("0.5.0rc2", ("aiter",)),
    ("0.5.1", ("trtllm_mha", "trtllm_mla")),
    ("0.5.2", ("hybrid_linear_attn",)),
    ("0.5.4", ("nsa",)),
    ("0.5.4.post2", ("ascend",)),
    ("0.5.10", ("fa4",)),
    ("0.5.12", ("dsv4", "tokenspeed_mla")),
    ("0.5.13", ("cutedsl_mla", "dsa")),
    ("0.5.16", ("intel_amx",)),
    ("0.5.20", ("intel_xpu", "qsa")),
)
"""Draft backends that each release added. `compressed` is another name for `dsv4`. From 0.5.23 on,
`tokenspeed_mla` is another name for `cutedsl_mla`."""


def draft_backends(plan: Plan) -> frozenset[str]:
    """Return this version's attention backends for draft steps."""
    return frozenset(
        name for since, names in _DRAFT_BACKENDS if plan.in_versions(f">={since}") for name in names
    )


def extend_backends(plan: Plan) -> frozenset[str]:
    """Return this version's attention backends for accepted tokens (draft extend).

    These are the draft-step backends, except flashmla in 0.5.2 (speculative/eagle_worker.py:230).
    """
    known = draft_backends(plan)
    return known - {"flashmla"} if plan.in_versions(">=0.5.2,<0.5.3") else known


def backends_of_draft(plan: Plan) -> tuple[str | None, str | None]:
    """Return a draft's attention backends for its steps and for accepted tokens (None: not set).

    They come from the draft's own argument (0.5.7 on). Otherwise steps use the target's decode
    backend, and `speculative_attention_mode` selects the backend for accepted tokens. Up to 0.5.1
    both are `attention_backend`.
    """
    own = plan.value(DRAFT)
    if own is not None:
        return own, own
    if plan.in_versions("<0.5.2"):
        both = attention_backend(plan)
        return both, both
    return attention_backends(plan)[1], verifying_backend(plan)


def is_mla(checkpoint: Checkpoint | None) -> bool:
    """True if a checkpoint has multi-head latent attention. Raises UnknownValueError."""
    if checkpoint is None or not checkpoint.architectures:
        raise UnknownValueError("the checkpoint is unknown")
    return checkpoint.kv_lora_rank is not None


_CHAIN = Fix(
    "set speculative_eagle_topk to 1; the engine adjusts the number of draft tokens",
    set={"speculative_eagle_topk": 1, "speculative_num_draft_tokens": None},
)
_PAGED_TREE_BACKENDS = (("0", "flashinfer"), ("0.5.6", "fa3"), ("0.5.13", "triton"))


@rule("SPL301")
def paged_tree(plan: Plan) -> Iterator[Verdict]:
    """Report a draft tree with a page size above 1."""
    topk = number(plan, "speculative_eagle_topk") or 1
    if topk <= 1:
        return
    if (page := page_size(plan)) <= 1:
        return
    known = [name for since, name in _PAGED_TREE_BACKENDS if plan.in_versions(f">={since}")]
    name = "attention_backend"
    early = plan.in_versions("<0.5.4")
    backend = plan.user_value(name) if early else attention_backend(plan)
    if backend is None and not early:
        raise UnknownValueError("the attention backend is unknown")
    if backend not in known:
        yield Verdict(
            f"speculative_eagle_topk {topk} with page_size {page} needs {' or '.join(known)}, but "
            f"attention_backend is {backend or 'not set'}",
            at=("page_size", name, "speculative_eagle_topk"),
            why=f"the engine refuses: {_refusal_message(plan, backend)}",
            fix=Fix(
                "set speculative_eagle_topk to 1 (the engine adjusts the number of draft tokens), "
                "or page_size to 1 if the backend allows it",
                set={"speculative_eagle_topk": 1, "speculative_num_draft_tokens": None},
            ),
        )


def _refusal_message(plan: Plan, backend: str | None) -> str:
    if plan.in_versions("<0.5.13"):
        return (
            "speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect "
            "results for paged attention backends"
        )
    known = tuple(name for _, name in _PAGED_TREE_BACKENDS)
    return (
        f"speculative_eagle_topk > 1 with page_size > 1 is only supported on {known}; got "
        f"attention_backend={backend!r}"
    )


_NAME = "trtllm_mha"


@rule("SPL302")
def trtllm_mha_tree(plan: Plan) -> Iterator[Verdict]:
    """Report a draft tree on trtllm_mha, which verifies only chains."""
    topk = number(plan, "speculative_eagle_topk") or 1
    if topk <= 1:
        return
    written = plan.user_value("attention_backend") == _NAME and plan.in_versions("<0.5.15")
    if written or runs_on(
        plan, _NAME
    ):  # up to 0.5.14 the argument matters even if no phase uses it
        yield Verdict(
            f"{_NAME} supports only speculative_eagle_topk 1, not {topk}",
            at=("speculative_eagle_topk", BOTH, *reversed(PHASES)),
            why="the engine refuses: trtllm_mha backend only supports topk = 1 for speculative "
            "decoding.",
            fix=_CHAIN,
        )


_SPARSE = "DeepseekV32ForCausalLM"


class _Backend(Struct, frozen=True):
    name: str
    engine_message: str
    versions: str = ""
    of_both: bool = False
    """True if the backend is refused only when both phases use it."""


_BACKEND_WITHOUT_SPECULATION_BACKENDS = (
    _Backend(
        "flex_attention",
        "Speculative decoding is currently not supported with Flex Attention backend",
        of_both=True,
    ),
    _Backend(
        "trtllm_mla",
        "trtllm_mla backend does not support speculative decoding yet.",
        ">=0.4.10,<0.5.1",
        of_both=True,
    ),
    _Backend("nsa", "Spec decoding is not supported for NSA backend now", ">=0.5.3,<0.5.4"),
    _Backend("hpc_ops", "hpc_ops backend does not support speculative decoding for now."),
    _Backend(
        "intel_xpu",
        "XPUAttentionBackend doesn't support speculative decoding yet, please use "
        "--attention-backend triton instead.",
        "<0.5.20",
    ),
    _Backend("minicpm_flashattn", "MiniCPM backend does not support speculative decoding"),
    _Backend("minicpm_flashinfer", "MiniCPM backend does not support speculative decoding"),
)


@rule("SPL304")
def backend_without_speculation(plan: Plan) -> Iterator[Verdict]:
    """Report an attention backend that does not support speculation."""
    if plan.algorithm is None:
        return
    for row in _BACKEND_WITHOUT_SPECULATION_BACKENDS:
        if plan.in_versions(row.versions) and _is_used(plan, row):
            yield Verdict(
                f"the {row.name} backend of SGLang {plan.request.version} does not support "
                "speculative decoding",
                at=(*BACKENDS, "speculative_algorithm"),
                why=f"the engine stops: {row.engine_message}",
                fix=Fix(
                    "use another backend, or let the engine choose",
                    set={name: None for name in BACKENDS if plan.is_set(name)},
                ),
            )


def _is_used(plan: Plan, row: _Backend) -> bool:
    """True if the plan uses the backend, also by default (DeepSeek V3.2: nsa)."""
    if row.of_both:  # never a default
        both = all(plan.user_value(name) == row.name for name in PHASES)
        return both or plan.user_value(BOTH) == row.name
    target = plan.facts.target
    sparse = target is not None and target.architecture == _SPARSE
    if row.name == "nsa" and sparse and not plan.is_set("attention_backend"):
        return True
    return runs_on(plan, row.name)


_MLA_CHAINS = {"flashmla": "FlashMLA", "flashinfer": "Flashinfer MLA"}
"""MLA backends that draft only chains, and their names in the engine's message."""


@rule("SPL305")
def mla_tree(plan: Plan) -> Iterator[Verdict]:
    """Report a draft tree on an MLA backend that supports only chains."""
    topk = number(plan, "speculative_eagle_topk") or 1
    if topk <= 1:
        return
    if plan.in_versions(">=0.5.3") and number(plan, "speculative_num_steps") == 1:
        return
    steps, _ = backends_of_draft(plan)
    if steps == "flashmla" or (steps == "flashinfer" and is_mla(draft_of(plan))):
        yield Verdict(
            f"{steps} drafts only chains for MLA models: topk must be 1, not {topk}",
            at=(
                "speculative_eagle_topk",
                "speculative_draft_attention_backend",
                "attention_backend",
            ),
            why=f"the draft worker stops: ValueError: Currently {_MLA_CHAINS[steps]} only supports "
            "topk=1 for speculative decoding",
            fix=_CHAIN,
        )


_WINDOWED = (
    "GptOssForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
)
"""Targets whose model class sets the backend's window (get_attention_sliding_window_size)."""


@rule("SPL307")
def sliding_window_tree(plan: Plan) -> Iterator[Verdict]:
    """Report a draft tree with a page size above 1 and sliding-window attention on fa3."""
    target = plan.facts.target
    if target is None or target.architecture not in _WINDOWED:
        return
    topk = number(plan, "speculative_eagle_topk") or 1
    page = page_size(plan)
    if topk <= 1 or page <= 1:
        return
    if verifying_backend(plan) == "fa3":
        yield Verdict(
            f"fa3 cannot verify a tree (topk {topk}) on pages of {page} tokens for "
            f"{target.architecture}, which uses sliding-window attention",
            at=("page_size", "speculative_eagle_topk", "attention_backend"),
            why="the engine stops at the first verification: AssertionError: FlashAttention "
            "backend doesn't support topk > 1 speculative decoding with page size > 1 sliding "
            "window attention",
            fix=Fix("set page_size to 1", set={"page_size": 1}),
        )


@rule("SPL308")
def aiter_tree(plan: Plan) -> Iterator[Verdict]:
    """Report a draft tree on the attention backend aiter."""
    topk = number(plan, "speculative_eagle_topk") or 1
    if topk <= 1:
        return
    if "aiter" in backends_of_draft(plan):
        yield Verdict(
            f"aiter drafts only chains: speculative_eagle_topk must be 1, not {topk}",
            at=("speculative_eagle_topk", "attention_backend"),
            why="the draft stops: NotImplementedError: AiterAttnBackend SPEC_V2 path currently "
            f"supports topk <= 1 only. Got topk={topk}.",
            fix=_CHAIN,
        )


_OWN_RULE = ("flex_attention", "hpc_ops", "minicpm_flashattn", "minicpm_flashinfer", "intel_xpu")
"""Backends that SPL304 reports for a target."""


@rule("SPL312")
def draft_backend(plan: Plan) -> Iterator[Verdict]:
    """Report a draft on an attention backend without draft support."""
    steps, extend = backends_of_draft(plan)
    required = [(extend, "prefill_attention_backend", extend_backends(plan))]
    if plan.in_versions("<0.5.3") or number(plan, "speculative_num_steps") != 1:
        required.append((steps, "decode_attention_backend", draft_backends(plan)))
    refused = {
        backend: name
        for backend, name, known in required
        if backend is not None and backend not in known and not _is_reported(plan, backend)
    }
    for backend, name in refused.items():
        yield Verdict(
            f"SGLang {plan.request.version} cannot draft on {backend}",
            at=("speculative_draft_attention_backend", name, "attention_backend"),
            why=f"the draft worker stops: ValueError: EAGLE is not supported in attention backend "
            f"{backend}",
            fix=Fix(
                "set a separate backend for the draft (speculative_draft_attention_backend, "
                "0.5.7 and later), or use triton or flashinfer for target and draft"
            ),
        )


def _is_reported(plan: Plan, backend: str) -> bool:
    """True if SPL304 reports the backend instead.

    SPL304 covers neither a separate draft backend nor flex_attention in a single phase.
    """
    if plan.value(DRAFT) is not None or backend not in _OWN_RULE:
        return False
    return backend != "flex_attention" or set(attention_backends(plan)) == {backend}


@rule("SPL313")
def deterministic_backend(plan: Plan) -> Iterator[Verdict]:
    """Report deterministic inference on a backend that is not deterministic."""
    if not attention.is_deterministic(plan):
        return
    early = plan.in_versions("<0.5.4")
    backend = plan.user_value("attention_backend")
    if backend is None and runs_on_cpu(plan):
        backend = "intel_amx"  # chosen for a CPU before this check
    elif not early:
        backend = attention_backend(plan)
    known = attention.deterministic_backends(plan)
    if attention.absorbs(plan):
        known = attention.absorbing_backends(plan)
    if backend not in known:
        yield Verdict(
            f"deterministic inference needs {' or '.join(sorted(known))}, but attention_backend is "
            f"{backend or 'not set'}",
            at=("attention_backend", attention.DETERMINISTIC_SWITCH, attention.POLICY),
            why="the engine refuses: Currently only these attention backends are supported for "
            "deterministic inference",
            fix=Fix("set attention_backend to triton", set={"attention_backend": "triton"}),
        )

"""Attention backends and page sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tools.verdicts.building import (
    BASES,
    CHAIN,
    TREE,
    Configuration,
    model,
    rotate,
    rotate_of,
    speculate,
)

BACKENDS = (
    "fa3",
    "flashinfer",
    "triton",
    "trtllm_mha",
    "trtllm_mla",
    "flashmla",
    "cutlass_mla",
    "flex_attention",
    "torch_native",
    "fa4",
    "dual_chunk_flash_attn",
    "tokenspeed_mla",
    "hpc_ops",
    "nsa",
    "dsa",
    "aiter",
    "intel_amx",
    "hybrid_linear_attn",
)


def backends() -> Iterator[Configuration]:
    """Attention backends for everything, for prefill, for decode, for the draft."""
    pages = rotate([None, 1, 16, 64, 32, 128])
    shapes = rotate([CHAIN, {}, TREE])
    for backend, base in itertools.product(BACKENDS, ("eagle3", "mtp", "ngram", "dflash")):
        page = next(pages)
        args = {**BASES[base], **({} if base in ("ngram", "dflash") else next(shapes))}
        args |= {"attention_backend": backend} | ({"page_size": page} if page else {})
        yield Configuration("backend", args)
    for backend in BACKENDS:
        yield Configuration("backend", {**model("llama"), "attention_backend": backend})
        yield Configuration(
            "backend", {**model("deepseek-v3", tp_size=8), "attention_backend": backend}
        )
        draft = next(rotate_of("draft", ["eagle3", "standalone", "dflash", "mtp", "eagle"]))
        args = {**BASES[draft], "speculative_draft_attention_backend": backend}
        yield Configuration("backend", args)
    pairs = [
        ("fa3", "flashinfer"),
        ("flashinfer", "fa3"),
        ("triton", "trtllm_mha"),
        ("trtllm_mha", "triton"),
        ("fa3", "flashmla"),
        ("flashinfer", "trtllm_mla"),
        ("fa4", "trtllm_mha"),
        ("torch_native", "fa3"),
    ]
    for (prefill, decode), base in itertools.product(pairs, ("eagle3", "mtp")):
        both = {"prefill_attention_backend": prefill, "decode_attention_backend": decode}
        yield Configuration("backend", {**BASES[base], **CHAIN, **both})
        yield Configuration("backend", {**BASES[base], **TREE, **both})
    for mode, base in itertools.product(("prefill", "decode"), ("eagle3", "mtp", "standalone")):
        args = {"prefill_attention_backend": "fa3", "decode_attention_backend": "flashinfer"}
        yield Configuration(
            "backend", {**BASES[base], **CHAIN, **args, "speculative_attention_mode": mode}
        )


def pages() -> Iterator[Configuration]:
    """Page size by width of the tree by backend."""
    shapes = {"1": CHAIN, "4": TREE, "auto": {}}
    for backend, page, shape in itertools.product(
        (None, "fa3", "flashinfer", "triton", "trtllm_mha"), (1, 16, 64), shapes
    ):
        named = {"attention_backend": backend} if backend else {}
        args = {**shapes[shape], **named, "page_size": page}
        base = next(rotate_of("page", ["eagle3", "standalone", "eagle"]))
        yield Configuration("page", {**BASES[base], **args})
    for backend, page, breadth in itertools.product(
        (None, "flashinfer", "triton"), (1, 16), (1, 10)
    ):
        named = {"attention_backend": backend} if backend else {}
        args = {"page_size": page, "speculative_ngram_max_bfs_breadth": breadth, **named}
        yield Configuration("page", {**BASES["ngram"], **args})
    for target, backend in itertools.product(
        ("deepseek-v3", "deepseek-v3.2"), ("flashmla", "trtllm_mla", "cutlass_mla", "flashinfer")
    ):
        args = {"attention_backend": backend, **TREE, "tp_size": 8}
        yield Configuration("page", speculate("EAGLE", target, **args))
        yield Configuration("page", speculate("EAGLE", target, **{**args, **CHAIN}))

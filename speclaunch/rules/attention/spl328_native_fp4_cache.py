"""An NVFP4 KV cache in the layout of trtllm_mha, with what does not know that layout."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.plan.plan import Plan
from speclaunch.plan.topics.attention import BOTH, PHASES
from speclaunch.rules.attention.gpu import generation
from speclaunch.rules.interface import Fix, Severity, Verdict, rule

_DTYPE = "kv_cache_dtype"
_BACKEND = "trtllm_mha"
_BLACKWELL = 10
_ALGORITHM = "speculative_algorithm"
_REFUSED = ("DFLASH", "DSPARK", "STANDALONE", "FROZEN_KV_MTP")
_BREADTH = "speculative_ngram_max_bfs_breadth"
_DRAFT = "speculative_draft_attention_backend"
_CACHES = ("enable_hierarchical_cache", "enable_lmcache")


def check(plan: Plan) -> Iterator[Verdict]:
    """One verdict a thing that does not know the layout."""
    if plan.given(_DTYPE) != "nvfp4" or generation(plan) != _BLACKWELL:
        return
    if _BACKEND not in {plan.given(one) or plan.given(BOTH) for one in PHASES}:
        return
    algorithm = str(plan.given(_ALGORITHM)).upper()
    if algorithm in _REFUSED:
        yield _verdict(f"does not work with {algorithm}", (_ALGORITHM,), "use EAGLE/NEXTN or NGRAM")
    if algorithm == "NGRAM" and plan.value(_BREADTH) != 1:
        said = "NGRAM speculative decoding requires --speculative-ngram-max-bfs-breadth=1"
        yield _verdict(f"needs {_BREADTH} 1 with NGRAM", (_BREADTH, _ALGORITHM), said)
    draft = plan.given(_DRAFT)
    if draft not in (None, _BACKEND) and algorithm not in ("NONE", "NGRAM"):
        said = "speculative decoding requires --speculative-draft-attention-backend=trtllm_mha"
        yield _verdict(f"is not read by {draft}, which the draft has", (_DRAFT,), said)
    if plan.value("disaggregation_mode") != "null":
        said = "trtllm_mha does not yet support PD disaggregation"
        yield _verdict("is not carried to another server", ("disaggregation_mode",), said)
    for name in _CACHES:
        if plan.value(name):
            said = "trtllm_mha does not yet support hierarchical KV cache or LMCache"
            yield _verdict(f"is not kept by {name}", (name,), said)


def _verdict(what: str, at: tuple[str, ...], said: str) -> Verdict:
    return Verdict(
        f"a KV cache of type nvfp4 in the layout of trtllm_mha {what}",
        at=(*at, _DTYPE),
        why=f"the engine refuses: SM100 native NVFP4: {said}",
        fix=Fix("use fp8_e4m3 for the KV cache", set={_DTYPE: "fp8_e4m3"}),
    )


RULE = rule(
    "SPL328",
    "native-fp4-cache",
    Severity.ERROR,
    check,
    versions=">=0.5.21",
    says=("SM100 native NVFP4 ",),
)

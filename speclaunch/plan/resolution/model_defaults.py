"""What the target's own config decides: the context that is served and the type of its numbers."""

from __future__ import annotations

from collections.abc import Mapping

from speclaunch.facts.checkpoint import SHORT_DTYPES
from speclaunch.plan.resolution.models import of_config
from speclaunch.plan.resolution.working import Working
from speclaunch.plan.topics.target import halved

CONTEXT = "context_length"
DTYPE = "dtype"
_EMBEDDING_LIMIT = 8192
_IN_BFLOAT16 = (
    "GptOssForCausalLM",
    "MistralLarge3ForCausalLM",
    "PixtralForConditionalGeneration",
)


def resolve_model_defaults(working: Working) -> None:
    """`ModelConfig`: the context length and the data type that are in effect.

    Where the facts that decide it are missing, the value stays as it was given.
    """
    with working.deciding(CONTEXT):
        if working.given(CONTEXT) is None:
            _context(working)
    with working.deciding(DTYPE):
        _dtype(working)


def _context(working: Working) -> None:
    """`_derive_context_length`: what the model was made for."""
    own = working.target.context_in(working.plan.request.version)
    if own is None:
        return
    why = f"the {own} tokens that the target's config derives"
    if working.architecture == "EmbeddingGemma2Model" and own > _EMBEDDING_LIMIT:
        own, why = _EMBEDDING_LIMIT, f"{_EMBEDDING_LIMIT} tokens of EmbeddingGemma 2"
    source = "sglang 0.5.23 configs/model_config.py:1291, 0.4.6 configs/model_config.py:127"
    working.set(CONTEXT, own, why, source)


def dtype_of_both(working: Working) -> str | None:
    """The data type that the engine sets for target and draft, whatever was given and whatever
    their configs say; None where it sets none. Raises UnknownValueError.

    GPT-OSS in mxfp4 (0.5.1 and later); Mistral Large 3 and Pixtral (0.5.6 and later).
    """
    if working.in_versions("<0.5.1") or not working.may_be(_IN_BFLOAT16):
        return None
    if working.target.architecture is None:
        return None  # its config names none: it is neither
    if working.architecture in _IN_BFLOAT16[1:]:
        return "bfloat16" if working.in_versions(">=0.5.6.post1") else None
    if working.architecture != _IN_BFLOAT16[0]:
        return None
    own = of_config(working, "quantization_config")
    method = own.get("quant_method") if isinstance(own, Mapping) else None
    return "bfloat16" if method == "mxfp4" else None


def _dtype(working: Working) -> None:
    """`_get_and_verify_dtype`: the config's own, but float32 is halved."""
    both = dtype_of_both(working)
    if both is not None:
        why = f"the engine serves {working.architecture} and its draft in {both}"
        working.set(
            DTYPE,
            both,
            why,
            "sglang 0.5.23 arg_groups/model_overrides/gpt_oss.py:63, model_override_base.py:20, "
            "0.5.11 server_args.py:1933, 0.5.1 server_args.py:2281",
        )
        return
    asked = str(working.value(DTYPE) or "auto").lower()
    source = "sglang 0.5.23 configs/model_config.py:2284, 0.4.6 configs/model_config.py:455"
    if asked != "auto":
        if asked in SHORT_DTYPES:
            why = f"{asked} is another name of it"
            working.set(DTYPE, SHORT_DTYPES[asked], why, source)
        return
    target = working.target
    own = target.dtype
    if own is None and not target.config:
        return
    if own not in (None, "float32"):
        working.set(DTYPE, own, "auto is what the target's config says", source)
        return
    found = halved(target)
    said = "says float32" if own else "says nothing, which is float32"
    whose = "Gemma's become bfloat16" if found == "bfloat16" else "which auto makes float16"
    working.set(DTYPE, found, f"the target's config {said}: {whose}", source)

"""Rules about drafts that do not fit their target."""

from __future__ import annotations

import re
from collections.abc import Iterator

from speclaunch.checks.rules.interface import Fix, Severity, Verdict, rule
from speclaunch.checks.rules.values import (
    EAGLE3_DRAFTS,
    EAGLE_HEADS,
    OVERWRITE,
    PLUGINS,
    architecture,
    context_of,
    context_overwritten,
    draft_of,
    drafts_for_itself,
    eagle3_drafts,
    is_draft_class,
    known_drafts,
    lacks_eagle3,
    lacks_shared_embedding,
    number,
    pair,
    served_context,
)
from speclaunch.core import lazy
from speclaunch.engine import (
    COMPARES_VOCABULARIES,
    DRAFT_PATH,
    Checkpoint,
    Plan,
    UnknownValueError,
    Working,
    dtype_of_both,
    halved,
    own_path,
)

_AMPERE = 80


@rule("SPL401")
def draft_dtype(plan: Plan) -> Iterator[Verdict]:
    """Report a target and draft that would be loaded in different data types."""
    both = pair(plan) if plan.user_value("dtype") in (None, "auto") else None
    if both is None or dtype_of_both(Working.of(plan)) is not None:
        return
    hardware = plan.facts.hardware
    if hardware is not None and hardware.capability is not None and hardware.capability < _AMPERE:
        return
    target, draft = both
    ours, theirs = _loaded(target), _loaded(draft)
    if ours is None or theirs is None or ours == theirs:
        return
    certain = draft.architecture in (*EAGLE_HEADS, *EAGLE3_DRAFTS)
    yield Verdict(
        f"the target runs in {ours} and its draft in {theirs}",
        at=(DRAFT_PATH, "model_path"),
        why="with dtype=auto each model uses its own config; the draft then fails on the "
        "target's hidden states (`Capture cuda graph failed: expected mat1 and mat2 to "
        "have the same dtype`)",
        fix=Fix(f"set dtype to {ours} for both models", set={"dtype": ours}),
        severity=None if certain else Severity.WARNING,
    )


def _loaded(model: Checkpoint) -> str | None:
    """Return the dtype that `auto` loads a model in (float32 becomes 16-bit); None if unknown."""
    return halved(model) if model.dtype == "float32" else model.dtype


@rule("SPL402")
def draft_context_too_short(plan: Plan) -> Iterator[Verdict]:
    """Report a draft whose context is shorter than the target's served context."""
    own, served = context_of(draft_of(plan), plan), served_context(plan)
    if own is None or served is None:
        return
    refused = not context_overwritten(plan)
    if served <= own or (not refused and plan.in_versions(">=0.5.1")):
        return
    yield Verdict(
        f"the draft's context is {own} tokens, but the target serves {served}",
        at=("context_length", DRAFT_PATH, "model_path"),
        why="the engine refuses: Target model's context_length is greater than the derived "
        "context_length"
        if refused
        else "this version does not check it; requests longer than the draft's context end in "
        "illegal memory accesses (sglang pull request #9388)",
        fix=Fix(f"set context_length to the draft's {own}", set={"context_length": own}),
        severity=None if refused else Severity.WARNING,
    )


@rule("SPL403")
def draft_context_overwritten(plan: Plan) -> Iterator[Verdict]:
    """Report a draft that runs beyond its own context length."""
    if not context_overwritten(plan):
        return
    own, served = context_of(draft_of(plan), plan), served_context(plan)
    if own is None or served is None or served <= own:
        return
    yield Verdict(
        f"the draft was trained for {own} tokens, but serves up to {served}",
        at=(OVERWRITE, "SGLANG_IS_IN_CI", "context_length", DRAFT_PATH),
        why=(
            "this version does not extend the draft's position table: longer requests read "
            "beyond its end (illegal memory access)"
        )
        if plan.in_versions("<0.5.3")
        else (
            "the engine overwrites the draft's max_position_embeddings; beyond the trained "
            "length the target accepts fewer drafted tokens"
        ),
        fix=Fix(
            f"set context_length to {own}, or monitor the acceptance length of long requests",
            set={"context_length": own},
        ),
    )


@rule("SPL404")
def missing_draft(plan: Plan) -> Iterator[Verdict]:
    """Report a missing draft for a target that cannot draft for itself."""
    if own_path(plan) is not None:
        return
    target = architecture(plan.facts.target)
    certain = plan.algorithm == "EAGLE3" and not plan.env(PLUGINS)
    if plan.algorithm == "EAGLE":
        if target is None:
            raise UnknownValueError("the target's architecture is unknown")
        if drafts_for_itself(target, plan) or is_draft_class(target):
            return
    named = f" ({target})" if target else ""
    yield Verdict(
        f"{plan.algorithm} has no draft: the target{named} is loaded a second time as its own "
        "draft",
        at=(DRAFT_PATH, "speculative_algorithm"),
        why=(
            "the engine then fails at startup: the target's class has no set_embed or no "
            "hot_token_id (sglang issue #36528)"
        )
        if certain
        else "the engine starts; the draft needs as much memory as the target and saves no time",
        fix=Fix(f"use NGRAM, or a draft made for this target{known_drafts(plan)}"),
        severity=Severity.ERROR if certain else Severity.WARNING,
    )


@rule("SPL405")
def needless_draft_path(plan: Plan) -> Iterator[Verdict]:
    """Report a draft for a target that has its own draft layer."""
    path, target = own_path(plan), plan.facts.target
    if path is None or target is None:
        return
    if not drafts_for_itself(target.architecture, plan):
        return
    if not target.mtp_layers or target.mtp_weights is False:
        return
    yield Verdict(
        f"{target.architecture} has its own multi-token-prediction layer; {path} is not needed",
        at=(DRAFT_PATH,),
        why="without a draft the engine loads the layer from the target's checkpoint",
        fix=Fix("remove the draft", set={DRAFT_PATH: None}),
    )


_NAMED = lazy(r"eagle[-_.]?3(?![0-9.])", re.IGNORECASE)
"""Pattern of EAGLE-3 draft names: Qwen3-8B_eagle3, EAGLE3-gpt-oss-20b, kimi-k2.5-eagle3."""


@rule("SPL406")
def eagle3_draft_under_eagle(plan: Plan) -> Iterator[Verdict]:
    """Report EAGLE with an EAGLE-3 draft."""
    path = own_path(plan)
    if path is None:
        return
    draft = plan.facts.draft
    is_eagle3 = draft.is_eagle3 if draft is not None else None
    if is_eagle3 is None:
        is_eagle3 = _NAMED.search(path.rstrip("/").rpartition("/")[2]) is not None
        description = "has the name of an EAGLE-3 draft"
    else:
        description = "is an EAGLE-3 draft"
    if not is_eagle3:
        return
    yield Verdict(
        f"the EAGLE draft is {path}, which {description}",
        at=("speculative_algorithm",),
        why="EAGLE does not capture the target's three hidden states and silently skips the "
        "draft's fc layer: the acceptance length is about 1 (sglang issue #21272)",
        fix=Fix("use EAGLE3", set={"speculative_algorithm": "EAGLE3"}),
    )


@rule("SPL407")
def eagle_draft_under_eagle3(plan: Plan) -> Iterator[Verdict]:
    """Report EAGLE3 with a draft that is not an EAGLE-3 draft."""
    name = architecture(draft_of(plan))
    known = eagle3_drafts(plan)
    if name is None or name in known or plan.env(PLUGINS):
        return
    eagle2 = name in EAGLE_HEADS
    yield Verdict(
        f"the EAGLE3 draft has the architecture {name}",
        at=("speculative_algorithm", DRAFT_PATH),
        why=f"SGLang {plan.version} accepts {' or '.join(known)}; any other class fails at "
        "startup because it lacks the attribute hot_token_id",
        fix=Fix("use EAGLE", set={"speculative_algorithm": "EAGLE"})
        if eagle2
        else Fix(f"use an EAGLE-3 draft in SGLang's layout{known_drafts(plan)}"),
    )


@rule("SPL408")
def eagle3_draft_layers(plan: Plan) -> Iterator[Verdict]:
    """Report an EAGLE-3 draft with more than one layer."""
    draft = draft_of(plan)
    if draft is None or draft.num_hidden_layers in (None, 1):
        return
    layers, target = draft.num_hidden_layers, plan.facts.target
    if draft.architecture == "LlamaForCausalLMEagle3" and plan.in_versions(">=0.5.12"):
        if target is None or target.num_hidden_layers != layers:
            return
        why = "this is the target's layer count: layers without weights remain uninitialized"
        severity = Severity.WARNING
    elif draft.is_eagle3:
        why = "the engine refuses: EAGLE3 currently only supports 1 layer"
        severity = Severity.ERROR
    else:
        return
    yield Verdict(
        f"the EAGLE-3 draft's config states {layers} layers",
        at=(DRAFT_PATH,),
        why=why,
        fix=Fix("if the draft has one layer, set num_hidden_layers to 1 in its config.json"),
        severity=severity,
    )


@rule("SPL409")
def draft_hidden_size(plan: Plan) -> Iterator[Verdict]:
    """Report a draft made for a target with a different hidden size."""
    both = pair(plan)
    if both is None or both[1].architecture not in (*EAGLE_HEADS, *EAGLE3_DRAFTS):
        return
    target, draft = both
    expected = draft.target_hidden_size if draft.is_eagle3 else None
    expected = expected or draft.hidden_size
    if expected is None or target.hidden_size in (None, expected):
        return
    yield Verdict(
        f"the target's hidden size is {target.hidden_size}, but the draft expects {expected}",
        at=(DRAFT_PATH, "model_path"),
        why="the draft's first layer does not fit the target's hidden states: mat1 and mat2 "
        "shapes cannot be multiplied",
        fix=Fix(f"use a draft made for this target{known_drafts(plan)}"),
    )


@rule("SPL410")
def draft_vocabulary(plan: Plan) -> Iterator[Verdict]:
    """Report a draft made for a vocabulary other than the target's."""
    both = pair(plan)
    if both is None:
        return
    target, draft = both
    if target.vocab_size is None or draft.vocab_size in (None, target.vocab_size):
        return
    yield Verdict(
        f"the target's vocabulary has {target.vocab_size} tokens, but the draft's has "
        f"{draft.vocab_size}",
        at=(DRAFT_PATH, "model_path"),
        why="the draft uses the target's token ids; a different vocabulary has "
        "different tokens at these ids, and hardly any proposal is accepted",
        fix=Fix(f"use a draft made for this target{known_drafts(plan)}"),
    )


_PADDING = 128
"""Largest vocabulary size difference due to padding within one model family (Qwen2.5)."""


@rule("SPL411")
def standalone_vocabulary(plan: Plan) -> Iterator[Verdict]:
    """Report a STANDALONE draft whose tokens differ from the target's."""
    both = pair(plan)
    if both is None:
        return
    checked = plan.in_versions(COMPARES_VOCABULARIES)
    sizes = _sizes(*both, 0 if checked else _PADDING)
    difference = sizes or _ids(*both)
    if difference is None:
        return
    rejected = "the draft's token ids represent other tokens in the target, which rejects them"
    if sizes is not None and checked:
        why = (
            "the engine refuses: STANDALONE speculative decoding requires the draft model to share "
            "the same vocabulary as the target model"
        )
    elif checked:
        # tokenizer_path is the target's: a draft worker has no tokenizer, so the engine's
        # comparison compares nothing (0.5.23 managers/tp_worker.py:326, 0.5.15 :280)
        why = f"the engine compares only the sizes, not the tokenizers: {rejected}"
    else:
        why = f"this version does not check it: {rejected}"
    yield Verdict(
        f"the vocabularies of target and draft differ: {difference}",
        at=(DRAFT_PATH, "model_path"),
        why=why,
        fix=Fix(f"use NGRAM, or a draft with the target's vocabulary{known_drafts(plan)}"),
        severity=None if sizes is not None and checked else Severity.WARNING,
    )


def _sizes(target: Checkpoint, draft: Checkpoint, tolerated: int) -> str | None:
    ours, theirs = target.vocab_size, draft.vocab_size
    if ours is None or theirs is None or abs(ours - theirs) <= tolerated:
        return None
    return f"{ours} and {theirs} tokens"


def _ids(target: Checkpoint, draft: Checkpoint) -> str | None:
    digests = target.tokenizer_digest, draft.tokenizer_digest
    if None in digests or digests[0] == digests[1]:
        return None
    return "their tokenizers assign different ids"


_NEED_A_FILE = ("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "auto-round")
_MODELOPT = {"modelopt": ">=0", "modelopt_fp4": "<0.5.18", "modelopt_fp8": ">=0"}
"""ModelOpt methods, and the versions in which an unquantized draft fails with them. From 0.5.18 on,
modelopt_fp4 quantizes experts, if any, while loading (model_loader/weight_utils.py:386)."""
_QUANTISES_ITSELF = ">=0.5.4"
"""Releases whose ModelOpt loader accepts unquantized weights (0.5.4
model_loader/loader.py:2052)."""
_DRAFT = "speculative_draft_model_quantization"


@rule("SPL414")
def draft_quantization(plan: Plan) -> Iterator[Verdict]:
    """Report an unquantized draft that inherits the target's quantization."""
    method = plan.user_value("quantization")
    if plan.is_set(_DRAFT):
        return
    name = str(method).lower()
    by_modelopt = name in _MODELOPT and plan.in_versions(_MODELOPT[name])
    if name not in _NEED_A_FILE and not by_modelopt:
        return
    draft = draft_of(plan)
    if draft is None or draft.quantization is not None or not draft.architectures:
        return
    own = plan.has_argument(_DRAFT)
    yield Verdict(
        f"the draft is not quantized, but inherits quantization={method}",
        at=("quantization", DRAFT_PATH),
        why="ModelOpt quantizes it as a Transformers model, which the draft worker cannot run"
        if by_modelopt and plan.in_versions(_QUANTISES_ITSELF)
        else f"it fails to load: Cannot find the config file for {method}",
        fix=Fix(f"set {_DRAFT} to unquant", set={_DRAFT: "unquant"})
        if own
        else Fix(
            "remove quantization: the target's config.json states it, and the draft then inherits "
            "nothing",
            set={"quantization": None},
        ),
        # without the complete config, the quantization may be in a file that was not read
        severity=None if draft.config else Severity.WARNING,
    )


@rule("SPL420")
def not_a_draft(plan: Plan) -> Iterator[Verdict]:
    """Report EAGLE with a full language model as its draft."""
    draft = draft_of(plan)
    if draft is None or draft.architecture is None or plan.env(PLUGINS):
        return
    name = draft.architecture
    if is_draft_class(name) or drafts_for_itself(name, plan):
        return
    head = draft.num_hidden_layers == 1
    yield Verdict(
        f"the EAGLE draft is {name}, which is not an EAGLE head",
        at=(DRAFT_PATH, "speculative_algorithm"),
        why=(
            "its config names the class of a complete model, whose weight names differ from a "
            "head's"
        )
        if head
        else "a complete language model does not read the target's hidden states",
        fix=Fix(
            f"use a head in SGLang's layout{known_drafts(plan)}, or convert this head to "
            "LlamaForCausalLMEagle"
        )
        if head
        else Fix("use STANDALONE", set={"speculative_algorithm": "STANDALONE"})
        if plan.in_versions(">=0.5.2")
        else Fix(f"use an EAGLE head made for this target{known_drafts(plan)}"),
    )


@rule("SPL422")
def unchecked_draft_context(plan: Plan) -> Iterator[Verdict]:
    """Report a draft of unknown context length on an old engine that does not check it."""
    path = own_path(plan)
    if path is None or context_of(plan.facts.draft, plan) is not None:
        return
    if not context_overwritten(plan):
        return
    yield Verdict(
        f"the context length of the draft {path} is unknown, and this engine does not check it",
        at=(DRAFT_PATH,),
        why="before 0.5.1 a draft with a shorter context causes illegal memory accesses; 0.5.1 "
        "and later reject it (sglang pull request #9388)",
        fix=Fix(
            "use SGLang 0.5.1 or later, or a draft whose max_position_embeddings is at least "
            "the target's"
        ),
    )


_SPARE = 8
"""Slots for the last verification in a request's row of the token table. The verification begins 4
tokens before the context length, and the row has 4 more slots (0.4.10.post2
managers/tp_worker.py:141, managers/scheduler.py:1179, speculative/eagle_utils.py:768)."""


@rule("SPL424")
def end_of_context(plan: Plan) -> Iterator[Verdict]:
    """Report an old engine that writes draft tokens beyond its table at the end of the context."""
    tokens = number(plan, "speculative_num_draft_tokens")
    steps, topk = number(plan, "speculative_num_steps"), number(plan, "speculative_eagle_topk")
    if tokens is None or steps is None or topk is None:
        return  # the engine does not start
    needed = max(tokens, steps * topk)  # the draft writes each step of each branch
    if needed <= _SPARE:
        return
    yield Verdict(
        f"{needed} draft tokens do not fit into the {_SPARE} spare slots at the end of the context",
        at=("speculative_num_draft_tokens", "speculative_algorithm"),
        why="before 0.5.1 a request's row in the token table has context length + 4 slots: a "
        "request that fills the context causes an illegal memory access",
        fix=Fix("use SGLang 0.5.1 or later, or keep requests shorter than the context"),
    )


_NULL = ">=0.5.12"
"""Releases whose STANDALONE worker captures no hidden states (0.5.12
speculative/eagle_worker.py:589, eagle_worker_v2.py:752)."""


@rule("SPL425")
def standalone_head(plan: Plan) -> Iterator[Verdict]:
    """Report STANDALONE with a draft that depends on the target's hidden states."""
    draft = draft_of(plan)
    if draft is None or draft.architecture is None or not is_draft_class(draft.architecture):
        return
    algorithm = "EAGLE3" if draft.is_eagle3 else "EAGLE"
    fails = draft.architecture in (*EAGLE_HEADS, *EAGLE3_DRAFTS) and plan.in_versions(_NULL)
    yield Verdict(
        f"the STANDALONE draft is {draft.architecture}, which needs the target's hidden states",
        at=("speculative_algorithm", DRAFT_PATH),
        why="the STANDALONE worker captures no hidden states, and the draft's first layer fails on "
        "the first prefill"
        if fails
        else "the STANDALONE worker runs its draft as a separate model, without the target's "
        "embedding and output layer",
        fix=Fix(f"use {algorithm}", set={"speculative_algorithm": algorithm}),
        severity=Severity.ERROR if fails else Severity.WARNING,
    )


@rule("SPL434")
def shared_embedding(plan: Plan) -> Iterator[Verdict]:
    """Report a target whose embedding this version cannot share with the draft."""
    name = architecture(plan.facts.target)
    if not lacks_shared_embedding(name, plan) or plan.env(PLUGINS):
        return
    algorithm = plan.algorithm
    if algorithm == "EAGLE3" and lacks_eagle3(name, plan):  # reported by SPL415
        return
    if plan.value("pp_size") > 1:  # from 0.5.21 on, a stage without the embedding continues
        return
    yield Verdict(
        f"{name} cannot be the target of {algorithm} in SGLang {plan.version}",
        at=("speculative_algorithm", "model_path"),
        why="its class has no get_embed_and_head, which shares the target's embedding and "
        "output head; the engine fails at startup",
        fix=Fix("use NGRAM or STANDALONE, or a newer engine"),
    )

"""Rules about algorithms without a draft model: NGRAM drafts from earlier text, UNO with a LoRA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import number
from speclaunch.engine import DRAFT_PATH, PHASES, Plan, UnknownValueError, attention_ranks


@rule("SPL501")
def ngram_device(plan: Plan) -> Iterator[Verdict]:
    """Report NGRAM on a device that does not support it."""
    since = {"cuda": "", "cpu": ">=0.5.16", "xpu": ">=0.5.21"}
    return on_device(plan, "NGRAM", since, " (CPU from 0.5.16, XPU from 0.5.21)")


def on_device(
    plan: Plan, algorithm: str, since: Mapping[str, str], remark: str = ""
) -> Iterator[Verdict]:
    """Report an unsupported device; `since` maps each supported device to versions."""
    devices = [device for device, versions in since.items() if plan.in_versions(versions)]
    if plan.device not in devices:
        yield Verdict(
            f"{algorithm} does not run on {plan.device} in SGLang {plan.version}",
            at=("device", "speculative_algorithm"),
            why=f"the engine refuses: {algorithm} supports {', '.join(devices)} only{remark}",
            fix=Fix(
                "serve without speculation on this device", set={"speculative_algorithm": None}
            ),
        )


@rule("SPL502")
def ngram_page_size(plan: Plan) -> Iterator[Verdict]:
    """Report an NGRAM tree with a page size above 1 on a backend other than flashinfer."""
    if plan.user_value("device") == "cpu" and plan.in_versions("<0.5.16"):
        return  # reported by SPL501: the engine checks the device first
    breadth = number(plan, "speculative_ngram_max_bfs_breadth")
    page = number(plan, "page_size")
    if breadth is None or page is None or min(breadth, page) <= 1:
        return
    backend = _backend(plan)
    if backend != "flashinfer":
        yield Verdict(
            f"NGRAM drafts a tree (breadth {breadth}) in pages of {page} tokens, which "
            f"{backend} does not support",
            at=("page_size", "attention_backend", "speculative_ngram_max_bfs_breadth"),
            why=f"the engine refuses: speculative_eagle_topk({breadth}) > 1 with page_size({page}) "
            "> 1 is only supported for the 'flashinfer' backend",
            fix=Fix(
                "set page_size to 1, the breadth to 1, or attention_backend to flashinfer",
                set={"page_size": 1},
            ),
        )


def _backend(plan: Plan) -> str:
    if plan.user_value("attention_backend") is not None:
        return str(plan.value("attention_backend"))
    if plan.in_versions("<0.5.4"):  # the engine checks before it chooses a backend
        return "an omitted attention_backend"
    if plan.device == "cpu":
        return "the backend of a CPU"
    backend = plan.value("attention_backend")
    if backend is None:
        raise UnknownValueError("the attention backend is unknown")
    return str(backend)


_PATH = "speculative_ngram_external_corpus_path"
_BUDGET = "speculative_ngram_external_sam_budget"
_MOST = "speculative_ngram_external_corpus_max_tokens"


@rule("SPL503")
def ngram_external_corpus(plan: Plan) -> Iterator[Verdict]:
    """Report an external corpus with an invalid draft budget or token limit."""
    if plan.user_value(_PATH) is None:
        return
    budget, most = number(plan, _BUDGET) or 0, number(plan, _MOST) or 0
    tokens = int(plan.value("speculative_num_draft_tokens"))
    if budget <= 0:
        yield Verdict(
            f"{_BUDGET} {budget} drafts nothing from the corpus",
            at=(_BUDGET, _PATH),
            why="the engine refuses: it must be positive when "
            "--speculative-ngram-external-corpus-path is set.",
            fix=Fix(
                f"set it to a value from 1 to {tokens - 1}, the number of drafted tokens",
                set={_BUDGET: max(1, (tokens - 1) // 2)},
            ),
        )
    elif budget > tokens - 1:
        yield Verdict(
            f"{_BUDGET} {budget} is more than the {tokens - 1} drafted tokens",
            at=(_BUDGET, "speculative_num_draft_tokens", _PATH),
            why="the engine refuses: speculative_ngram_external_sam_budget must be less than or "
            f"equal to speculative_num_draft_tokens - 1 ({tokens - 1}).",
            fix=Fix(f"set it to {tokens - 1}, or draft more tokens", set={_BUDGET: tokens - 1}),
        )
    if most <= 0:
        yield Verdict(
            f"{_MOST} {most} leaves no room for the corpus",
            at=(_MOST, _PATH),
            why="the engine refuses: it must be positive when "
            "--speculative-ngram-external-corpus-path is set.",
            fix=Fix("remove it: the default is ten million", set={_MOST: None}),
        )


_BREADTH = ("speculative_ngram_min_bfs_breadth", "speculative_ngram_max_bfs_breadth")
_WINDOW = ("speculative_ngram_min_match_window_size", "speculative_ngram_max_match_window_size")
_TOKENS = "speculative_num_draft_tokens"
_DEPTH = "speculative_ngram_max_trie_depth"
_BRANCH = "speculative_ngram_branch_length"


@rule("SPL504")
def ngram_limits(plan: Plan) -> Iterator[Verdict]:
    """Report NGRAM arguments that fail only after the model loads."""
    for holds, message, names in _conditions(plan):
        explicit = [name for name in names if plan.is_set(name)]
        if not holds:
            yield Verdict(
                message,
                at=tuple(explicit),
                why="the engine accepts any number; the trie raises a RuntimeError after the "
                "model is loaded",
                fix=Fix(
                    f"remove {' and '.join(explicit)}; the defaults work",
                    set=dict.fromkeys(explicit),
                ),
            )


def _conditions(plan: Plan) -> Iterator[tuple[bool, str, tuple[str, ...]]]:
    """Yield each condition on NGRAM's arguments: result, message if false, and arguments.

    A condition on an argument that the version does not have is true.
    """
    tokens = number(plan, _TOKENS)
    low, high = (number(plan, name) for name in _BREADTH)
    least, most = (number(plan, name) for name in _WINDOW)
    depth, branch = number(plan, _DEPTH), number(plan, _BRANCH)
    yield _above(branch, 1), f"{_BRANCH} {branch} is not above 1", (_BRANCH,)
    yield _above(depth, 1), f"{_DEPTH} {depth} is not above 1", (_DEPTH,)
    yield _above(least, 0), f"{_WINDOW[0]} {least} is not above 0", (_WINDOW[0],)
    yield _within(least, most), f"{_WINDOW[0]} {least} is above {_WINDOW[1]} {most}", _WINDOW
    yield (
        _above(branch, most),
        f"{_WINDOW[1]} {most} is not below {_BRANCH} {branch}",
        (_WINDOW[1], _BRANCH),
    )
    yield _above(low, 0), f"{_BREADTH[0]} {low} is not above 0", (_BREADTH[0],)
    yield _within(low, high), f"{_BREADTH[0]} {low} is above {_BREADTH[1]} {high}", _BREADTH
    yield _above(tokens, 0), f"{_TOKENS} {tokens} is not above 0", (_TOKENS,)


def _above(value: int | None, limit: int | None) -> bool:
    return value is None or limit is None or value > limit


def _within(value: int | None, limit: int | None) -> bool:
    return value is None or limit is None or value <= limit


@rule("SPL505")
def ngram_draft_model(plan: Plan) -> Iterator[Verdict]:
    """Report a draft model with NGRAM, which loads none."""
    path = plan.user_value(DRAFT_PATH)
    if path is not None:
        yield Verdict(
            f"NGRAM does not use the draft model {path}",
            at=(DRAFT_PATH,),
            why="NGRAM drafts from earlier text; the engine accepts the path, but loads "
            "nothing from it",
            fix=Fix(
                "remove the path, or choose the algorithm that the draft was made for",
                set={DRAFT_PATH: None},
            ),
        )


@rule("SPL641")
def uno_model(plan: Plan) -> Iterator[Verdict]:
    """Report UNO with a draft model, without its LoRA, or without CUDA."""
    path = plan.value(DRAFT_PATH)
    if path is not None:
        yield Verdict(
            f"UNO accepts no draft model, but {path} is set",
            at=(DRAFT_PATH,),
            why="the engine refuses: UNO reuses the target model and does not accept "
            "--speculative-draft-model-path.",
            fix=Fix(
                "remove it, and set uno_lora_path to the LoRA that drafts", set={DRAFT_PATH: None}
            ),
        )
    if plan.value("uno_lora_path") is None:
        yield Verdict(
            "UNO needs uno_lora_path",
            at=("speculative_algorithm",),
            why="the engine refuses: UNO requires --uno-lora-path.",
            fix=Fix("set uno_lora_path to the LoRA that drafts"),
        )
    if not plan.device.startswith("cuda"):
        yield Verdict(
            f"UNO does not run on {plan.device}",
            at=("device", "speculative_algorithm"),
            why="the engine refuses: UNO only supports CUDA.",
            fix=Fix(
                "serve without speculation on this device", set={"speculative_algorithm": None}
            ),
        )


_ALWAYS = (
    "enable_deterministic_inference",
    "enable_strict_thinking",
    "enable_lora",
    "lora_paths",
    "speculative_use_rejection_sampling",
)
_TREE = ("enable_pdmux", "enable_two_batch_overlap")
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


@rule("SPL642")
def uno_features(plan: Plan) -> Iterator[Verdict]:
    """Report features that UNO does not support."""
    names = [name for name in _ALWAYS if plan.user_value(name)]
    if int(plan.user_value("speculative_eagle_topk") or 1) > 1:
        names += [name for name in _TREE if plan.user_value(name)]
        names += [name for name in _THRESHOLDS if plan.user_value(name) not in (None, 1.0)]
    for name in names:
        yield Verdict(
            f"UNO does not work with {plan.written_name(name)}",
            at=(name,),
            why="the engine rejects the combination while parsing arguments",
            fix=Fix("remove it", set={name: None}),
        )


@rule("SPL643")
def uno_parallelism(plan: Plan) -> Iterator[Verdict]:
    """Report UNO on more than one GPU."""
    sizes = {name: int(plan.value(name) or 1) for name in ("tp_size", "pp_size", "attn_cp_size")}
    spread: dict[tuple[str, ...], int] = {(name,): size for name, size in sizes.items()}
    spread[("attn_dp_size", "enable_dp_attention", "dp_size")] = attention_ranks(plan)
    for names, size in spread.items():
        if size != 1:
            yield Verdict(
                f"UNO runs each replica on one GPU, but {names[0]} is {size}",
                at=names,
                why="the engine refuses: UNO requires TP=PP=1, and does not support DP attention "
                "or context parallelism.",
                fix=Fix(
                    f"remove {', '.join(filter(plan.is_set, names))}", set=dict.fromkeys(names)
                ),
            )


_TOPK = "speculative_eagle_topk"
_STEPS = "speculative_num_steps"
_MOST_TOKENS = 128
_MOST_SLOTS = 2048


@rule("SPL644")
def uno_width(plan: Plan) -> Iterator[Verdict]:
    """Report a UNO draft width or tree that the engine refuses."""
    values = {name: plan.user_value(name) for name in (_TOKENS, _TOPK, _STEPS)}
    tokens, steps = int(values[_TOKENS] or 0), values[_STEPS]
    topk = 1 if values[_TOPK] is None else int(values[_TOPK])
    message = _line(tokens, topk)
    if message is None and topk > 1:
        message = _tree(tokens, topk, None if steps is None else int(steps))
    if message is not None:
        yield Verdict(
            f"UNO {message}",
            at=(_TOKENS, _TOPK, _STEPS, "speculative_algorithm"),
            why="the engine stops while parsing arguments",
            fix=Fix(f"change {_TOKENS}, or remove {_TOPK}: a chain can have any number of tokens"),
        )


def _line(tokens: int, topk: int) -> str | None:
    if tokens < 1:
        return f"needs a positive {_TOKENS}"
    if topk < 1:
        return f"needs a {_TOPK} of at least 1, not {topk}"
    return None


def _tree(tokens: int, topk: int, steps: int | None) -> str | None:
    """Return why the size of a draft tree is invalid; None if it is valid."""
    if steps is None or steps < 1:
        return f"drafts a tree ({_TOPK} {topk}) and needs a positive {_STEPS}"
    capacity = sum(topk**depth for depth in range(min(steps, _MOST_TOKENS) + 1))
    limits = {
        f"{steps} steps need at least {steps + 1}": tokens > steps,
        f"a tree has at most {_MOST_TOKENS}": tokens <= _MOST_TOKENS,
        f"topk {topk} allows at most {_MOST_SLOTS // topk}": tokens * topk <= _MOST_SLOTS,
        f"{steps} steps with topk {topk} draft at most {capacity}": tokens <= capacity,
        f"{steps} steps with topk {topk} keep at most {topk * (steps - 1) + 2}": tokens - 1
        <= topk * (steps - 1) + 1,
    }
    broken = next((limit for limit, holds in limits.items() if not holds), None)
    return None if broken is None else f"cannot verify a tree of {tokens} tokens: {broken}"


@rule("SPL645")
def uno_attention(plan: Plan) -> Iterator[Verdict]:
    """Report UNO without FlashAttention 3 for prefill and decode."""
    for name in PHASES:
        backend = plan.value(name) or plan.value("attention_backend")
        if backend is None:
            raise UnknownValueError("the attention backend is unknown")
        if backend != "fa3":
            yield Verdict(
                f"UNO needs fa3, but {name} is {backend}",
                at=(name, "attention_backend", "speculative_algorithm"),
                why="the engine refuses: UNO requires FA3 for both prefill and decode attention",
                fix=Fix(
                    "set attention_backend to fa3",
                    set={**dict.fromkeys(PHASES), "attention_backend": "fa3"},
                ),
            )

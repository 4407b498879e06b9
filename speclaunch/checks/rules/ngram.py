"""Rules about NGRAM speculation, which drafts from earlier text instead of with a model."""

from __future__ import annotations

from collections.abc import Iterator

from speclaunch.checks.rules.interface import Fix, Verdict, rule
from speclaunch.checks.rules.values import number
from speclaunch.engine import Plan, UnknownValueError


@rule("SPL501")
def ngram_device(plan: Plan) -> Iterator[Verdict]:
    """Report NGRAM on a device that does not support it."""
    devices = ["cuda"]
    devices += ["cpu"] if plan.in_versions(">=0.5.16") else []
    devices += ["xpu"] if plan.in_versions(">=0.5.21") else []
    if plan.device not in devices:
        yield Verdict(
            f"NGRAM does not run on {plan.device} in SGLang {plan.version}",
            at=("device", "speculative_algorithm"),
            why=f"the engine refuses: it supports {', '.join(devices)} only (CPU from 0.5.16, XPU "
            "from 0.5.21)",
            fix=Fix(
                "serve without speculation on this device", set={"speculative_algorithm": None}
            ),
        )


@rule("SPL502")
def ngram_page_size(plan: Plan) -> Iterator[Verdict]:
    """Report an NGRAM tree on pages of several tokens without flashinfer."""
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
    """Return the backend that the engine checks, or a description if it cannot be flashinfer."""
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
    """Report an external corpus without a valid share of the draft."""
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
                f"set it to 1 to {tokens - 1}: the corpus then drafts some of the tokens",
                set={_BUDGET: max(1, (tokens - 1) // 2)},
            ),
        )
    elif budget > tokens - 1:
        yield Verdict(
            f"{_BUDGET} {budget} is more than the {tokens - 1} drafted tokens",
            at=(_BUDGET, "speculative_num_draft_tokens", _PATH),
            why="the engine refuses: speculative_ngram_external_sam_budget must be less than or "
            f"equal to speculative_num_draft_tokens - 1 ({tokens - 1}).",
            fix=Fix("lower the budget, or draft more tokens", set={_BUDGET: tokens - 1}),
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
_WINDOW = (
    "speculative_ngram_min_match_window_size",
    "speculative_ngram_max_match_window_size",
)
_TOKENS = "speculative_num_draft_tokens"
_DEPTH = "speculative_ngram_max_trie_depth"
_BRANCH = "speculative_ngram_branch_length"


@rule("SPL504")
def ngram_limits(plan: Plan) -> Iterator[Verdict]:
    """Report a limit that the NGRAM trie's code refuses."""
    for holds, message, names in _conditions(plan):
        explicit = [name for name in names if plan.is_set(name)]
        if not holds:
            yield Verdict(
                message,
                at=tuple(explicit),
                why=(
                    "the engine accepts any number; the trie raises a RuntimeError after the "
                    "model is loaded"
                ),
                fix=Fix("remove it: the default works", set=dict.fromkeys(explicit)),
            )


def _conditions(plan: Plan) -> Iterator[tuple[bool, str, tuple[str, ...]]]:
    """Yield each condition's result, the message if it is false, and its arguments.

    An argument that the version does not have is None and always valid.
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
    path = plan.user_value("speculative_draft_model_path")
    if path is not None:
        yield Verdict(
            f"NGRAM does not use the draft model {path}",
            at=("speculative_draft_model_path",),
            why=(
                "NGRAM drafts from earlier text; the engine accepts the path, but loads "
                "nothing from it"
            ),
            fix=Fix(
                "remove the path, or choose the algorithm that the draft was made for",
                set={"speculative_draft_model_path": None},
            ),
        )

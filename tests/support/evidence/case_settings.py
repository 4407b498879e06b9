"""Cases of arguments, data types, context lengths and devices."""

from __future__ import annotations

from . import changes
from .case import EAGLE, EAGLE3, MTP, OVERWRITE, STANDALONE, Case, chain
from .models import Made


def sound() -> list[Case]:
    """The pairs that the others are changes of."""
    by_eagle3 = (
        "SPL407",
        "SPL408",
        "SPL415",
        "SPL417",
        "SPL431",
        "SPL432",
        "SPL433",
        "SPL951",
        "SPL952",
        "SPL953",
        "SPL954",
    )
    by_eagle = ("SPL406", "SPL420", "SPL434", "SPL957", "SPL956")
    return [
        Case(by_eagle3, "eagle3", "a valid EAGLE-3 pair", "", *EAGLE3, chain("EAGLE3")),
        Case(by_eagle, "eagle", "a valid EAGLE pair", "", *EAGLE, chain("EAGLE")),
        Case(
            ("SPL411", "SPL425", "SPL429", "SPL430"),
            "standalone",
            "a valid STANDALONE pair",
            "",
            *STANDALONE,
            chain("STANDALONE"),
        ),
        Case(
            ("SPL413", "SPL412", "SPL419"),
            "mtp",
            "a target with one MTP layer",
            "",
            *MTP,
            chain("EAGLE"),
        ),
    ]


def parameters() -> list[Case]:
    four, six = ("SPL104",), ("SPL106",)
    return [
        Case(four, "eagle", "EAGLE, 3 steps, topk 4, draft tokens unset", "error", *EAGLE,
             chain("EAGLE", 3, 4, None)),
        Case(four, "eagle3", "EAGLE3, 3 steps, topk 2, draft tokens unset", "error", *EAGLE3,
             chain("EAGLE3", 3, 2, None)),
        Case(four, "standalone", "STANDALONE, 2 steps, topk 2, draft tokens unset", "error",
             *STANDALONE, chain("STANDALONE", 2, 2, None)),
        Case(four, "chain", "topk 1 without a number of tokens", "", *EAGLE,
             chain("EAGLE", 3, 1, None)),
        Case(four, "tree", "EAGLE, 3 steps, topk 4, 16 tokens", "", *EAGLE,
             chain("EAGLE", 3, 4, 16)),
        Case(six, "one-step", "1 step, topk 4, 8 tokens from a tree of 5", "error", *EAGLE,
             chain("EAGLE", 1, 4, 8)),
        Case(six, "one-more", "2 steps, topk 2, 8 tokens from a tree of 7", "error", *EAGLE3,
             chain("EAGLE3", 2, 2, 8)),
        Case(six, "standalone", "1 step, topk 2, 4 tokens from a tree of 3", "error", *STANDALONE,
             chain("STANDALONE", 1, 2, 4)),
        Case(six, "all-of-one-step", "1 step, topk 4, all 5 tokens", "", *EAGLE,
             chain("EAGLE", 1, 4, 5)),
        Case(six, "all-of-two-steps", "2 steps, topk 2, all 7 tokens", "", *EAGLE3,
             chain("EAGLE3", 2, 2, 7)),
    ]  # fmt: skip


def types() -> list[Case]:
    rules, auto = ("SPL401",), {"dtype": "auto"}
    half = Made("llama-eagle3", change=changes.as_float16)
    brain = Made("cycle-8", change=changes.as_bfloat16)
    head, bhead = (
        Made("llama-eagle", change=one) for one in (changes.as_float16, changes.as_bfloat16)
    )
    return [
        Case(rules, "eagle3", "bfloat16 target, float16 draft, EAGLE3", "error", brain, half,
             chain("EAGLE3") | auto),
        Case(rules, "eagle", "bfloat16 target, float16 draft, EAGLE", "error", brain, head,
             chain("EAGLE") | auto),
        Case(rules, "same", "both bfloat16", "", brain, bhead, chain("EAGLE") | auto),
        Case(rules, "given", "bfloat16 target, float16 draft, dtype bfloat16", "", brain, half,
             chain("EAGLE3") | {"dtype": "bfloat16"}),
        Case(rules, "float32", "bfloat16 target, float32 draft, EAGLE", "error", brain,
             Made("llama-eagle"), chain("EAGLE") | auto),
        Case(rules, "standalone", "bfloat16 target, float16 draft, STANDALONE", "",
             Made("cycle", change=changes.as_bfloat16),
             Made("cycle-draft-5", change=changes.as_float16), chain("STANDALONE") | auto),
    ]  # fmt: skip


def contexts() -> list[Case]:
    two, own = ("SPL402",), ("SPL418",)
    short = {"max_position_embeddings": 1024}
    return [
        Case(two, "eagle3", "target 2048, draft 1024, EAGLE3", "error", Made("cycle-8"),
             Made("llama-eagle3", short), chain("EAGLE3")),
        Case(two, "eagle", "target 2048, draft 1024, EAGLE", "error", Made("cycle-8"),
             Made("llama-eagle", short), chain("EAGLE")),
        Case(two, "standalone", "target 2048, draft 1024, STANDALONE", "error", Made("cycle"),
             Made("cycle-draft-5", short), chain("STANDALONE")),
        Case(two, "served-shorter", "context_length 1024, draft 1024", "", Made("cycle"),
             Made("cycle-draft-5", short), chain("STANDALONE") | {"context_length": 1024}),
        Case(("SPL403",), "overwritten", "target 2048, draft 1024, with the variable",
             "warning", Made("cycle"), Made("cycle-draft-5", short), chain("STANDALONE"),
             OVERWRITE),
        Case(two, "longer", "target 2048, draft 4096", "", Made("cycle"),
             Made("cycle-draft-5", {"max_position_embeddings": 4096}), chain("STANDALONE")),
        Case(own, "beyond", "context_length 4096, model limit 2048", "error", Made("cycle"), None,
             {"context_length": 4096}),
        Case(own, "one-more", "context_length 2049, model limit 2048, EAGLE3", "error", *EAGLE3,
             chain("EAGLE3") | {"context_length": 2049}),
        Case(own, "allowed", "context_length 4096, model limit 2048, with the variable", "warning",
             Made("cycle"), None, {"context_length": 4096}, OVERWRITE),
        Case(own, "equal", "context_length 2048, model limit 2048", "", Made("cycle"), None,
             {"context_length": 2048}),
        Case(own, "yarn", "context_length 4096, model limit 2048, YaRN override with factor 2", "",
             Made("cycle"), None, {"context_length": 4096, "json_model_override_args":
             '{"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}'}),
        Case(own, "yarn-with-original", "context_length 4096, model limit 2048, YaRN override "
             "with original_max_position_embeddings", "error", Made("cycle"), None, {"context_length": 4096, "json_model_override_args":
             '{"rope_scaling": {"rope_type": "yarn", "factor": 2.0, '
             '"original_max_position_embeddings": 2048}}'}),
    ]  # fmt: skip


def devices() -> list[Case]:
    block = {"speculative_num_draft_tokens": 4}
    return [
        Case(("SPL601",), "cpu", "DFLASH on a CPU", "error", *EAGLE3,
             {"speculative_algorithm": "DFLASH", **block}),
        Case(("SPL621",), "cpu", "DSPARK on a CPU", "error", *EAGLE3,
             {"speculative_algorithm": "DSPARK", **block}),
        Case(("SPL641",), "cpu", "UNO on a CPU", "error", Made("cycle-8"), None,
             {"speculative_algorithm": "UNO", **block}),
        Case(("SPL601", "SPL621", "SPL641"), "ngram", "NGRAM on a CPU", "", Made("cycle"), None,
             {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}),
    ]  # fmt: skip

"""Targets with every algorithm, and command lines as people write them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tools.verdicts.building import (
    CHAIN,
    TREE,
    Configuration,
    model,
    speculate,
)


def models() -> Iterator[Configuration]:
    """Every target with every algorithm that could be meant for it."""
    targets = {
        "llama": "llama-eagle3",
        "llama-3.2-1b": None,
        "qwen3": "qwen3-0.6b",
        "qwen3-moe": "qwen3-moe-eagle3",
        "deepseek-v3": None,
        "deepseek-v3.2": None,
        "deepseek-v4": None,
        "glm-4.5": None,
        "mimo": None,
        "gpt-oss": "gpt-oss-eagle3",
        "qwen3-next": None,
    }
    for target, draft in targets.items():
        size = {} if target.startswith(("llama", "qwen3")) and "-" not in target else {"tp_size": 8}
        yield Configuration("model", {**model(target), **size})
        for algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"):
            args = speculate(algorithm, target, **size)
            yield Configuration("model", args)
            yield Configuration("model", {**args, **CHAIN})
            if algorithm != "NGRAM":
                yield Configuration("model", {**args, **TREE})
            if draft and algorithm in ("EAGLE3", "STANDALONE"):
                yield Configuration("model", speculate(algorithm, target, draft, **size))
    short = speculate("EAGLE3", "llama", "llama-eagle3-2048")
    allowed = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
    yield Configuration("model", short)
    yield Configuration("model", short, allowed)
    yield Configuration("model", {**short, "context_length": 2048})
    yield Configuration("model", {**short, "context_length": 4096})
    for algorithm in ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"):
        yield Configuration("model", speculate(algorithm, "llama", "gemma-4-assistant"))
    yield Configuration("model", speculate("DFLASH", "llama", "llama-dflash"))
    yield Configuration("model", speculate("DFLASH", "qwen3", "llama-eagle3"))
    yield Configuration("model", speculate("DSPARK", "deepseek-v4", tp_size=8))
    for algorithm in ("EAGLE3", "EAGLE", "STANDALONE", "DFLASH"):
        yield Configuration("model", speculate(algorithm, "llama", "absent"))
    yield Configuration("model", model("absent"))
    strategies = ("no_buffer", "extra_buffer", "auto")
    for strategy, radix, shape in itertools.product(strategies, (True, False), (CHAIN, TREE)):
        args = {"mamba_radix_cache_strategy": strategy, **shape, "tp_size": 4}
        args |= {} if radix else {"disable_radix_cache": True}
        yield Configuration("model", speculate("NEXTN", "qwen3-next", **args))


def words() -> Iterator[Configuration]:
    """Command lines as people write them: wrong values, old names, abbreviations."""
    target = "--model-path models/llama"
    eagle = f"{target} --speculative-algorithm EAGLE3"
    draft = "--speculative-draft-model-path models/llama-eagle3"
    lines = [
        f"{eagle} {draft} --speculative-num-steps three",
        f"{eagle} {draft} --speculative-num-steps 3.0",
        f"{eagle} {draft} --speculative-num-steps",
        f"{eagle} {draft} --speculative-num-steps -1 --speculative-eagle-topk 1",
        f"{eagle} {draft} --speculative-eagle-topk=1 --speculative-num-steps=3",
        f"{eagle} {draft} --speculative-eagle-top-k 1",
        f"{eagle} {draft} --num-speculative-tokens 4",
        f"{eagle} {draft} --speculative-config {{}}",
        f"{eagle} --speculative-draft models/llama-eagle3",
        f"{eagle} --speculative-draft-model models/llama-eagle3",
        f"{eagle} --speculative-draft-model-pat models/llama-eagle3",
        f"{eagle} {draft} --speculative-num-s 3 --speculative-eagle 1",
        f"{eagle} {draft} --speculative-num 3",
        f"{eagle} {draft} --spec 3",
        f"{eagle} {draft} --attention-backend flash_attn",
        f"{eagle} {draft} --attention-backend FA3",
        f"{eagle} {draft} --dtype fp16",
        f"{eagle} {draft} --mem-fraction-static 90%",
        f"{eagle} {draft} --mem-frac 0.8",
        f"{eagle} {draft} --tp 2 --dp 2 --enable-dp-attention",
        f"{eagle} {draft} --tensor-parallel-size 2",
        f"{eagle} {draft} --cuda-graph-max-bs 16",
        f"{eagle} {draft} --cuda-graph-max-bs-decode 16",
        f"{eagle} {draft} --cuda-graph-bs 1 2 4",
        f"{eagle} {draft} --cuda-graph-bs-decode 1 2 4",
        f"{eagle} {draft} --cuda-graph-bs 1,2,4",
        f"{eagle} {draft} --enable-mixed-chunk true",
        f"{eagle} {draft} --disable-overlap-schedule=true",
        f"{eagle} {draft} --enable-beta-spec",
        f"{eagle} {draft} --context-length 8k",
        f"{eagle} {draft} --speculative-attention-mode both",
        f"{eagle} {draft} --speculative-accept-threshold-single high",
        f"{eagle} {draft} --speculative-token-map",
        f"{eagle} {draft} --page-size 16.5",
        f"{eagle} {draft} --max-running-requests 1e2",
        f"{eagle} {draft} --json-model-override-args not-json",
        f"{eagle} {draft} --json-model-override-args {{}}",
        f"{eagle} {draft} --speculative-num-steps 3 --speculative-num-steps 5"
        " --speculative-eagle-topk 1",
        f"{eagle} {draft} extra",
        f"{target} --speculative-algo NGRAM",
        f"{target} --speculative-algorithm",
        f"{target} --speculative-algorithm NGRAM --speculative-ngram-match-type DFS",
        f"{target} --speculative-algorithm NGRAM --speculative-ngram-max-match-window-size 12",
        f"{target} --speculative-algorithm NGRAM --speculative-ngram-min-match-window-size 1",
        f"{target} --speculative-algorithm NGRAM --speculative-ngram-branch-length 18",
        f"{target} --speculative-algorithm NGRAM --speculative-ngram-max-trie-depth 18",
        f"{target} --speculative-algorithm LOOKAHEAD --speculative-lookahead-capacity 10",
        "--speculative-algorithm NGRAM",
        "--model models/llama --speculative-algorithm NGRAM",
        f"{target} --enable-spec-v2",
        f"{target} --enable-dp-attention --dp-size two",
        f"{target} --disable-piecewise-cuda-graph",
        f"{target} --enable-piecewise-cuda-graph",
        f"{target} --mamba-scheduler-strategy extra_buffer",
        f"{target} --mamba-radix-cache-strategy extra_buffer",
        f"{target} --enable-torch-compile --torch-compile-max-bs 4",
        f"{target} --kv-cache-dtype fp8",
        f"{target} --quantization fp16",
        f"{target} --disaggregation-mode both",
        f"{target} --port 70000",
        f"{target} --help-me",
        f"{target} --trust-remote-code --trust-remote-code",
        f"{target} --dp-size 2 --load-balance-method round_robin",
        f"{target} --enable-ep-moe",
        f"{target} --enable-deepep-moe",
        f"{target} --enable-flashinfer-mla",
        f"{target} --disable-mla",
    ]
    for line in lines:
        yield Configuration("words", words=tuple(line.split(" ")))

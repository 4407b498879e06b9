"""The options of vLLM's server: how they are written, and what SGLang calls them.

Read from vLLM's engine/arg_utils.py and config/speculative.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from speclaunch.importer.interface import Word
from speclaunch.record import record

CONFIG = "--speculative-config"

SAME = {
    "--model": "--model-path",
    "--tensor-parallel-size": "--tp-size",
    "-tp": "--tp-size",
    "--pipeline-parallel-size": "--pp-size",
    "-pp": "--pp-size",
    "--data-parallel-size": "--dp-size",
    "-dp": "--dp-size",
    "--nnodes": "--nnodes",
    "--node-rank": "--node-rank",
    "--max-num-seqs": "--max-running-requests",
    "--dtype": "--dtype",
    "--quantization": "--quantization",
    "-q": "--quantization",
    "--host": "--host",
    "--port": "--port",
    "--api-key": "--api-key",
    "--seed": "--random-seed",
    "--tokenizer": "--tokenizer-path",
    "--tokenizer-mode": "--tokenizer-mode",
    "--revision": "--revision",
    "--chat-template": "--chat-template",
    "--download-dir": "--download-dir",
    "--load-format": "--load-format",
    "--root-path": "--fastapi-root-path",
    "--hf-overrides": "--json-model-override-args",
    "--max-loras": "--max-loras-per-batch",
    "--max-lora-rank": "--max-lora-rank",
    "--ssl-keyfile": "--ssl-keyfile",
    "--ssl-certfile": "--ssl-certfile",
}
"""Options with a value that SGLang has with the same meaning."""
SWITCHES = {
    "--trust-remote-code": ("--trust-remote-code",),
    "--no-enable-prefix-caching": ("--disable-radix-cache",),
    "--enforce-eager": ("--disable-cuda-graph",),
    "--enable-lora": ("--enable-lora",),
}
VALUES: Mapping[str, Mapping[str, str]] = {
    "--kv-cache-dtype": {
        **dict.fromkeys(("fp8", "fp8_e4m3"), "fp8_e4m3"),
        **{one: one for one in ("auto", "fp8_e5m2", "bfloat16")},
    },
    "--tool-call-parser": {
        **{
            one: one for one in ("hermes", "mistral", "qwen3_coder", "kimi_k2", "glm45", "pythonic")
        },
        **{"deepseek_v3": "deepseekv3", "deepseek_v31": "deepseekv31", "llama3_json": "llama3"},
        **{"glm47": "glm47", "openai": "gpt-oss", "minimax_m2": "minimax-m2", "step3": "step3"},
    },
    "--reasoning-parser": {
        **{one: one for one in ("qwen3", "glm45", "kimi_k2", "step3", "mistral", "gemma4")},
        **{"deepseek_r1": "deepseek-r1", "deepseek_v3": "deepseek-v3", "openai_gptoss": "gpt-oss"},
    },
}
"""Options whose values have other names; any other value has no counterpart that is certain."""
ADDRESS = "vLLM listens on port 8000 of all interfaces, SGLang on 127.0.0.1:30000"
USUAL = "SGLang does so without an option"
NONE = "SGLang has no counterpart"
WHY = {
    "--gpu-memory-utilization": "vLLM's share of the GPU includes activations and CUDA graphs, "
    "SGLang's --mem-fraction-static does not: SGLang chooses it",
    "--max-num-batched-tokens": "the nearest is --chunked-prefill-size, which counts prefill alone",
    "--block-size": "the nearest is --page-size, which attention backends and drafts restrict",
    "--enable-expert-parallel": "SGLang's is a size: set ep_size, at most tp_size",
    "--limit-mm-per-prompt": "the nearest is --limit-mm-data-per-request",
    "--lora-modules": "the nearest is --lora-paths",
    "--enable-prefix-caching": USUAL,
    "--enable-chunked-prefill": USUAL,
    "--enable-auto-tool-choice": USUAL,
    "--disable-log-requests": USUAL,
    "--no-enable-log-requests": USUAL,
}
ALGORITHMS = {
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "EAGLE",
    "draft_model": "STANDALONE",
    "ngram": "NGRAM",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
}
"""SGLang's algorithm of each method."""
CHAINS = frozenset({"eagle", "eagle3", "mtp", "draft_model"})
"""Methods that draft step by step; the others draft their tokens at once."""
KEYS = {
    "quantization": "--speculative-draft-model-quantization",
    "revision": "--speculative-draft-model-revision",
}
KEY_WHY = {
    "draft_tensor_parallel_size": "SGLang's draft has the ranks of the target",
    "prompt_lookup_max": "SGLang matches suffixes in a tree of all requests",
    "prompt_lookup_min": "SGLang matches suffixes in a tree of all requests",
    "max_model_len": "SGLang's draft has the context of the target",
    "attention_backend": "the nearest is --speculative-draft-attention-backend; names differ",
    "num_speculative_tokens_per_batch_size": "the nearest is --speculative-adaptive",
}


@record
class Option:
    """An option by its long name with dashes, and its values; `word` is where it is written."""

    name: str
    word: Word
    values: tuple[Word, ...]
    is_glued: bool = False
    """Its value is behind a `=`."""


def read_options(words: Sequence[Word]) -> tuple[Word | None, list[Option]]:
    """The model that stands alone, and the options with their values."""
    model: Word | None = None
    options: list[Option] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.text.startswith("-"):
            model = model or word
            continue
        flag, equals, _ = word.text.partition("=")
        head, dot, rest = flag.partition(".")
        name = f"{head.replace('_', '-')}{dot}{rest}"
        if equals:
            options.append(Option(name, word, (_after(word, len(flag) + 1),), is_glued=True))
            continue
        end = index
        most = len(words) if name in _MANY else 0 if name in SWITCHES or name in _BARE else 1
        while end < len(words) and end - index < most and not _is_flag(words[end]):
            end += 1
        options.append(Option(name, word, tuple(words[index:end])))
        index = end
    return model, options


_MANY = frozenset({"--served-model-name", "--lora-modules", "--allowed-origins", "--middleware"})
_BARE = frozenset(
    [
        *("--enable-prefix-caching", "--enable-chunked-prefill", "--enable-auto-tool-choice"),
        *("--enable-expert-parallel", "-ep", "--disable-log-requests", "--disable-log-stats"),
        *("--no-enable-log-requests", "--no-enable-chunked-prefill", "--async-scheduling"),
        *("--enable-log-requests", "--enable-reasoning", "--headless", "--disable-sliding-window"),
        *("--enable-dbo", "--enable-sleep-mode", "--disable-custom-all-reduce", "--enable-eplb"),
        *("--skip-tokenizer-init", "--calculate-kv-scales", "--disable-uvicorn-access-log"),
    ]
)
"""Switches of vLLM's that do not have a value."""


def _is_flag(word: Word) -> bool:
    return word.text.startswith("-") and not word.text[1:2].isdigit()


def _after(word: Word, start: int) -> Word:
    """What is behind the `=` of a word."""
    kept = tuple(
        one._replace(start=one.start - start, end=one.end - start, inner=())
        for one in word.defaults
        if one.start >= start
    )
    place = word.place
    if place.column is not None and word.evaluated:
        length = max((place.length or 1) - start, 1)
        place = replace(place, column=place.column + start, length=length)
    return replace(word, text=word.text[start:], place=place, defaults=kept)

"""Translation of vLLM's server commands to SGLang's: `vllm serve … --speculative-config '{…}'`.

Only an import reads them. Before that, the name of the program is replaced by a mark of the same
length (`marked`), which the readers know as a server. `translated` converts the commands that they
find to SGLang's. Source: vLLM's config/speculative.py and engine/arg_utils.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Problem, lazy
from speclaunch.deployments.sources.files import read_text, read_words
from speclaunch.deployments.sources.interface import (
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.deployments.sources.wrappers import VLLM

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
        **{name: name for name in ("auto", "fp8_e5m2", "bfloat16")},
    },
    "--tool-call-parser": {
        **{
            name: name
            for name in ("hermes", "mistral", "qwen3_coder", "kimi_k2", "glm45", "pythonic")
        },
        **{"deepseek_v3": "deepseekv3", "deepseek_v31": "deepseekv31", "llama3_json": "llama3"},
        **{"glm47": "glm47", "openai": "gpt-oss", "minimax_m2": "minimax-m2", "step3": "step3"},
    },
    "--reasoning-parser": {
        **{name: name for name in ("qwen3", "glm45", "kimi_k2", "step3", "mistral", "gemma4")},
        **{"deepseek_r1": "deepseek-r1", "deepseek_v3": "deepseek-v3", "openai_gptoss": "gpt-oss"},
    },
}
"""Options whose values have other names; other values have no certain counterpart."""
ADDRESS = "vLLM listens on port 8000 of all interfaces, SGLang on 127.0.0.1:30000"
USUAL = "SGLang does this by default"
NONE = "SGLang has no counterpart"
WHY = {
    "--gpu-memory-utilization": "vLLM's share of the GPU includes activations and CUDA graphs; "
    "SGLang's --mem-fraction-static does not, so SGLang chooses it",
    "--max-num-batched-tokens": "the nearest is --chunked-prefill-size, which counts prefill only",
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
"""Methods that draft step by step; the others draft all tokens at once."""
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


class VllmOption(Struct, frozen=True):
    """Option by its long name with dashes, and its values; `word` is its flag in the file."""

    name: str
    word: Word
    values: tuple[Word, ...]
    is_glued: bool = False
    """True if its value follows a `=`."""


def read_options(words: Sequence[Word]) -> tuple[Word | None, list[VllmOption]]:
    """Return the positional model, and the options with their values."""
    model: Word | None = None
    options: list[VllmOption] = []
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
            options.append(VllmOption(name, word, (_after(word, len(flag) + 1),), is_glued=True))
            continue
        end = index
        most = len(words) if name in _MANY else 0 if name in SWITCHES or name in _BARE else 1
        while end < len(words) and end - index < most and not _is_flag(words[end]):
            end += 1
        options.append(VllmOption(name, word, tuple(words[index:end])))
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
"""Switches of vLLM's without a value."""


def _is_flag(word: Word) -> bool:
    return word.text.startswith("-") and not word.text[1:2].isdigit()


def _after(word: Word, start: int) -> Word:
    """Return the part of a word after its `=`."""
    defaults = tuple(
        default._replace(start=default.start - start, end=default.end - start, inner=())
        for default in word.defaults
        if default.start >= start
    )
    place = word.place
    if place.column is not None and word.evaluated:
        length = max((place.length or 1) - start, 1)
        place = replace(place, column=place.column + start, length=length)
    return replace(word, text=word.text[start:], place=place, defaults=defaults)


_NAME = "vllm"
_PROGRAM = lazy(
    r"""\bvllm(?=["']?,?(?:[ \t]+|\s*-\s+)["']?serve\b"""
    r"|\.entrypoints\.openai\.api_server\b|-openai\b)"
)
_SIZE = lazy(r"(\d+(?:\.\d+)?)([kKmMgG])")
_SIZES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def servers_in_words(argv: Sequence[str]) -> Reading | None:
    """Return the vLLM server of a command's words as SGLang's; None if it starts none."""
    found = translated(read_words(argv, marked=marked_words(argv)))
    return found if found.invocations else None


def servers_in(data: bytes, shown: str, suffix: str | None = None) -> Reading | None:
    """Return the vLLM servers of a file as SGLang's; None if there are none."""
    text = marked(data.decode("utf-8-sig", "replace"))
    if VLLM not in text:
        return None
    found = translated(read_text(text, shown, suffix))
    return found if found.invocations else None


def marked(text: str) -> str:
    """Return the text with vLLM's program names replaced by marks of the same length."""
    return _PROGRAM.sub(VLLM, text)


def marked_words(argv: Sequence[str]) -> list[str]:
    """Return a command's tokens with vLLM's program names replaced by the same marks."""
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return [
        word[: -len(_NAME)] + VLLM
        if follows == "serve" and word.rpartition("/")[2] == _NAME
        else marked(word if follows == "" else f"{word} ").removesuffix(" ")
        for word, follows in pairs
    ]


def translated(reading: Reading) -> Reading:
    """Return the reading of a marked text with its commands as SGLang's."""
    found = (
        invocation for invocation in reading.invocations if invocation.kind is InvocationKind.VLLM
    )
    return replace(
        reading,
        invocations=tuple(_Translation(invocation).done() for invocation in found),
        problems=tuple(map(_shown_problem, reading.problems)),
        unread=tuple(map(_shown_problem, reading.unread)),
        misread=tuple(map(_shown_problem, reading.misread)),
    )


def _shown(text: str) -> str:
    return text.replace(VLLM, _NAME)


def _shown_problem(problem: Problem) -> Problem:
    return replace(problem, message=_shown(problem.message))


class _Translation:
    """Translation of one vLLM command to SGLang's."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._words: list[Word] = []
        self._dropped: list[Dropped] = []
        self._refused: list[Problem] = []
        self._spec: dict[str, tuple[Any, Word]] = {}
        self._spec_word: Word | None = None

    def done(self) -> Invocation:
        """Return the command, without options that SGLang does not have."""
        found = self._invocation
        model, options = read_options(found.words)
        if model is not None:
            self._put("--model-path", model, model)
        for option in options:
            self._option(option)
        if self._spec_word is not None:
            self._speculation(self._spec_word)
        env = dict(found.env)
        for name in [name for name in env if name.startswith("VLLM_")]:
            self._dropped.append(Dropped(name, env.pop(name).place, "a vLLM variable", True))
        if {"--host", "--port"} - {option.name for option in options}:
            self._dropped.append(Dropped("the default address", found.place, ADDRESS))
        return replace(
            found,
            kind=InvocationKind.LAUNCH_SERVER,
            words=tuple(self._words),
            program=tuple(replace(word, text=_shown(word.text)) for word in found.program),
            env=MappingProxyType(env),
            dropped=(
                *(replace(word, text=_shown(word.text)) for word in found.dropped),
                *self._dropped,
            ),
            refused=(*found.refused, *self._refused),
            image=None,
        )

    def _put(self, flag: str, at: Word, value: Word | None = None, text: str | None = None) -> None:
        """Add an SGLang option with the place of vLLM's option."""
        self._words.append(
            replace(at, text=flag, evaluated=True, why=None, placeholder=False, defaults=())
        )
        if value is not None and text is None:
            self._words.append(value)
        elif text is not None:
            self._words.append(replace(value or at, text=text, defaults=()))

    def _drop(self, option: VllmOption, why: str) -> None:
        texts = [option.word.text, *(word.text for word in option.values if not option.is_glued)]
        lost = why != USUAL
        self._dropped.append(Dropped(" ".join(texts), option.word.place, why, lost))

    def _option(self, option: VllmOption) -> None:
        name, values = option.name, option.values
        if name == CONFIG and values:
            self._config(option, values[0])
        elif name.startswith(f"{CONFIG}.") and values:
            self._spec_word = self._spec_word or option.word
            key = name.removeprefix(f"{CONFIG}.").replace("-", "_")
            self._spec[key] = (_number(values[0].text), values[0])
        elif name in SWITCHES and not values:
            self._put(SWITCHES[name][0], option.word)
        elif name in SAME and len(values) == 1:
            self._put(SAME[name], option.word, values[0])
        elif name == "--served-model-name" and values:
            self._put("--served-model-name", option.word, values[0])
            if len(values) > 1:
                self._drop(replace(option, values=values[1:]), "SGLang serves a single name")
        elif name == "--max-model-len" and values and values[0].text not in ("auto", "-1"):
            self._put("--context-length", option.word, values[0], _counted(values[0]))
        elif name == "--generation-config" and values and values[0].text == "vllm":
            self._put("--sampling-defaults", option.word, values[0], "openai")
        elif name in VALUES and values and values[0].text in VALUES[name]:
            self._put(name, option.word, values[0], VALUES[name][values[0].text])
        else:
            self._drop(option, WHY.get(name, NONE))

    # -- speculation --------------------------------------------------------------------

    def _config(self, option: VllmOption, value: Word) -> None:
        try:
            read = json.loads(value.text)
        except (ValueError, RecursionError):
            read = None
        if not isinstance(read, dict):
            self._refused.append(
                Problem(
                    f"{CONFIG} {value.text} is not a JSON object that can be read here",
                    value.place,
                    "write its values into the command, or add speculation to the recipe",
                )
            )
            return
        self._spec_word = self._spec_word or option.word
        self._spec |= {str(key): (key_node, value) for key, key_node in read.items()}

    def _speculation(self, at: Word) -> None:
        spec = dict(self._spec)
        values = {key: value for key, (value, _) in spec.items()}
        model = values.get("model")
        method = _method(values.get("method"), model)
        algorithm = ALGORITHMS.get(method)
        if algorithm is None:
            self._refused.append(
                Problem(
                    f"SGLang has no counterpart of vLLM's method {method}: the recipe does not "
                    "speculate",
                    at.place,
                    "choose an SGLang method: `speclaunch drafts` lists them for a model",
                )
            )
            return
        self._put("--speculative-algorithm", at, None, algorithm)
        used = {"method", "model", "num_speculative_tokens"}
        if isinstance(model, str) and method != "ngram":
            self._value("--speculative-draft-model-path", model, spec["model"][1], at)
        count = values.get("num_speculative_tokens")
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            if method in CHAINS:
                self._put("--speculative-num-steps", at, None, str(count))
                self._put("--speculative-eagle-topk", at, None, "1")
            self._put("--speculative-num-draft-tokens", at, None, str(count + 1))
        elif "num_speculative_tokens" in values:
            self._refused.append(
                Problem(
                    f"num_speculative_tokens must be a known number, not {count!r}",
                    at.place,
                    "set speculative_num_steps to the number, and "
                    "speculative_num_draft_tokens to 1 more",
                )
            )
        for key, flag in KEYS.items():
            if isinstance(values.get(key), str):
                self._value(flag, values[key], spec[key][1], at)
                used.add(key)
        for key in values:
            if key not in used:
                why = KEY_WHY.get(key, NONE)
                self._dropped.append(Dropped(f"{key} of {CONFIG}", spec[key][1].place, why, True))

    def _value(self, flag: str, text: str, word: Word, at: Word) -> None:
        self._put(flag, at, word, text)
        known = "$" not in text and not word.placeholder
        self._words[-1] = replace(
            self._words[-1], evaluated=known, why=None if known else word.why, inside=False
        )


def _method(method: Any, model: Any) -> str:
    """Return the method that vLLM chooses (`SpeculativeConfig.__post_init__`).

    The checkpoint is not read.
    """
    name = model.lower() if isinstance(model, str) else ""
    chosen = str(method) if method else "ngram" if name in ("ngram", "[ngram]") else "draft_model"
    if chosen in ("[ngram]", "ngram_gpu"):
        return "ngram"
    if chosen.endswith("_mtp"):
        return "mtp"
    if chosen == "draft_model":
        names: tuple[tuple[str, str], ...] = (
            *(("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash")),
            ("dspark", "dspark"),
        )
        return next((found for part, found in names if part in name), chosen)
    return chosen


def _number(text: str) -> Any:
    return int(text) if text.isdecimal() else text


def _counted(word: Word) -> str:
    """Return a number as vLLM reads it: `32k` is 32,000, `32K` 32,768."""
    found = _SIZE.fullmatch(word.text)
    return word.text if found is None else str(int(float(found[1]) * _SIZES[found[2]]))

"""Translate vLLM's server commands (`vllm serve … --speculative-config '{…}'`) to SGLang's.

Only `speclaunch import` reads them. `marked` replaces the program's name with a mark of the same
length, which the readers recognize as a server. `translated` converts the resulting commands.
Sources: vLLM 0.33.0, config/speculative.py, engine/arg_utils.py and entrypoints/common/cli_args.py
(options, keys and defaults), tool_parsers/ and reasoning/ (names of parsers); SGLang 0.5.23,
arg_groups/ (their counterparts).
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
    VLLM,
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)

CONFIG = "--speculative-config"
SHORTCUTS = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
"""vLLM options that each set one key of `CONFIG` (engine/arg_utils.py:1870)."""

SAME = {
    "--model": "--model-path",
    "--tensor-parallel-size": "--tp-size",
    "-tp": "--tp-size",
    "--pipeline-parallel-size": "--pp-size",
    "-pp": "--pp-size",
    "--data-parallel-size": "--dp-size",
    "-dp": "--dp-size",
    "--decode-context-parallel-size": "--dcp-size",
    "-dcp": "--dcp-size",
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
    "--revision": "--revision",
    "--chat-template": "--chat-template",
    "--download-dir": "--download-dir",
    "--root-path": "--fastapi-root-path",
    "--hf-overrides": "--json-model-override-args",
    "--max-loras": "--max-loras-per-batch",
    "--max-lora-rank": "--max-lora-rank",
    "--ssl-keyfile": "--ssl-keyfile",
    "--ssl-certfile": "--ssl-certfile",
    "--stream-interval": "--stream-interval",
    "--uvicorn-log-level": "--log-level-http",
    "--log-level": "--log-level",
}
"""vLLM options, each with the SGLang option of the same value and meaning."""
SWITCHES = {
    "--trust-remote-code": ("--trust-remote-code",),
    "--no-enable-prefix-caching": ("--disable-radix-cache",),
    "--no-enable-chunked-prefill": ("--chunked-prefill-size", "-1"),
    "--enforce-eager": ("--disable-cuda-graph",),
    "--enable-lora": ("--enable-lora",),
    "--enable-log-requests": ("--log-requests",),
    "--disable-custom-all-reduce": ("--disable-custom-all-reduce",),
    "--enable-eplb": ("--enable-eplb",),
    "--skip-tokenizer-init": ("--skip-tokenizer-init",),
}
"""vLLM switches, each with the equivalent SGLang tokens."""
VALUES: Mapping[str, Mapping[str, str]] = {
    "--tokenizer-mode": {name: name for name in ("auto", "slow")},
    "--load-format": {
        name: name
        for name in (
            *("auto", "pt", "safetensors", "npcache", "dummy", "sharded_state", "gguf"),
            *("bitsandbytes", "mistral", "fastsafetensors"),
        )
    },
    "--kv-cache-dtype": {
        **dict.fromkeys(("fp8", "fp8_e4m3"), "fp8_e4m3"),
        **{name: name for name in ("auto", "fp8_e5m2", "bfloat16")},
    },
    "--tool-call-parser": {
        **{
            name: name
            for name in (
                *("beam", "cohere_command4", "dots", "gemma4", "gigachat3", "glm45", "glm47"),
                *("hermes", "inkling", "k2_horizon", "kimi_k2", "kimi_k3", "lfm2", "ling3", "mimo"),
                *("minicpm5", "mistral", "muse", "poolside_v1", "pythonic", "qwen3_coder"),
                *("step3", "step3p5"),
            )
        },
        **{f"deepseek_{name}": f"deepseek{name}" for name in ("v3", "v31", "v32", "v4", "v41")},
        **{f"minimax_{name}": f"minimax-{name}" for name in ("m2", "m3")},
        **{"llama3_json": "llama3", "openai": "gpt-oss", "qwen3_xml": "qwen3_coder"},
        "hunyuan_a13b": "hunyuan",
    },
    "--reasoning-parser": {
        **{
            name: name
            for name in (
                *("beam", "cohere_command4", "gemma4", "glm45", "inkling", "k2_horizon"),
                *("kimi_k2", "kimi_k3", "ling3", "mimo", "mistral", "muse", "poolside_v1", "qwen3"),
                *("step3", "step3p5"),
            )
        },
        **{
            f"deepseek_{name}": f"deepseek-{name.replace('_', '-')}"
            for name in ("r1", "v3", "v4", "v41")
        },
        **{"openai_gptoss": "gpt-oss", "glm47": "glm45", "hunyuan_a13b": "hunyuan"},
        **{"minimax_m2": "minimax", "minimax_m2_append_think": "minimax-append-think"},
        **{"minimax_m3": "minimax-m3", "nemotron_v3": "nemotron_3"},
    },
    "--mamba-ssm-cache-dtype": {name: name for name in ("float32", "float16", "bfloat16")},
}
"""SGLang's value for each value of a vLLM option. Other values have no certain counterpart."""
RENAMED = {"--mamba-ssm-cache-dtype": "--mamba-ssm-dtype"}
"""SGLang's name for an option in `VALUES`, if it differs."""
MASTER_PORT = "29501"
"""Default of `--master-port` (config/parallel.py:320)."""
ADDRESS = "vLLM listens on port 8000 on all interfaces, SGLang on 127.0.0.1:30000"
USUAL = "SGLang does this by default"
NONE = "SGLang has no counterpart"
_SHARE = (
    "vLLM's share of the GPU includes activations and CUDA graphs; "
    "SGLang's --mem-fraction-static does not, so SGLang chooses its value"
)
_GRAPHS = "the nearest is --cuda-graph-max-bs, which counts requests; vLLM counts tokens"
WHY = {
    "--gpu-memory-utilization": _SHARE,
    "--device-memory-utilization": _SHARE,
    "--attention-backend": "the nearest is --attention-backend; values differ",
    "--max-cudagraph-capture-size": _GRAPHS,
    "--cudagraph-capture-sizes": _GRAPHS,
    "--max-num-queued-reqs": (
        "the nearest is --max-queued-requests, which does not count running requests"
    ),
    "--scheduling-policy": "the nearest is --enable-priority-scheduling",
    "--enable-sleep-mode": "the nearest is --enable-memory-saver",
    "--enable-dbo": "the nearest is --enable-two-batch-overlap",
    "--max-num-batched-tokens": "the nearest is --chunked-prefill-size, which counts prefill only",
    "--block-size": "the nearest is --page-size, which attention backends and drafts restrict",
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
"""SGLang's algorithm for each vLLM method."""
CHAINS = frozenset({"eagle", "eagle3", "mtp", "draft_model"})
"""Methods that draft step by step; the others draft all tokens at once."""
KEYS = {
    "quantization": "--speculative-draft-model-quantization",
    "revision": "--speculative-draft-model-revision",
}
KEY_WHY = {
    "draft_tensor_parallel_size": "SGLang's draft runs on the target's ranks",
    "prompt_lookup_max": "SGLang matches suffixes in a tree of all requests",
    "prompt_lookup_min": "SGLang matches suffixes in a tree of all requests",
    "max_model_len": "SGLang's draft uses the target's context length",
    "tensor_parallel_size": "SGLang's draft runs on the target's ranks",
    "attention_backend": "the nearest is --speculative-draft-attention-backend; values differ",
    "moe_backend": "the nearest is --speculative-moe-runner-backend; values differ",
    "kv_cache_dtype": "the nearest is --speculative-draft-kv-cache-dtype",
    "rejection_sample_method": "the nearest are --speculative-use-rejection-sampling and "
    "--speculative-use-block-verification",
    "num_speculative_tokens_per_batch_size": "the nearest is --speculative-adaptive",
}


_PARALLEL = frozenset({"--enable-expert-parallel", "-ep", "--master-addr", "--master-port"})


class VllmOption(Struct, frozen=True):
    """vLLM option: its long name (with dashes), its flag in the file (`word`), and its values."""

    name: str
    word: Word
    values: tuple[Word, ...]
    is_glued: bool = False
    """True if the option's value follows a `=`."""


def read_options(words: Sequence[Word]) -> tuple[Word | None, list[VllmOption]]:
    """Return the positional model or None, and the options with their values."""
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
        most = len(words) if name in _MANY else 0 if _is_bare(name) else 1
        while end < len(words) and end - index < most:
            if words[end].text[:1] == "-" and not words[end].text[1:2].isdigit():  # the next option
                break
            end += 1
        options.append(VllmOption(name, word, tuple(words[index:end])))
        index = end
    return model, options


_MANY = frozenset({"--served-model-name", "--lora-modules", "--allowed-origins", "--middleware"})
_BARE = frozenset(
    f"--{name}"
    for name in (
        *("async-scheduling", "headless", "enforce-eager", "fully-sharded-loras", "numa-bind"),
        *("enable-prefix-caching", "enable-chunked-prefill", "enable-auto-tool-choice"),
        *("enable-expert-parallel", "enable-dbo", "enable-sleep-mode", "enable-reasoning"),
        *("enable-log-outputs", "enable-log-deltas", "enable-elastic-ep", "enable-mm-embeds"),
        *("enable-prompt-embeds", "enable-prompt-tokens-details", "enable-request-id-headers"),
        *("enable-server-load-tracking", "enable-force-include-usage", "enable-offline-docs"),
        *("enable-flashinfer-autotune", "enable-return-routed-experts", "enable-ep-weight-filter"),
        *("enable-fault-tolerance", "enable-per-request-metrics", "enable-ssl-refresh"),
        *("disable-log-requests", "disable-log-stats", "disable-sliding-window"),
        *("disable-cascade-attn", "disable-chunked-mm-input", "disable-hybrid-kv-cache-manager"),
        *("disable-nccl-for-dp-synchronization", "disable-uvicorn-access-log"),
        *("disable-fastapi-docs", "calculate-kv-scales", "kv-sharing-fast-prefill"),
        *("language-model-only", "mm-encoder-only", "skip-mm-profiling", "log-error-stack"),
        *("data-parallel-hybrid-lb", "data-parallel-external-lb", "ray-workers-use-nsight"),
        *("allow-credentials", "return-tokens-as-token-ids", "trust-request-chat-template"),
    )
) | {"-ep", "-dph", "-dpe"}
"""vLLM switches without a value. Each also has a `--no-` form."""


def _is_bare(name: str) -> bool:
    """True if an option accepts no separate value (`-O3` includes its value)."""
    return name in SWITCHES or name in _BARE or name.startswith("--no-") or name[:2] == "-O" != name


def _after(word: Word, start: int) -> Word:
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
    """Return a command's vLLM server, converted to SGLang; None if the command starts none."""
    found = translated(read_words(argv, marked=marked_words(argv)))
    return found if found.invocations else None


def servers_in(data: bytes, shown: str, suffix: str | None = None) -> Reading | None:
    """Return a file's vLLM servers, converted to SGLang; None if there are none."""
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
    """Return the `reading` of a marked text with only its vLLM commands, converted to SGLang."""
    found = (found for found in reading.invocations if found.kind is InvocationKind.VLLM)
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
    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._words: list[Word] = []
        self._dropped: list[Dropped] = []
        self._refused: list[Problem] = []
        self._spec: dict[str, tuple[Any, Word]] = {}
        self._spec_word: Word | None = None

    def done(self) -> Invocation:
        found = self._invocation
        model, options = read_options(found.words)
        if model is not None:
            self._put("--model-path", model, model)
        for option in options:
            self._option(option)
        self._parallel({option.name: option for option in options})
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
        """Add an SGLang option at the place of the vLLM option `at`."""
        named = replace(at, text=flag, evaluated=True, why=None, placeholder=False, defaults=())
        self._words.append(named)
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
        if name in _PARALLEL:
            return  # together, in `_parallel`
        if name in (CONFIG, "-sc") and values:
            self._config(option, values[0])
        elif (name in SHORTCUTS or name.startswith(f"{CONFIG}.")) and values:
            self._spec_word = self._spec_word or option.word
            key = SHORTCUTS.get(name, name.removeprefix(f"{CONFIG}.").replace("-", "_"))
            text = values[0].text
            self._spec[key] = (int(text) if text.isdecimal() else text, values[0])
        elif name in SWITCHES and not values:
            flag, *value = SWITCHES[name]
            self._put(flag, option.word, None, value[0] if value else None)
        elif name in SAME and len(values) == 1:
            self._put(SAME[name], option.word, values[0])
        elif not self._value_of(option):
            self._drop(option, WHY.get(name, NONE))

    def _value_of(self, option: VllmOption) -> bool:
        """Translate an option whose counterpart depends on its value. Return False if none fits."""
        name, values = option.name, option.values
        if not values:
            return False
        if name == "--served-model-name":
            self._put("--served-model-name", option.word, values[0])
            if len(values) > 1:
                self._drop(replace(option, values=values[1:]), "SGLang serves a single name")
        elif name == "--max-model-len" and values[0].text not in ("auto", "-1"):
            self._put("--context-length", option.word, values[0], _counted(values[0]))
        elif name == "--generation-config" and values[0].text == "vllm":
            self._put("--sampling-defaults", option.word, values[0], "openai")
        elif name in VALUES and values[0].text in VALUES[name]:
            flag = RENAMED.get(name, name)
            self._put(flag, option.word, values[0], VALUES[name][values[0].text])
        elif name == "--cpu-offload-gb" and values[0].text.isdecimal():
            self._put(name, option.word, values[0])
        elif name == "--scheduling-policy" and values[0].text == "fcfs":
            self._drop(option, USUAL)
        else:
            return False
        return True

    def _parallel(self, options: Mapping[str, VllmOption]) -> None:
        """Translate the parallelism options, which depend on each other.

        With expert parallelism, vLLM spreads the experts over all dp * tp ranks
        (config/parallel.py). SGLang's tp_size counts all these ranks, and DP attention divides
        max_running_requests among its groups (mem_cache/kv_cache_configurator.py:3316).
        """
        address, port = options.get("--master-addr"), options.get("--master-port")
        if address is not None and address.values:
            number = port.values[0].text if port is not None and port.values else MASTER_PORT
            known = address.values[0].evaluated and (port is None or port.values[0].evaluated)
            text = f"{address.values[0].text}:{number}"
            self._put("--dist-init-addr", address.word, address.values[0], text)
            self._words[-1] = replace(self._words[-1], evaluated=known)
        expert = options.get("--enable-expert-parallel") or options.get("-ep")
        if expert is None:
            return
        flags = [word.text for word in self._words]
        counts = {"--tp-size": "1", "--dp-size": "1"}
        counts |= {f: self._words[flags.index(f) + 1].text for f in counts if f in flags}
        tp, dp = counts.values()
        if not (tp.isdecimal() and dp.isdecimal()):
            self._drop(expert, "SGLang sets a size instead: set ep_size, at most tp_size")
            return
        if dp != "1":
            if "--tp-size" not in flags:
                self._put("--tp-size", expert.word, None, tp)
            for at, word in enumerate(self._words[1:], 1):
                is_total = self._words[at - 1].text in ("--tp-size", "--max-running-requests")
                if is_total and word.text.isdecimal():
                    self._words[at] = replace(word, text=str(int(word.text) * int(dp)))
            self._put("--enable-dp-attention", expert.word)
        self._put("--ep-size", expert.word, None, str(int(tp) * int(dp)))

    # -- speculation --------------------------------------------------------------------

    def _config(self, option: VllmOption, value: Word) -> None:
        try:
            read = json.loads(value.text)
        except (ValueError, RecursionError):
            read = None
        if not isinstance(read, dict):
            message = f"{CONFIG} {value.text} is not a JSON object that can be read here"
            help_ = "write its values into the command, or add speculation to the recipe"
            self._refused.append(Problem(message, value.place, help_))
            return
        self._spec_word = self._spec_word or option.word
        self._spec |= {str(key): (key_node, value) for key, key_node in read.items()}

    def _speculation(self, at: Word) -> None:
        spec = self._spec
        values = {key: value for key, (value, _) in spec.items()}
        model = values.get("model")
        method = _method(values.get("method"), model)
        algorithm = ALGORITHMS.get(method)
        if algorithm is None:
            what = f"SGLang has no counterpart of vLLM's method {method}"
            help_ = "choose an SGLang method: `speclaunch drafts` lists them for a model"
            problem = Problem(f"{what}: the recipe does not speculate", at.place, help_)
            self._refused.append(problem)
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
        elif "num_speculative_tokens" not in values:
            why = "vLLM reads it from the draft's config; SGLang uses its own default"
            self._dropped.append(Dropped("the default num_speculative_tokens", at.place, why, True))
        else:
            message = f"num_speculative_tokens must be a known number, not {count!r}"
            more = "speculative_num_draft_tokens to that number plus 1"
            help_ = f"set speculative_num_steps to that number, and {more}"
            self._refused.append(Problem(message, at.place, help_))
        quantized = any(word.text == "--quantization" for word in self._words)
        if quantized and method != "ngram" and "model" in values and not values.get("quantization"):
            # SGLang's draft uses the target's --quantization unless set (0.5.23,
            # arg_groups/serving_hook.py:675); vLLM's draft uses its checkpoint's
            self._put(KEYS["quantization"], at, None, "unquant")
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
    if not method and _IMPORT_PATH.fullmatch(name):
        return "custom_class"
    if chosen in ("[ngram]", "ngram_gpu"):
        return "ngram"
    if chosen.endswith("_mtp"):
        chosen = "mtp"
    if chosen in ("draft_model", "mtp"):
        names = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
        return next((found for part, found in names.items() if part in name), chosen)
    return chosen


_IMPORT_PATH = lazy(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
"""Pattern of a class's import path. vLLM treats a model with such a name as a custom proposer."""


def _counted(word: Word) -> str:
    """Return a number as vLLM reads it: `32k` is 32,000 and `32K` is 32,768."""
    found = _SIZE.fullmatch(word.text)
    return word.text if found is None else str(int(float(found[1]) * _SIZES[found[2]]))

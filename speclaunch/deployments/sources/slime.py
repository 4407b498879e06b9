"""slime's server commands: SGLang's `--sglang-…` arguments, and those that slime sets itself.

slime's parser lacks most of the arguments that slime sets itself, and silently ignores unknown
options. slime overwrites those that the parser has. Sources: slime (THUDM/slime at 0c1e2ca),
slime/backends/sglang_utils/arguments.py (`skipped_args`, `validate_args`) and sglang_engine.py
(`_compute_server_args`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Problem, lazy
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.interface import Dropped, Invocation, InvocationKind, Word
from speclaunch.deployments.sources.source_text import WordPiece, joined
from speclaunch.deployments.sources.wrappers import cut
from speclaunch.engine import canonical, distance, history, released_names


class SlimeReplacement(Struct, frozen=True):
    """Rule by which slime sets an engine argument, and slime's own option for it, if any."""

    does: str
    option: str | None = None


GPUS, MODEL = "--rollout-num-gpus-per-engine", "--hf-checkpoint"

OWN = {
    "model_path": SlimeReplacement(f"slime serves {MODEL}", MODEL),
    "tp_size": SlimeReplacement(f"slime derives it from {GPUS}", GPUS),
    "trust_remote_code": SlimeReplacement("slime always sets it"),
    "random_seed": SlimeReplacement(
        "slime sets a different seed for each engine", "--rollout-seed"
    ),
    "enable_memory_saver": SlimeReplacement(
        "slime sets it to offload the rollout", "--offload-rollout"
    ),
    "host": SlimeReplacement("slime binds each engine to its node"),
    "port": SlimeReplacement("slime chooses one for each engine"),
    "nccl_port": SlimeReplacement("slime chooses one for each engine"),
    "nnodes": SlimeReplacement("slime derives it from the GPUs of an engine"),
    "node_rank": SlimeReplacement("slime derives it"),
    "dist_init_addr": SlimeReplacement("slime chooses it"),
    "gpu_id_step": SlimeReplacement("slime sets it to 1"),
    "base_gpu_id": SlimeReplacement("slime derives it from its placement"),
    "skip_server_warmup": SlimeReplacement("slime sets it"),
    "enable_return_routed_experts": SlimeReplacement(
        "--use-rollout-routing-replay sets it", "--use-rollout-routing-replay"
    ),
}
"""Rules for the arguments that slime sets, by the engine's current argument name."""

_SHARED = frozenset(
    [
        *("--attention-backend", "--chat-template", "--config", "--context-length"),
        *("--data-parallel-size", "--device", "--disaggregation-bootstrap-port", "--dp-size"),
        *("--dtype", "--encoder-urls", "--ep", "--ep-size", "--load-format", "--log-level"),
        *("--max-lora-rank", "--model", "--moe-dp-size", "--page-size", "--pp-size"),
        *("--quantization", "--reasoning-parser", "--sampling-backend", "--sampling-defaults"),
        *("--tokenizer-mode", "--tokenizer-path", "--weight-version"),
    ]
)
"""SGLang flags that the trainer also accepts or may accept, as complete names or abbreviations.

Sources: slime at 624b824, and Megatron-LM at d98e8a6, which creates options from the fields of its
configurations (megatron/training/config, megatron/core).
"""

_NAMED = (
    *("--sglang-router-ip", "--sglang-router-port", "--sglang-router-policy"),
    *("--sglang-router-request-timeout-secs", "--sglang-router-balance-abs-threshold"),
    *("--sglang-router-balance-rel-threshold", "--sglang-server-concurrency"),
    *("--actor-num-gpus-per-node", "--actor-num-nodes", "--debug-rollout-only", "--hf-checkpoint"),
    *("--prefill-num-servers", "--rollout-max-context-len", "--rollout-max-prompt-len"),
    *("--rollout-max-response-len", "--rollout-num-gpus", "--rollout-num-gpus-per-engine"),
    *("--rollout-num-gpus-per-node", "--rollout-seed", "--use-rollout-routing-replay"),
)
"""Full names of slime's and miles' own options that control the engines. The list is not complete.

Sources: backends/sglang_utils/arguments.py and utils/arguments.py of slime at 624b824 and of miles
at 31f1ca9. The threshold options are sglang_router's (RouterArgs), as spelled in published scripts.
"""
_LONG = 20
"""Minimum length of a name that may contain two typos; a shorter name may contain one."""


def misspelt(flag: str) -> str | None:
    """Return the option that an unknown flag misspells, or None.

    A prefix of an option is not a typo, because argparse accepts it.
    """
    if any(name.startswith(flag) for name in _NAMED):
        return None
    slips = 2 if len(flag) >= _LONG else 1
    near = [(distance(flag, name), name) for name in _NAMED if abs(len(name) - len(flag)) <= slips]
    found = min(near, default=(slips + 1, ""))
    return found[1] if found[0] <= slips else None


def is_lost(flag: str) -> bool:
    """True if a flag among slime's options can only be meant for the engine, which never gets it.

    Some SGLang release has the flag. slime, Megatron-LM and torchrun (whose options for nodes and
    ports have the engine's names) lack it.
    """
    if not flag.startswith("--") or "_" in flag or flag in _SHARED or history(flag) is None:
        return False
    name = canonical(flag.removeprefix("--").replace("-", "_"))
    return name == "tp_size" or name not in OWN


PREFIX = "--sglang-"
NEGATED = "--no-sglang-"
"""Prefix of a switch's `--no-` form, which argparse derives from slime's option name."""
_MISNEGATED = f"{PREFIX}no-"

_OWN = lazy(
    r"--sglang-(?:router-[a-z-]+|server-concurrency|config|hf-checkpoint)(?:=|\Z)"
    r"|--no-sglang-lora-use-virtual-experts\Z"
)
"""Pattern of the trainer's own options that have the prefix of engine arguments.

slime has `router-ip`, `router-port`, `router-request-timeout-secs`, `server-concurrency` and
`config` (slime at 624b824, slime/backends/sglang_utils/arguments.py). miles also has
`router-policy` (miles at 31f1ca9, miles/backends/sglang_utils/arguments.py). No release of SGLang
has a server argument `--router-…`: every option with that prefix is the router's.
`--no-sglang-lora-use-virtual-experts` is miles' own option: the engine's argument has no negation
(miles at 31f1ca9, miles/utils/arguments.py). Relax has `hf-checkpoint`, which its engines serve
instead of `--hf-checkpoint` (ModelConfig.resolve).
"""
_ROLLOUT = lazy(
    r"--(?:rollout-num-gpus|rollout-num-gpus-per-engine|rollout-num-gpus-per-node|hf-checkpoint"
    r"|debug-rollout-only|colocate|offload|prefill-num-servers|actor-num-nodes"
    r"|actor-num-gpus-per-node|use-rollout-routing-replay|seed|rollout-seed"
    r"|rollout-max-context-len|rollout-max-response-len|rollout-max-prompt-len"
    r"|sglang-[a-z-]+)(?:=|\Z)"
)
"""Pattern of options by which slime configures its engines. All others configure training."""
_DIFFUSION = lazy(
    r"--diffusion-[a-z]|(?:.*/)?train_diffusion\.py\Z|miles\.rollout\.sglang_diffusion_rollout\b"
)
"""Pattern of options and modules that occur only in miles' training of diffusion models.

miles at 31f1ca9, docs/diffusion/user-guide/cli-reference.md and launch-script.md.
"""
_LOST = "an SGLang option without the prefix --sglang-: it does not reach the engine"
_EVALUATION = lazy(r"--(?:no-)?eval-sglang-")
_EVALUATED = "an argument of the evaluation engines only: not checked"
"""Reason for dropping `--eval-sglang-…`: miles starts separate engines with these arguments.

miles at 31f1ca9, miles/backends/sglang_utils/arguments.py: `collect_eval_sglang_overrides`.
"""
_MAX_JSON = 1 << 16


class SlimeReading(Struct):
    """Server command read from slime's options, with the problems found."""

    invocation: Invocation
    problems: list[Problem] = []


def read_options(words: Sequence[Field], *, fragment: bool = False) -> SlimeReading:
    """Return the server command in slime's options, with slime's own options as extras.

    For a `fragment` (an array, or lines of a document), extras contain every slime option. For a
    complete command, which has about a hundred, they contain only those about the engines.
    """
    server: list[Word] = []
    extras: dict[str, Word] = {}
    dropped: list[Dropped] = []
    problems: list[Problem] = []
    near = _neighbours(words) if not fragment else frozenset(range(len(words)))
    starts = [index for index, word in enumerate(words) if _is_option(word) or index == 0]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        head, group = words[start], words[start:end]
        text = head.text
        name = text.partition("=")[0]
        slip = misspelt(name)
        if is_engines(text) and not _OWN.match(text) and slip is None:
            if text.startswith(_MISNEGATED):
                message = f"slime does not accept `{name}`"
                problems.append(Problem(message, head.place, f"use {prefixed(bare(name))}"))
            first = head.word()
            server.append(replace(first, text=bare(first.text)))
            server.extend(word.word() for word in group[1:])
            continue
        option_text = " ".join(word.text for word in group)
        if _EVALUATION.match(text):
            dropped.append(Dropped(option_text, head.place, _EVALUATED))
            continue
        if text.startswith("--speculative-") or is_lost(name):
            problems.append(unprefixed(head))
            dropped.append(Dropped(option_text, head.place, _LOST))
            continue
        if slip is not None:
            message = f"slime has no known option `{name}`, and ignores unknown options"
            problems.append(Problem(message, head.place, f"did you mean {slip}?"))
        if text.startswith("--") and (start in near or _ROLLOUT.match(text)):
            values = group[1:]
            if "=" in text:
                values = [cut(head, len(name) + 1), *values]
            extras[name] = values[0].word() if values else head.word()
            if len(values) > 1:
                rest = " ".join(word.text for word in values[1:])
                dropped.append(
                    Dropped(rest, values[1].place, f"only one value of `{name}` is used")
                )
        else:
            why = head.unknown or "a slime-only option"
            dropped.append(Dropped(option_text, head.place, why))
    if (served := extras.pop(f"{PREFIX}hf-checkpoint", None)) is not None:
        extras[MODEL] = served
    place = next((w.place for w in words if is_engines(w.text)), words[0].place)
    kind = InvocationKind.SLIME
    found = Invocation(kind, tuple(server), place, dropped=tuple(dropped), extras=extras)
    return SlimeReading(found, problems)


def is_diffusion(words: Sequence[Field]) -> bool:
    """True if a command of miles trains a diffusion model.

    Its `--sglang-…` options are then for a different server (`sglang.multimodal_gen`; miles at
    5c0e1d5, miles/backends/sglang_diffusion_utils/arguments.py).
    """
    return any(_DIFFUSION.match(word.text) for word in words)


def is_engines(text: str) -> bool:
    """True if a slime token is an argument for the engine."""
    return text.startswith((PREFIX, NEGATED))


def starts_engines(words: Sequence[Field]) -> bool:
    """True if words are a trainer's. `--sglang-url` of another program is no such option."""
    flags = [word.text.partition("=")[0] for word in words if is_engines(word.text)]
    names = [bare(flag).strip("-").replace("-", "_").removeprefix("no_") for flag in flags]
    passed = [n for n in names if n in ("tp", "tp_size") or not any(x.startswith(n) for x in OWN)]
    known = [name for name in passed if any(x.startswith(name) for x in released_names())]
    return bool(flags) and (
        any(word.text.endswith(("train.py", "train_async.py")) for word in words)
        or any(map(_OWN.match, flags))
        or 2 * len(known) > len(passed)
    )


def prefixed(flag: str) -> str:
    """Return slime's name for an engine flag."""
    if flag.startswith("--no-"):
        return flag.replace("--no-", NEGATED, 1)
    return flag.replace("--", PREFIX, 1)


def bare(flag: str) -> str:
    """Return the engine's name for a slime flag."""
    if flag.startswith(NEGATED):
        return flag.replace(NEGATED, "--no-", 1)
    return flag.replace(PREFIX, "--", 1)


def unprefixed(word: Field) -> Problem:
    """Return the problem with an engine flag that lacks slime's prefix."""
    name = word.text.partition("=")[0]
    own = OWN.get(canonical(name.removeprefix("--").replace("-", "_")))
    if own is not None and own.option is not None:
        message = f"slime does not accept `{name}`: its engines get it from {own.option}"
        return Problem(message, word.place, f"use {own.option}")
    guide = " (slime's own guide omits the prefix in one place)"
    return Problem(
        f"slime does not accept `{name}`: it reaches the engine only as `{prefixed(name)}`",
        word.place,
        f"use {prefixed(name)}{guide if name.startswith('--speculative-') else ''}",
    )


def _is_option(word: Field) -> bool:
    """True for an option, or an unknown token that may expand to several (`${MODEL_ARGS[@]}`)."""
    return word.text.startswith("--") or (
        word.unknown is not None and re.match(r'"?\$\{\w+\[[@*]\]', word.text) is not None
    )


def _neighbours(words: Sequence[Field]) -> frozenset[int]:
    """Return the indexes of tokens in the same array as an SGLang option."""
    found: set[int] = set()
    used: dict[tuple[int, int], list[int]] = {}
    for index, word in enumerate(words):
        if word.used is not None:
            used.setdefault((id(word.used.source), word.used.start), []).append(index)
    for indexes in used.values():
        if any(is_engines(words[index].text) for index in indexes):
            found.update(indexes)
    return frozenset(found)


def runtime_environment(words: Sequence[Field]) -> dict[str, Field]:
    """Return the ``env_vars`` of ``ray job submit --runtime-env-json``."""
    for index, word in enumerate(words):
        option, _, value = "".join(piece.text for piece in word.pieces).partition("=")
        if option != "--runtime-env-json":
            continue
        if not value and index + 1 < len(words):
            after = words[index + 1]
            return _variables("".join(piece.text for piece in after.pieces), after, 0)
        return _variables(value, word, len(option) + 1)
    return {}


def _variables(text: str, word: Field, skip: int) -> dict[str, Field]:
    try:
        data = json.loads(text) if len(text) <= _MAX_JSON else None
    except (ValueError, RecursionError):
        return {}
    variables = data.get("env_vars") if isinstance(data, dict) else None
    if not isinstance(variables, dict) or not word.pieces:
        return {}
    source = joined(word.pieces, word.pieces[0].source.document)
    unknown = {piece.text for piece in word.pieces if piece.unknown}
    found: dict[str, Field] = {}
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str):
            continue
        pair = rf'{re.escape(json.dumps(name))}\s*:\s*"({re.escape(value)})"'
        shown = re.search(pair, source.text[skip:])
        at = skip + shown.start(1) if shown is not None else 0
        part = next((raw for raw in unknown if raw in value), None)
        why = f"`{part}` is not set in this file" if part is not None else None
        piece = WordPiece(value, source, at, exact=shown is not None, unknown=why)
        found[name] = Field((piece,))
    return found

"""Mistakes and rarities that are put into recipes and scripts that were plausible before."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

Spoil = Callable[[str, random.Random], str]

_ARGUMENT = re.compile(r"^  (\w+): (.*)$", re.MULTILINE)
_FLAG = re.compile(r"--[a-z][a-z-]{4,}")
MODELS = ("models/llama", "my-org/Nothing-7B", "/models/Llama-3.1-8B-Instruct", "${oc.env:MODEL}")
CODES = ("SPL301", "SPL3", "SPL804", "SPL001", "SPL999", "")
VALUES = (
    *("two", "yes", "1e5", "0.5.5", "[1, 2]", "{a: 1}", "null", "''", "-1", "99999", "1:30"),
    *("${args.port}", "${args.no_such}", "${oc.env:HOME}", "${oc.env:NOT_SET_ANYWHERE,7}", "???"),
    *("'${oc.env:NOT_SET_ANYWHERE}'", "true", "|\n    several\n    lines", "&x 5", "*x", "08", "ü"),
)
ARGUMENTS = (
    *("speculative_num_step: 3", "cuda_graph_max_bs: 8", "enable_dp_attention: true", "dp_size: 2"),
    *("speculative_algoritm: EAGLE", "disable_cuda_graph: true", "quantization: fp8", "no_such: 1"),
    *("speculative_eagle_topk: 4", "enable_ep_moe: true", "config: engine.yaml", "api_key: secret"),
    *("speculative_num_steps: 5", "speculative_num_draft_tokens: 2", "tensor_parallel_size: 2"),
    *("json_model_override_args: '{\"num_hidden_layers\": 4}'", "page_size: 64", "pp_size: 2"),
    *("lora_paths: [a=b]", "speculative_attention_mode: decode", "speculative_token_map: x.pt"),
    *("enable_multi_layer_eagle: true", "disaggregation_mode: prefill", "host: 0.0.0.0"),
)
TOP = (
    *("nonsense: 1", "enginge:\n  version: '0.5.23'", "name: [a]", "recovery:\n  policy: off"),
    *("engine:\n  version: 0.5", "engine:\n  version: '>=0.5.99'", "args: {port: 1}", "args: 3"),
    *("hydra:\n  run: {dir: x}", "launch:\n  grace_seconds: -1", "launch:\n  log: {keep: many}"),
    *("engine:\n  catalogue: nowhere", "hardware:\n  name: h9000", "hardware:\n  name: cpu"),
)
DEFAULTS = (
    *("  - override hardware: cpu", "  - model: no_such_model", "  - optional own: missing"),
    *("  - speculation@args: mtp", "  - override speculation: ngram", "  - /serving: public"),
    *("  - recovery: 'off'", "  - mtp_glm46", "  - no_such_recipe", "  - own: a", "  - 3"),
    *("  - override engine: short_draft", "  - hydra: x", "  - model: null", "  - model: [glm46]"),
)
FLAGS = (
    *("--speculative-num-step 3", "--cuda-graph-max-bs 8", "--enable-dp-attention --dp-size 2"),
    *("--no-such-flag", "--tp two", "--mem-frac 0.5", "--port --tp-size 2", "--dtype float99"),
    *("--quantization fp8", "--speculative-eagle-topk=4", "--enable-ep-moe", "$EXTRA_ARGS"),
    *("--config engine.yaml", "--context-length 999999999", "--host 0.0.0.0", "--api-key s3cret"),
    *("--model-path <model>", "--attention-backend flashinfr", "--page-size 64", "--pp-size 2"),
    *("--json-model-override-args '{\"num_hidden_layers\": 4}'", "--disable-cuda-graph"),
    *("--speculative-algorithm NEXTN", "--disaggregation-mode prefill", "--lora-paths a=b"),
)


def spoil_recipe(text: str, dice: random.Random) -> str:
    """The recipe with one to three things that are odd or wrong."""
    for spoil in dice.choices(RECIPE, k=dice.randint(1, 3)):
        text = spoil(text, dice)
    return text


def spoil_script(text: str, dice: random.Random) -> str:
    """The script with one to three things that are odd or wrong."""
    for spoil in dice.choices(SCRIPT, k=dice.randint(1, 3)):
        text = spoil(text, dice)
    return text


def _misspelled(word: str, dice: random.Random) -> str:
    at = dice.randrange(2, len(word))
    return word[:at] + dice.choice(("", word[at] * 2, "x")) + word[at + 1 :]


def _somewhere(pattern: re.Pattern[str], text: str, dice: random.Random) -> re.Match[str] | None:
    found = list(pattern.finditer(text))
    return dice.choice(found) if found else None


def _key(text: str, dice: random.Random) -> str:
    found = _somewhere(_ARGUMENT, text, dice)
    if found is None:
        return text
    return text[: found.start(1)] + _misspelled(found[1], dice) + text[found.end(1) :]


def _value(text: str, dice: random.Random) -> str:
    found = _somewhere(_ARGUMENT, text, dice)
    if found is None:
        return text
    return text[: found.start(2)] + dice.choice(VALUES) + text[found.end(2) :]


def _argument(text: str, dice: random.Random) -> str:
    return text.replace("args:\n", f"args:\n  {dice.choice(ARGUMENTS)}\n", 1)


def _model(text: str, dice: random.Random) -> str:
    return text.replace("args:\n", f"args:\n  model_path: {dice.choice(MODELS)}\n", 1)


def _top(text: str, dice: random.Random) -> str:
    return f"{text}\n{dice.choice(TOP)}\n"


def _default(text: str, dice: random.Random) -> str:
    before = dice.choice(("  - _self_\n", "  - base\n"))
    return text.replace(before, f"{dice.choice(DEFAULTS)}\n{before}", 1)


def _order(text: str, dice: random.Random) -> str:
    without = text.replace("  - _self_\n", "", 1)
    return dice.choice((without, without.replace("defaults:\n", "defaults:\n  - _self_\n", 1)))


def _ignore(text: str, dice: random.Random) -> str:
    lines = text.splitlines()
    at = dice.randrange(len(lines))
    reason = dice.choice((" as agreed", "", "  because the gateway checks it"))
    kind = dice.choice(("ignore", "ignore", "ignore-file"))
    comment = f"# speclaunch: {kind}[{dice.choice(CODES)}]{reason}"
    if dice.random() < 0.5:
        lines.insert(at, comment)
    else:
        lines[at] += f"  {comment}"
    return "\n".join(lines) + "\n"


def _broken(text: str, dice: random.Random) -> str:
    lines = text.splitlines()
    at = dice.randrange(len(lines))
    lines[at] = dice.choice(("\tx: 1", "a: [1, 2", f"   {lines[at]}", "- b: c: d", '"', "}", "%x"))
    return "\n".join(lines) + "\n"


def _twice(text: str, dice: random.Random) -> str:
    lines = text.splitlines()
    at = dice.randrange(len(lines))
    return "\n".join([*lines[:at], lines[at], *lines[at:]]) + "\n"


def _cut(text: str, dice: random.Random) -> str:
    return text[: dice.randrange(len(text))]


def _endings(text: str, dice: random.Random) -> str:
    return dice.choice((text.replace("\n", "\r\n"), "\ufeff" + text, text.rstrip("\n"), text * 2))


def _package(text: str, dice: random.Random) -> str:
    head = (
        "# @package args\n",
        "# @package _global_\n",
        "# @package a.b\n",
        "---\n",
        "%YAML 1.1\n",
    )
    return dice.choice(head) + text


def _flag(text: str, dice: random.Random) -> str:
    found = _somewhere(_FLAG, text, dice)
    if found is None:
        return text
    return text[: found.start()] + _misspelled(found[0], dice) + text[found.end() :]


def _more(text: str, dice: random.Random) -> str:
    return text.replace('"$MODEL"', f'"$MODEL" {dice.choice(FLAGS)}', 1)


def _other_model(text: str, dice: random.Random) -> str:
    name = dice.choice(("models/llama", "my-org/Nothing-7B", "/models/GLM-4.6", "$UNSET", "m"))
    return re.sub(r"MODEL:-[^}]*", f"MODEL:-{name}", text, count=1)


def _slime(text: str, dice: random.Random) -> str:
    said = " ".join(f"--sglang-{flag[2:]}" for flag in dice.sample(FLAGS, 2) if flag[0] == "-")
    lines = [f"SGLANG_ARGS=(--rollout-num-gpus-per-engine {dice.choice((1, 8))}", f"  {said})"]
    return "\n".join([text, *lines, 'python3 train.py --hf-checkpoint x "${SGLANG_ARGS[@]}"', ""])


def _quote(text: str, dice: random.Random) -> str:
    at = dice.randrange(len(text))
    return text[:at] + dice.choice(("'", '"', "$(", "`", "<<EOF\n", "{{ x }}")) + text[at:]


RECIPE: tuple[Spoil, ...] = (
    *(_key, _value, _value, _argument, _argument, _model, _top, _default, _default, _order),
    *(_ignore, _ignore, _broken, _twice, _cut, _endings, _package),
)
SCRIPT: tuple[Spoil, ...] = (
    *(_flag, _flag, _more, _more, _more, _other_model, _slime, _quote, _ignore, _ignore),
    *(_twice, _cut, _endings),
)

"""vLLM's server commands as SGLang's: `vllm serve … --speculative-config '{…}'`.

Only an import reads them. Until then the name of the program is covered by a mark of the same
length (`marked`), which the readers know as a server; `translated` makes SGLang's command of what
they found. Read from vLLM's config/speculative.py and engine/arg_utils.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from speclaunch.errors import Problem
from speclaunch.importer.files import read_text, read_words
from speclaunch.importer.interface import Dropped, Invocation, InvocationKind, Reading, Word
from speclaunch.importer.vllm_options import (
    ADDRESS,
    ALGORITHMS,
    CHAINS,
    CONFIG,
    KEY_WHY,
    KEYS,
    NONE,
    SAME,
    SWITCHES,
    USUAL,
    VALUES,
    WHY,
    Option,
    read_options,
)
from speclaunch.importer.wrappers import VLLM
from speclaunch.patterns import lazy

_NAME = "vllm"
_PROGRAM = lazy(
    r"""\bvllm(?=["']?,?(?:[ \t]+|\s*-\s+)["']?serve\b"""
    r"|\.entrypoints\.openai\.api_server\b|-openai[:@ \t])"
)
_SIZE = lazy(r"(\d+(?:\.\d+)?)([kKmMgG])")
_SIZES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def servers_in_words(argv: Sequence[str]) -> Reading | None:
    """vLLM's server in a command that was given as words, as SGLang's; None if it starts none."""
    found = translated(read_words(argv, is_vllm=True))
    return found if found.invocations else None


def servers_in(data: bytes, shown: str, suffix: str | None = None) -> Reading | None:
    """vLLM's servers in a file, as SGLang's; None if there are none."""
    text = marked(data.decode("utf-8-sig", "replace"))
    if VLLM not in text:
        return None
    found = translated(read_text(text, shown, suffix))
    return found if found.invocations else None


def marked(text: str) -> str:
    """The text with vLLM's programs marked for the readers, each as long as before."""
    return _PROGRAM.sub(VLLM, text)


def marked_words(argv: Sequence[str]) -> list[str]:
    """The same of the words of a command."""
    pairs = zip(argv, [*argv[1:], ""], strict=True)
    return [
        word[: -len(_NAME)] + VLLM
        if follows == "serve" and word.rpartition("/")[2] == _NAME
        else marked(word if follows == "" else f"{word} ").removesuffix(" ")
        for word, follows in pairs
    ]


def translated(reading: Reading) -> Reading:
    """A reading of a marked text with its commands as SGLang's."""
    found = (one for one in reading.invocations if one.kind is InvocationKind.VLLM)
    return replace(
        reading,
        invocations=tuple(_Translation(one).done() for one in found),
        problems=tuple(map(_shown_problem, reading.problems)),
        unread=tuple(map(_shown_problem, reading.unread)),
        misread=tuple(map(_shown_problem, reading.misread)),
    )


def _shown(text: str) -> str:
    return text.replace(VLLM, _NAME)


def _shown_problem(problem: Problem) -> Problem:
    return replace(problem, message=_shown(problem.message))


class _Translation:
    """SGLang's command for one of vLLM's."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._words: list[Word] = []
        self._dropped: list[Dropped] = []
        self._refused: list[Problem] = []
        self._spec: dict[str, tuple[Any, Word]] = {}
        self._spec_word: Word | None = None

    def done(self) -> Invocation:
        """The command, without what SGLang does not have."""
        found = self._invocation
        model, options = read_options(found.words)
        if model is not None:
            self._put("--model-path", model, model)
        for one in options:
            self._option(one)
        if self._spec_word is not None:
            self._speculation(self._spec_word)
        env = dict(found.env)
        for name in [name for name in env if name.startswith("VLLM_")]:
            self._dropped.append(Dropped(name, env.pop(name).place, "a variable of vLLM's", True))
        if {"--host", "--port"} - {one.name for one in options}:
            self._dropped.append(Dropped("the default address", found.place, ADDRESS))
        return replace(
            found,
            kind=InvocationKind.LAUNCH_SERVER,
            words=tuple(self._words),
            program=tuple(replace(word, text=_shown(word.text)) for word in found.program),
            env=MappingProxyType(env),
            dropped=(
                *(replace(one, text=_shown(one.text)) for one in found.dropped),
                *self._dropped,
            ),
            refused=(*found.refused, *self._refused),
            image=None,
        )

    def _put(self, flag: str, at: Word, value: Word | None = None, text: str | None = None) -> None:
        """An option of SGLang's, where vLLM's is written."""
        self._words.append(
            replace(at, text=flag, evaluated=True, why=None, placeholder=False, defaults=())
        )
        if value is not None and text is None:
            self._words.append(value)
        elif text is not None:
            self._words.append(replace(value or at, text=text, defaults=()))

    def _drop(self, option: Option, why: str) -> None:
        texts = [option.word.text, *(one.text for one in option.values if not option.is_glued)]
        lost = why != USUAL
        self._dropped.append(Dropped(" ".join(texts), option.word.place, why, lost))

    def _option(self, option: Option) -> None:
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
                self._drop(replace(option, values=values[1:]), "SGLang serves one name")
        elif name == "--max-model-len" and values and values[0].text not in ("auto", "-1"):
            self._put("--context-length", option.word, values[0], _counted(values[0]))
        elif name == "--generation-config" and values and values[0].text == "vllm":
            self._put("--sampling-defaults", option.word, values[0], "openai")
        elif name in VALUES and values and values[0].text in VALUES[name]:
            self._put(name, option.word, values[0], VALUES[name][values[0].text])
        else:
            self._drop(option, WHY.get(name, NONE))

    # -- speculation --------------------------------------------------------------------

    def _config(self, option: Option, value: Word) -> None:
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
        self._spec |= {str(key): (one, value) for key, one in read.items()}

    def _speculation(self, at: Word) -> None:
        spec = dict(self._spec)
        given = {key: value for key, (value, _) in spec.items()}
        model = given.get("model")
        method = _method(given.get("method"), model)
        algorithm = ALGORITHMS.get(method)
        if algorithm is None:
            self._refused.append(
                Problem(
                    f"SGLang has no counterpart of vLLM's method {method}: the recipe does not "
                    "speculate",
                    at.place,
                    "choose a method of SGLang's: `speclaunch drafts` lists them for a model",
                )
            )
            return
        self._put("--speculative-algorithm", at, None, algorithm)
        used = {"method", "model", "num_speculative_tokens"}
        if isinstance(model, str) and method != "ngram":
            self._value("--speculative-draft-model-path", model, spec["model"][1], at)
        count = given.get("num_speculative_tokens")
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            if method in CHAINS:
                self._put("--speculative-num-steps", at, None, str(count))
                self._put("--speculative-eagle-topk", at, None, "1")
            self._put("--speculative-num-draft-tokens", at, None, str(count + 1))
        elif "num_speculative_tokens" in given:
            self._refused.append(
                Problem(
                    f"num_speculative_tokens is {count!r}: not a number that is known here",
                    at.place,
                    "set speculative_num_steps to it, and speculative_num_draft_tokens to 1 more",
                )
            )
        for key, flag in KEYS.items():
            if isinstance(given.get(key), str):
                self._value(flag, given[key], spec[key][1], at)
                used.add(key)
        for key in given:
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
    """The method that vLLM chooses (`SpeculativeConfig.__post_init__`), without the checkpoint."""
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
    """A number as vLLM reads one: `32k` is 32,000, `32K` 32,768."""
    found = _SIZE.fullmatch(word.text)
    return word.text if found is None else str(int(float(found[1]) * _SIZES[found[2]]))

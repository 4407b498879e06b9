"""Checks of request fields with greedy answers, most derived from the plain server's continuation.

A stop string, stop token or limit cuts the continuation; a bias changes it; a grammar must match.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from speclaunch.measure.contract.pair import (
    TOKENS,
    Base,
    GreedyCase,
    Outcome,
    Pair,
    request,
    shown,
    untested,
)
from speclaunch.measure.contract.servers import ContractAnswer

_SWEPT = 10
"""Number of stop positions to test, greater than the tokens that a verify step accepts."""
_LIMITS = 8
_FORCE, _FORCED = 100.0, 12
_MINIMA = (3, 8, 17)
PENALTIES = {"frequency_penalty": 2.0, "presence_penalty": 2.0, "repetition_penalty": 1.8}
_MARGIN = 1.0
"""Nats between a biased token and the best, small enough for a penalty to change the answer."""
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"
_LONGEST = 300_000
"""Maximum tokens of a prompt at the context limit."""

Check = Callable[[ContractAnswer], bool]


def _text_is(text: str) -> Check:
    return lambda answer: answer.text == text


def _ids_are(ids: tuple[int, ...]) -> Check:
    return lambda answer: answer.ids == ids


def _unlike(ids: tuple[int, ...]) -> Check:
    return lambda answer: answer.ids != ids


def _without(token: int) -> Check:
    return lambda answer: token not in answer.ids


def _of_length(least: int, most: int) -> Check:
    return lambda answer: least <= len(answer.ids) <= most


def stop(pair: Pair) -> Outcome:
    """Check stop strings of one token, at every position in a run of accepted tokens."""
    return pair.compare(_stop_strings(pair, lambda tokens, at: tokens[at]))


def stop_across(pair: Pair) -> Outcome:
    """Check stop strings that begin in one token and end in the next tokens."""

    def text(tokens: tuple[str, ...], at: int) -> str:
        first, last = tokens[at], tokens[min(at + 2, len(tokens) - 1)]
        return f"{first[len(first) // 2 :]}{tokens[at + 1]}{last[: (len(last) + 1) // 2]}"

    return pair.compare(_stop_strings(pair, text))


def _stop_strings(pair: Pair, text: Callable[[tuple[str, ...], int], str]) -> Iterator[GreedyCase]:
    for base in pair.bases:
        for at in range(_SWEPT):
            stopped = text(base.tokens, at)
            if stopped and _UNREADABLE not in stopped and stopped in base.answer.text:
                yield GreedyCase(
                    base.body(stop=[stopped]),
                    f"stop {shown(stopped)}",
                    _text_is(base.answer.text.partition(stopped)[0]),
                )


def stop_token_ids(pair: Pair) -> Outcome:
    """Check stop tokens at every position in a run of accepted tokens."""
    return pair.compare(
        GreedyCase(
            base.body(stop_token_ids=[base.answer.ids[at]], ignore_eos=False),
            f"stop_token_ids [{base.answer.ids[at]}]",
            _ends(base, at),
        )
        for base in pair.bases
        for at in range(_SWEPT)
    )


def _ends(base: Base, at: int) -> Check:
    """Return a check that the answer equals the continuation up to the token at index `at`."""
    end = base.answer.ids.index(base.answer.ids[at]) + 1
    return lambda answer: answer.ids == base.answer.ids[:end] and answer.finish.type == "stop"


def max_new_tokens(pair: Pair) -> Outcome:
    """Check limits that fall within a run of accepted tokens."""
    return pair.compare(
        GreedyCase(
            base.body(max_new_tokens=limit),
            f"max_new_tokens {limit}",
            _ids_are(base.answer.ids[:limit]),
        )
        for base in pair.bases
        for limit in range(1, _LIMITS + 1)
    )


def end_at_limit(pair: Pair) -> Outcome:
    """Check an end token in the same verify step as the limit."""
    return pair.compare(
        GreedyCase(
            base.body(stop_token_ids=[base.answer.ids[at]], max_new_tokens=limit, ignore_eos=False),
            f"stop token at {at + 1}, max_new_tokens {limit}",
            _ends(base, at),
        )
        for base in pair.bases[:1]
        for at in range(_LIMITS - 1)
        for limit in range(at + 2, _LIMITS + 1)
    )


def min_new_tokens(pair: Pair) -> Outcome:
    """Check that a forced stop token ends the answer only once the minimum is reached."""
    return pair.compare(
        GreedyCase(
            base.body(
                min_new_tokens=minimum,
                stop_token_ids=[base.runners_up[0]],
                logit_bias={str(base.runners_up[0]): _FORCE},
                ignore_eos=False,
            ),
            f"min_new_tokens {minimum}",
            _of_length(minimum, minimum + 1),
        )
        for base in pair.bases
        for minimum in _MINIMA
    )


def logit_bias(pair: Pair) -> Outcome:
    """Check a bias that forces a token, and a bias that forbids a token of the answer."""

    def cases() -> Iterator[GreedyCase]:
        for base in pair.bases:
            forced, forbidden = base.runners_up[0], base.answer.ids[2]
            yield GreedyCase(
                base.body(logit_bias={str(forced): _FORCE}, max_new_tokens=_FORCED),
                f"logit_bias {forced}: {_FORCE:g}",
                _ids_are((forced,) * _FORCED),
            )
            yield GreedyCase(
                base.body(logit_bias={str(forbidden): -_FORCE}),
                f"logit_bias {forbidden}: {-_FORCE:g}",
                _without(forbidden),
            )

    return pair.compare(cases())


def penalty(name: str) -> Callable[[Pair], Outcome]:
    """Return the check of a penalty at a strength that changes the answer."""

    def cases(pair: Pair) -> Iterator[GreedyCase]:
        for base in pair.bases:
            for bias in ({}, _narrow(pair, base)):
                biased = {"logit_bias": bias} if bias else {}
                before = pair.plain.generate(base.body(**biased)).ids
                strength = PENALTIES[name]
                yield GreedyCase(
                    base.body(**{name: strength}, **biased),
                    f"{name} {strength:g}{' with logit_bias' if bias else ''}",
                    _unlike(before),
                )

    return lambda pair: pair.compare(cases(pair))


def _narrow(pair: Pair, base: Base) -> dict[str, float]:
    """Return a bias that nearly makes a token the best at one position of the continuation."""
    token = base.runners_up[-1]
    scored = {**base.body(), "return_logprob": True, "token_ids_logprob": [token]}
    meta = pair.plain.generate(scored).meta
    found = meta.get("output_token_ids_logprobs") or ()
    gaps = [
        best[0] - other[0][0]
        for best, other in zip(meta["output_token_logprobs"], found, strict=False)
        if other and best[1] != token
    ]
    return {str(token): round(min(gaps) - _MARGIN, 3)} if gaps else {}


def grammar(name: str) -> Callable[[Pair], Outcome]:
    """Return a check that answers match a grammar."""
    text, matches = GRAMMARS[name]

    def cases(pair: Pair) -> Iterator[GreedyCase]:
        for base in pair.bases:
            for ending in ("", " Answer:"):
                yield GreedyCase(
                    request(base.prompt + ending, **{name: text}, ignore_eos=False),
                    f"{name} {shown(text)}",
                    lambda answer: matches(answer.text),
                )

    return lambda pair: pair.compare(cases(pair))


_REGEX = r"(ab|cd|xyz){3}-[0-9]{4}"
_EBNF = 'root ::= color " " digit digit\ncolor ::= "red" | "green" | "blue"\ndigit ::= [0-9]'
_COLORS = ("red", "green", "blue")
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"color": {"enum": _COLORS}, "done": {"type": "boolean"}},
    "required": ["color", "done"],
    "additionalProperties": False,
}


def _matches_schema(text: str) -> bool:
    """True if a text is an object of the schema or a prefix; whitespace may fill an answer."""
    begun = "".join(text.split())
    complete = (
        f'{{"color":"{color}","done":{done}}}' for color in _COLORS for done in ("true", "false")
    )
    return bool(begun) and any(each.startswith(begun) for each in complete)


GRAMMARS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "regex": (_REGEX, lambda text: bool(re.fullmatch(_REGEX, text))),
    "ebnf": (_EBNF, lambda text: bool(re.fullmatch(r"(red|green|blue) [0-9][0-9]", text))),
    "json_schema": (json.dumps(_SCHEMA), _matches_schema),
}
"""Text of each grammar, and a test for matching answers."""


def context_limit(pair: Pair) -> Outcome:
    """Check prompts whose answers end at the context limit, and one prompt beyond it."""
    info = pair.plain.info
    names = ("context_length", "max_total_num_tokens", "max_req_input_len")
    limits = [info.get(name) for name in names]
    known = [each for each in limits if isinstance(each, int) and each > 0]
    if not known:
        return untested("the server reports no context length")
    length, base = min(known), pair.bases[0]
    if length > _LONGEST:
        return untested(f"a prompt of {length} tokens takes too long")
    tokens = base.answer.ids

    def cases() -> Iterator[GreedyCase]:
        for room in (2, 5, 17):
            prompt = [tokens[number % TOKENS] for number in range(length - room)]
            for limit in (max(room - 1, 1), room, room + 8):
                body = {**base.body(max_new_tokens=limit), "input_ids": prompt}
                del body["text"]
                yield GreedyCase(body, f"{length - room} prompt tokens, max_new_tokens {limit}")

    return pair.compare(cases())

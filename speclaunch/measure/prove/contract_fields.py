"""Checks of request fields that affect greedy answers, sampled answers, or their delivery.

Most expected answers derive from the plain server's greedy continuation: a stop string, stop token
or limit cuts it; a bias changes it. Sampled answers must have the same distribution. A difference
counts if `_ROUNDS` independent samples in a row show it, each with a false alarm rate of at most
`_LEVEL`. The total rate is at most 1e-6 per field and 1e-5 per contract.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from speclaunch.measure.prove.contract_servers import (
    TOKENS,
    Base,
    Body,
    ContractAnswer,
    ContractServer,
    FieldResult,
    GreedyCase,
    Outcome,
    Pair,
    counted,
    request,
    same,
    shown,
    untested,
)
from speclaunch.measure.prove.proof import SamplePair, compared

_SWEPT = 10
"""Number of stop positions to test, more than the tokens that a verify step can accept."""
_LIMITS = 8
_FORCE, _FORCED = 100.0, 12
_MINIMA = (3, 8, 17)
PENALTIES = {"frequency_penalty": 2.0, "presence_penalty": 2.0, "repetition_penalty": 1.8}
_MARGIN = 1.0
"""Logprob gap, in nats, between a biased and the best token; a penalty can reverse their order."""
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
    """Check stop strings that span several tokens."""

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
    """Return a check of the penalty `name` at a strength that changes the answer."""

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
    """Return a check that answers match the grammar in the field `name`."""
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
    """True if a text, ignoring whitespace, is an object of `_SCHEMA` or the beginning of one."""
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
"""Grammar sent in each request field, and a test for matching answers."""


def context_limit(pair: Pair) -> Outcome:
    """Check answers that end before and at the context limit, and requests for longer answers."""
    names = ("context_length", "max_total_num_tokens", "max_req_input_len")
    limits = map(pair.plain.info.get, names)
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


_LOGPROB_NATS = 3.0
"""Maximum difference of logprobs, as a multiple of `Pair.tolerance`."""
_COPIES = 3
_SHORT = 12
_LONG = 1500
_RID = "speclaunch-contract"
_COMPLETIONS, _CHAT = "/v1/completions", "/v1/chat/completions"


def n(pair: Pair) -> Outcome:
    """Check that `n` greedy answers all equal the continuation."""

    def check(base: Base) -> str | None:
        body = base.body(n=_COPIES)
        ours, plain = pair.ours.generate_all(body), pair.plain.generate_all(body)
        if len(ours) != len(plain):
            return f"n {_COPIES}: {len(ours)} answers, not {len(plain)}"
        pairs = zip(ours, plain, strict=True)
        return next(filter(None, (pair.difference(body, both)[0] for both in pairs)), None)

    return same([check(base) for base in pair.bases])


def logprobs(name: str, **fields: int) -> Callable[[Pair], Outcome]:
    """Return a check that `meta_info[name]` of both servers has similar logprobs."""

    def check(pair: Pair, base: Base) -> str | None:
        body = {**base.body(), "return_logprob": True, **fields}
        difference, ours, plain = pair.difference(body)
        if difference != "":
            return difference
        return _logprobs(ours.meta.get(name), plain.meta.get(name), _LOGPROB_NATS * pair.tolerance)

    return lambda pair: same([check(pair, base) for base in pair.bases])


def _logprobs(ours: Any, plain: Any, tolerance: float) -> str:
    """Return the difference of two logprob lists as text; empty if none."""
    own, expected = list(ours or ()), list(plain or ())
    if len(own) != len(expected):
        return f"{len(own)} entries, not {len(expected)}"
    for position, (mine, other) in enumerate(zip(own, expected, strict=True)):
        entries, others = _entries(mine), _entries(other)
        if len(entries) != len(others):
            return f"token {position + 1} has {len(entries)} logprobs, not {len(others)}"
        for (value, token), (right, target) in zip(entries, others, strict=True):
            if abs((value or 0.0) - (right or 0.0)) > tolerance:
                return f"the logprob of token {position + 1} is {value:.4g}, not {right:.4g}"
            if len(entries) == 1 and token != target:
                return f"the logprob at {position + 1} is that of token {token}, not {target}"
    return ""


def _entries(found: Any) -> list[tuple[float | None, int]]:
    """Return an entry's (logprob, token) pairs: one, or one per top token."""
    if not found:
        return []
    many = found if isinstance(found[0], list | tuple) else [found]
    return [(entry[0], entry[1]) for entry in many]


def stream(pair: Pair) -> Outcome:
    """Check that streaming preserves text, counts and finish reason, even with a stop string."""

    def check(body: dict[str, Any]) -> str:
        ours, plain = (_streamed(server.stream(body)) for server in pair.servers)
        if ours is None or plain is None:
            return "" if ours == plain else "no stream"
        unstreamed = pair.ours.generate(body)
        if ours["text"] != unstreamed.text:
            return f"its text ends with {ours['text'][-20:]!r}, not {unstreamed.text[-20:]!r}"
        for key in ("completion_tokens", "prompt_tokens", "finish_reason"):
            own, other = ours["meta_info"].get(key), plain["meta_info"].get(key)
            if own != other and pair.difference(body)[0] is not None:
                return f"{key} is {own}, not {other}"
        return ""

    bodies = [base.body() for base in pair.bases]
    bodies += [base.body(stop=[base.tokens[at]]) for base in pair.bases for at in (3, 4, 5)]
    return same([check(body) for body in bodies])


def _streamed(found: tuple[int, list[Any]]) -> Any:
    """Return the last chunk with the complete text; None for a refusal.

    The text is cumulative, unless the server sends increments
    (0.5.23 `incremental_streaming_output`).
    """
    status, chunks = found
    if status != 200 or not chunks or "meta_info" not in chunks[-1]:
        return None
    texts = [str(chunk.get("text") or "") for chunk in chunks]
    cumulative = all(map(str.startswith, texts[1:], texts))
    return {**chunks[-1], "text": texts[-1] if cumulative else "".join(texts)}


def usage(pair: Pair) -> Outcome:
    """Check the token counts of completions and their sums, with `n` and with a stop string."""

    def check(body: Mapping[str, Any]) -> str:
        (status, ours), (_, plain) = (server.chat(_COMPLETIONS, body) for server in pair.servers)
        if status != 200 or not isinstance(plain, dict):
            return "" if not isinstance(plain, dict) else f"refused ({ours})"
        own, other = ours.get("usage") or {}, plain.get("usage") or {}
        keys = ("prompt_tokens", "completion_tokens")
        if own.get("total_tokens") != sum(own.get(key) or 0 for key in keys):
            return f"total_tokens is {own.get('total_tokens')}, not the sum: {own}"
        return counted(own, other)

    bodies = [
        {"prompt": base.prompt, "temperature": 0, "max_tokens": _SHORT, "ignore_eos": True, **more}
        for base in pair.bases
        for more in ({}, {"n": 2}, {"stop": [base.tokens[4]]})
    ]
    return same([check(body) for body in bodies])


def reasoning(pair: Pair) -> Outcome:
    """Check the reasoning token count of answers that end during reasoning."""
    if not pair.plain.info.get("reasoning_parser"):
        return untested("the servers have no reasoning_parser")

    def check(base: Base, at: int) -> str | None:
        sampling = {"stop_token_ids": [base.answer.ids[at]], "ignore_eos": False}
        body = {**base.body(**sampling), "require_reasoning": True}
        difference, ours, plain = pair.difference(body)
        if difference != "":
            return difference
        own, other = (each.meta.get("reasoning_tokens") for each in (ours, plain))
        return "" if own == other else f"reasoning_tokens is {own}, not {other}"

    return same([check(base, at) for base in pair.bases for at in range(_SHORT)])


_TOOL = {
    "type": "function",
    "function": {
        "name": "paint",
        "description": "Paint a wall.",
        "parameters": {
            "type": "object",
            "properties": {"color": {"enum": ["red", "green", "blue"]}},
            "required": ["color"],
            "additionalProperties": False,
        },
    },
}


def tools(pair: Pair) -> Outcome:
    """Check a tool call that the request requires."""
    if not pair.plain.info.get("tool_call_parser"):
        return untested("the servers have no tool_call_parser")
    body = {
        "messages": [{"role": "user", "content": "Paint the wall."}],
        "tools": [_TOOL],
        "tool_choice": {"type": "function", "function": {"name": "paint"}},
        "temperature": 0,
        "max_tokens": 200,
    }
    (status, ours), (plain_status, plain) = (server.chat(_CHAT, body) for server in pair.servers)
    if plain_status != 200:
        return untested(f"the plain server refuses it: {plain}", 1)
    if status != 200:
        return Outcome(FieldResult.DIFFERS, f"refused ({ours})", 1, f"{status}: {ours}")
    own, other = _calls(ours), _calls(plain)
    if not other:
        return untested("the plain server calls no tool", 1)
    return same(["" if own == other else f"calls {own}, not {other}"])


def _calls(document: Any) -> list[tuple[str, str]]:
    message = (document.get("choices") or [{}])[0].get("message") or {}
    called = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    return [(str(each.get("name")), str(each.get("arguments"))) for each in called]


def abort(pair: Pair) -> Outcome:
    """Check that an aborted request ends, leaves the server serving, and releases its KV cache."""
    base = pair.bases[0]
    before = pair.ours.used_tokens()
    body = base.body(max_new_tokens=_LONG)
    ours = pair.ours.abort(body, f"{_RID}-1")
    plain = pair.plain.abort(body, f"{_RID}-2")
    if not plain.is_abort:
        return untested(plain.error or "the plain server answers before it can be aborted", 1)
    if not ours.is_abort and not ours.error:
        reason = f"the request keeps running: {len(ours.ids)} tokens, {ours.finish}"
        return Outcome(FieldResult.DIFFERS, reason, 1)
    later = pair.difference(base.body())[0]
    remaining = pair.ours.await_release(before or 0) if before is not None else 0
    unreleased = f"{remaining} tokens of the KV cache remain in use" if remaining else ""
    return same([f"afterwards: {later}" if later else unreleased])


_LEVEL = 0.01
_ROUNDS = 3
_PERMUTATIONS, _FEW_PERMUTATIONS = 400, 100
_DRAWS = 100
_TOKENS = 5
_HEATS = (1.0, 2.0, 4.0, 6.0, 9.0, 14.0, 20.0, 30.0, 45.0)
"""Temperatures to try; the first at which the plain server's answers vary is used."""
_TRIALS = 8
_VARIED = 5
_SEED = 20_000
_NONE = -1
"""Placeholder token after the end of an answer."""

Sample = tuple[tuple[int, ...], ...]


def distribution(**fields: Any) -> Callable[[Pair], Outcome]:
    """Return a check that answers sampled with `fields` have the plain server's distribution."""

    def check(pair: Pair) -> Outcome:
        heat = _heat(pair, fields)
        if heat is None:
            return untested("the plain server's answers do not vary")
        body = _body(pair, heat, fields)
        plain = _draw(pair.plain, body)
        if isinstance(plain, str):
            return untested(f"the plain server refuses it: {plain}", 1)
        if fields and _agree(plain, _draw(pair.plain, _body(pair, heat, {})), _FEW_PERMUTATIONS):
            return untested("it does not change the plain server's answers", _DRAWS)
        return _compared(pair, body, plain)

    return check


def _compared(pair: Pair, body: Body, plain: Sample) -> Outcome:
    for number in range(_ROUNDS):
        ours = _draw(pair.ours, body)
        if isinstance(ours, str):
            return Outcome(FieldResult.DIFFERS, f"refused ({ours})", 1, ours)
        theirs = plain if not number else _draw(pair.plain, body)
        if _agree(ours, theirs):
            return Outcome(FieldResult.SAME, "", (number + 1) * _DRAWS)
    own, other = (len(set(sample)) for sample in (ours, theirs))
    reason = f"a different distribution in {_ROUNDS} samples: {own} different answers of {_DRAWS}"
    return Outcome(FieldResult.DIFFERS, f"{reason}; the plain server: {other}", _ROUNDS * _DRAWS)


def seed(pair: Pair) -> Outcome:
    """Check that a seed reproduces its answer, and that different seeds give different answers."""
    heat = _heat(pair, {})
    if heat is None:
        return untested("the plain server's answers do not vary")

    def drawn(server: ContractServer) -> Sample | str:
        seeds = [_SEED + number for number in range(_TRIALS)] * 2
        return _ids(server, [_body(pair, heat, {"sampling_seed": seed}) for seed in seeds])

    plain, ours = drawn(pair.plain), drawn(pair.ours)
    if isinstance(plain, str):
        return untested(f"the plain server refuses it: {plain}", 1)
    if plain[:_TRIALS] != plain[_TRIALS:]:
        return untested(
            "a seed does not repeat the plain server's answer: the server needs "
            "enable_deterministic_inference",
            2 * _TRIALS,
        )
    if isinstance(ours, str):
        return Outcome(FieldResult.DIFFERS, f"refused ({ours})", 1, ours)
    repeated = sum(a == b for a, b in zip(ours[:_TRIALS], ours[_TRIALS:], strict=True))
    if repeated < _TRIALS:
        reason = f"{_TRIALS - repeated} of {_TRIALS} seeds do not repeat their answer"
    elif len(set(ours)) == 1:
        reason = f"{_TRIALS} seeds give one answer; the plain server gives {len(set(plain))}"
    else:
        return Outcome(FieldResult.SAME, "", 2 * _TRIALS)
    return Outcome(FieldResult.DIFFERS, reason, 2 * _TRIALS)


def _heat(pair: Pair, fields: Mapping[str, Any]) -> float | None:
    """Return a temperature at which the plain server's answers vary; None if none does."""
    for heat in _HEATS:
        found = _draw(pair.plain, _body(pair, heat, fields), _TRIALS)
        if not isinstance(found, str) and len(set(found)) >= _VARIED:
            return heat
    return None


def _body(pair: Pair, heat: float, fields: Mapping[str, Any]) -> dict[str, Any]:
    return pair.bases[0].body(temperature=heat, max_new_tokens=_TOKENS, **fields)


def _draw(server: ContractServer, body: Body, count: int = _DRAWS) -> Sample | str:
    """Return `count` answers without their first token (never drafted), or the refusal message."""
    bodies = [dict(body)] * count
    if server.info.get("enable_deterministic_inference"):  # each needs its own seed
        sampling = body["sampling_params"]
        bodies = [
            {**body, "sampling_params": {**sampling, "sampling_seed": next(server.seeds)}}
            for _ in range(count)
        ]
    found = _ids(server, bodies)
    return found if isinstance(found, str) else tuple(ids[1:_TOKENS] for ids in found)


def _ids(server: ContractServer, bodies: list[dict[str, Any]]) -> Sample | str:
    """Return the tokens of each answer, or the server's refusal message."""
    answers = server.many(bodies)
    error = next((answer.error for answer in answers if answer.error), "")
    return error or tuple(answer.ids for answer in answers)


def _agree(ours: Sample | str, theirs: Sample | str, permutations: int = _PERMUTATIONS) -> bool:
    """True if two samples may come from one distribution.

    The complete answer is compared like one more token: a server that uses argmax after a sampled
    token may match at each position, but gives too few distinct answers.
    """
    if isinstance(ours, str) or isinstance(theirs, str):
        return ours == theirs
    longest = max(map(len, (*ours, *theirs)))
    own, other = (
        tuple((*ids, *[_NONE] * (longest - len(ids)), ids) for ids in sample)
        for sample in (ours, theirs)
    )
    pair = SamplePair(own, other)
    return compared([pair], draws=permutations).probability > _LEVEL

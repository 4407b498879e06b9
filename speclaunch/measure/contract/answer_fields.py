"""Checks of request fields for the contents and the delivery of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speclaunch.measure.contract.pair import Base, Outcome, Pair, counted, same, untested
from speclaunch.measure.contract.records import FieldResult

_LOGPROB_NATS = 3.0
"""Maximum difference of logprobs, as a multiple of the tolerance for tokens."""
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


def output_logprobs(pair: Pair) -> Outcome:
    """Check the logprob of each token of the answer."""
    return _compare_logprobs(pair, "output_token_logprobs")


def top_logprobs(pair: Pair) -> Outcome:
    """Check the logprobs of the top tokens at each position of the answer."""
    return _compare_logprobs(pair, "output_top_logprobs", top_logprobs_num=3)


def prompt_logprobs(pair: Pair) -> Outcome:
    """Check the logprob of each token of the prompt."""
    return _compare_logprobs(pair, "input_token_logprobs", logprob_start_len=0)


def _compare_logprobs(pair: Pair, name: str, **fields: int) -> Outcome:
    """Check that `meta_info[name]` has equally many logprobs, with the same tokens and values."""

    def check(base: Base) -> str | None:
        body = {**base.body(), "return_logprob": True, **fields}
        difference, ours, plain = pair.difference(body)
        if difference != "":
            return difference
        return _logprobs(ours.meta.get(name), plain.meta.get(name), _LOGPROB_NATS * pair.tolerance)

    return same([check(base) for base in pair.bases])


def _logprobs(ours: Any, plain: Any, tolerance: float) -> str:
    """Return how two lists of logprobs differ; empty if they do not."""
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
    """Return (logprob, token) pairs of one token or of the top tokens."""
    if not found:
        return []
    many = found if isinstance(found[0], list | tuple) else [found]
    return [(entry[0], entry[1]) for entry in many]


def stream(pair: Pair) -> Outcome:
    """Check that streaming keeps text, token counts and end, with and without a stop string."""

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
            return f"usage adds up to {own.get('total_tokens')}: {own}"
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
    """Return name and arguments of each call."""
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
        return Outcome(
            FieldResult.DIFFERS,
            f"the request keeps running: {len(ours.ids)} tokens, {ours.finish}",
            1,
        )
    later = pair.difference(base.body())[0]
    remaining = pair.ours.await_release(before or 0) if before is not None else 0
    unreleased = f"{remaining} tokens of the KV cache remain in use" if remaining else ""
    return same([f"afterwards: {later}" if later else unreleased])

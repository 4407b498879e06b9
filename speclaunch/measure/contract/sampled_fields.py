"""Checks of request fields with sampled answers, which must have the same distribution.

A difference counts if `_ROUNDS` independent samples in a row show it, each with a false alarm rate
of at most `_LEVEL`: at most 1e-6 for a field, and 1e-5 for a complete contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from speclaunch.measure.contract.pair import Outcome, Pair, untested
from speclaunch.measure.contract.records import FieldResult
from speclaunch.measure.contract.servers import Body, ContractServer
from speclaunch.measure.prove.two_sample import SamplePair, compared

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
    """Return a check of the distribution at a temperature, with further sampling fields."""

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
    counts = tuple(len(set(sample)) for sample in (ours, theirs))
    reason = (
        f"a different distribution in {_ROUNDS} samples: {counts[0]} different answers of {_DRAWS}"
    )
    return Outcome(
        FieldResult.DIFFERS, f"{reason}; the plain server: {counts[1]}", _ROUNDS * _DRAWS
    )


def seed(pair: Pair) -> Outcome:
    """Check that a seed reproduces its answer, and that different seeds give different answers."""
    heat = _heat(pair, {})
    if heat is None:
        return untested("the plain server's answers do not vary")

    def drawn(server: ContractServer) -> Sample | str:
        bodies = [
            _body(pair, heat, {"sampling_seed": _SEED + number % _TRIALS})
            for number in range(2 * _TRIALS)
        ]
        return _ids(server, bodies)

    plain, ours = drawn(pair.plain), drawn(pair.ours)
    if isinstance(plain, str):
        return untested(f"the plain server refuses it: {plain}", 1)
    if plain[:_TRIALS] != plain[_TRIALS:]:
        return untested(
            "a seed does not repeat the plain server's answer: it needs "
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
    """Return a temperature at which the plain server's answers vary after their first token."""
    for heat in _HEATS:
        found = _draw(pair.plain, _body(pair, heat, fields), _TRIALS)
        if not isinstance(found, str) and len(set(found)) >= _VARIED:
            return heat
    return None


def _body(pair: Pair, heat: float, fields: Mapping[str, Any]) -> dict[str, Any]:
    return pair.bases[0].body(temperature=heat, max_new_tokens=_TOKENS, **fields)


def _repeated(server: ContractServer, body: Body, count: int) -> list[dict[str, Any]]:
    """Return `count` copies of a request; for a deterministic server, each has its own seed."""
    if not server.info.get("enable_deterministic_inference"):
        return [dict(body)] * count
    sampling = body["sampling_params"]
    return [
        {**body, "sampling_params": {**sampling, "sampling_seed": next(server.seeds)}}
        for _ in range(count)
    ]


def _draw(server: ContractServer, body: Body, count: int = _DRAWS) -> Sample | str:
    """Return answers to a request, without the first token, which is never drafted."""
    found = _ids(server, _repeated(server, body, count))
    return found if isinstance(found, str) else tuple(ids[1:_TOKENS] for ids in found)


def _ids(server: ContractServer, bodies: list[dict[str, Any]]) -> Sample | str:
    """Return the tokens of each answer, or the server's refusal message."""
    answers = server.many(bodies)
    error = next((answer.error for answer in answers if answer.error), "")
    return error or tuple(answer.ids for answer in answers)


def _agree(ours: Sample | str, theirs: Sample | str, permutations: int = _PERMUTATIONS) -> bool:
    """True if two samples may come from one distribution.

    The complete answer counts as one more token: argmax after a sampled token may match at each
    position, but give too few distinct answers.
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

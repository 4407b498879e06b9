"""Two servers, and the comparison of their greedy answers.

Each request goes to both. It proves nothing unless the plain server's answer shows the field's
effect. Answers that first differ at tokens the plain server rates equally are numerical ties and
also prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from speclaunch.core import LaunchError
from speclaunch.measure.contract.records import FieldResult
from speclaunch.measure.contract.servers import Body, ContractAnswer, ContractServer
from speclaunch.measure.prove.proof import first_difference, noise

TOKENS = 48
"""Length of the greedy answer that most cases cut or change."""
_PROMPTS = (
    "The quick brown fox jumps over the lazy dog while the server",
    "Once upon a time there was a small language model on an ordinary",
    "A draft model proposes a few tokens, the target model verifies them all",
    "When memory runs out the launcher turns the right",
    "Speculative decoding changes the speed of an answer, never its",
    "def successor(token): return cycle[(position + 1)",
)
_BASES = 2
_TOPS = 2
_SHOWN = 40


class Outcome(Struct, frozen=True):
    """Result of one field. `refused`: the server's message if it refuses the field."""

    result: FieldResult
    reason: str = ""
    requests: int = 0
    refused: str = ""


def untested(reason: str, requests: int = 0) -> Outcome:
    """Return the outcome of a field that cannot be tested on these servers."""
    return Outcome(FieldResult.NOT_TESTED, reason, requests)


class GreedyCase(Struct, frozen=True):
    """A greedy request. `shown`: the field with its value. `holds`: True for a plain answer that
    shows the effect of the field, known by construction."""

    body: Body
    shown: str
    holds: Callable[[ContractAnswer], bool] = lambda answer: bool(answer.ids)


class Base(Struct, frozen=True):
    """A prompt that both servers continue identically. `tokens`: texts of the answer's tokens."""

    prompt: str
    answer: ContractAnswer
    tokens: tuple[str, ...]
    runners_up: tuple[int, ...]
    """Second most likely token at each position."""

    def body(self, **sampling: Any) -> dict[str, Any]:
        """Return a greedy request with these sampling parameters."""
        return request(self.prompt, **sampling)


def request(prompt: str, **sampling: Any) -> dict[str, Any]:
    """Return a greedy request. `sampling` adds or replaces sampling parameters."""
    defaults = {"temperature": 0, "max_new_tokens": TOKENS, "ignore_eos": True}
    return {"text": prompt, "sampling_params": {**defaults, **sampling}}


class Pair:
    """The servers of a contract. `ours` speculates."""

    def __init__(self, ours: ContractServer, plain: ContractServer, dtype: str = "") -> None:
        """`dtype`: data type that the servers compute in. If empty, the plain server's report is
        used.
        """
        self.ours, self.plain = self.servers = ours, plain
        self._dtype = dtype

    @cached_property
    def tolerance(self) -> float:
        """Nats within which two tokens count as equal."""
        return noise(self._dtype or str(self.plain.info.get("dtype")), (), ())

    @cached_property
    def bases(self) -> tuple[Base, ...]:
        """Prompts for the other cases: without any field, both servers answer identically."""
        found = []
        for prompt in _PROMPTS:
            base = self._base(prompt)
            if self.difference(base.body())[0] == "":
                found.append(base)
            if len(found) == _BASES:
                break
        return tuple(found)

    def plainly(self, body: Body) -> ContractAnswer:
        """Return the plain server's answer, with the logprobs and texts of the top two tokens."""
        logprobs = {"return_logprob": True, "top_logprobs_num": _TOPS}
        return self.plain.generate({**body, **logprobs, "return_text_in_logprobs": True})

    def _base(self, prompt: str) -> Base:
        answer = self.plainly(request(prompt))
        if answer.error:
            raise LaunchError(f"the plain server refuses a greedy request: {answer.error}")
        tops = answer.meta["output_top_logprobs"]
        tokens = tuple(str(entry[2] or "") for entry in answer.meta["output_token_logprobs"])
        return Base(prompt, answer, tokens, tuple(int(top[-1][1]) for top in tops))

    def difference(
        self, body: Body, found: tuple[ContractAnswer, ContractAnswer] | None = None
    ) -> tuple[str | None, ContractAnswer, ContractAnswer]:
        """Return how the answers to a request differ, then the speculative and the plain answer.

        The difference is empty for equal answers, None for a numerical tie.
        """
        ours, plain = found or (self.ours.generate(body), self.plain.generate(body))
        return self._difference(body, ours, plain), ours, plain

    def _difference(self, body: Body, ours: ContractAnswer, plain: ContractAnswer) -> str | None:
        if ours.error or plain.error:
            return _refused(ours.error, plain.error)
        at = first_difference(ours.ids, plain.ids)
        if at is not None and self._is_tie(body, ours, at):
            return None
        if len(ours.ids) != len(plain.ids) or ours.finish != plain.finish:
            own, other = (f"{len(each.ids)} tokens, {each.finish}" for each in (ours, plain))
            return f"{own}; the plain server: {other}"
        if at is not None:
            return f"token {at + 1} is {ours.ids[at]}, not {plain.ids[at]}"
        if ours.text != plain.text:
            return f"text …{ours.text[-_SHOWN:]!r}, not …{plain.text[-_SHOWN:]!r}"
        return counted(ours.meta, plain.meta)

    def _is_tie(self, body: Body, ours: ContractAnswer, at: int) -> bool:
        """True if the plain server prefers its own token at `at` by at most the tolerance."""
        again = self.plainly(body)
        tops = again.meta.get("output_top_logprobs") or ()
        if again.error or ours.ids[:at] != again.ids[:at] or not at < min(len(ours.ids), len(tops)):
            return False
        best, *others = tops[at]
        return any(
            int(other[1]) == ours.ids[at] and best[0] - other[0] <= self.tolerance
            for other in others
        )

    def compare(self, cases: Iterable[GreedyCase]) -> Outcome:
        """Return the outcome of a field with greedy answers."""
        tested = requests = 0
        reason = "no request for it"
        for case in cases:
            requests += 1
            difference, ours, plain = self.difference(case.body)
            if difference:
                refused = ours.error if not plain.error else ""
                return Outcome(
                    FieldResult.DIFFERS, f"{case.shown}: {difference}", requests, refused
                )
            if difference is None:
                reason = "numerical ties only"
            elif plain.error:
                reason = f"both servers refuse it: {plain.error}"
            elif not case.holds(plain):
                reason = "it does not change the plain server's answers"
            else:
                tested += 1
        if not tested:
            return untested(reason, requests)
        return Outcome(FieldResult.SAME, "", tested)


def _refused(ours: str, plain: str) -> str:
    if ours and plain:
        return ""
    return f"refused ({ours})" if ours else f"accepted; the plain server refuses it ({plain})"


def counted(ours: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """Return the first token count that differs; empty if none does."""
    for name in ("prompt_tokens", "completion_tokens"):
        if ours[name] != plain[name]:
            return f"{name} is {ours[name]}, not {plain[name]}"
    return ""


def shown(text: str) -> str:
    """Return a text in quotes, shortened."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def same(differences: Sequence[str | None]) -> Outcome:
    """Return a field's outcome from the `Pair.difference` result of each request."""
    found = next(filter(None, differences), "")
    return Outcome(FieldResult.DIFFERS if found else FieldResult.SAME, found, len(differences))

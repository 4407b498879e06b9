"""Answers of a running release to fixed prompts: greedy tokens and their verify steps.

Releases use different kernels, so two tokens with almost equal logits may swap. The compared server
scores the reference's answer: tokens that it prefers by less than its data type's noise are a tie
(see `prove`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from speclaunch.core import LaunchError, Redactor
from speclaunch.engine import Address
from speclaunch.measure.bench.workload import shipped, workload
from speclaunch.measure.contract.records import FieldRow
from speclaunch.measure.prove.answers import ProofAnswer, ProofPrompt, ProofServer
from speclaunch.measure.prove.proof import AnswerKind, compare, first_difference, noise
from speclaunch.serving import EngineClient, EngineError

Say = Callable[[str], None]

PROMPTS_OF_A_SET = 4
TOKENS = 32
_AT_ONCE = 1
"""One request at a time: the batch shape is the same in every release."""


class ReleaseAnswers(Struct, frozen=True):
    """Greedy answers of a release to the same prompts.

    `fields`: rows of the request contract, if it was checked.
    """

    answers: tuple[ProofAnswer, ...] = ()
    fields: tuple[FieldRow, ...] = ()

    @property
    def acceptance(self) -> float | None:
        """Tokens per verify step; None without verify steps."""
        steps = sum(answer.verify_steps for answer in self.answers)
        verified = (len(answer.ids) for answer in self.answers if answer.verify_steps)
        return sum(verified) / steps if steps else None


def fixed_prompts() -> tuple[ProofPrompt, ...]:
    """Return the prompts that every release answers: a few from each shipped set."""
    return tuple(
        ProofPrompt(text, TOKENS)
        for name in shipped()
        for text in (workload(name, TOKENS, 0).texts or ())[:PROMPTS_OF_A_SET]
    )


class ObservedServer:
    """A running server. Methods raise LaunchError if the server does not answer."""

    def __init__(self, address: Address, dtype: str = "") -> None:
        """`dtype`: data type that it computes in; empty if unknown."""
        self._address, self._dtype = address, dtype
        self._server = ProofServer(lambda: EngineClient(address), _AT_ONCE)

    def observe(self) -> ReleaseAnswers:
        """Return the server's answers to the fixed prompts."""
        try:
            return ReleaseAnswers(tuple(self._server.answers(fixed_prompts(), logprobs=False)))
        except EngineError as error:
            raise LaunchError(f"the server gave no answer: {error}") from error

    def info(self) -> Mapping[str, Any]:
        """Return the arguments that the server reports, without secrets."""
        try:
            with EngineClient(self._address) as client:
                return dict(Redactor().value(client.server_info()))
        except EngineError as error:
            raise LaunchError(f"the server did not report its arguments: {error}") from error

    def difference(self, reference: ReleaseAnswers, found: ReleaseAnswers) -> str | None:
        """Return the first answer that differs from the reference beyond a tie; None if none does.

        `found`: this server's own answers.
        """
        pairs = zip(fixed_prompts(), reference.answers, found.answers, strict=True)
        for prompt, before, after in pairs:
            at = first_difference(before.ids, after.ids)
            if at is None:
                continue
            verdict = compare(
                before, after, self._scores(prompt, before), noise(self._dtype, (), ())
            )
            if verdict.kind is not AnswerKind.WRONG:
                continue
            shown = repr(" ".join(prompt.text.split())[:60])
            if at >= min(len(before.ids), len(after.ids)):
                return f"another length: {shown}"
            return (
                f"token {at + 1} is {after.ids[at]} instead of {before.ids[at]}, preferred by "
                f"{verdict.gap:.3g} nats (prompt {shown})"
            )
        return None

    def _scores(self, prompt: ProofPrompt, answer: ProofAnswer) -> Sequence[Any] | None:
        """Return the reference's answer scored by this server; None if it cannot score."""
        try:
            (ids,) = self._server.prompt_ids([prompt])
            (scores,) = self._server.scores([(ids, answer.ids)])
        except (EngineError, LaunchError):
            return None
        return scores

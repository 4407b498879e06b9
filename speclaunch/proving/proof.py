"""A proof: all answers of the speculative server, judged by the plain one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from speclaunch.proving.answers import Answer, Question, Server
from speclaunch.proving.two_sample import Drawn, Pair, compared
from speclaunch.proving.verdict import Kind, Verdict, first_difference, judged, noise
from speclaunch.record import record

ALARM = 0.01
"""The chance of a false alarm of the test of samples, over all prompts and positions together."""


@record
class Judged:
    """One answer and what is said of it. `verify_steps`: how often a draft was verified for it."""

    question: Question
    concurrency: int
    verdict: Verdict
    tokens: int
    verify_steps: int


@record
class Level:
    """All answers at one concurrency."""

    concurrency: int
    counts: Mapping[Kind, int]
    unspeculated: int
    """Answers on whose way nothing was verified: they prove nothing."""
    accept_length: float | None
    """Tokens a verify step, over all answers with one."""

    @property
    def requests(self) -> int:
        """How many answers there are."""
        return sum(self.counts.values())


@record
class Proof:
    """All verdicts. `tolerance`: nats within which two tokens count as equal."""

    answers: tuple[Judged, ...]
    tolerance: float
    sampled: Drawn | None = None
    """What the test of samples found, where there was one."""

    def count(self, kind: Kind) -> int:
        """How many answers are of a kind."""
        return sum(one.verdict.kind is kind for one in self.answers)

    @property
    def wrong(self) -> tuple[Judged, ...]:
        """The answers that are wrong."""
        return tuple(one for one in self.answers if one.verdict.kind is Kind.WRONG)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The answers of each concurrency, in the order in which they were asked."""
        found: dict[int, list[Judged]] = {}
        for one in self.answers:
            found.setdefault(one.concurrency, []).append(one)
        return tuple(_level(concurrency, some) for concurrency, some in found.items())

    @property
    def unspeculated(self) -> int:
        """Answers on whose way nothing was verified: they prove nothing."""
        return sum(not one.verify_steps for one in self.answers)

    @property
    def samples_differ(self) -> bool:
        """Whether sampling shows a difference, at a chance of `ALARM` for a false alarm."""
        return self.sampled is not None and self.sampled.probability <= ALARM

    @property
    def is_lossless(self) -> bool:
        """Whether no answer is wrong, and all were speculated."""
        return bool(self.answers) and not (self.wrong or self.unspeculated or self.samples_differ)


def _level(concurrency: int, some: Sequence[Judged]) -> Level:
    counts = Counter(one.verdict.kind for one in some)
    verified = [one for one in some if one.verify_steps]
    steps = sum(one.verify_steps for one in verified)
    length = sum(one.tokens for one in verified) / steps if steps else None
    return Level(
        concurrency, {kind: counts[kind] for kind in Kind}, len(some) - len(verified), length
    )


Answers = Mapping[int, Sequence[Answer]]
"""The answers of the speculative server to all questions, by concurrency."""


@record
class Reference:
    """What the plain server says to questions: its tokens of each prompt, its own answers, and how
    far its logprobs lie apart (`tolerance`: nats within which two tokens count as equal)."""

    questions: tuple[Question, ...]
    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[Answer, ...]
    tolerance: float

    def first(self, count: int) -> Reference:
        """Of the first questions alone."""
        return Reference(
            self.questions[:count], self.prompts[:count], self.answers[:count], self.tolerance
        )


def reference(
    server: Callable[[int], Server], questions: Sequence[Question], widest: int, dtype: str
) -> Reference:
    """Ask the plain server, one question at a time; what is no answer, `widest` at a time."""
    prompts = server(widest).prompt_ids(questions)
    plain = server(1).answers(questions, logprobs=True)
    own = server(widest).scores([(p, one.ids) for p, one in zip(prompts, plain, strict=True)])
    return Reference(tuple(questions), tuple(prompts), tuple(plain), noise(dtype, plain, own))


def prove(server: Callable[[int], Server], plain: Reference, found: Answers) -> tuple[Judged, ...]:
    """Each answer judged by the plain server."""
    verdicts: list[Judged] = []
    for level, answers in found.items():
        other = [
            index
            for index, (one, theirs) in enumerate(zip(answers, plain.answers, strict=True))
            if first_difference(one.ids, theirs.ids) is not None and one.ids
        ]
        asked = [(plain.prompts[index], answers[index].ids) for index in other]
        scores = dict(zip(other, server(max(found)).scores(asked), strict=True))
        verdicts += [
            Judged(
                question,
                level,
                judged(answer, plain.answers[index], scores.get(index), plain.tolerance),
                len(answer.ids),
                answer.verify_steps,
            )
            for index, (question, answer) in enumerate(zip(plain.questions, answers, strict=True))
        ]
    return tuple(verdicts)


def sampled(server: Server, questions: Sequence[Question], draws: int) -> list[list[Answer]]:
    """`draws` answers to each question at a temperature of 1."""
    many = [one for one in questions for _ in range(draws)]
    answers = server.answers(many, logprobs=False, temperature=1.0)
    return [answers[start : start + draws] for start in range(0, len(answers), draws)]


def samples_agree(ours: Sequence[Sequence[Answer]], theirs: Sequence[Sequence[Answer]]) -> Drawn:
    """Whether both servers draw alike, prompt by prompt from the second token on: the first comes
    without a draft."""

    def pair(mine: Sequence[Answer], other: Sequence[Answer]) -> Pair:
        shortest = min(len(one.ids) for one in (*mine, *other))
        return Pair(
            tuple(one.ids[1:shortest] for one in mine), tuple(one.ids[1:shortest] for one in other)
        )

    return compared([pair(*both) for both in zip(ours, theirs, strict=True)])

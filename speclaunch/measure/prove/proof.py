"""Proof: the answers of the speculative server compared with those of the plain server.

Greedy speculation is lossless except for numerics: a different batch shape changes the summation
order, and two tokens with almost equal logits may swap. The plain server's logprobs of the
generated token and of the token that it prefers distinguish a tie from an error. A gap within the
noise is a tie, and scoring continues after the generated token. Beyond the noise, the answer is
wrong.

Samples are tested for the same distribution. One test covers all prompts and positions: Pearson's
chi-square of both servers' tokens, summed over the positions. Permuting entire answers between the
servers yields its probability. Separate tests per position would divide the false alarm rate by
their number, which a permutation test of a few thousand draws cannot resolve. The sum detects a
small shift that all positions share. The test is exact for any number of answers and rare tokens.

`docs/reference/prove.schema.json` is generated from `ProofDocument`, the JSON of `speclaunch
prove`. Within version 1, keys may be added, but never removed or redefined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from math import sqrt
from operator import itemgetter
from random import Random
from typing import Literal

from msgspec import Struct

from speclaunch.engine import SHORT_DTYPES, Plan, UnknownValueError, halved
from speclaunch.measure.prove.answers import ProofAnswer, ProofPrompt, ProofServer, Scored

_ENOUGH = 20
"""Number of draws as extreme as the samples after which the test ends without a difference."""


class SamplePair(Struct, frozen=True):
    """Answers of both servers to one prompt, as token sequences of equal length."""

    ours: tuple[tuple[Hashable, ...], ...]
    theirs: tuple[tuple[Hashable, ...], ...]


class Drawn(Struct, frozen=True):
    """Result of the sample test.

    `probability`: chance of samples at least this different if both servers draw from one
    distribution. `positions`: prompts times compared tokens.
    """

    probability: float
    positions: int
    draws: int


def statistic(ours: Counter[Hashable], total: Counter[Hashable], own: int, other: int) -> float:
    """Return the chi-square of homogeneity of two samples with `own` and `other` tokens.

    `ours`: token counts of the first sample. `total`: token counts of both.
    """
    up, down = sqrt(other / own), sqrt(own / other)
    return sum(
        (ours[token] * up - (both - ours[token]) * down) ** 2 / both
        for token, both in total.items()
    )


def compared(pairs: Sequence[SamplePair], *, draws: int = 2000, seed: int = 1) -> Drawn:
    """Return the result of the sample test over all prompts.

    The test ends after `draws` draws, or once `_ENOUGH` are as extreme (Besag and Clifford 1991:
    the probability remains exact). Raises ValueError if a server has no answer to a prompt, or if
    answer lengths differ.
    """
    if not all(pair.ours and pair.theirs for pair in pairs):
        raise ValueError("a sample is empty")
    pooled = [list(zip(*pair.ours, *pair.theirs, strict=True)) for pair in pairs]
    positions = sum(map(len, pooled))
    random = Random(seed)  # noqa: S311  no secret
    totals = [[Counter(column) for column in columns] for columns in pooled]

    def far(*, shuffled: bool) -> float:
        found = 0.0
        for pair, columns, sums in zip(pairs, pooled, totals, strict=True):
            own, other = len(pair.ours), len(pair.theirs)
            chosen = random.sample(range(own + other), own) if shuffled else range(own)
            pick = itemgetter(*chosen, chosen[0])  # a single index would return no tuple
            for column, both in zip(columns, sums, strict=True):
                ours = Counter(pick(column)[:-1])
                found += statistic(ours, both, own, other)
        return found

    seen = far(shuffled=False)
    as_far = 0
    for number in range(1, draws + 1):
        as_far += far(shuffled=True) >= seen - 1e-9
        if as_far == _ENOUGH:
            return Drawn(as_far / number, positions, number)
    return Drawn((as_far + 1) / (draws + 1), positions, draws)


ALARM = 0.01
"""False-alarm probability of the sample test, over all prompts and positions together."""
_FLOOR = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
"""Difference in nats, by data type, below which two logits count as equal.

For 16-bit types, two to three times the spacing of numbers from 16 to 32, the usual logits: 0.125
for bfloat16, 0.016 for float16. For float32, the effect of a different summation order.
"""
_UNKNOWN_FLOOR = 0.25
_TIMES_SEEN = 3.0


class Counts(Struct, frozen=True, forbid_unknown_fields=True):
    """Number of answers of each kind."""

    same: int
    tie: int
    wrong: int


class LevelRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """The answers at one concurrency. `unspeculated`: answers without a verify step.
    `accept_length`: tokens per verify step; null if there was none."""

    concurrency: int
    requests: int
    answers: Counts
    unspeculated: int
    accept_length: float | None


class SamplesRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """Result of the sample test. `probability`: the p-value of the hypothesis that both servers
    draw from one distribution. Below `alarm`, the servers count as different."""

    positions: int
    draws: int
    probability: float
    alarm: float
    differ: bool


class WrongRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A wrong answer, with its first token that the plain server would not generate. `position`
    counts from 0. If only the lengths differ, `got` and `expected` are null."""

    prompt: str
    concurrency: int
    position: int
    got: int | None
    got_text: str | None
    expected: int | None
    expected_text: str | None
    gap_nats: float


class ProofDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JSON of `speclaunch prove recipe=R`. `samples` is null without `--samples`."""

    version: Literal[1] = 1
    recipe: str
    baseline: str
    engine: str
    dtype: str | None
    lossless: bool
    answers: Counts
    unspeculated: int
    tolerance_nats: float
    concurrencies: list[LevelRecord]
    samples: SamplesRecord | None
    wrong: list[WrongRecord]


class AnswerKind(StrEnum):
    """Relation of an answer to the plain server's."""

    SAME = "same"
    TIE = "tie"
    WRONG = "wrong"


class AnswerVerdict(Struct, frozen=True):
    """Verdict on one answer.

    `position`: index of the first differing token, or of the first wrong token; None if equal.
    """

    kind: AnswerKind
    position: int | None = None
    gap: float = 0.0
    """Nats by which the plain server prefers its own token at that position."""
    got: int | None = None
    expected: int | None = None
    got_text: str | None = None
    expected_text: str | None = None


def served_dtype(plan: Plan) -> str:
    """Return a deployment's compute data type; empty if unknown."""
    try:
        dtype = plan.value("dtype")
    except UnknownValueError:
        return ""
    target = plan.facts.target
    if dtype != "auto":
        return SHORT_DTYPES.get(str(dtype), str(dtype))
    if target is None:
        return ""
    return halved(target) if target.dtype in (None, "float32") else str(target.dtype)


def noise(dtype: str, plain: Sequence[ProofAnswer], scored: Sequence[Sequence[Scored]]) -> float:
    """Return the largest logprob gap, in nats, that counts as a tie.

    It is the larger of the dtype's limit and `_TIMES_SEEN` times the observed noise: the difference
    between the plain server's token-by-token and single-pass logprobs.
    """
    seen = [
        abs(logprob - score.logprob)
        for answer, scores in zip(plain, scored, strict=True)
        for logprob, score in zip(answer.logprobs, scores, strict=True)
    ]
    return max(_FLOOR.get(dtype, _UNKNOWN_FLOOR), _TIMES_SEEN * max(seen, default=0.0))


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Return the first index at which the sequences differ; None if they are equal."""
    for index, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return index
    return min(len(left), len(right)) if len(left) != len(right) else None


def compare(
    answer: ProofAnswer, plain: ProofAnswer, scores: Sequence[Scored] | None, tolerance: float
) -> AnswerVerdict:
    """Return the verdict on an answer.

    `scores`: the answer scored by the plain server; needed if the answers differ.
    """
    at = first_difference(answer.ids, plain.ids)
    if at is None:
        return AnswerVerdict(AnswerKind.SAME)
    if scores is None or len(answer.ids) != len(plain.ids):
        return AnswerVerdict(AnswerKind.WRONG, at)
    for index in range(at, len(scores)):
        token = scores[index]
        if token.gap > tolerance:
            return AnswerVerdict(
                AnswerKind.WRONG,
                index,
                token.gap,
                token.token,
                token.best,
                token.text,
                token.best_text,
            )
    first = scores[at]
    return AnswerVerdict(AnswerKind.TIE, at, first.gap, first.token, plain.ids[at], first.text)


class CheckedAnswer(Struct, frozen=True):
    """One answer and its verdict."""

    question: ProofPrompt
    concurrency: int
    verdict: AnswerVerdict
    tokens: int
    verify_steps: int


class Proof(Struct, frozen=True):
    """All answers with their verdicts. `tolerance`: largest logprob gap, in nats, of a tie."""

    answers: tuple[CheckedAnswer, ...]
    tolerance: float
    sampled: Drawn | None = None
    """Result of the sample test; None if it did not run."""

    @property
    def counts(self) -> Counts:
        return _counts(self.answers)

    @property
    def wrong(self) -> tuple[CheckedAnswer, ...]:
        return tuple(answer for answer in self.answers if answer.verdict.kind is AnswerKind.WRONG)

    @property
    def levels(self) -> tuple[LevelRecord, ...]:
        found: dict[int, list[CheckedAnswer]] = {}
        for answer in self.answers:
            found.setdefault(answer.concurrency, []).append(answer)
        return tuple(_level(concurrency, some) for concurrency, some in found.items())

    @property
    def unspeculated(self) -> int:
        """Number of answers without verify steps, which prove nothing."""
        return sum(not answer.verify_steps for answer in self.answers)

    @property
    def samples_differ(self) -> bool:
        return self.sampled is not None and self.sampled.probability <= ALARM

    @property
    def is_lossless(self) -> bool:
        """True if no answer is wrong, all used speculation, and the samples do not differ."""
        return bool(self.answers) and not (self.wrong or self.unspeculated or self.samples_differ)

    def document(self, recipe: str, baseline: str, engine: str, dtype: str) -> ProofDocument:
        """Return the proof's document. `dtype`: empty if unknown."""
        sampled = self.sampled
        return ProofDocument(
            recipe=recipe,
            baseline=baseline,
            engine=engine,
            dtype=dtype or None,
            lossless=self.is_lossless,
            answers=self.counts,
            unspeculated=self.unspeculated,
            tolerance_nats=self.tolerance,
            concurrencies=list(self.levels),
            samples=None
            if sampled is None
            else SamplesRecord(
                positions=sampled.positions,
                draws=sampled.draws,
                probability=sampled.probability,
                alarm=ALARM,
                differ=self.samples_differ,
            ),
            wrong=[
                WrongRecord(
                    prompt=answer.question.text,
                    concurrency=answer.concurrency,
                    position=answer.verdict.position or 0,
                    got=answer.verdict.got,
                    got_text=answer.verdict.got_text,
                    expected=answer.verdict.expected,
                    expected_text=answer.verdict.expected_text,
                    gap_nats=answer.verdict.gap,
                )
                for answer in self.wrong
            ],
        )


def _counts(some: Iterable[CheckedAnswer]) -> Counts:
    counts = Counter(answer.verdict.kind for answer in some)
    return Counts(**{kind.value: counts[kind] for kind in AnswerKind})


def _level(concurrency: int, some: Sequence[CheckedAnswer]) -> LevelRecord:
    verified = [answer for answer in some if answer.verify_steps]
    steps = sum(answer.verify_steps for answer in verified)
    return LevelRecord(
        concurrency=concurrency,
        requests=len(some),
        answers=_counts(some),
        unspeculated=len(some) - len(verified),
        accept_length=sum(answer.tokens for answer in verified) / steps if steps else None,
    )


Answers = Mapping[int, Sequence[ProofAnswer]]
"""Answers of the speculative server to all questions, by concurrency."""


class Reference(Struct, frozen=True):
    """The plain server's prompt tokens, answers, and numerical noise.

    `tolerance`: largest logprob gap, in nats, of a tie.
    """

    questions: tuple[ProofPrompt, ...]
    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[ProofAnswer, ...]
    tolerance: float

    def first(self, count: int) -> Reference:
        return Reference(
            self.questions[:count], self.prompts[:count], self.answers[:count], self.tolerance
        )


def reference(
    server: Callable[[int], ProofServer], questions: Sequence[ProofPrompt], widest: int, dtype: str
) -> Reference:
    """Return the plain server's reference.

    Prompts are answered one at a time; up to `widest` other requests run concurrently.
    """
    prompts = server(widest).prompt_ids(questions)
    plain = server(1).answers(questions, logprobs=True)
    own = server(widest).scores([(p, answer.ids) for p, answer in zip(prompts, plain, strict=True)])
    return Reference(tuple(questions), tuple(prompts), tuple(plain), noise(dtype, plain, own))


def prove_answers(
    server: Callable[[int], ProofServer], plain: Reference, found: Answers
) -> tuple[CheckedAnswer, ...]:
    """Return each answer with its verdict from the plain server's scores."""
    verdicts: list[CheckedAnswer] = []
    for level, answers in found.items():
        other = [
            index
            for index, (answer, theirs) in enumerate(zip(answers, plain.answers, strict=True))
            if first_difference(answer.ids, theirs.ids) is not None and answer.ids
        ]
        pairs = [(plain.prompts[index], answers[index].ids) for index in other]
        scores = dict(zip(other, server(max(found)).scores(pairs), strict=True))
        verdicts += [
            CheckedAnswer(
                question,
                level,
                compare(answer, plain.answers[index], scores.get(index), plain.tolerance),
                len(answer.ids),
                answer.verify_steps,
            )
            for index, (question, answer) in enumerate(zip(plain.questions, answers, strict=True))
        ]
    return tuple(verdicts)


def sampled(
    server: ProofServer, questions: Sequence[ProofPrompt], draws: int
) -> list[list[ProofAnswer]]:
    """Return `draws` answers to each question at temperature 1."""
    many = [prompt for prompt in questions for _ in range(draws)]
    answers = server.answers(many, logprobs=False, temperature=1.0)
    return [answers[start : start + draws] for start in range(0, len(answers), draws)]


def samples_agree(
    ours: Sequence[Sequence[ProofAnswer]], theirs: Sequence[Sequence[ProofAnswer]]
) -> Drawn:
    """Return the result of the sample test, from the second token on.

    The first token is generated without a draft.
    """

    def pair(mine: Sequence[ProofAnswer], other: Sequence[ProofAnswer]) -> SamplePair:
        shortest = min(len(answer.ids) for answer in (*mine, *other))
        return SamplePair(
            tuple(answer.ids[1:shortest] for answer in mine),
            tuple(answer.ids[1:shortest] for answer in other),
        )

    return compared([pair(*both) for both in zip(ours, theirs, strict=True)])

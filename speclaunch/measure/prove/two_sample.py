"""Test that two servers sample tokens from the same distribution.

One test covers all prompts and positions: Pearson's chi-square of both servers' tokens at each
position, summed, with its probability by permuting entire answers between the servers. Separate
tests per position would divide the false alarm rate by their number, which a permutation test of
some thousand draws cannot resolve. The sum detects a small shift at all positions. Exact for any
number of answers and for rare tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from math import sqrt
from operator import itemgetter
from random import Random

from msgspec import Struct

_ENOUGH = 20
"""Number of draws at least as extreme that ends the test early, as evidence of no difference."""


class SamplePair(Struct, frozen=True):
    """Answers of both servers to one prompt: tokens in order, all of equal length."""

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
    """Return the chi-square of homogeneity of samples with `own` and `other` tokens.

    `total`: counts of both samples together.
    """
    up, down = sqrt(other / own), sqrt(own / other)
    return sum(
        (ours[token] * up - (both - ours[token]) * down) ** 2 / both
        for token, both in total.items()
    )


def compared(pairs: Sequence[SamplePair], *, draws: int = 2000, seed: int = 1) -> Drawn:
    """Run the test over all prompts.

    The test ends early after `_ENOUGH` draws at least as extreme (Besag and Clifford 1991: the
    probability remains exact). Raises ValueError if a prompt lacks answers of a server, or if
    answer lengths differ.
    """
    pooled = [_pooled(pair) for pair in pairs]
    positions = sum(len(columns) for columns, _, _ in pooled)
    random = Random(seed)  # noqa: S311  no secret
    totals = [[Counter(column) for column in columns] for columns, _, _ in pooled]

    def far(*, shuffled: bool) -> float:
        found = 0.0
        for (columns, own, other), sums in zip(pooled, totals, strict=True):
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


def _pooled(pair: SamplePair) -> tuple[list[tuple[Hashable, ...]], int, int]:
    """Return the tokens at each position, ours first, and the number of answers of each server."""
    if not pair.ours or not pair.theirs:
        raise ValueError("a sample is empty")
    both = [*pair.ours, *pair.theirs]
    return list(zip(*both, strict=True)), len(pair.ours), len(pair.theirs)

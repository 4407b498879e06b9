"""Search for the first bad release, tolerating probes that are sometimes wrong.

The hypotheses are the positions of the first bad release. Each probe reweights them by the
probability of its result, and the next probe halves the remaining weight. With reliable probes this
is plain bisection. With unreliable probes it is Horstein's probabilistic bisection (1963). A pair
counts only if both of its releases were probed, so `--good` and `--bad` are probed only when they
matter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from enum import StrEnum
from itertools import accumulate

from msgspec import Struct

FLAKY = 0.2
"""Assumed share of wrong evaluations when evaluations of one server are repeated."""
CONFIDENCE = 0.99
"""Probability that a verdict or a pair must reach."""
MOST_EVALUATIONS = 40
"""Maximum evaluations of one server, after which the server counts as undecided."""
_ENDPOINT = 1e-3
"""Prior weight of a wrong `--good`, relative to any other hypothesis."""


class ProbeVerdict(StrEnum):
    """Result of a probe."""

    GOOD = "good"
    BAD = "bad"
    SKIP = "skip"
    """The release cannot be tested."""


class ReleaseProbe(Struct, frozen=True):
    """A finished probe: one start of a release, and the evaluations of the running server."""

    release: str
    verdict: ProbeVerdict
    reason: str = ""
    good: int = 0
    bad: int = 0
    seconds: float = 0.0

    @property
    def is_flaky(self) -> bool:
        """True if the evaluations disagree."""
        return self.good > 0 and self.bad > 0


def net_evaluations(rate: float) -> int:
    """Return the required lead of a verdict if a share `rate` of evaluations is wrong.

    Wald's sequential test of two simple hypotheses with equal errors.
    """
    if rate <= 0:
        return 1
    return math.ceil(math.log(CONFIDENCE / (1 - CONFIDENCE)) / math.log((1 - rate) / rate))


def most_starts(releases: int) -> int:
    """Return the most starts needed to search `releases` releases with reliable probes."""
    return math.ceil(math.log2(releases)) + 1


class SearchOutcome(StrEnum):
    """End of a search."""

    FOUND = "found"
    GOOD_IS_BAD = "good is bad"
    """The release of `--good` also fails the check."""
    BAD_IS_GOOD = "bad is good"
    """The release of `--bad` also passes the check."""
    SKIPPED = "skipped"
    """Releases between the pair that cannot be tested hide the first bad release."""
    UNDECIDED = "undecided"
    """Too many contradicting probes."""


class SearchStep(Struct, frozen=True):
    """Release to probe next, or the outcome, derived from the probes so far.

    `pair`: the last good and the first bad release, if known.
    """

    probe: str | None = None
    outcome: SearchOutcome | None = None
    pair: tuple[str, str] | None = None
    following: tuple[str, ...] = ()
    """Releases that may be probed after `probe`, so their environments can be built in advance."""


def step(
    releases: Sequence[str],
    probes: Sequence[ReleaseProbe],
    *,
    rate: float = 0.0,
    installed: Collection[str] = (),
    most: int = 100,
) -> SearchStep:
    """Return the next step of the search over `releases`, ordered from good to bad.

    `rate`: share of probes with a wrong verdict. `installed`: releases preferred if several split
    the hypotheses equally. `most`: number of probes after which the search gives up.
    """
    found = _step(releases, probes, rate, installed)
    if found.probe is None:
        return found
    if len(probes) >= most:
        return SearchStep(outcome=SearchOutcome.UNDECIDED)
    coming = [
        ReleaseProbe(found.probe, verdict) for verdict in (ProbeVerdict.GOOD, ProbeVerdict.BAD)
    ]
    after = (_step(releases, [*probes, probe], rate, installed).probe for probe in coming)
    following = tuple(dict.fromkeys(name for name in after if name and name != found.probe))
    return SearchStep(found.probe, following=following)


def _step(
    releases: Sequence[str], probes: Sequence[ReleaseProbe], rate: float, installed: Collection[str]
) -> SearchStep:
    decided = [probe for probe in probes if probe.verdict is not ProbeVerdict.SKIP]
    tested = {probe.release for probe in decided}
    skipped = {probe.release for probe in probes} - tested
    testable = [release for release in releases if release not in skipped]
    if releases[0] in skipped or releases[-1] in skipped:
        return SearchStep(outcome=SearchOutcome.SKIPPED, pair=(releases[0], releases[-1]))
    masses = _posterior(testable, decided, rate)
    best = max(range(len(masses)), key=masses.__getitem__)
    if masses[best] >= CONFIDENCE or (rate <= 0 and sum(mass > 0 for mass in masses[1:]) <= 1):
        due = [at for at in (best - 1, best) if 0 <= at < len(testable)]
        for at in due:
            if testable[at] not in tested:
                return SearchStep(testable[at])
        if best == 0:
            return SearchStep(outcome=SearchOutcome.GOOD_IS_BAD)
        if best == len(testable):
            return SearchStep(outcome=SearchOutcome.BAD_IS_GOOD)
        pair = (testable[best - 1], testable[best])
        between = releases.index(pair[1]) - releases.index(pair[0]) > 1
        return SearchStep(
            outcome=SearchOutcome.SKIPPED if between else SearchOutcome.FOUND, pair=pair
        )
    below = list(accumulate(masses))  # below[i]: probability that release i is bad
    halves = [
        (round(abs(below[at] - 0.5), 2), release not in installed, at)
        for at, release in enumerate(testable)
    ]
    return SearchStep(testable[min(halves)[2]])


def _posterior(releases: Sequence[str], probes: Sequence[ReleaseProbe], rate: float) -> list[float]:
    """Return each release's probability of being the first bad; the last entry: none is bad."""
    masses = [_ENDPOINT, *[1.0] * len(releases)]
    for probe in probes:
        at, is_bad = releases.index(probe.release), probe.verdict is ProbeVerdict.BAD
        # release `at` is bad exactly if the first bad one is not after it
        masses = [
            mass * ((1 - rate) if (first <= at) is is_bad else rate)
            for first, mass in enumerate(masses)
        ]
        total = sum(masses)
        if total <= 0:  # reliable probes contradict each other
            return _posterior(releases, probes, FLAKY)
        masses = [mass / total for mass in masses]
    total = sum(masses)
    return [mass / total for mass in masses]

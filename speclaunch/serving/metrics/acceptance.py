"""Sequential test of the acceptance length. It never reports a drop from few verification steps.

It is Page's cumulative sum of log-likelihood ratios (CUSUM), one sum for each loss in `EFFECTS`.
Each sum compares the baseline with the length that remains if that share of accepted drafts is
lost. False alarms are at least 10^8 observations apart on average (Lorden 1971), if observations
vary as learned.

The variance per verification step comes from the engine's own traffic. It includes the correlation
of neighboring observations, because a long answer accepts fewer drafts in all of its steps.
Traffic that varies more takes longer to test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct, field

EFFECTS = (0.15, 0.4, 0.75)
"""Tested losses, as shares of the accepted drafts. A loss below the first is not a drop."""
LEAST_STEPS = 100
"""Verification steps below the baseline before a drop is reported."""
LEAST_OBSERVATIONS = 3
LEARNED_STEPS = 1_000
"""Verification steps from which a baseline is learned before the test starts."""
_LEARNED_OBSERVATIONS = 24
_LEARNED_EVERY = 8
_MOST_LEARNED = 512
"""Observations after which the baseline no longer changes, so that it cannot follow a decay."""
_EVIDENCE = math.log(1e8 * len(EFFECTS))
_LONGEST_BATCH = 16
"""Observations in the longest batch whose variance is compared."""
_FEWEST_BATCHES = 6
_SPREAD = 0.03
"""Smallest standard deviation of an observation, as a share of the accepted drafts."""


class AcceptanceSample(Struct, frozen=True):
    """Mean acceptance length of some verification steps."""

    length: float
    steps: float


class AcceptanceBaseline(Struct, frozen=True):
    """Usual acceptance length, and the observations that it was learned from."""

    length: float
    steps: float
    variance: float
    """Variance per verification step, including the correlation of neighbors."""
    observations: int

    @property
    def lowest(self) -> float:
        """Acceptance length below which a drop is reported."""
        return 1 + (self.length - 1) * (1 - EFFECTS[0])

    def ratios(self, sample: AcceptanceSample) -> list[float]:
        """Return the log-likelihood ratio of an observation for each loss: positive for a drop."""
        accepted = self.length - 1
        uncertain = 2 * math.sqrt(self.variance / self.steps)
        usual = max(1 + accepted * (1 - EFFECTS[0] / 2), self.length - uncertain)
        few = 1 + 2 * math.sqrt(2 / self.observations)  # the variance itself is an estimate
        spread = max(self.variance * few / sample.steps, (_SPREAD * accepted) ** 2)
        losses = [(usual - 1) * effect for effect in EFFECTS]
        return [loss * (usual - loss / 2 - sample.length) / spread for loss in losses]


def learned(samples: Sequence[AcceptanceSample]) -> AcceptanceBaseline | None:
    """Return the baseline of observations; None if they are too few or no draft was accepted."""
    steps = sum(sample.steps for sample in samples)
    if len(samples) < _LEARNED_OBSERVATIONS or steps < LEARNED_STEPS:
        return None
    length = sum(sample.length * sample.steps for sample in samples) / steps
    if length <= 1:
        return None
    variance, size = 0.0, 1
    while size <= _LONGEST_BATCH and len(samples) >= _FEWEST_BATCHES * size:
        squares = 0.0
        covered = len(samples) // size * size
        for start in range(0, covered, size):
            batch = samples[start : start + size]
            deviation = sum(sample.steps * (sample.length - length) for sample in batch)
            squares += deviation**2 / sum(sample.steps for sample in batch)
        variance = max(variance, squares / (covered // size))
        size *= 2
    return AcceptanceBaseline(length, steps, variance, len(samples))


class AcceptanceChange(Struct, frozen=True):
    """A drop below the baseline, or the return to it."""

    is_drop: bool
    baseline: float
    length: float
    """Mean acceptance length of the steps that show the change."""
    steps: int
    """Verification steps that show the change."""

    def __str__(self) -> str:
        what = "acceptance length dropped" if self.is_drop else "acceptance length is back"
        return (
            f"{what}: {self.length:.2f} over {self.steps:,} verification steps, "
            f"usually {self.baseline:.2f}"
        )


class AcceptanceTest(Struct):
    """Test of one rank. Call `add` with its observations in order."""

    baseline: AcceptanceBaseline | None = None
    is_low: bool = False
    """True from a reported drop until the length is back."""
    _samples: list[AcceptanceSample] = field(default_factory=list)
    _evidence: list[float] = field(default_factory=lambda: [0.0] * len(EFFECTS))
    _shown: AcceptanceSample | None = None
    """Mean of the observations since the evidence was last zero."""
    _count: int = 0

    def add(self, sample: AcceptanceSample) -> AcceptanceChange | None:
        """Add an observation. Return the change that it completes, or None."""
        if not (math.isfinite(sample.length) and sample.length >= 1 and sample.steps > 0):
            return None
        if self.baseline is None:
            self._learn(sample)
            return None
        change = self._tested(self.baseline, sample)
        if not self.is_low and max(self._evidence) < _EVIDENCE / 4:
            self._learn(sample)
        return change

    def restart(self) -> None:
        """Discard the evidence but not the baseline, because the engine has restarted."""
        self._evidence, self._count, self._shown = [0.0] * len(EFFECTS), 0, None

    def _learn(self, sample: AcceptanceSample) -> None:
        if len(self._samples) < _MOST_LEARNED:
            self._samples.append(sample)
            if self.baseline is None or len(self._samples) % _LEARNED_EVERY == 0:
                self.baseline = learned(self._samples) or self.baseline

    def _tested(
        self, baseline: AcceptanceBaseline, sample: AcceptanceSample
    ) -> AcceptanceChange | None:
        sign, most = (-1 if self.is_low else 1), _EVIDENCE / LEAST_OBSERVATIONS
        ratios = [min(most, sign * ratio) for ratio in baseline.ratios(sample)]
        self._evidence = [max(0.0, sum(pair)) for pair in zip(self._evidence, ratios, strict=True)]
        if not any(self._evidence):
            self.restart()
            return None
        self._count += 1
        shown = self._shown = _merged([self._shown, sample] if self._shown else [sample])
        enough = self._count >= LEAST_OBSERVATIONS and shown.steps >= LEAST_STEPS
        is_low = shown.length <= baseline.lowest
        if max(self._evidence) < _EVIDENCE or not enough or is_low == self.is_low:
            return None
        self.is_low = is_low
        self.restart()
        return AcceptanceChange(is_low, baseline.length, shown.length, round(shown.steps))


def _merged(samples: Sequence[AcceptanceSample]) -> AcceptanceSample:
    steps = sum(sample.steps for sample in samples)
    return AcceptanceSample(sum(item.length * item.steps for item in samples) / steps, steps)

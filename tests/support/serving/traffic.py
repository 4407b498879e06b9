"""Scripted traffic of an engine: the acceptance of each 40 decode steps, as the engine logs it.

Requests of three kinds differ in how well they are drafted, and each request in itself; so the
statistics of neighboring steps are correlated, and those of few requests vary more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from speclaunch.serving.metrics import AcceptanceSample

KINDS = ((0.85, 0.05, 0.5), (0.7, 0.07, 0.3), (0.6, 0.08, 0.2))
"""Mean and spread of the share of accepted drafts, and the share of the requests."""
STEPS, DRAFTS = 40, 3


class Traffic:
    """Requests that run; `wrong`: share of the draft's tokens that is wrong."""

    def __init__(self, seed: int, kinds: tuple[tuple[float, float, float], ...] = KINDS) -> None:
        self._random, self._kinds = random.Random(seed), kinds
        self._running: list[list[float]] = []
        self.wrong = 0.0

    def sample(self, load: int) -> AcceptanceSample:
        """Decode `STEPS` steps with so many requests."""
        accepted = count = 0
        for _ in range(STEPS):
            while len(self._running) < load:
                self._running.append(self._request())
            del self._running[load:]
            for request in self._running:
                length = self._length(request[0] * (1 - self.wrong))
                accepted, count = accepted + length, count + 1
                request[1] -= length
            self._running = [request for request in self._running if request[1] > 0]
        return AcceptanceSample(round(accepted / count, 2), count)

    def stop(self) -> None:
        """Drop all requests: a restart."""
        self._running = []

    def day(self, per_hour: int, hours: int = 24) -> Iterator[AcceptanceSample | None]:
        """Yield a day: busy by day, bursts, idle nights; None: the engine starts again."""
        for hour in range(hours):
            usual = round(6 + 7 * math.sin((hour - 8) / 24 * 2 * math.pi))
            for _ in range(per_hour):
                if self._random.random() < 0.001:
                    self.stop()
                    yield None
                if usual < 1 and self._random.random() < 0.95:
                    continue
                burst = self._random.random() < 0.05
                yield self.sample(max(1, usual) * (4 if burst else 1))

    def _request(self) -> list[float]:
        kind = self._random.choices(self._kinds, [share for _, _, share in self._kinds])[0]
        rate = min(0.98, max(0.05, self._random.gauss(kind[0], kind[1])))
        return [rate, max(20.0, self._random.lognormvariate(5.3, 0.8))]

    def _length(self, rate: float) -> int:
        length = 1
        while length <= DRAFTS and self._random.random() < rate:
            length += 1
        return length

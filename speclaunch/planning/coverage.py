"""Which batch sizes of decode a CUDA graph covers, and what the padding costs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import StrEnum

from speclaunch.plan.plan import Plan, UnknownValueError
from speclaunch.plan.resolution.graphs import captured_sizes
from speclaunch.plan.topics.parallel import attention_ranks
from speclaunch.record import record
from speclaunch.rules.performance import decodes_without_graphs, on_cpu


class Covered(StrEnum):
    """How a batch of one size is decoded."""

    CAPTURED = "captured"
    """By a graph of its own size."""
    PADDED = "padded"
    """By the graph of the next larger size, the rest of it for nothing."""
    UNCOVERED = "uncovered"
    """Without a graph, kernel by kernel."""


@record
class BatchSpan:
    """Batch sizes in a row that are decoded in the same way, `size` of the graph included."""

    first: int
    last: int
    covered: Covered
    size: int | None = None


@record
class Coverage:
    """The graphs of one scheduler: the sizes that are captured, of `most` that can run."""

    sizes: tuple[int, ...]
    most: int
    pads: bool = True
    """False where `disable_cuda_graph_padding` keeps a batch from a larger graph."""
    note: str = ""

    def graph_for(self, batch: int) -> int | None:
        """The size of the graph that runs a batch; None: it is decoded without one."""
        place = bisect_left(self.sizes, batch)
        if place == len(self.sizes) or (not self.pads and self.sizes[place] != batch):
            return None
        return self.sizes[place]

    def covered(self, batch: int) -> Covered:
        """How a batch is decoded."""
        size = self.graph_for(batch)
        if size is None:
            return Covered.UNCOVERED
        return Covered.CAPTURED if size == batch else Covered.PADDED

    def waste(self, batch: int) -> float:
        """The share of the graph that is padding, 0 to 1."""
        size = self.graph_for(batch)
        return 0.0 if size is None else (size - batch) / size

    def count(self, covered: Covered) -> int:
        """How many of the batch sizes from 1 to `most` are decoded so."""
        return sum(self.covered(batch) is covered for batch in range(1, self.most + 1))

    @property
    def average_waste(self) -> float:
        """The padding of all batch sizes that have a graph, on average."""
        run = [batch for batch in range(1, self.most + 1) if self.graph_for(batch)]
        return sum(map(self.waste, run)) / len(run) if run else 0.0

    @property
    def worst(self) -> int | None:
        """The batch size with the largest share of padding; None where nothing is padded."""
        batch = max(range(1, self.most + 1), key=self.waste, default=1)
        return batch if self.waste(batch) else None

    def spans(self) -> Iterator[BatchSpan]:
        """All batch sizes, alike ones together."""
        first = 1
        for batch in range(1, self.most + 1):
            here = (self.covered(batch), self.graph_for(batch))
            following = (self.covered(batch + 1), self.graph_for(batch + 1))
            alike = here[0] is following[0] and (
                here[0] is not Covered.PADDED or here[1] == following[1]
            )
            if batch == self.most or not alike:
                yield BatchSpan(first, batch, here[0], here[1] if first == batch else None)
                first = batch + 1


@record
class NoCoverage:
    """Why there is no coverage to show; `unknown`: because a fact is missing."""

    why: str
    unknown: bool = False


_LARGEST = 100_000
"""No scheduler runs so many requests; a number beyond is a slip of the pen."""


def coverage(plan: Plan, running: int | None = None) -> Coverage | NoCoverage:
    """What the graphs of decode cover, from one request to as many as may run.

    `running`: the requests that the memory leaves, where the plan does not limit them.
    """
    try:
        if on_cpu(plan):
            return NoCoverage("a CPU has no CUDA graphs")
        if decodes_without_graphs(plan):
            return NoCoverage("decode runs without CUDA graphs: they are disabled")
        sizes = tuple(sorted(captured_sizes(plan)))
        asked = plan.value("max_running_requests")
        pads = not plan.value("disable_cuda_graph_padding")
        ranks = attention_ranks(plan)
    except UnknownValueError as error:
        return NoCoverage(str(error), unknown=True)
    if not sizes:
        return NoCoverage("no batch size gets a CUDA graph")
    total, note = (int(asked), "") if asked is not None else (running, "")
    if total is None:
        total = sizes[-1] * ranks
        note = "how many requests can run is not known: shown up to the largest graph"
    most = min(max(1, total // ranks), _LARGEST)
    if ranks > 1:
        note = f"{note}{'; ' if note else ''}of each of {ranks} data-parallel ranks"
    return Coverage(sizes, most, pads, note)

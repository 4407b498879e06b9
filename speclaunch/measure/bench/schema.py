"""The JSON of a certificate, and of two compared: a contract that scripts are written against.

`docs/reference/bench.schema.json` is made from these models; a test compares them. A key is never
taken away or given another meaning within version 1; new ones may be added. Times are in seconds.
A page, a text and a Markdown table are made of a certificate alone.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from speclaunch.measure.bench.gate import Objection
from speclaunch.measure.bench.measurement import At
from speclaunch.measure.bench.statistics import LEAST_PAIRS, Interval, Positive

_MOST = 1e15
Speed = Annotated[float, Field(gt=0, le=_MOST)]
Number = Annotated[float, Field(ge=0, le=_MOST)]
Share = Annotated[float, Field(ge=0, le=1)]
ClaimName = Literal["pays", "does not pay", "not shown"]
DifferenceName = Literal["faster", "slower", "not shown"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class QuantilesRecord(_Record):
    """Times of all requests of a side at the shares that the certificate names (`quantiles`);
    empty where no request has one."""

    latency: tuple[Number, ...]
    time_to_first_token: tuple[Number, ...]
    time_per_output_token: tuple[Number, ...]


class MeasuredRecord(_Record):
    """What a server did in a cell: medians, and what they are of."""

    requests: int
    output_tokens_per_second: Number
    latency: Number
    time_to_first_token: Number
    time_per_output_token: Number | None
    prompt_tokens: Number
    accept_length: Number | None
    accepted_by_position: tuple[Share, ...]
    goodput: Number | None = None
    """Requests a second within the bounds that were asked for."""


class NumbersRecord(MeasuredRecord):
    """One side of a cell that compares two."""

    rounds: tuple[Speed, ...]
    """Output tokens a second of each round; those of both sides at the same place are a pair. With
    several starts these took turns: the first round is of the first start, the second of the
    second one."""
    quantiles: QuantilesRecord


class GoodputRecord(_Record):
    """Requests a second within the bounds, the shares of all requests that were, and the ratio:
    null where a round had none."""

    candidate: Number
    baseline: Number
    candidate_share: Share
    baseline_share: Share
    ratio: Interval | None


class CellRecord(_Record):
    """One workload at one concurrency and one length of context (0: the prompts as they are)."""

    workload: str
    context: int = 0
    concurrency: int
    claim: ClaimName
    speed_up: Interval
    latency_ratio: Interval
    candidate: NumbersRecord
    baseline: NumbersRecord
    goodput: GoodputRecord | None = None

    @model_validator(mode="after")
    def _are_pairs(self) -> Self:
        pairs = len(self.candidate.rounds)
        if pairs != len(self.baseline.rounds) or pairs < LEAST_PAIRS:
            raise ValueError(f"rounds: not the same number of both sides, at least {LEAST_PAIRS}")
        return self


class SideRecord(_Record):
    """What was compared: the engine's command with its secrets blotted out."""

    name: str
    engine: str | None
    url: str | None = None
    """Of a server that ran already: there is no command then."""
    command: tuple[str, ...] = ()
    environment: dict[str, str | None] = {}
    """Variables that speclaunch sets for it; null: taken away."""


class SideMemory(_Record):
    """The tokens that a side's KV cache holds, and the bytes that the side takes."""

    side: str
    max_total_num_tokens: int | None = Field(
        validation_alias=AliasChoices("max_total_num_tokens", "tokens")
    )
    bytes: int | None
    bytes_measured: str | None = Field(
        default=None, validation_alias=AliasChoices("bytes_measured", "measured")
    )
    """`engine`: weights of the target, KV cache and graphs, as the engine reports them;
    `resident`: all processes of an engine on a CPU."""


class StopRecord(_Record):
    """From `start` on a workload is not claimed to pay: along the concurrency at a context length,
    or along the context length at a concurrency."""

    workload: str
    along: Literal["concurrency", "context"]
    context: int | None
    concurrency: int | None
    start: int
    claim: ClaimName


class CertificateDocument(_Record):
    """What a comparison shows; no cells where it does not count."""

    version: Literal[1] = 1
    candidate: str
    baseline: str
    counts: bool
    objections: tuple[Objection, ...]
    claim: ClaimName | None
    sentence: str
    error_rate: Annotated[float, Field(gt=0, lt=1)]
    measured: str | None
    """When its last round was."""
    hardware: str | None
    sides: tuple[SideRecord, ...]
    """The candidate's first."""
    caveats: tuple[str, ...] = ()
    """What takes from what it shows: acceptance that is made up. Nothing is proven then."""
    stops_paying: tuple[StopRecord, ...] = ()
    memory: tuple[SideMemory, ...] = ()
    goodput_within: dict[str, Number] = {}
    """Milliseconds by metric."""
    starts: Annotated[int, Field(ge=1)] = 1
    """Of each side. 1: what differs from start to start is not in the intervals; else it is, and
    each start counts once."""
    quantiles: tuple[Share, ...]
    cells: tuple[CellRecord, ...]

    @property
    def holds_starts(self) -> bool:
        """Whether its intervals say all there is to say: of several starts, or of servers that ran
        already, which are what is measured."""
        return self.starts > 1 or all(side.url is not None for side in self.sides)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        for cell in self.cells:
            if self.starts > 1 and not LEAST_PAIRS <= self.starts <= len(cell.candidate.rounds):
                raise ValueError(f"starts: 1, or {LEAST_PAIRS} and more with a round in each")
            for side in (cell.candidate, cell.baseline):
                for values in side.quantiles.model_dump().values():
                    if len(values) not in (0, len(self.quantiles)):
                        raise ValueError("quantiles: another number of times than of shares")
        return self


class SingleCellRecord(_Record):
    """A cell of one server that was measured alone."""

    workload: str
    context: int = 0
    concurrency: int
    candidate: MeasuredRecord


class SingleDocument(_Record):
    """What was measured of one server alone: as a certificate, without what compares."""

    version: Literal[1] = 1
    candidate: str
    baseline: None = None
    counts: bool
    objections: tuple[Objection, ...]
    claim: None = None
    sentence: str
    caveats: tuple[str, ...] = ()
    memory: tuple[SideMemory, ...] = ()
    goodput_within: dict[str, Number] = {}
    cells: tuple[SingleCellRecord, ...]


class RatioRecord(_Record):
    """A ratio of two that were measured apart, and the interval that holds the true one."""

    ratio: Positive
    low: Positive
    high: Positive


class CellDifferenceRecord(_Record):
    """A cell that both certificates have: the second's numbers to the first's."""

    workload: str
    context: int
    concurrency: int
    verdict: DifferenceName
    speed_up: RatioRecord
    throughput: RatioRecord
    before: Interval
    after: Interval


class ArgumentsDiff(_Record):
    """How the commands of two sides differ: lines with `- ` or `+ ` in front."""

    side: Literal["candidate", "baseline"]
    lines: tuple[str, ...]


class DifferenceDocument(_Record):
    """Two certificates compared: whether the second is faster than the first."""

    version: Literal[1] = 1
    before: str
    after: str
    verdict: DifferenceName
    error_rate: float
    cells: tuple[CellDifferenceRecord, ...]
    only_before: tuple[At, ...]
    only_after: tuple[At, ...]
    arguments: tuple[ArgumentsDiff, ...]
    notes: tuple[str, ...]

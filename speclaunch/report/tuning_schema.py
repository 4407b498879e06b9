"""The JSON of `speclaunch tune`: a contract that scripts are written against.

`docs/reference/tune.schema.json` is made from these models; a test compares them. A key is never
taken away or given another meaning within version 1; new ones may be added.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrialRecord(_Record):
    """A setting measured at one load. `step_seconds`: of a verify step, and what is around it."""

    arguments: dict[str, int]
    concurrency: int
    tokens_per_second: float
    output_tokens_per_second: float
    accept_length: float
    step_seconds: float
    accepted_by_position: list[float]


class LoadRecord(_Record):
    """The ratio at one number of requests at a time."""

    concurrency: int
    ratio: float


class ComparedRecord(_Record):
    """A setting against the recipe's own, with the interval of the ratio."""

    arguments: dict[str, int]
    claim: Literal["faster", "slower", "not shown"]
    ratio: float
    low: float
    high: float
    pairs: int
    by_concurrency: list[LoadRecord]


class ComparisonRecord(_Record):
    """The comparison of the best; `counts` is false where it was refused. `starts`: of each side;
    with several the intervals hold what differs from start to start."""

    counts: bool
    objections: list[str]
    starts: int
    settings: list[ComparedRecord]


class FailureRecord(_Record):
    """A setting that could not be measured."""

    setting: str
    why: str


class TuneDocument(_Record):
    """`best` are the arguments to use: the recipe's own where no other is shown to be faster; null
    where the own are not known."""

    version: Literal[1] = 1
    recipe: str
    engine: str
    algorithm: str
    objective: str
    own: dict[str, int] | None
    best: dict[str, int] | None
    trials: list[TrialRecord]
    failed: list[FailureRecord]
    comparison: ComparisonRecord | None
    ended: str
    starts: int
    seconds: float
    overrides: list[str]
    diff: str
    written: str | None
    adaptive: dict[str, Any] | None


def schema() -> dict[str, Any]:
    """As it is published."""
    return TuneDocument.model_json_schema(mode="serialization")

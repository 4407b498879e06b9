"""The JSON of `speclaunch prove`: a contract that scripts are written against.

`docs/reference/prove.schema.json` is made from these models; a test compares them. A key is never
taken away or given another meaning within version 1; new ones may be added.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Counts(_Record):
    """How many answers are of each kind."""

    same: int
    tie: int
    wrong: int


class LevelRecord(_Record):
    """The answers at one concurrency. `unspeculated`: those on whose way nothing was verified.
    `accept_length`: tokens a verify step; null where none was verified."""

    concurrency: int
    requests: int
    answers: Counts
    unspeculated: int
    accept_length: float | None


class SamplesRecord(_Record):
    """The test of samples. `probability`: how likely samples at least as different are when both
    servers draw from one distribution; `alarm`: where it counts as a difference."""

    positions: int
    draws: int
    probability: float
    alarm: float
    differ: bool


class WrongRecord(_Record):
    """An answer that is wrong: its first token that the plain server would not have given.
    `position` counts from 0. An answer of another length has no `got` and `expected`."""

    prompt: str
    concurrency: int
    position: int
    got: int | None
    got_text: str | None
    expected: int | None
    expected_text: str | None
    gap_nats: float


class ProofDocument(_Record):
    """`speclaunch prove recipe=R --output-format json`. `samples` is null without `--samples`."""

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

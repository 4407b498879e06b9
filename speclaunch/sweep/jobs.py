"""What a sweep is made of: its options, its jobs, and the row that each of them becomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from speclaunch.record import record

LOCAL = ("basic", "joblib", "submitit_local")
"""Launchers that run their jobs on this machine."""


class JobVerdict(StrEnum):
    """How a job ended."""

    SERVED = "served"
    """The engine started, generated, and ran with the speculation that was asked for."""
    FAILED = "failed"
    REFUSED = "refused"
    """It was never started: the rules, or the composition, say that it cannot serve."""
    FITS = "fits"
    """Of a plan, as are the rest: what its memory budget says."""
    TIGHT = "tight"
    FAILS = "fails"
    UNKNOWN = "unknown"

    @property
    def bad(self) -> bool:
        """Whether the exit code tells of it."""
        return self in (JobVerdict.FAILED, JobVerdict.FAILS)


@record
class JobOptions:
    """What counts for all jobs of a sweep. Texts and lists are options of `launch` and `plan`."""

    plan: bool = False
    """Each job is a plan: nothing is started."""
    config_dir: tuple[str, ...] = ()
    engine: str | None = None
    hardware: str | None = None
    models: tuple[str, ...] = ()
    online: bool = False
    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    trust_engine: bool = False

    def identity(self) -> dict[str, Any]:
        """The options that distinguish its jobs and folder from others."""
        found = dataclasses.asdict(self)
        del found["trust_engine"]  # the same jobs, whoever identifies their engine
        return found

    def words(self) -> list[str]:
        """The same options on the command line of a job."""
        said: list[str] = []
        for name, value in dataclasses.asdict(self).items():
            option = f"--{name.replace('_', '-')}"
            if isinstance(value, tuple):
                said += [f"{option}={one}" for one in value]
            elif isinstance(value, str):
                said.append(f"{option}={value}")
            elif value and name != "plan":
                said.append(option)
        return said


@record
class Job:
    """One configuration of a sweep."""

    recipe: str
    overrides: tuple[str, ...]
    varied: tuple[str, ...]
    """The overrides that tell it from the others."""
    key: str
    """A digest of what it comes to (the composed recipe, engine version, options): its row is
    found by it, however the job was written."""
    refused: str | None = None
    """Why it is never started."""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """What `dataclasses.asdict` made of it."""
        lists = {name: tuple(document[name]) for name in ("overrides", "varied")}
        return cls(**{**document, **lists})


@record
class Row:
    """What came of a job."""

    key: str
    verdict: JobVerdict
    reason: str | None = None
    """Why it was refused or failed; of a plan, the budget in words."""
    acceptance_length: float | None = None
    """Tokens a verification; None where nothing speculates, or nothing was generated."""
    ready_seconds: float | None = None
    kv_tokens: int | None = None
    """Tokens that the KV cache holds, as the engine said (of a plan: as is predicted)."""
    engine: str | None = None
    log: str | None = None
    ended: str | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self | None:
        """The row of a file; None where that is none."""
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            verdict = JobVerdict(document["verdict"])
            return cls(**{k: v for k, v in {**document, "verdict": verdict}.items() if k in known})
        except (KeyError, ValueError, TypeError):
            return None


@record
class Planned:
    """A sweep that is ready to run: its jobs, and who runs them."""

    words: tuple[str, ...]
    """As they were given."""
    jobs: tuple[Job, ...]
    options: JobOptions
    launcher: str
    hydra: tuple[str, ...]
    directory: Path
    """Where the command was given: relative paths of recipes are below it."""

    @property
    def is_local(self) -> bool:
        """Whether the jobs run on this machine."""
        return self.launcher in LOCAL

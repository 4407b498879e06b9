"""The `launch` section of a recipe: how speclaunch starts, watches and stops the engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A part of a recipe: nothing changes it, and it refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class VerificationSection(Section):
    """The check that a ready engine really generates and really speculates."""

    enabled: bool = True
    prompt: str = "The capital of France is"
    max_new_tokens: int = Field(default=32, ge=2, le=4096)
    """Tokens of the one generation; its acceptance length is reported."""
    timeout_seconds: float = Field(default=120, gt=0)


class EngineLog(Section):
    """The file that the engine's output goes to. A full one is put aside as `engine-1.log.1`."""

    max_mb: float = Field(default=256, gt=0)
    """Size in MB (10^6 bytes) at which a log file is put aside."""
    keep: int = Field(default=3, ge=0, le=1000)
    """How many of those put aside are kept."""


class Restart(Section):
    """What happens to an engine that served and crashed, hung or ran out of memory."""

    policy: Literal["auto", "on-failure", "never"] = "auto"
    """`on-failure`: start it again; `auto`: the same, unless `recovery` is off."""
    first_delay_seconds: float = Field(default=1, ge=0)
    """Wait this long before the first restart; each further one waits twice as long."""
    longest_delay_seconds: float = Field(default=60, ge=0)
    limit: int = Field(default=5, ge=1)
    """Give up when it has ended more often than this within the window."""
    window_seconds: float = Field(default=900, gt=0)


class WatchdogSection(Section):
    """Whether a serving engine still generates; its `/health` answers while generation hangs."""

    enabled: bool = True
    interval_seconds: float = Field(default=20, gt=0)
    """Ask for one token when the engine has shown no progress by itself for this long."""
    timeout_seconds: float = Field(default=20, gt=0)
    """How long that token may take."""
    failures: int = Field(default=3, ge=1)
    """So many in a row, without any sign of progress, make a hang."""


class Agreement(Section):
    """How the ranks of a deployment step to the same settings."""

    directory: str | None = None
    """A directory that all hosts share; null: every rank recovers for itself."""
    job: str | None = None
    """What this run is called on all ranks; null: as Slurm or a LeaderWorkerSet calls it."""
    part: str | None = None
    """Which of the parts this server is; null: prefill or decode, else `server`."""
    parts: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """The servers that agree and how many ranks (`nnodes`) each has; empty: this one alone."""
    lease_seconds: float = Field(default=30, ge=1)
    """A rank that cannot use the directory for this long stops its engine."""
    timeout_seconds: float = Field(default=600, gt=0)
    """How long a rank that is missing is waited for."""


class Launch(Section):
    """How speclaunch starts, watches and stops the engine."""

    ready_timeout_seconds: float = Field(default=3600, gt=0)
    """Give up when the engine is not ready after this long (big models load for long)."""
    grace_seconds: float = Field(default=8, ge=0)
    """After SIGTERM the engine has this long to finish its requests before it is killed."""
    log_dir: str | None = None
    """Where engine logs go; default `runs/` in the home directory of speclaunch."""
    keep_runs: int = Field(default=100, ge=0)
    """How many ended launches keep their logs and journals there; 0 keeps all."""
    share_gpus: bool = False
    """Start even though another engine that speclaunch started holds one of the GPUs."""
    log: EngineLog = EngineLog()
    verify: VerificationSection = VerificationSection()
    watchdog: WatchdogSection = WatchdogSection()
    restart: Restart = Restart()
    agreement: Agreement = Agreement()

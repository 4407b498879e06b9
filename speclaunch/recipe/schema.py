"""The Deployment: what the user asked for, validated.

Values that are plainly right become the records of `deployment.py`, which have the same names.

`args:` is deliberately open here: its schema is the engine's own catalogue of server arguments
(`speclaunch.engine.catalogue`), which depends on the engine version.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from speclaunch.errors import InputError
from speclaunch.facts.declared_gpus import AUTO, declare
from speclaunch.patterns import lazy
from speclaunch.recipe.deployment import RecoveryPolicy, Steppable

Scalar = str | int | float | bool | None
ArgValue = Scalar | list[Any] | dict[str, Any]
"""A server argument's value: null leaves the engine's default."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def _specifier(text: str) -> SpecifierSet:
    """`0.5.23` means exactly that version; anything else is a specifier such as `>=0.5.11`."""
    try:
        return SpecifierSet(f"=={Version(text)}", prereleases=True)
    except InvalidVersion:
        return SpecifierSet(text, prereleases=True)


_ENV_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _env_name(name: str) -> str:
    if not _ENV_NAME.match(name):
        raise ValueError(f"{name!r} is not the name of an environment variable")
    return name


def _env_value(value: object) -> object:
    """Environment variables are text: `true` is "True", as the engine's documents write it."""
    if isinstance(value, bool | int | float):
        return str(value)
    return value


EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = Annotated[str | None, BeforeValidator(_env_value)]


class Engine(_Section):
    """Which engine serves, and the environment it starts in."""

    version: str | None = None
    """The engine versions that can serve this: `0.5.23` (a pin) or a specifier (`>=0.5.11`)."""
    python: str | None = None
    """The interpreter that has sglang: a path, a name on PATH, or `cpu` for the CPU engine."""
    catalogue: str | None = None
    """Where the arguments of an engine that is no release are read: `installed` (from the
    interpreter), or the path of a package, a checkout, a wheel or a catalogue."""
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    """Environment variables of the engine; null takes one away."""

    @field_validator("version", mode="before")
    @classmethod
    def _version(cls, value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise ValueError(f"write the version in quotes: '{value}' (YAML read a number)")
        if isinstance(value, str):
            try:
                _specifier(value)
            except InvalidSpecifier:
                raise ValueError(
                    f"{value!r} is neither a version (0.5.23) nor a specifier (>=0.5.11,<0.6)"
                ) from None
        return value

    @field_validator("env")
    @classmethod
    def _env(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        for name, text in value.items():
            if text is not None and "\0" in text:
                raise ValueError(f"the value of {name} contains a NUL character")
        return value

    @property
    def specifier(self) -> SpecifierSet:
        """The versions that can serve this; empty means any."""
        return _specifier(self.version) if self.version else SpecifierSet(prereleases=True)

    @property
    def pinned(self) -> str | None:
        """The one version that was asked for, if it was one."""
        specifiers = list(self.specifier)
        if len(specifiers) == 1 and specifiers[0].operator == "==":
            version = specifiers[0].version
            return None if version.endswith(".*") else version
        return None


class HardwareSection(_Section):
    """What it runs on."""

    name: str = AUTO
    """`auto` (this machine's GPUs), `cpu`, or GPUs by name and number: `h100-80gb:8`."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if value != AUTO:
            try:
                declare(value)
            except InputError as error:
                (problem,) = error.problems
                raise ValueError(f"{problem.message}; {problem.help}") from None
        return value


class VerificationSection(_Section):
    """The check that a ready engine really generates and really speculates."""

    enabled: bool = True
    prompt: str = "The capital of France is"
    max_new_tokens: int = Field(default=32, ge=2, le=4096)
    """Tokens of the one generation; its acceptance length is reported."""
    timeout_seconds: float = Field(default=120, gt=0)


class EngineLog(_Section):
    """The file that the engine's output goes to. A full one is put aside as `engine-1.log.1`."""

    max_mb: float = Field(default=256, gt=0)
    """Size in MB (10^6 bytes) at which a log file is put aside."""
    keep: int = Field(default=3, ge=0, le=1000)
    """How many of those put aside are kept."""


class Restart(_Section):
    """What happens to an engine that served and crashed, hung or ran out of memory."""

    policy: Literal["auto", "on-failure", "never"] = "auto"
    """`on-failure`: start it again; `auto`: the same, unless `recovery` is off."""
    first_delay_seconds: float = Field(default=1, ge=0)
    """Wait this long before the first restart; each further one waits twice as long."""
    longest_delay_seconds: float = Field(default=60, ge=0)
    limit: int = Field(default=5, ge=1)
    """Give up when it has ended more often than this within the window."""
    window_seconds: float = Field(default=900, gt=0)


class WatchdogSection(_Section):
    """Whether a serving engine still generates; its `/health` answers while generation hangs."""

    enabled: bool = True
    interval_seconds: float = Field(default=20, gt=0)
    """Ask for one token when the engine has shown no progress by itself for this long."""
    timeout_seconds: float = Field(default=20, gt=0)
    """How long that token may take."""
    failures: int = Field(default=3, ge=1)
    """So many in a row, without any sign of progress, make a hang."""


class Launch(_Section):
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


def _off(value: object) -> object:
    """YAML reads a plain `off` as false."""
    return "off" if value is False else value


class Floors(_Section):
    """Below what recovery never goes."""

    mem_fraction_static: float = Field(default=0.2, gt=0, lt=1)
    cuda_graph_max_bs_decode: int = Field(default=2, ge=1)
    speculative_num_steps: int = Field(default=1, ge=1)
    max_running_requests: int = Field(default=4, ge=1)
    chunked_prefill_size: int = Field(default=1024, ge=64)
    max_total_tokens: int = Field(default=1024, ge=1)


class RecoveryLimits(_Section):
    """Above what recovery never goes."""

    mem_fraction_static: float = Field(default=0.98, gt=0, lt=1)
    """Less than that where something else needs the GPU, such as training beside the rollout."""


class Objective(_Section):
    """What counts as a loss: running requests first, then KV tokens, then the depth of
    speculation."""

    tokens_within: float = Field(default=0.2, ge=0, lt=1)
    """Losing this share of the KV tokens is better than a shallower speculation."""


def _order_of_the_documents() -> tuple[Steppable, ...]:
    return (Steppable.FRACTION, Steppable.GRAPHS, Steppable.TREE, Steppable.RUNNING)


class Recovery(_Section):
    """What to do when the engine runs out of memory."""

    policy: Annotated[RecoveryPolicy, BeforeValidator(_off)] = RecoveryPolicy.OFF
    max_attempts: int = Field(default=8, ge=1, le=100)
    """Starts of the engine, the first included."""
    order: tuple[Steppable, ...] = Field(default_factory=_order_of_the_documents)
    """The settings that may be stepped, the first to step first."""
    floors: Floors = Floors()
    limits: RecoveryLimits = RecoveryLimits()
    objective: Objective = Objective()
    fraction_step: float = Field(default=0.1, gt=0, lt=1)
    """By how much `mem_fraction_static` is stepped where no budget says by how much."""
    minimal: dict[str, ArgValue] = Field(default_factory=dict)
    """The last settings to try, where each step in order failed; server arguments."""

    @field_validator("order")
    @classmethod
    def _order(cls, value: tuple[Steppable, ...]) -> tuple[Steppable, ...]:
        twice = sorted({str(one) for one in value if value.count(one) > 1})
        if twice:
            raise ValueError(f"{twice[0]} appears twice")
        return value

    @model_validator(mode="after")
    def _between(self) -> Self:
        if self.policy is not RecoveryPolicy.OFF and not self.order:
            raise ValueError(
                "order is empty: name the settings that recovery may change, or set policy: off"
            )
        low, high = self.floors.mem_fraction_static, self.limits.mem_fraction_static
        if low >= high:
            raise ValueError(
                f"floors.mem_fraction_static ({low}) must be below "
                f"limits.mem_fraction_static ({high})"
            )
        return self


class Deployment(_Section):
    """One deployment as asked for. Every section but `args` refuses unknown keys."""

    name: str = Field(min_length=1)
    description: str = ""
    args: dict[str, ArgValue]
    """SGLang server arguments under the engine's own names, e.g. `mem_fraction_static`."""
    engine: Engine = Engine()
    hardware: HardwareSection = HardwareSection()
    launch: Launch = Launch()
    recovery: Recovery = Recovery()

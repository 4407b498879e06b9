"""The Deployment: what the user asked for, validated.

`args:` is deliberately open here: its schema is the engine's own catalogue of server arguments
(`speclaunch.engine.catalogue`), which depends on the engine version.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from speclaunch.errors import InputError
from speclaunch.facts.declared import AUTO, declare

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


_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


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
                raise ValueError(f"the value of {name} holds a NUL character")
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


class Hardware(_Section):
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


class Verification(_Section):
    """The check that a ready engine really generates and really speculates."""

    enabled: bool = True
    prompt: str = "The capital of France is"
    max_new_tokens: int = Field(default=32, ge=2, le=4096)
    """Tokens of the one generation; its acceptance length is reported."""
    timeout_seconds: float = Field(default=120, gt=0)


class Launch(_Section):
    """How speclaunch starts, watches and stops the engine."""

    ready_timeout_seconds: float = Field(default=3600, gt=0)
    """Give up when the engine is not ready after this long (big models load for long)."""
    grace_seconds: float = Field(default=8, ge=0)
    """After SIGTERM the engine has this long to finish its requests before it is killed."""
    log_dir: str | None = None
    """Where engine logs go; default `runs/` in the home directory of speclaunch."""
    verify: Verification = Verification()


def _off(value: object) -> object:
    """YAML reads a plain `off` as false."""
    return "off" if value is False else value


class Recovery(_Section):
    """What to do when the engine runs out of memory."""

    policy: Annotated[Literal["off"], BeforeValidator(_off)] = "off"
    """`off`: a start that fails is reported and not tried again."""


class Deployment(_Section):
    """One deployment as asked for. Every section but `args` refuses unknown keys."""

    name: str = Field(min_length=1)
    description: str = ""
    args: dict[str, ArgValue]
    """SGLang server arguments under the engine's own names, e.g. `mem_fraction_static`."""
    engine: Engine = Engine()
    hardware: Hardware = Hardware()
    launch: Launch = Launch()
    recovery: Recovery = Recovery()

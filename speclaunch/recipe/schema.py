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
    BeforeValidator,
    Field,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from speclaunch.errors import InputError
from speclaunch.facts.declared_gpus import AUTO, declare
from speclaunch.recipe.deployment import RecoveryPolicy, Steppable
from speclaunch.recipe.launch_schema import Launch, Section
from speclaunch.recipe.plain_checks import (
    ENV_NAME,
    MOST_REPLICAS,
    MOST_ROLES,
    is_image,
    is_label,
    is_model_store,
    is_resource,
    is_role_name,
    is_store,
)

Scalar = str | int | float | bool | None
ArgValue = Scalar | list[Any] | dict[str, Any]
"""A server argument's value: null leaves the engine's default."""


def _specifier(text: str) -> SpecifierSet:
    """`0.5.23` means exactly that version; anything else is a specifier such as `>=0.5.11`."""
    try:
        return SpecifierSet(f"=={Version(text)}", prereleases=True)
    except InvalidVersion:
        return SpecifierSet(text, prereleases=True)


def _env_name(name: str) -> str:
    if not ENV_NAME.match(name):
        raise ValueError(f"{name!r} is not the name of an environment variable")
    return name


def _env_value(value: object) -> object:
    """Environment variables are text: `true` is "True", as the engine's documents write it."""
    if isinstance(value, bool | int | float):
        return str(value)
    return value


EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = Annotated[str | None, BeforeValidator(_env_value)]


class Engine(Section):
    """Which engine serves, and the environment it starts in."""

    version: str | None = None
    """The engine version: `0.5.23` (a pin, which `--engine` overrides) or a specifier (`>=0.5.11`,
    a bound as `requires`)."""
    requires: str | None = None
    """The engine versions that can serve this, whatever it is pinned to: `>=0.5.11,<0.6`."""
    python: str | None = None
    """The interpreter that has sglang: a path, a name on PATH, or `cpu` for the CPU engine."""
    catalogue: str | None = None
    """Where the arguments of an engine that is no release are read: `installed` (from the
    interpreter), or the path of a package, a checkout, a wheel or a catalogue."""
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    """Environment variables of the engine; null takes one away."""

    @field_validator("version", "requires", mode="before")
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
        """The versions that can serve this, its pin included; empty means any."""
        return self.bounds & _specifier(f"=={self.pinned}") if self.pinned else self.bounds

    @property
    def bounds(self) -> SpecifierSet:
        """The versions that can serve this, whatever it is pinned to; empty means any."""
        return SpecifierSet(",".join(f"{_specifier(one)}" for one in self.needs), prereleases=True)

    @property
    def needs(self) -> tuple[str, ...]:
        """The bounds as the recipe states them."""
        stated = (None if self.pinned else self.version, self.requires)
        return tuple(one for one in stated if one)

    @property
    def pinned(self) -> str | None:
        """The one version that was asked for, if it was one."""
        specifiers = list(_specifier(self.version)) if self.version else []
        if len(specifiers) == 1 and specifiers[0].operator == "==":
            version = specifiers[0].version
            return None if version.endswith(".*") else version
        return None


class HardwareSection(Section):
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


def _off(value: object) -> object:
    """YAML reads a plain `off` as false."""
    return "off" if value is False else value


class Floors(Section):
    """Below what recovery never goes."""

    mem_fraction_static: float = Field(default=0.2, gt=0, lt=1)
    cuda_graph_max_bs_decode: int = Field(default=2, ge=1)
    speculative_num_steps: int = Field(default=1, ge=1)
    max_running_requests: int = Field(default=4, ge=1)
    chunked_prefill_size: int = Field(default=1024, ge=64)
    max_total_tokens: int = Field(default=1024, ge=1)


class RecoveryLimits(Section):
    """Above what recovery never goes."""

    mem_fraction_static: float = Field(default=0.98, gt=0, lt=1)
    """Less than that where something else needs the GPU, such as training beside the rollout."""


class Objective(Section):
    """What counts as a loss: running requests first, then KV tokens, then the depth of
    speculation."""

    tokens_within: float = Field(default=0.2, ge=0, lt=1)
    """Losing this share of the KV tokens is better than a shallower speculation."""


def _order_of_the_documents() -> tuple[Steppable, ...]:
    return (Steppable.FRACTION, Steppable.GRAPHS, Steppable.TREE, Steppable.RUNNING)


class Recovery(Section):
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


def _overlay(value: Any, _judge: object) -> Any:
    """A section of a role is judged where it is laid over the shared one."""
    if value is None or isinstance(value, dict):
        return value
    raise PydanticCustomError("dict_type", "expected `key: value` lines below it")


def _role_name(name: str) -> str:
    if name == "router":
        raise ValueError("the router is not a role: write `router:` at the top of the recipe")
    if not is_role_name(name):
        raise ValueError(
            f"{name!r} cannot be the name of a role: write at most 40 lower-case letters, digits "
            "and dashes, a letter first"
        )
    return name


class RoleSection(Section):
    """One role of a deployment: what it has beyond, or instead of, what all roles share."""

    replicas: int = Field(default=1, ge=1, le=MOST_REPLICAS)
    """How many such servers. The hosts of one server are the engine's own `nnodes`."""
    args: dict[str, ArgValue] | None = None
    """Laid over the shared `args`; null leaves the engine's default."""
    engine: Annotated[Engine | None, WrapValidator(_overlay)] = None
    hardware: Annotated[HardwareSection | None, WrapValidator(_overlay)] = None
    launch: Annotated[Launch | None, WrapValidator(_overlay)] = None
    recovery: Annotated[Recovery | None, WrapValidator(_overlay)] = None


class RouterSection(Section):
    """The router before prefill and decode servers, or before replicas."""

    args: dict[str, ArgValue] = Field(default_factory=dict)
    """Options of sglang_router under their own names, e.g. `policy`."""
    port: int = Field(default=8000, ge=1, le=65535)
    """Where it listens."""
    replicas: int = Field(default=1, ge=1, le=MOST_REPLICAS)


class DeploySection(Section):
    """How the rendered forms run it."""

    image: str | None = None
    """The container image; default: the official one of the version that is rendered for."""
    speclaunch: Literal["image", "wheel", "mounted"] | None = None
    """How speclaunch gets to where the engine runs; null: the engine runs alone."""
    speclaunch_source: str | None = None
    """The directory of each host, or the volume claim (`pvc:NAME`), with its wheels or with the
    virtual environment that holds it."""
    namespace: str | None = None
    """Of the rendered objects; null: the one that they are applied to."""
    rdma: str | None = None
    """The resource of the cluster's plugin for RDMA devices and how many each pod gets, by default
    one: `rdma/ib`, `nvidia.com/mlnxnics:8`."""
    models: str | None = None
    """Storage of checkpoints: a directory of each host, `pvc:NAME` (a volume claim that
    exists), or `emptyDir`. Default: Kubernetes forms write a volume claim for them."""
    model_cache: str | None = None
    """The former name of `models`."""
    jit_cache: str | None = None
    """Where compiled kernels are kept, in the same words."""
    shared_dir: str | None = None
    """What all hosts see, in the same words: journals, and the settings that served."""
    drain_seconds: int = Field(default=120, ge=0, le=86400)
    """How long requests that run may take when a server is stopped."""
    slurm: dict[str, ArgValue] = Field(default_factory=dict)
    """What the cluster asks for, by the names of sbatch's options (`partition`, `account`, `time`);
    `module`: what is loaded before; of srt-slurm also `gpu_type`."""

    @field_validator("image")
    @classmethod
    def _image(cls, value: str | None) -> str | None:
        if value is not None and not is_image(value):
            raise ValueError(f"{value!r} is not the name of an image (lmsysorg/sglang:v0.5.23)")
        return value

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str | None) -> str | None:
        if value is not None and not is_label(value):
            raise ValueError(f"{value!r} is not the name of a namespace")
        return value

    @field_validator("rdma")
    @classmethod
    def _resource(cls, value: str | None) -> str | None:
        if value is not None and not is_resource(value):
            raise ValueError(f"{value!r} is not the name of a resource (rdma/ib, or rdma/ib:8)")
        return value

    @field_validator("models")
    @classmethod
    def _models(cls, value: str | None) -> str | None:
        if value is not None and not is_model_store(value):
            raise ValueError(
                f"{value!r} is neither an absolute path, a volume claim (pvc:NAME) nor emptyDir"
            )
        return value

    @field_validator("speclaunch_source", "model_cache", "jit_cache", "shared_dir")
    @classmethod
    def _store(cls, value: str | None) -> str | None:
        if value is not None and not is_store(value):
            raise ValueError(f"{value!r} is neither an absolute path nor a volume claim (pvc:NAME)")
        return value


def _said(value: object) -> object:
    """A role that is only named says nothing of its own."""
    return {} if value is None else value


RoleName = Annotated[str, AfterValidator(_role_name)]
NamedRole = Annotated[RoleSection, BeforeValidator(_said)]


class Deployment(Section):
    """One deployment as asked for. Every section but `args` refuses unknown keys."""

    name: str = Field(min_length=1)
    description: str = ""
    args: dict[str, ArgValue]
    """SGLang server arguments under the engine's own names, e.g. `mem_fraction_static`."""
    engine: Engine = Engine()
    hardware: HardwareSection = HardwareSection()
    launch: Launch = Launch()
    recovery: Recovery = Recovery()
    roles: dict[RoleName, NamedRole] = Field(default_factory=dict)
    """Servers that work together, by name; each is laid over what stands beside."""
    router: RouterSection | None = None
    deploy: DeploySection = DeploySection()

    @field_validator("roles", mode="before")
    @classmethod
    def _roles(cls, value: object) -> object:
        if isinstance(value, dict) and len(value) > MOST_ROLES:
            raise ValueError(f"{len(value)} roles; a recipe has at most {MOST_ROLES}")
        return value

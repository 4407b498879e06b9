"""Records of the conditions in advisories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class HardwareCondition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """GPUs. `capability`: CUDA compute capability (90: Hopper). `names`: words in the name."""

    vendor: tuple[str, ...] = ()
    capability: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


class CheckpointCondition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A checkpoint: each field lists the accepted values; empty: any."""

    architectures: tuple[str, ...] = ()
    quantization: tuple[str, ...] = ()
    model_type: tuple[str, ...] = ()
    config: Mapping[str, Any] = {}
    """Keys of the checkpoint's config, in the format of a condition's `arguments`."""


class Condition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Condition on a deployment: all fields must hold, and one of `any`.

    `arguments`: effective values by current names: a value, a list of values, `set`, `unset`,
    `{above: N}`, `{below: N}` or `{not: […]}`; `env` likewise, true and false as the engine reads
    them. `packages`: specifier sets of an installed engine's packages.
    """

    algorithm: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = {}
    env: Mapping[str, Any] = {}
    features: tuple[str, ...] = ()
    hardware: HardwareCondition | None = None
    target: CheckpointCondition | None = None
    draft: CheckpointCondition | None = None
    packages: Mapping[str, str] = {}
    any: tuple[Condition, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Arguments and variables in the condition, in order."""
        own = (*self.arguments, *self.env)
        return tuple(dict.fromkeys((*own, *(name for part in self.any for name in part.names))))

"""Records of advisories: symptoms, evidence, requests, remedies, marks, and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct


class HardwareCondition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Condition on the GPUs.

    `capability`: CUDA compute capabilities (90: Hopper). `names`: the GPU's name must contain one
    of these.
    """

    vendor: tuple[str, ...] = ()
    capability: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


class CheckpointCondition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Condition on a checkpoint: the accepted values of each field; an empty field accepts any."""

    architectures: tuple[str, ...] = ()
    quantization: tuple[str, ...] = ()
    model_type: tuple[str, ...] = ()
    config: Mapping[str, Any] = {}
    """Expected values of the checkpoint's config, in the format of a condition's `arguments`."""


class Condition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Condition on a deployment: all fields must match, and at least one condition in `any`.

    `arguments` maps current names to expected effective values: a value, a list of values, `set`,
    `unset`, `{above: N}`, `{below: N}` or `{not: […]}`. `env` does the same for variables, with
    booleans as the engine reads them. `packages`: version specifiers of the engine's packages.
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
        own = (*self.arguments, *self.env)
        return tuple(dict.fromkeys((*own, *(name for part in self.any for name in part.names))))


class Symptom(StrEnum):
    """Effect of a bug."""

    HANG = "hang"
    CRASH = "crash"
    REFUSAL = "refusal"
    WRONG_OUTPUT = "wrong-output"
    IGNORED_FIELD = "ignored-field"
    LOW_ACCEPTANCE = "low-acceptance"
    SLOW = "slow"


class Confidence(StrEnum):
    """Levels of evidence for a bug and its affected releases, strongest first."""

    MARKER = "marker"
    NAMED_CHANGE = "named-change"
    MAINTAINER = "maintainer"
    SEVERAL_REPORTS = "several-reports"
    ONE_REPORT = "one-report"

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS = {
    Confidence.MARKER: "the source of every known release shows the bug or its fix",
    Confidence.NAMED_CHANGE: "a merged change names the bug",
    Confidence.MAINTAINER: "a maintainer confirmed the bug",
    Confidence.SEVERAL_REPORTS: "several independent reports",
    Confidence.ONE_REPORT: "one report",
}


class RequestField(StrEnum):
    """Request field or request feature that a bug affects."""

    ABORT = "abort"
    GRAMMAR = "grammar"
    HIDDEN_STATES = "hidden_states"
    IMAGES = "images"
    LOGIT_BIAS = "logit_bias"
    LOGIT_PROCESSOR = "custom_logit_processor"
    LOGPROBS = "logprobs"
    LONG_CONTEXT = "long_context"
    MAX_TOKENS = "max_tokens"
    MIN_P = "min_p"
    MIN_TOKENS = "min_tokens"
    N = "n"
    PENALTIES = "penalties"
    REASONING = "reasoning"
    SEED = "seed"
    STOP = "stop"
    STREAM = "stream"
    TEMPERATURE = "temperature"
    TOOLS = "tools"
    TOP_K = "top_k"
    TOP_P = "top_p"


class Workaround(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Remedy other than an upgrade: a sentence, and edits unless there are several ways."""

    text: str
    set: dict[str, bool | int | float | str | None] = {}
    env: dict[str, str | None] = {}


class SourceMark(Struct, frozen=True, forbid_unknown_fields=True, rename={"scope": "in"}):
    """Mark in a release's source: text (whitespace ignored), a regular expression, or a definition.

    `file`: path below `sglang/`, or alternative paths. `scope`: class or function that contains
    the mark.
    """

    file: str | tuple[str, ...]
    text: str = ""
    pattern: str = ""
    name: str = ""
    scope: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file,) if isinstance(self.file, str) else self.file


class Marker(Struct, frozen=True, forbid_unknown_fields=True):
    """Marks that identify affected releases: every mark of `bug`, and no mark of `fix`."""

    bug: tuple[SourceMark, ...] = ()
    fix: tuple[SourceMark, ...] = ()

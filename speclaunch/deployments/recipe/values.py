"""Recipe values: enumerations, limits, and predicates for formatted texts.

`schema.py` uses them in declarations and `sections.py` in checks; neither pydantic nor packaging is
imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from speclaunch.core import lazy

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

ENV_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]*\Z")
"""Variable names of a shell."""
_RELEASE = r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))+(\.post(0|[1-9][0-9]*))?"
_PIN = lazy(rf"{_RELEASE}\Z", re.ASCII)
_BOUNDS = lazy(rf"(>=|<=|<|>|!=){_RELEASE}(,(>=|<=|<|>|!=){_RELEASE})*\Z", re.ASCII)
_ROLE_NAME = lazy(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?\Z")
"""Name part that every platform accepts (RFC 1035), with room for suffixes."""
_IMAGE = lazy(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*\Z", re.ASCII)
_LABEL = lazy(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_RESOURCE = lazy(r"[a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63}(:[1-9][0-9]{0,2})?\Z", re.ASCII)
_STORE = lazy(r"(/|pvc:[a-z0-9])[A-Za-z0-9._/@+-]*\Z", re.ASCII)
MOST_REPLICAS = 1000
MOST_ROLES = 64
EMPTY_DIR = "emptyDir"
"""`deploy.models`: the disk of each pod's node; every new pod downloads the checkpoint again."""


class RecoveryPolicy(StrEnum):
    """Method of choosing the next settings after a start ran out of memory."""

    OFF = "off"
    """A failed start is reported and not retried."""
    BUDGET = "budget"
    """The memory budget chooses the first settings that are predicted to fit."""
    ORDER = "order"
    """One setting after the other, in the configured order."""


def is_label(text: str) -> bool:
    """True if a namespace may have this name (RFC 1123)."""
    return _LABEL.match(text) is not None


def is_resource(text: str) -> bool:
    """True if a text names a device plugin's resource: `rdma/ib`, or `rdma/ib:8` for 8."""
    return _RESOURCE.match(text) is not None


def is_store(text: str) -> bool:
    """True if a text names a file store: a host directory, or `pvc:NAME` (Kubernetes claim)."""
    return len(text) <= 500 and _STORE.match(text) is not None and "/../" not in f"{text}/"


def is_model_store(text: str) -> bool:
    """True if a text names a checkpoint store: a file store (`is_store`) or `emptyDir`."""
    return text == EMPTY_DIR or is_store(text)


def is_role_name(text: str) -> bool:
    """True if a role may have this name: a lower-case label other than `router`."""
    return _ROLE_NAME.match(text) is not None and text != "router"


def is_image(text: str) -> bool:
    """True if a text can be the name of a container image: `lmsysorg/sglang:v0.5.23`."""
    return len(text) <= 500 and _IMAGE.match(text) is not None


def is_plain_version(text: str) -> bool:
    """True for a release (`0.5.23`) and for plain bounds (`>=0.5.11,<0.6`).

    packaging accepts more forms, which only the schema reads.
    """
    return _PIN.match(text) is not None or _BOUNDS.match(text) is not None


def specifier(text: str) -> SpecifierSet:
    """Parse a version: `0.5.23` means exactly that; other texts are specifiers (`>=0.5.11`).

    Raises packaging's InvalidSpecifier.
    """
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  slow to import
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415

    try:
        return SpecifierSet(f"=={Version(text)}", prereleases=True)
    except InvalidVersion:
        return SpecifierSet(text, prereleases=True)


def _joined(texts: Iterable[str]) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  slow to import

    return SpecifierSet(",".join(f"{specifier(text)}" for text in texts), prereleases=True)


class EngineVersions:
    """Versions in the section `engine` of a recipe."""

    if TYPE_CHECKING:
        version: str | None
        requires: str | None

    @property
    def specifier(self) -> SpecifierSet:
        """Versions that can serve the recipe, including its pin; empty means any."""
        return _joined([*self.needs, self.pinned] if self.pinned else self.needs)

    @property
    def bounds(self) -> SpecifierSet:
        """Versions that can serve the recipe, ignoring its pin; empty means any."""
        return _joined(self.needs)

    @property
    def needs(self) -> tuple[str, ...]:
        """Bounds as stated in the recipe."""
        stated = (None if self.pinned else self.version, self.requires)
        return tuple(version for version in stated if version)

    @property
    def pinned(self) -> str | None:
        """The single version that the recipe names; None for a range."""
        if not self.version or _BOUNDS.match(self.version):
            return None
        if _PIN.match(self.version):
            return self.version
        clauses = list(specifier(self.version))
        if len(clauses) == 1 and clauses[0].operator == "==":
            version = clauses[0].version
            return None if version.endswith(".*") else version
        return None


def recovery_conflict(
    policy: RecoveryPolicy, order: Sequence[object], low: float, high: float
) -> str | None:
    """Return the message about conflicting settings of `recovery`, or None.

    `low` and `high` are the floor and the limit of `mem_fraction_static`.
    """
    if policy is not RecoveryPolicy.OFF and not order:
        return "order is empty: name the settings that recovery may change, or set policy: off"
    if low >= high:
        return (
            f"floors.mem_fraction_static ({low}) must be below limits.mem_fraction_static ({high})"
        )
    return None

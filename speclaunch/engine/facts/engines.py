"""Selects a deployment's engine and hardware, from its file, the user's options or this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from speclaunch.core import InputError, LaunchError, Problem, expand_user, reads
from speclaunch.engine.facts.facts import UnknownFact
from speclaunch.engine.facts.hardware import AUTO, Hardware, declare
from speclaunch.engine.releases.catalogue import (
    UnknownVersion,
    add_fork,
    held_versions,
    resolve_version,
)
from speclaunch.engine.releases.forks import is_path
from speclaunch.engine.releases.versions import ResolvedVersion

if TYPE_CHECKING:
    from speclaunch.engine.facts.runtime import Runtime

INSTALLED = "installed"
"""Value of `--engine` for the installed engine, which is read from its package."""


def named(text: str) -> ResolvedVersion:
    """Resolve a value of `--engine`: a version, `installed` or a path.

    An unknown version resolves to the nearest release, with a note. Raises InputError for an
    invalid version, or if `installed` finds no engine.
    """
    if text == INSTALLED:
        from speclaunch.engine.facts.runtime import find_runtime  # noqa: PLC0415  slow to import

        try:
            return ResolvedVersion(text, read_installed(find_runtime(None)), exact=True)
        except LaunchError as error:
            message = f"no engine is installed: {error.problems[0].message}"
            remedy = f"name a release, such as {held_versions()[-1]}, or the path of a package"
            raise InputError(Problem(message, help=remedy)) from error
    return resolve_version(text)


def listed(text: str) -> tuple[ResolvedVersion, ...]:
    """Resolve each version in `--engine VERSION[,VERSION…]`. Raises InputError."""
    return tuple(named(name) for name in names(text))


def names(text: str) -> tuple[str, ...]:
    """Return the unique names in `--engine VERSION[,VERSION…]`. Raises InputError without names."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        remedy = f"name a release, such as --engine {held_versions()[-1]}"
        raise InputError(Problem("--engine names no version", help=remedy))
    return found


def overrides_pin(version: str, pin: str) -> str:
    """Return the note that `--engine` overrides a recipe's pinned version."""
    return f"--engine {version} overrides engine.version {pin} of the recipe"


def declared(
    text: str, python: str | None = None, version: str | None = None, near: Path | None = None
) -> str:
    """Return the catalogue name for a value of `engine.catalogue`: a version, path or `installed`.

    - `python`: the interpreter that has the installed engine.
    - `version`: the release that the engine is based on.
    - `near`: the directory in which a relative path is resolved before the current directory.

    Raises InputError or LaunchError.
    """
    if text == INSTALLED:
        from speclaunch.engine.facts.runtime import find_runtime  # noqa: PLC0415

        return read_installed(find_runtime(python), version)
    path = expand_user(text)
    local = near / path if near is not None else path
    if reads.exists(local) or reads.exists(path) or is_path(text):
        return add_fork(local if reads.exists(local) else path, version=version)
    return resolve_version(text).held


def read_installed(runtime: Runtime, version: str | None = None) -> str:
    """Return the catalogue name of an installed engine, read from its package. `version`: used if
    the engine's is unknown. Raises LaunchError if the package is unreadable."""
    if runtime.sglang_path is None:
        raise LaunchError(
            f"SGLang in {runtime.interpreter} has no readable package directory",
            help="set engine.catalogue to the path of SGLang's package",
        )
    return add_fork(runtime.sglang_path, version=runtime.sglang or version)


def installed_catalogue(runtime: Runtime) -> str | None:
    """Return the name of the catalogue of an installed release or fork.

    If a fork cannot be read, uses the nearest release's catalogue. None if there is no engine or no
    release is near.
    """
    if runtime.sglang is None:
        return None
    try:
        resolved = resolve_version(runtime.sglang)
        if resolved.exact:
            return resolved.held
    except UnknownVersion:
        resolved = None
    try:
        return read_installed(runtime)
    except Exception:  # unreadable engine: use the nearest release
        return None if resolved is None else resolved.held


Machine = Callable[[], Hardware | UnknownFact]
"""A function that returns this machine's hardware, or the reason why it is unknown."""


class ChosenHardware(Struct, frozen=True):
    """The selected hardware. If it is None, `unknown` may contain the reason."""

    hardware: Hardware | None
    unknown: UnknownFact | None = None


def choose_hardware(
    explicit: Hardware | None,
    named: str,
    machine: Machine | None,
    *,
    cpu: bool = False,
    here_first: bool = False,
) -> ChosenHardware:
    """Return the hardware of a recipe whose `hardware.name` is `named`.

    - `explicit`: the value of `--hardware`.
    - `machine`: probes this machine for `auto` or with `here_first`; None: do not probe.
    - `cpu`: the deployment runs on the CPU engine.
    - `here_first`: this machine takes precedence over the recipe, because `doctor` checks whether
      the recipe starts on this machine.
    """
    if explicit is not None:
        return ChosenHardware(explicit)
    if cpu:
        if machine is None:
            return ChosenHardware(declare("cpu"))
        from speclaunch.engine.facts.hardware_probe import probe_host  # noqa: PLC0415  no check needs it

        return ChosenHardware(probe_host())
    found = machine() if machine is not None and (named == AUTO or here_first) else None
    if isinstance(found, Hardware):
        return ChosenHardware(found)
    if named != AUTO:
        return ChosenHardware(declare(named))
    return ChosenHardware(None, found)

"""Which catalogue answers for the engine that somebody names: a release, a fork, the installed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.core import InputError, LaunchError, Problem, expand_user, reads
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
"""The engine of the interpreter at hand, read there."""


def named(text: str) -> ResolvedVersion:
    """The catalogue for what `--engine` names: a version, `installed`, or a path.

    The nearest release answers for an unknown one, with a note. Raises InputError for what is no
    version, and if no engine is installed.
    """
    if text == INSTALLED:
        from speclaunch.engine.facts.runtime import find_runtime  # noqa: PLC0415  slow to import

        try:
            return ResolvedVersion(text, read_installed(find_runtime(None)), exact=True)
        except LaunchError as error:
            said = f"no engine is installed: {error.problems[0].message}"
            remedy = f"name a release, such as {held_versions()[-1]}, or the path of a package"
            raise InputError(Problem(said, help=remedy)) from error
    return resolve_version(text)


def listed(text: str) -> tuple[ResolvedVersion, ...]:
    """What `--engine VERSION[,VERSION…]` names. Raises InputError, also for no name at all."""
    return tuple(named(name) for name in names(text))


def names(text: str) -> tuple[str, ...]:
    """The names in `--engine VERSION[,VERSION…]`, each once. Raises InputError for none."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise InputError(Problem("--engine: no version was given"))
    return found


def overrides_pin(version: str, pin: str) -> str:
    """The note that `--engine` counts, and not the pin of a recipe."""
    return f"--engine {version} overrides engine.version {pin} of the recipe"


def declared(
    text: str, python: str | None = None, version: str | None = None, near: Path | None = None
) -> str:
    """The catalogue that a recipe's `engine.catalogue` names: `installed`, a path or a version.

    `python` is the interpreter of `installed`, `version` the release that the engine was made
    from, `near` the directory that a relative path counts from before the current one.  Raises
    InputError or LaunchError.
    """
    if text == INSTALLED:
        from speclaunch.engine.facts.runtime import find_runtime  # noqa: PLC0415

        return read_installed(find_runtime(python), version)
    path = expand_user(text)
    beside = near / path if near is not None else path
    if reads.exists(beside) or reads.exists(path) or is_path(text):
        return add_fork(beside if reads.exists(beside) else path, version=version)
    return resolve_version(text).held


def read_installed(runtime: Runtime, version: str | None = None) -> str:
    """The catalogue of an installed engine, read from its package."""
    if runtime.sglang_path is None:
        raise LaunchError(
            f"the sglang of {runtime.interpreter} has no readable package directory",
            help="set engine.catalogue to the path of its package",
        )
    return add_fork(runtime.sglang_path, version=runtime.sglang or version)


def at_hand(runtime: Runtime) -> str | None:
    """The catalogue of an installed engine: the release's, or its own where it is none.

    None where there is no engine, or one that cannot be read.
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
    except Exception:  # what is installed cannot be read: the nearest release answers
        return None if resolved is None else resolved.held

"""Unreleased engines (a fork, a checkout or a nightly), checked against their own arguments.

Such an engine is read in place, never imported. Its catalogue, named `<version>+fork.<mark>`, is
cached next to those that users add. The engine's version determines which rules apply, but the
engine never counts as the newest release. Reading takes a second, and is repeated when the engine
changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from speclaunch.core import (
    JUDGE_RECORD,
    InputError,
    Problem,
    expand_user,
    judges_home,
    read_regular,
    reads,
    replace_file,
)
from speclaunch.engine.releases.argument import (
    Argument,
    EngineVariable,
    encode_argument,
    encode_variable,
)

MARK = "+fork."
"""Marker in the name of a fork's catalogue."""
_FOLDER = "forks"
_FORMAT = "1"
"""Version of the file format. A change invalidates cached catalogues."""

Base = Callable[[str], tuple[Mapping[str, Argument], Mapping[str, EngineVariable]]]
"""Function that resolves a version and returns the release's arguments by flag and variables by
name."""


def file_of(version: str, directory: Path) -> Path:
    """Return the path of a fork's catalogue."""
    return directory / _FOLDER / f"{version}.json"


def of_judge(name: str) -> str | None:
    """Return the fork version that the judge `name` validates; None if it is not a fork's judge."""
    file = judges_home() / name / JUDGE_RECORD
    if file.parent.name != name or not reads.may_read(file):
        return None
    try:
        reads.content(file, file.stat())
        release = json.loads(file.read_bytes())["release"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return release if isinstance(release, str) and release != name else None


def is_path(text: str) -> bool:
    """True if a version text has the form of a path."""
    return "/" in text or text.endswith((".whl", ".json"))


def read_fork(source: Path, directory: Path, base: Base, version: str | None = None) -> str:
    """Return the catalogue name of the engine at `source`. Read the engine unless its catalogue is
    cached.

    `source` is a `sglang` package, a checkout, a wheel, or a catalogue (JSON). `version` is the
    engine's base release, used if the package states no version. Variables, and whether an argument
    is read, come from that release. Raises InputError.
    """
    reads.mark_uncacheable()  # an engine's arguments depend on hundreds of files
    source = _package(expand_user(source))
    mark = _signature(source, version)
    cached = sorted((directory / _FOLDER).glob(f"*{MARK}{mark}.json"))
    if cached:
        return cached[0].stem
    document = _catalogue(source, base, version)
    name = f"{document['version']}{MARK}{mark}"
    _write(file_of(name, directory), {**document, "version": name})
    return name


def _package(source: Path) -> Path:
    if not source.exists():
        raise InputError(
            Problem(
                f"{source}: no such file or directory",
                help="set engine.catalogue to an sglang package, checkout, wheel or catalogue",
            )
        )
    inside = source / "python"  # a checkout of the repository
    return inside if (inside / "sglang").is_dir() else source


def _signature(source: Path, version: str | None) -> str:
    """Return a hash that changes when a file that declares arguments changes."""
    parts = [_FORMAT, str(source.resolve()), version or ""]
    for file in _relevant(source):
        stat = file.stat()
        parts.append(f"{file} {stat.st_mtime_ns} {stat.st_size}")

    return sha256("\n".join(parts).encode()).hexdigest()[:10]


def _relevant(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    package = source if source.name == "sglang" else source / "sglang"
    yield from sorted([*package.glob("*.py"), *package.glob("srt/*.py")])
    yield from sorted(package.glob("srt/arg_groups/**/*.py"))


def _catalogue(source: Path, base: Base, version: str | None) -> dict[str, Any]:
    if source.suffix == ".json":
        return _read_catalogue(source)
    from speclaunch.engine.releases.extraction.release import argument_of, extract  # noqa: PLC0415

    release = extract(source, usage=False, version=version)
    public = release.version.partition("+")[0]
    arguments, variables = base(public)
    return {
        "version": public,
        "arguments": {
            flag: encode_argument(
                argument_of(declared, read=flag not in arguments or arguments[flag].read)
            )
            for flag, declared in sorted(release.arguments.items())
        },
        "variables": {name: encode_variable(variable) for name, variable in variables.items()},
    }


def _read_catalogue(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_regular(file))
        return {
            "version": str(document["version"]).partition("+")[0],
            "arguments": dict(document["arguments"]),
            "variables": dict(document["variables"]),
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            Problem(
                f"{file} is not a catalogue: {error}",
                help="create one with `speclaunch engine catalogue add`",
            )
        ) from error


def _write(file: Path, document: Mapping[str, Any]) -> None:
    """Write a catalogue atomically, because several processes may read the same fork at once."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(document, ensure_ascii=False, indent=1))
    except OSError as error:
        raise InputError(
            Problem(
                f"cannot store the engine's catalogue in {file.parent}: {error.strerror}",
                help="set SPECLAUNCH_HOME to another directory",
            )
        ) from error

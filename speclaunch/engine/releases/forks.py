"""Engines that are no release: a fork, a checkout, a nightly, judged by their own arguments.

Such an engine is read where it lies, never imported, and kept as a catalogue of its own beside
those that users add, named `<version>+fork.<mark>`: the rules hold for it by its version, and
nobody takes it for the newest release.  Reading takes a second; it is read anew when a file of it
has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

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
"""What the name of such a catalogue has in it."""
_FOLDER = "forks"
_FORMAT = "1"
"""Changes with what is written, so that an older file is not read."""

Base = Callable[[str], tuple[Mapping[str, Argument], Mapping[str, EngineVariable]]]
"""The arguments by flag and the variables of the release that answers for a version."""


def file_of(version: str, directory: Path) -> Path:
    """Where the catalogue of a fork is kept."""
    return directory / _FOLDER / f"{version}.json"


def of_judge(name: str) -> str | None:
    """The version of the judge that was added under a name, where it is another one than the name
    says: of a fork."""
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
    """Whether what somebody gave as a version names a place on disk."""
    return "/" in text or text.endswith((".whl", ".json"))


def read_fork(source: Path, directory: Path, base: Base, version: str | None = None) -> str:
    """The name of the catalogue of the engine at `source`, read if it is not kept yet.

    `source` is a `sglang` package, a checkout, a wheel, or a catalogue (JSON).  `version` is the
    release it was made from, where the package does not say one.  Variables, and what reads an
    argument, are taken from that release.  Raises InputError.
    """
    reads.unrepeatable()  # hundreds of files tell what an engine takes
    source = _package(expand_user(source))
    mark = _signature(source, version)
    kept = sorted((directory / _FOLDER).glob(f"*{MARK}{mark}.json"))
    if kept:
        return kept[0].stem
    document = _catalogue(source, base, version)
    name = f"{document['version']}{MARK}{mark}"
    _write(file_of(name, directory), {**document, "version": name})
    return name


def _package(source: Path) -> Path:
    if not source.exists():
        raise InputError(
            Problem(
                f"{source}: no such file or directory",
                help="set engine.catalogue to a sglang package, a checkout, a wheel or a catalogue",
            )
        )
    inside = source / "python"  # a checkout of the repository
    return inside if (inside / "sglang").is_dir() else source


def _signature(source: Path, version: str | None) -> str:
    """Changes when a file that says the arguments does."""
    parts = [_FORMAT, str(source.resolve()), version or ""]
    for file in _relevant(source):
        stat = file.stat()
        parts.append(f"{file} {stat.st_mtime_ns} {stat.st_size}")
    from hashlib import sha256  # noqa: PLC0415  slow to import, and forks are few

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
        return _kept(source)
    from speclaunch.engine.releases.extract import argument_of, extract  # noqa: PLC0415

    release = extract(source, usage=False, version=version)
    public = release.version.partition("+")[0]
    arguments, variables = base(public)
    return {
        "version": public,
        "arguments": {
            flag: encode_argument(_as_read(argument_of(declared), arguments.get(flag)))
            for flag, declared in sorted(release.arguments.items())
        },
        "variables": {name: encode_variable(one) for name, one in variables.items()},
    }


def _as_read(argument: Argument, released: Argument | None) -> Argument:
    return argument if released is None else replace(argument, read=released.read)


def _kept(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_regular(file))
        return {
            "version": str(document["version"]).partition("+")[0],
            "arguments": dict(document["arguments"]),
            "variables": dict(document["variables"]),
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            Problem(f"{file}: not a catalogue: {error}", help="speclaunch engine catalogue add")
        ) from error


def _write(file: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all: several may read the same fork at once."""
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

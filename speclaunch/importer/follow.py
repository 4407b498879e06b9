"""The files that a server command reads itself: the one behind ``--config``.

The engine opens it relative to where it is started, which a script does not say: the directory of
the script is tried, then the working directory, and where the script says `cd sub` before, `sub` in
each of them. A file is only followed below those, so that a finding never quotes a line from
elsewhere on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from speclaunch import reads
from speclaunch.engine.entrypoint import CONFIG, CONFIG_SUFFIXES
from speclaunch.importer.interface import ConfigFile, Invocation, InvocationKind, Reading
from speclaunch.importer.suffixes import MAX_BYTES


def followed(reading: Reading, file: Path | None) -> Reading:
    """A reading with the ``--config`` files of its commands.

    `file` is where the commands were written, None for standard input or a command line.
    """
    if not any(word.text == CONFIG for found in reading.invocations for word in found.words):
        return reading
    around = [file.parent] if file is not None else []
    places = [*around, Path()]
    return replace(
        reading,
        invocations=tuple(_with_config(found, places) for found in reading.invocations),
    )


def config_file(name: str) -> ConfigFile:
    """The file that the engine opens for ``--config NAME`` when it is started here."""
    return _read(name, [Path()])


def _with_config(invocation: Invocation, places: Sequence[Path]) -> Invocation:
    if invocation.kind in (InvocationKind.CONFIG, InvocationKind.SLIME):
        return invocation
    if invocation.config is not None:  # found beside the command
        return invocation
    words = [word for word in invocation.words if word.evaluated]
    at = next((i for i, word in enumerate(words) if word.text == CONFIG), len(words))
    if at + 1 >= len(words) or not words[at + 1].text.lower().endswith(CONFIG_SUFFIXES):
        return invocation
    name = words[at + 1].text
    if invocation.image is not None:
        found = ConfigFile(name, why="it is in the container")
    else:
        found = _read(name, places, invocation.directory)
    return replace(invocation, config=found)


def _read(name: str, places: Sequence[Path], directory: str | None = None) -> ConfigFile:
    outside = False
    below = [place / (directory or "") for place in places]
    if directory is not None and Path(directory).is_absolute():
        below += places  # a path of the machine, or container, that the script is for
    for place in dict.fromkeys(below):
        file = place / name
        try:
            if not reads.is_file(file):
                continue
            if not _below(file, places):
                outside = True
                continue
            if reads.size(file) > MAX_BYTES:
                return ConfigFile(name, why="it is larger than 10 MiB")
            return ConfigFile(str(file), reads.read_bytes(file).decode("utf-8-sig"))
        except UnicodeDecodeError:
            return ConfigFile(name, why="it is not UTF-8 text")
        except (OSError, ValueError) as error:
            return ConfigFile(name, why=f"it cannot be read ({getattr(error, 'strerror', error)})")
    if outside:
        return ConfigFile(name, why="it lies outside of the directories that are checked")
    return ConfigFile(name, why="no such file here")


def _below(file: Path, places: Sequence[Path]) -> bool:
    real = reads.resolve(file)
    return any(real.is_relative_to(reads.resolve(place)) for place in places)

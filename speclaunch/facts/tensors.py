"""The tensors of a checkpoint on disk, read when asked: their headers, and what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Protocol, runtime_checkable

from speclaunch import reads
from speclaunch.facts import tensor_values
from speclaunch.facts.safetensors_header import BrokenHeaderError, TensorHeader, read_header
from speclaunch.facts.tensor_values import Content
from speclaunch.facts.weights import loaded_files, weight_files
from speclaunch.reads.safe_json import UnreadableFileError, is_directory
from speclaunch.record import record

_BUDGET = 32 << 20
"""Bytes of numbers that are read of one checkpoint, at most."""
_MOST_OF_ONE = 1 << 20
_MOST_FILES = 1024
_MOST_TENSORS = 400_000
_MOST_LOOKS = 1 << 16


@record
class Headers:
    """What the files of a checkpoint declare.

    `broken`: files that the engine's reader refuses, each with the reason. `unread`: why the rest
    is not all there is; None where it is.
    """

    tensors: Mapping[str, TensorHeader] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    unread: str | None = None


@runtime_checkable
class TensorFacts(Protocol):
    """What rules ask about the tensors of a checkpoint."""

    @property
    def headers(self) -> Headers:
        """Their names, types and shapes."""

    def contents(self, names: Iterable[str]) -> Mapping[str, Content]:
        """What is in them, of those that can be told; the more are asked for, the less of each
        is read."""

    def integers(self, name: str) -> tuple[int, ...] | None:
        """The numbers of a small tensor of integers; None where they cannot be told."""

    def fingerprint(self, name: str) -> bytes | None:
        """Equal ones are of tensors that are equal, as far as they are read; None: not read."""

    def row(self, name: str, number: int) -> Content | None:
        """What is in one row of a matrix; None where it cannot be told."""


class TensorsOnDisk:
    """The tensors in the safetensors files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, Path] = {}
        self._read_once = reads.remembered(1)(self._read)
        self._look_once = reads.remembered(_MOST_LOOKS)(self._look)

    @property
    def headers(self) -> Headers:
        """Read once. Never raises for what is in the files."""
        return self._read_once()

    def contents(self, names: Iterable[str]) -> Mapping[str, Content]:
        """Of each tensor the beginning, the middle and the end where it is large."""
        wanted = [name for name in names if name in self.headers.tensors]
        most = min(_MOST_OF_ONE, _BUDGET // max(len(wanted), 1))
        found = {}
        for name in wanted:
            content = self._look_once(name, most)
            if content is not None:
                found[name] = content
        return found

    def _look(self, name: str, most: int) -> Content | None:
        return tensor_values.look(self._files[name], self.headers.tensors[name], most)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """See TensorFacts."""
        header = self.headers.tensors.get(name)
        return None if header is None else tensor_values.integers(self._files[name], header)

    def fingerprint(self, name: str) -> bytes | None:
        """See TensorFacts."""
        header = self.headers.tensors.get(name)
        if header is None:
            return None
        return tensor_values.fingerprint(self._files[name], header, _MOST_OF_ONE)

    def row(self, name: str, number: int) -> Content | None:
        """See TensorFacts."""
        header = self.headers.tensors.get(name)
        return None if header is None else tensor_values.row(self._files[name], header, number)

    def _read(self) -> Headers:
        files = loaded_files(self._directory)
        if len(files) > _MOST_FILES:
            return Headers(unread=f"it has {len(files)} files of weights")
        tensors: dict[str, TensorHeader] = {}
        broken, unread = [], None
        for file in files:
            try:
                must_be_inside(file, self._directory)
                found = read_header(file)
            except BrokenHeaderError as error:
                broken.append(str(error))
                continue
            except UnreadableFileError as error:
                unread = str(error)
                continue
            tensors |= found
            self._files |= dict.fromkeys(found, file)
            if len(tensors) > _MOST_TENSORS:
                return Headers(unread=f"it has more than {_MOST_TENSORS} tensors")
        return Headers(tensors, tuple(broken), unread)


def read_tensors(directory: Path) -> TensorsOnDisk | None:
    """The tensors in a directory, not read yet; None where there is no safetensors file."""
    return TensorsOnDisk(directory) if weight_files(directory) else None


def must_be_inside(file: Path, directory: Path) -> None:
    """Raise UnreadableFileError for a link that leads out of a checkpoint's directory.

    A hub cache links each file of `models--org--name/snapshots/COMMIT/` into `blobs/` of the same
    `models--org--name`: that is inside.
    """
    try:
        real, inside = reads.resolve(file), [reads.resolve(directory)]
    except (OSError, RuntimeError) as error:
        raise UnreadableFileError(f"{file.name}: {error}") from None
    repository = inside[0].parent.parent
    if inside[0].parent.name == "snapshots" and is_directory(repository / "blobs"):
        inside.append(repository / "blobs")
    if not any(real.is_relative_to(one) for one in inside):
        raise UnreadableFileError(f"{file.name} is a link out of its directory: it is not read")

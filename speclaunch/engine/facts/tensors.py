"""The tensors of a checkpoint: names, types, shapes, and a look into their numbers.

Numbers are looked into as far as it costs little, without numpy: by tests on bytes that run at the
speed of memory.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from speclaunch.core import UnreadableFileError, is_directory, open_regular, reads
from speclaunch.engine.facts.safetensors_header import (
    BITS,
    BrokenHeaderError,
    TensorHeader,
    checked,
    read_header,
)
from speclaunch.engine.facts.weights import loaded_files, weight_files

_MOST_INTEGERS = 1 << 22
"""Longer ones are no token map."""
_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "U8": "B", "I8": "b", "BOOL": "?"}


class Content(Struct, frozen=True):
    """What the numbers of a tensor are, of those that were read.

    `all_read`: these were all; otherwise the beginning, the middle and the end.
    """

    all_zero: bool
    not_finite: bool
    all_read: bool


def look(file: Path, header: TensorHeader, most: int) -> Content | None:
    """The content of a tensor of real numbers, of which at most `most` bytes are read.

    None where the type is not one of real numbers, there is none, or the file cannot be read.
    """
    test = _NOT_FINITE.get(header.dtype)
    if test is None or header.end == header.start:
        return None
    read = _pieces(file, _places(header, most))
    if read is None:
        return None
    # a negative zero counts as a number: no file of zeros has one
    zero = not any(piece.strip(b"\0") for piece in read)
    return Content(zero, any(test(piece) for piece in read), len(read) == 1)


def fingerprint(file: Path, header: TensorHeader, most: int) -> bytes | None:
    """A digest of the bytes that `look` reads, with type and shape; None where they cannot be."""
    read = _pieces(file, _places(header, most))
    if read is None:
        return None
    said = hashlib.sha256(f"{header.dtype} {header.shape}".encode())
    for piece in read:
        said.update(piece)
    return said.digest()


def _places(header: TensorHeader, most: int) -> list[tuple[int, int]]:
    """Where what is read begins, and how long it is."""
    whole = header.end - header.start
    if whole <= most:
        return [(header.start, whole)]
    step = most // 3 // 16 * 16 or 16
    middle, last = ((whole - step) // part // 16 * 16 for part in (2, 1))
    return [(header.start + at, step) for at in (0, middle, last)]


def integers(file: Path, header: TensorHeader) -> tuple[int, ...] | None:
    """The numbers of a small tensor of integers or truth values; None for any other."""
    code = _INTEGERS.get(header.dtype)
    if code is None or header.elements > _MOST_INTEGERS:
        return None
    read = _pieces(file, [(header.start, header.end - header.start)])
    if read is None:
        return None
    return tuple(map(int, struct.unpack(f"<{header.elements}{code}", read[0])))


def row(file: Path, header: TensorHeader, number: int) -> Content | None:
    """The content of one row of a matrix; None where it has no such row, or cannot be read."""
    if len(header.shape) != 2 or not 0 <= number < header.shape[0]:
        return None
    bits = header.shape[1] * BITS[header.dtype]
    if bits % 8:
        return None
    start = header.start + number * (bits // 8)
    one = TensorHeader(header.dtype, header.shape[1:], start, start + bits // 8)
    return look(file, one, 1 << 20)


def _pieces(file: Path, places: list[tuple[int, int]]) -> list[bytes] | None:
    """The bytes at some places; None where the file does not have them any more."""
    try:
        with os.fdopen(open_regular(file)[0], "rb", buffering=0) as stream:
            reads.content(file, os.fstat(stream.fileno()))
            found = [os.pread(stream.fileno(), length, at) for at, length in places]
    except OSError as error:
        reads.failed(file, error)
        return None
    return (
        found if all(len(data) == n for data, (_, n) in zip(found, places, strict=True)) else None
    )


def _exponents_full(width: int, bits: int) -> Callable[[bytes], bool]:
    """A test for numbers of so many bytes whose exponent is all ones: infinite, or none at all.

    The exponent is the last 7 bits of the last byte, and `bits` of the one before.
    """

    def test(data: bytes) -> bool:
        high = data[width - 1 :: width]
        if b"\x7f" not in high and b"\xff" not in high:
            return False  # almost always: real weights are small
        return any(
            first & 0x7F == 0x7F and second & bits == bits
            for first, second in zip(high, data[width - 2 :: width], strict=True)
        )

    return test


def _of_bytes(full: bytes, width: int = 1) -> Callable[[bytes], bool]:
    """A test for numbers whose last byte is one of those."""

    def test(data: bytes) -> bool:
        high = data[width - 1 :: width]
        return len(high.translate(None, full)) != len(high)

    return test


_FIVE_BITS = bytes([*range(0x7C, 0x80), *range(0xFC, 0x100)])
"""The bytes with 5 ones behind the sign."""
_NOT_FINITE: Mapping[str, Callable[[bytes], bool]] = {
    "F64": _exponents_full(8, 0xF0),
    "F32": _exponents_full(4, 0x80),
    "BF16": _exponents_full(2, 0x80),
    "F16": _of_bytes(_FIVE_BITS, 2),
    "F8_E5M2": _of_bytes(_FIVE_BITS),
    "F8_E4M3": _of_bytes(b"\x7f\xff"),
}


_BUDGET = 32 << 20
"""Bytes of numbers that are read of one checkpoint, at most."""
_MOST_OF_ONE = 1 << 20
_MOST_FILES = 1024
_MOST_TENSORS = 400_000
_MOST_LOOKS = 1 << 16


class Headers(Struct, frozen=True):
    """What the files of a checkpoint declare.

    `broken`: files that the engine's reader refuses, each with the reason. `unread`: why the rest
    is not all there is; None where it is.
    """

    tensors: Mapping[str, TensorHeader] = {}
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
        return look(self._files[name], self.headers.tensors[name], most)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """See TensorFacts."""
        header = self.headers.tensors.get(name)
        return None if header is None else integers(self._files[name], header)

    def fingerprint(self, name: str) -> bytes | None:
        """See TensorFacts."""
        header = self.headers.tensors.get(name)
        if header is None:
            return None
        return fingerprint(self._files[name], header, _MOST_OF_ONE)

    def row(self, name: str, number: int) -> Content | None:
        """See TensorFacts."""
        header = self.headers.tensors.get(name)
        return None if header is None else row(self._files[name], header, number)

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


_MOST_SHAPES = 256
"""Of drafts; a checkpoint of more tells how many there are, and their bytes."""


class KeptTensors(Struct, frozen=True):
    """What rules ask about tensors, as far as it is told without the files."""

    headers: Headers

    def contents(self, names: Iterable[str]) -> Mapping[str, Content]:
        """Nothing: no numbers are kept."""
        del names
        return {}

    def integers(self, name: str) -> tuple[int, ...] | None:
        """None: no numbers are kept."""
        del name
        return None

    def fingerprint(self, name: str) -> bytes | None:
        """None: no numbers are kept."""
        del name
        return None

    def row(self, name: str, number: int) -> Content | None:
        """None: no numbers are kept."""
        del name, number
        return None


def described(tensors: Mapping[str, TensorHeader]) -> dict[str, Any]:
    """What a file keeps: how many, bytes by type, and type and shape of each where they are few."""
    if not tensors:
        return {}
    held: Counter[str] = Counter()
    for one in tensors.values():
        held[one.dtype] += one.end - one.start
    facts: dict[str, Any] = {"count": len(tensors), "bytes": dict(sorted(held.items()))}
    if len(tensors) <= _MOST_SHAPES:
        shapes = {name: [one.dtype, list(one.shape)] for name, one in sorted(tensors.items())}
        facts["shapes"] = shapes
    return facts


def kept_tensors(said: Mapping[str, Any]) -> KeptTensors | None:
    """The tensors that a file describes; None where it does not, or not as it should."""
    shapes = said.get("shapes")
    if not isinstance(shapes, dict) or not 0 < len(shapes) <= _MOST_SHAPES:
        return None
    raw, at = {}, 0
    for name, told in shapes.items():
        match told:
            case [str(dtype), list(shape)] if dtype in BITS:
                bits = BITS[dtype]
            case _:
                return None
        for count in shape:
            if type(count) is not int or not 0 <= count < 1 << 50 or bits > 1 << 60:
                return None
            bits *= count
        raw[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + bits // 8]}
        at += bits // 8
    try:
        return KeptTensors(Headers(checked(raw, 0, at, "tensors")))
    except UnreadableFileError:
        return None

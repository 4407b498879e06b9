"""Tensors of a checkpoint: names, types, shapes, and samples of their values.

Sampling is cheap, because bytes are tested at memory speed, without numpy.
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
from speclaunch.engine.facts.weight_files import (
    BITS,
    BrokenHeaderError,
    TensorHeader,
    checked,
    loaded_files,
    read_header,
    weight_files,
)

_MOST_INTEGERS = 1 << 22
"""Maximum number of elements in a token map."""
_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "U8": "B", "I8": "b", "BOOL": "?"}


class Content(Struct, frozen=True):
    """Properties of a tensor's values.

    `all_read`: False if only the beginning, the middle and the end of the tensor were read.
    """

    all_zero: bool
    not_finite: bool
    all_read: bool


def look(file: Path, header: TensorHeader, most: int) -> Content | None:
    """Return properties of a floating-point tensor's values, reading at most `most` bytes.

    None if the tensor has a different type or is empty, or if the file cannot be read.
    """
    test = _NOT_FINITE.get(header.dtype)
    if test is None or header.end == header.start:
        return None
    read = _pieces(file, _places(header, most))
    if read is None:
        return None
    # a negative zero counts as nonzero: no file of zeros has one
    zero = not any(piece.strip(b"\0") for piece in read)
    return Content(zero, any(test(piece) for piece in read), len(read) == 1)


def fingerprint(file: Path, header: TensorHeader, most: int) -> bytes | None:
    """Return a digest of type, shape and the bytes that `look` reads; None if unreadable."""
    read = _pieces(file, _places(header, most))
    if read is None:
        return None
    digest = hashlib.sha256(f"{header.dtype} {header.shape}".encode())
    for piece in read:
        digest.update(piece)
    return digest.digest()


def _places(header: TensorHeader, most: int) -> list[tuple[int, int]]:
    """Return the offset and length of each range to read."""
    size = header.end - header.start
    if size <= most:
        return [(header.start, size)]
    step = most // 3 // 16 * 16 or 16
    middle, last = ((size - step) // part // 16 * 16 for part in (2, 1))
    return [(header.start + at, step) for at in (0, middle, last)]


def integers(file: Path, header: TensorHeader) -> tuple[int, ...] | None:
    """Return an integer or boolean tensor's values; None if large, unreadable or another type."""
    code = _INTEGERS.get(header.dtype)
    if code is None or header.elements > _MOST_INTEGERS:
        return None
    read = _pieces(file, [(header.start, header.end - header.start)])
    if read is None:
        return None
    return tuple(map(int, struct.unpack(f"<{header.elements}{code}", read[0])))


def row(file: Path, header: TensorHeader, number: int) -> Content | None:
    """Return the content of matrix row `number`; None if it is missing or unreadable."""
    if len(header.shape) != 2 or not 0 <= number < header.shape[0]:
        return None
    bits = header.shape[1] * BITS[header.dtype]
    if bits % 8:
        return None
    start = header.start + number * (bits // 8)
    row_header = TensorHeader(header.dtype, header.shape[1:], start, start + bits // 8)
    return look(file, row_header, 1 << 20)


def _pieces(file: Path, places: list[tuple[int, int]]) -> list[bytes] | None:
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
    """Return a test for `width`-byte values that are infinite or NaN: all exponent bits are set.

    The exponent is in the lower 7 bits of the last byte and, masked by `bits`, in the byte before.
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
    """Return a test for `width`-byte values whose last byte is in `full`."""

    def test(data: bytes) -> bool:
        high = data[width - 1 :: width]
        return len(high.translate(None, full)) != len(high)

    return test


_FIVE_BITS = bytes([*range(0x7C, 0x80), *range(0xFC, 0x100)])
"""Values of a last byte whose 5 bits after the sign bit are ones."""
_NOT_FINITE: Mapping[str, Callable[[bytes], bool]] = {
    "F64": _exponents_full(8, 0xF0),
    "F32": _exponents_full(4, 0x80),
    "BF16": _exponents_full(2, 0x80),
    "F16": _of_bytes(_FIVE_BITS, 2),
    "F8_E5M2": _of_bytes(_FIVE_BITS),
    "F8_E4M3": _of_bytes(b"\x7f\xff"),
}


_BUDGET = 32 << 20
"""Maximum number of tensor bytes read per checkpoint."""
_MOST_PER_TENSOR = 1 << 20
_MOST_FILES = 1024
_MOST_TENSORS = 400_000
_MOST_LOOKS = 1 << 16


class Headers(Struct, frozen=True):
    """The tensors that a checkpoint's files declare.

    `broken`: files that the engine's reader rejects, with reasons. `unread`: why some files
    were not read; None if all were.
    """

    tensors: Mapping[str, TensorHeader] = {}
    broken: tuple[str, ...] = ()
    unread: str | None = None


@runtime_checkable
class TensorFacts(Protocol):
    """Tensor data that rules use."""

    @property
    def headers(self) -> Headers:
        """Names, types and shapes of the tensors."""

    def contents(self, names: Iterable[str]) -> Mapping[str, Content]:
        """Return the known contents by name. The more names, the less of each tensor is read."""

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return the values of a small integer tensor; None if unknown."""

    def fingerprint(self, name: str) -> bytes | None:
        """Return a digest of type, shape and sampled bytes; None if not read."""

    def row(self, name: str, number: int) -> Content | None:
        """Return the content of matrix row `number`; None if unknown."""


class TensorsOnDisk:
    """Tensors in the safetensors files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, Path] = {}
        self._read_once = reads.cached(1)(self._read)
        self._look_once = reads.cached(_MOST_LOOKS)(self._look)

    @property
    def headers(self) -> Headers:
        """Headers, read once. Never raises because of file contents."""
        return self._read_once()

    def contents(self, names: Iterable[str]) -> Mapping[str, Content]:
        """Return the contents by name. Only start, middle and end of a large tensor are read."""
        known = [name for name in names if name in self.headers.tensors]
        most = min(_MOST_PER_TENSOR, _BUDGET // max(len(known), 1))
        found = {}
        for name in known:
            content = self._look_once(name, most)
            if content is not None:
                found[name] = content
        return found

    def _look(self, name: str, most: int) -> Content | None:
        return look(self._files[name], self.headers.tensors[name], most)

    def integers(self, name: str) -> tuple[int, ...] | None:
        header = self.headers.tensors.get(name)
        return None if header is None else integers(self._files[name], header)

    def fingerprint(self, name: str) -> bytes | None:
        header = self.headers.tensors.get(name)
        if header is None:
            return None
        return fingerprint(self._files[name], header, _MOST_PER_TENSOR)

    def row(self, name: str, number: int) -> Content | None:
        header = self.headers.tensors.get(name)
        return None if header is None else row(self._files[name], header, number)

    def _read(self) -> Headers:
        files = loaded_files(self._directory)
        if len(files) > _MOST_FILES:
            return Headers(unread=f"it has {len(files)} weight files, more than {_MOST_FILES}")
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
    """Return the tensors in a directory, read on demand; None without safetensors files."""
    return TensorsOnDisk(directory) if weight_files(directory) else None


def must_be_inside(file: Path, directory: Path) -> None:
    """Raise UnreadableFileError for a link that leads out of a checkpoint's directory.

    A hub cache links each file in `models--org--name/snapshots/COMMIT/` to `blobs/` in the same
    `models--org--name`. Such a link is allowed.
    """
    try:
        real, inside = reads.resolve(file), [reads.resolve(directory)]
    except (OSError, RuntimeError) as error:
        raise UnreadableFileError(f"{file.name}: {error}") from None
    repository = inside[0].parent.parent
    if inside[0].parent.name == "snapshots" and is_directory(repository / "blobs"):
        inside.append(repository / "blobs")
    if not any(real.is_relative_to(folder) for folder in inside):
        raise UnreadableFileError(f"{file.name} links outside its directory and is not read")


_MOST_SHAPES = 256
"""Maximum number of stored shapes, enough for drafts. For more tensors, only their count and
bytes are stored."""


class StoredTensors(Struct, frozen=True):
    """Stored tensor headers, usable without the checkpoint's files. Contents are unknown."""

    headers: Headers

    def contents(self, names: Iterable[str]) -> Mapping[str, Content]:
        del names
        return {}

    def integers(self, name: str) -> tuple[int, ...] | None:
        del name
        return None

    def fingerprint(self, name: str) -> bytes | None:
        del name
        return None

    def row(self, name: str, number: int) -> Content | None:
        del name, number
        return None


def described(tensors: Mapping[str, TensorHeader]) -> dict[str, Any]:
    """Return the tensors as JSON data: count, bytes by type and, if they are few, all shapes."""
    if not tensors:
        return {}
    held: Counter[str] = Counter()
    for tensor in tensors.values():
        held[tensor.dtype] += tensor.end - tensor.start
    facts: dict[str, Any] = {"count": len(tensors), "bytes": dict(sorted(held.items()))}
    if len(tensors) <= _MOST_SHAPES:
        shapes = {
            name: [tensor.dtype, list(tensor.shape)] for name, tensor in sorted(tensors.items())
        }
        facts["shapes"] = shapes
    return facts


def stored_tensors(facts: Mapping[str, Any]) -> StoredTensors | None:
    """Return the tensors that `described` stored; None if shapes are missing or invalid."""
    shapes = facts.get("shapes")
    if not isinstance(shapes, dict) or not 0 < len(shapes) <= _MOST_SHAPES:
        return None
    raw, at = {}, 0
    for name, entry in shapes.items():
        match entry:
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
        return StoredTensors(Headers(checked(raw, 0, at, "tensors")))
    except UnreadableFileError:
        return None

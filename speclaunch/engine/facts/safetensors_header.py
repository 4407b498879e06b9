"""Reads safetensors headers: names, types, shapes and offsets of tensors.

The file consists of an 8-byte length, a JSON header of that length, and the tensor data. A header
may be malicious: reading is bounded, and its content is not trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from speclaunch.core import MOST_BYTES, UnreadableFileError, parse_object, read_start

MOST_HEADER_BYTES = 100_000_000
"""The format's own limit: the engine's reader rejects a longer header (safetensors 0.4 and later,
MAX_HEADER_SIZE).
"""
MOST_READ_BYTES = 32 << 20
"""speclaunch's limit: room for about 250,000 tensors. The longest published headers use a tenth of
that."""
MOST_TENSORS = 200_000
"""speclaunch's limit per file. A header with more tensors is not parsed."""
_MOST_DIMENSIONS = 32
METADATA = "__metadata__"

BITS: Mapping[str, int] = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "I64": 64,
    "U64": 64,
    "F64": 64,
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}
"""Bits per number for each type (`Dtype` of safetensors 0.7)."""


class BrokenHeaderError(UnreadableFileError):
    """Error: the file violates the format. The engine's reader rejects it, too."""


class TensorHeader(Struct, frozen=True):
    """Header entry of one tensor. `start` and `end` are byte offsets in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


def read_names(file: Path) -> dict[str, Any]:
    """Return a file's header by tensor name, unchecked and without `__metadata__`.

    Raises UnreadableFileError if it exceeds speclaunch's limit, and BrokenHeaderError if it is
    invalid.
    """
    return _raw(file)[0]


def read_header(file: Path) -> dict[str, TensorHeader]:
    """Return the tensors of a safetensors file, checked against the file's size.

    Raises UnreadableFileError if the header exceeds speclaunch's limit, and BrokenHeaderError if it
    violates the format: an offset that is negative or past the end, tensors that overlap or leave a
    gap, or a size that does not match shape and type.
    """
    raw, data_at, file_bytes = _raw(file)
    return checked(raw, data_at, file_bytes, file.name)


def checked(
    raw: Mapping[str, Any], data_at: int, file_bytes: int, name: str
) -> dict[str, TensorHeader]:
    """Return the tensors of a parsed header; their data begins at offset `data_at`.

    Raises BrokenHeaderError.
    """
    found = {tensor: _tensor(tensor, entry, data_at, name) for tensor, entry in raw.items()}
    at = data_at
    for tensor, header in sorted(found.items(), key=lambda item: (item[1].start, item[1].end)):
        if header.start != at:
            fault = "overlap" if header.start < at else "leave a gap"
            raise BrokenHeaderError(f"{name}: its tensors {fault} at {_short(tensor)}")
        at = header.end
    if at != file_bytes:
        raise BrokenHeaderError(f"{name} has {file_bytes} bytes, but its header describes {at}")
    return found


def parse(start: bytes, name: str) -> dict[str, Any]:
    """Return the header from the first bytes of a file, which must include the complete header.

    Raises UnreadableFileError, BrokenHeaderError.
    """
    data = start[8:]
    if data.count(b'"data_offsets"') > MOST_TENSORS:
        raise UnreadableFileError(f"{name} has more than {MOST_TENSORS} tensors: it is not read")
    try:
        found = parse_object(data, name)
    except UnreadableFileError as error:
        raise BrokenHeaderError(f"{error}") from None
    if len(found) > MOST_TENSORS:
        raise UnreadableFileError(f"{name} has more than {MOST_TENSORS} tensors: it is not read")
    found.pop(METADATA, None)
    return found


def header_bytes(start: bytes, file_bytes: int, name: str) -> int:
    """Return the header's length, from the first 8 bytes. Raises the same errors as `parse`."""
    if len(start) < 8:
        raise BrokenHeaderError(f"{name} is too short")
    (length,) = struct.unpack("<Q", start[:8])
    if length > MOST_HEADER_BYTES:
        raise BrokenHeaderError(
            f"{name} has a header of {length} bytes, more than the format allows"
        )
    if 8 + length > file_bytes:
        raise BrokenHeaderError(f"{name} is shorter than its header of {length} bytes")
    if length > MOST_READ_BYTES:
        raise UnreadableFileError(f"{name} has a header of {length} bytes, too large to read")
    return int(length)


def _raw(file: Path) -> tuple[dict[str, Any], int, int]:
    start, file_bytes = read_start(file, 8)
    length = header_bytes(start, file_bytes, file.name)
    data, _ = read_start(file, 8 + length)
    return parse(data, file.name), 8 + length, file_bytes


def _tensor(tensor: str, entry: object, data_at: int, name: str) -> TensorHeader:
    where = f"{name}: {_short(tensor)}"
    if not isinstance(entry, dict):
        raise BrokenHeaderError(f"{where} is not an object")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in BITS:
        raise BrokenHeaderError(f"{where} has the unknown type {_short(str(dtype))}")
    counts, places = _counts(shape, _MOST_DIMENSIONS), _counts(offsets, 2)
    if counts is None:
        raise BrokenHeaderError(f"{where} has an invalid shape")
    if places is None or len(places) != 2 or places[0] > places[1]:
        raise BrokenHeaderError(f"{where} has invalid offsets")
    found = TensorHeader(dtype, counts, data_at + places[0], data_at + places[1])
    if found.elements * BITS[dtype] != (found.end - found.start) * 8:
        raise BrokenHeaderError(
            f"{where} has {found.end - found.start} bytes, which does not match its shape and type"
        )
    return found


def _counts(value: Any, most: int) -> tuple[int, ...] | None:
    """Return a list of counts as a tuple. None unless it has at most `most` counts of plausible
    size."""
    if not isinstance(value, list) or len(value) > most:
        return None
    right = all(type(number) is int and 0 <= number < MOST_BYTES for number in value)
    return tuple(value) if right else None


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"

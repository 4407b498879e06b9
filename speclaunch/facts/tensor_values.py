"""Looks into the numbers of tensors, as far as it costs little: all zero, not finite, a token map.

Without numpy: by tests on bytes that run at the speed of memory.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from speclaunch import reads
from speclaunch.facts.safetensors_header import BITS, TensorHeader
from speclaunch.reads.bounded import open_regular
from speclaunch.record import record

_MOST_INTEGERS = 1 << 22
"""Longer ones are no token map."""
_INTEGERS = {"I64": "q", "I32": "i", "I16": "h", "U8": "B", "I8": "b", "BOOL": "?"}


@record
class Content:
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

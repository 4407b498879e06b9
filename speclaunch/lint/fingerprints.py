"""What a finding is called from one lint to the next: for baselines, SARIF and code quality.

A fingerprint is made of the code, the path and the message, and of the number of the finding among
those that agree in all three. Lines and columns give only the order, so that a line inserted above
changes none; versions of the engine and numbers in the message do not count, so that a finding
whose figures changed is still the same one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from speclaunch.errors import COMMAND_LINE
from speclaunch.patterns import lazy
from speclaunch.rules.finding import Finding

_LENGTH = 32
"""Characters of a fingerprint: half of a SHA-256, in hexadecimal."""
_FIGURE = lazy(r"(?<![\w.\-/])v?\d+(?:[.,]\d+)*(?:\.(?:post|dev)\d+|rc\d+)?(?![\w\-/]|\.\w)")
"""A number or a version by itself; not a part of a name (`Llama-3.1-8B`, `fp8_e4m3`)."""
_SPACE = lazy(r"\s+")


def fingerprints(findings: Iterable[Finding], root: str | os.PathLike[str] = ".") -> list[str]:
    """The fingerprint of each finding, in their order: 32 hexadecimal digits.

    Paths count from the directory `root` (below it; others from the root of the file system). Two
    findings have the same one where code, message and place agree: one finding, for two versions.
    The order of the files does not matter.
    """
    base = os.path.abspath(root)  # noqa: PTH100  links stay as they are written
    findings = list(findings)
    alike = [(one.code, path_from(one.place.path, base), plain(one.message)) for one in findings]
    places = [(one.place.line, one.place.column) for one in findings]
    by_key: dict[tuple[str, str, str], set[tuple[int, int]]] = {}
    for key, place in zip(alike, places, strict=True):
        by_key.setdefault(key, set()).add(place)
    numbers = {key: {at: n for n, at in enumerate(sorted(found))} for key, found in by_key.items()}
    return [
        _digest(*key, str(numbers[key][place])) for key, place in zip(alike, places, strict=True)
    ]


def plain(message: str) -> str:
    """A message without its figures: what two versions of the engine say alike is equal."""
    return _SPACE.sub(" ", _FIGURE.sub("#", message)).strip()


def path_from(path: str, base: str) -> str:
    """A path from the absolute directory `base` where it lies below it, with forward slashes."""
    if path == COMMAND_LINE:
        return path
    whole = os.path.abspath(path)  # noqa: PTH100
    inside = whole.startswith(base.rstrip(os.sep) + os.sep)
    return (os.path.relpath(whole, base) if inside else whole).replace(os.sep, "/")


def _digest(*parts: str) -> str:
    said = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(said).hexdigest()[:_LENGTH]

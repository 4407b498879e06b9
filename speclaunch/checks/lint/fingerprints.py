"""What a finding is called from one lint to the next: for baselines, SARIF and code quality.

A fingerprint is made of the code, the path, the arguments that the finding is about and the values
that the user set, and of the number of the finding among those that agree in all of them. Where no
argument is concerned, the flags and quoted names of the message stand for them. Lines and columns
give only the order, so that a line inserted above changes none; the wording, and the versions of
the engine, do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable

from speclaunch.checks.rules.finding import Finding
from speclaunch.core import COMMAND_LINE, lazy

_LENGTH = 32
"""Characters of a fingerprint: half of a SHA-256, in hexadecimal."""
_FIGURE = lazy(r"(?<![\w.\-/])v?\d+(?:[.,]\d+)*(?:\.(?:post|dev)\d+|rc\d+)?(?![\w\-/]|\.\w)")
"""A number or a version by itself; not a part of a name (`Llama-3.1-8B`, `fp8_e4m3`)."""
_NAME = lazy(r"(?<![\w-])--[a-z0-9][\w-]*|`[^`]+`")
"""A flag, or a name in quotes."""
_SPACE = lazy(r"\s+")


def fingerprints(findings: Iterable[Finding], root: str | os.PathLike[str] = ".") -> list[str]:
    """The fingerprint of each finding, in their order: 32 hexadecimal digits.

    Paths count from the directory `root` (below it; others from the root of the file system). Two
    findings have the same one where code, arguments, place and message agree: one finding, for two
    versions. The order of the files does not matter.
    """
    return _numbered(findings, root, lambda one: json.dumps(_subject(one)), plain)


def fingerprints_by_message(
    findings: Iterable[Finding], root: str | os.PathLike[str] = "."
) -> list[str]:
    """The fingerprints of baselines of format 1: of code, path and message without its figures."""
    return _numbered(findings, root, lambda one: plain(one.message), lambda _: "")


def _numbered(
    findings: Iterable[Finding],
    root: str | os.PathLike[str],
    subject: Callable[[Finding], str],
    order: Callable[[str], str],
) -> list[str]:
    """Digests of code, path and subject, and of a number in the order of the places."""
    base = os.path.abspath(root)  # noqa: PTH100  links stay as they are written
    findings = list(findings)
    alike = [(one.code, path_from(one.place.path, base), subject(one)) for one in findings]
    places = [(one.place.line, one.place.column, order(one.message)) for one in findings]
    by_key: dict[tuple[str, str, str], set[tuple[int, int, str]]] = {}
    for key, place in zip(alike, places, strict=True):
        by_key.setdefault(key, set()).add(place)
    numbers = {key: {at: n for n, at in enumerate(sorted(found))} for key, found in by_key.items()}
    return [
        _digest(*key, str(numbers[key][place])) for key, place in zip(alike, places, strict=True)
    ]


def _subject(one: Finding) -> list[list[str]]:
    if one.arguments:
        return [[name, value] for name, value in sorted(one.arguments.items())]
    return [[name] for name in sorted(set(_NAME.findall(one.message)))]


def figures(message: str) -> list[str]:
    """The numbers and versions of a message, in their order."""
    return _FIGURE.findall(message)


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

"""Stable identifiers of findings, for baselines, SARIF and code quality reports.

A fingerprint covers the code, the path, the arguments of the finding, the values that the user set,
and a number that distinguishes equal findings. For a finding without arguments, the flags and
quoted names of its message replace them. Lines and columns only decide the
order, so inserting a line above changes no fingerprint. Wording and engine versions do not count.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable

from speclaunch.checks.lint.report import plain
from speclaunch.checks.rules.interface import Finding
from speclaunch.core import COMMAND_LINE, lazy

_LENGTH = 32
"""Hexadecimal characters of a fingerprint: half of a SHA-256."""
_NAME = lazy(r"(?<![\w-])--[a-z0-9][\w-]*|`[^`]+`")
"""A flag, or a quoted name."""


def fingerprints(findings: Iterable[Finding], root: str | os.PathLike[str] = ".") -> list[str]:
    """Return the fingerprint of each finding, in order: 32 hexadecimal digits.

    Paths below the directory `root` are relative to it; others are absolute. Two findings with the
    same code, arguments, place and message share a fingerprint: they are one finding for two
    versions. The order of the files does not matter.
    """
    return _numbered(findings, root, lambda finding: json.dumps(_subject(finding)), plain)


def fingerprints_by_message(
    findings: Iterable[Finding], root: str | os.PathLike[str] = "."
) -> list[str]:
    """Return the fingerprints of format 1: of code, path and message without its numbers."""
    return _numbered(findings, root, lambda finding: plain(finding.message), lambda _: "")


def _numbered(
    findings: Iterable[Finding],
    root: str | os.PathLike[str],
    subject: Callable[[Finding], str],
    order: Callable[[str], str],
) -> list[str]:
    """Return digests of code, path, subject and a number by order of place."""
    base = os.path.abspath(root)  # noqa: PTH100  links are not resolved
    findings = list(findings)
    keys = [
        (finding.code, path_from(finding.place.path, base), subject(finding))
        for finding in findings
    ]
    places = [
        (finding.place.line, finding.place.column, order(finding.message)) for finding in findings
    ]
    by_key: dict[tuple[str, str, str], set[tuple[int, int, str]]] = {}
    for key, place in zip(keys, places, strict=True):
        by_key.setdefault(key, set()).add(place)
    numbers = {key: {at: n for n, at in enumerate(sorted(found))} for key, found in by_key.items()}
    return [
        _digest(*key, str(numbers[key][place])) for key, place in zip(keys, places, strict=True)
    ]


def _subject(finding: Finding) -> list[list[str]]:
    if finding.arguments:
        return [[name, value] for name, value in sorted(finding.arguments.items())]
    return [[name] for name in sorted(set(_NAME.findall(finding.message)))]


def path_from(path: str, base: str) -> str:
    """Return a path relative to the absolute directory `base` if it is below it, with forward
    slashes."""
    if path == COMMAND_LINE:
        return path
    absolute = os.path.abspath(path)  # noqa: PTH100
    inside = absolute.startswith(base.rstrip(os.sep) + os.sep)
    return (os.path.relpath(absolute, base) if inside else absolute).replace(os.sep, "/")


def _digest(*parts: str) -> str:
    data = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:_LENGTH]

"""Fingerprints for services: unique within a report."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence

from speclaunch.app.output.formats.interface import repository_root
from speclaunch.checks import Finding
from speclaunch.checks import fingerprints as findings_


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """Return unique fingerprints in order, by paths from the repository root.

    If findings have the same code, message and place, all but the first get a different
    fingerprint, because GitLab shows only one finding per fingerprint.
    """
    return _unique(findings, findings_.fingerprints)


def fingerprints_by_message(findings: Sequence[Finding]) -> list[str]:
    """Return fingerprints by code, path and message, as in earlier releases."""
    return _unique(findings, findings_.fingerprints_by_message)


def _unique(
    findings: Sequence[Finding], of: Callable[[Sequence[Finding], str], list[str]]
) -> list[str]:
    root = repository_root(os.getcwd())  # noqa: PTH109
    counts: Counter[str] = Counter()
    marks = []
    for mark in of(findings, root):
        number, counts[mark] = counts[mark], counts[mark] + 1
        own = mark if not number else hashlib.sha256(f"{mark}\0{number}".encode()).hexdigest()[:32]
        marks.append(own)
    return marks

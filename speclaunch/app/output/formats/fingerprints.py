"""Fingerprints as services take them: no two findings of a report share one."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence

from speclaunch.app.output.formats.interface import repository_root
from speclaunch.checks import Finding
from speclaunch.checks import fingerprints as findings_


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """Their fingerprints in their order, by their paths from the root of the repository.

    Where findings agree in code, message and place, all but the first get one of their own: GitLab
    would show one of them only.
    """
    return _unique(findings, findings_.fingerprints)


def fingerprints_by_message(findings: Sequence[Finding]) -> list[str]:
    """The same of code, path and message, as earlier releases had them."""
    return _unique(findings, findings_.fingerprints_by_message)


def _unique(
    findings: Sequence[Finding], of: Callable[[Sequence[Finding], str], list[str]]
) -> list[str]:
    root = repository_root(os.getcwd())  # noqa: PTH109
    alike: Counter[str] = Counter()
    marks = []
    for mark in of(findings, root):
        number, alike[mark] = alike[mark], alike[mark] + 1
        own = mark if not number else hashlib.sha256(f"{mark}\0{number}".encode()).hexdigest()[:32]
        marks.append(own)
    return marks

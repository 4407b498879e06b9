"""Read the page of a rule, `docs/rules/<CODE>.md`, or generate an advisory's page.

It has a title (`# SPL239 cpu-graph`), a one-sentence summary, and sections. The last section is
Sources. It does not repeat the rule's fields (severity, algorithms, versions).
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from msgspec import Struct

from speclaunch.core import docs_url, lazy, rule_pages_dir

ADVISORY = "SPA-"
"""Prefix of the IDs of advisories."""
_ADVISORIES = "speclaunch.checks.advisory"
"""Module of the advisories, imported only when an advisory's page is first read."""
_BULLET = lazy(r"^- ", re.MULTILINE)
_REMARK = lazy(r" \(.*\)$")


class Page(Struct, frozen=True):
    """A parsed page. `body` is everything below the summary."""

    title: str
    summary: str
    body: str

    @property
    def sources(self) -> tuple[str, ...]:
        """Engine files with their version, issues and documents; one per line."""
        _, _, listed = self.body.partition("## Sources\n")
        return tuple(" ".join(bullet.split()) for bullet in _BULLET.split(listed)[1:])

    @property
    def source(self) -> str:
        """First source without a remark in brackets; empty if there is none."""
        return _REMARK.sub("", self.sources[0]).removesuffix(".") if self.sources else ""


@cache
def page(code: str) -> Page:
    """Return the page of a rule or notice. Raises FileNotFoundError."""
    if code.startswith(ADVISORY):
        return parsed(import_module(_ADVISORIES).page_of(code))
    return parsed((rule_pages_dir() / f"{code}.md").read_text(encoding="utf-8"))


def page_url(code: str) -> str | None:
    """Return the URL of a rule's or notice's page; None if the documentation is not published."""
    base = docs_url()
    folder = "advisories" if code.startswith(ADVISORY) else "rules"
    return None if base is None else f"{base}{folder}/{code}/"


def parsed(text: str) -> Page:
    """Parse a page: title, summary, body."""
    title, summary, body = text.split("\n\n", 2)
    return Page(title.removeprefix("# "), summary.removesuffix("."), body)

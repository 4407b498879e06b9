"""Read the page of a rule, `docs/rules/<CODE>.md`, which is written by hand, or of an advisory.

The pages of advisories, `docs/advisories/<ID>.md`, are written by `tools/advisories.py`.

It has a title (`# SPL239 cpu-graph`), a summary of one sentence, and sections, the last of which is
Sources. It does not repeat the rule's own fields (severity, algorithms, versions).
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from speclaunch.core import advisories_home, advisory_pages_dir, docs_url, lazy, rule_pages_dir

ADVISORY = "SPA-"
"""Prefix of the IDs of advisories."""
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
    folder = advisory_pages_dir() if code.startswith(ADVISORY) else rule_pages_dir()
    path = folder / f"{code}.md"
    if code.startswith(ADVISORY) and not path.is_file():  # newer than this speclaunch
        path = advisories_home() / path.name
    return parsed(path.read_text(encoding="utf-8"))


def page_url(code: str) -> str | None:
    """Return the URL of a rule's or notice's page; None if the documentation is not published."""
    base = docs_url()
    folder = "advisories" if code.startswith(ADVISORY) else "rules"
    return None if base is None else f"{base}{folder}/{code}/"


def parsed(text: str) -> Page:
    """Parse a page: title, summary, body."""
    title, summary, body = text.split("\n\n", 2)
    return Page(title.removeprefix("# "), summary.removesuffix("."), body)

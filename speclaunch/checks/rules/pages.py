"""The page of a rule, `docs/rules/<CODE>.md`: written by hand, and read when something asks for it.

It has a title (`# SPL239 cpu-graph`), the summary in one sentence, and sections, of which the last
is Sources. What the rule itself knows (severity, algorithms, versions) is not written there again.
"""

from __future__ import annotations

import re
from functools import cache

from msgspec import Struct

from speclaunch.core import docs_url, lazy, rule_pages_dir

_BULLET = lazy(r"^- ", re.MULTILINE)
_REMARK = lazy(r" \(.*\)$")


class Page(Struct, frozen=True):
    """A page as it was read. `body` is everything below the summary."""

    title: str
    summary: str
    body: str

    @property
    def sources(self) -> tuple[str, ...]:
        """Engine files with their version, issues and documents; one line each."""
        _, _, listed = self.body.partition("## Sources\n")
        return tuple(" ".join(bullet.split()) for bullet in _BULLET.split(listed)[1:])

    @property
    def source(self) -> str:
        """The first source, without a remark in brackets; empty where there is none."""
        return _REMARK.sub("", self.sources[0]).removesuffix(".") if self.sources else ""


@cache
def page(code: str) -> Page:
    """The page of a rule or notice. Raises FileNotFoundError."""
    return parsed((rule_pages_dir() / f"{code}.md").read_text(encoding="utf-8"))


def page_url(code: str) -> str | None:
    """Where the page of a rule or notice is published; None where the documentation is not."""
    base = docs_url()
    return None if base is None else f"{base}rules/{code}/"


def parsed(text: str) -> Page:
    """The page that a text is: title, summary, body."""
    title, summary, body = text.split("\n\n", 2)
    return Page(title.removeprefix("# "), summary.removesuffix("."), body)

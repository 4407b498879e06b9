"""What a document says of a rule: its page, as text and as Markdown that stands alone."""

from __future__ import annotations

import re
from posixpath import normpath

from speclaunch.patterns import lazy
from speclaunch.record import record
from speclaunch.resources import docs_url
from speclaunch.rules import FAMILY_OF
from speclaunch.rules.finding import Severity
from speclaunch.rules.pages import Page, page, page_url

_LINK = lazy(r"\[([^\]]*)\]\((?!https?:)([^)\s]*)\)")
_MARKS = lazy(r"^#+ |^```\w*\n|`", re.MULTILINE)

MOST_DESCRIBED = 1024
"""GitHub shows no more of a rule's description."""


@record
class RuleHelp:
    """A rule for a reader who has nothing but the document. `severity`: its own, or that of a
    finding where lint itself reports it."""

    code: str
    name: str
    severity: Severity
    summary: str
    description: str
    """What it finds, in at most `MOST_DESCRIBED` characters."""
    text: str
    markdown: str
    tags: tuple[str, ...]
    url: str | None = None


def rule_help(code: str, name: str, severity: Severity) -> RuleHelp:
    """What is known of a rule or notice. Raises FileNotFoundError."""
    from speclaunch.rules.registry import by_code  # noqa: PLC0415  few formats need it

    found = page(code)
    rule = by_code(code)
    return RuleHelp(
        code,
        name,
        rule.severity if rule else severity,
        found.summary.replace("\n", " "),
        _described(found),
        _plain(f"{found.summary}.\n\n{found.body}").strip(),
        _alone(f"{found.summary}.\n\n{found.body}").strip(),
        ("sglang", FAMILY_OF[rule.module] if rule else "lint"),
        page_url(code),
    )


def _described(found: Page) -> str:
    _, _, below = found.body.partition("## What it does\n")
    what = _plain(below.partition("\n## ")[0])
    said = " ".join(f"{found.summary}. {what}".split())
    return said if len(said) <= MOST_DESCRIBED else f"{said[: MOST_DESCRIBED - 1]}…"


def _alone(markdown: str) -> str:
    """With links that lead somewhere without the other pages, or their text alone."""

    def link(found: re.Match[str]) -> str:
        base, (text, target) = docs_url(), found.groups()
        where, _, part = target.partition("#")
        if base is None or not where.endswith(".md"):
            return text
        way = normpath(f"rules/{where}").removesuffix(".md").removesuffix("README")
        return f"[{text}]({base}{way.rstrip('/')}/{'#' + part if part else ''})"

    return _LINK.sub(link, markdown)


def _plain(markdown: str) -> str:
    return _MARKS.sub("", _LINK.sub(lambda found: found[1], markdown))

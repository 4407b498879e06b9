"""What `make docs` (mkdocs) asks of us: the navigation, the address, and what a rule itself knows.

A hook of mkdocs, named in mkdocs.yml. Every page is in the navigation: a page that is added is
found here, and the build is strict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speclaunch.app.verbs.rules import explained
from speclaunch.checks.rules.registry import FILE_CODES
from speclaunch.checks.rules.table import RULES
from speclaunch.core.resources import docs_url

DOCS = Path(__file__).resolve().parent.parent / "docs"
SECTIONS = {
    "howto": "How to",
    "reference": "Reference",
    "explanation": "Explanation",
    "decisions": "Decisions",
}
OWN = "lint"
"""The family of what lint itself reports."""


def on_config(config: Any) -> Any:
    """Fill in what is not written in mkdocs.yml."""
    config.site_url = docs_url() or ""
    config.nav = navigation()
    return config


def navigation() -> list[dict[str, Any]]:
    """The sections, each page by its path; titles are those of the pages."""
    sections = {
        title: sorted(f"{name}/{page.name}" for page in (DOCS / name).glob("*.md"))
        for name, title in SECTIONS.items()
    }
    rules: list[Any] = ["rules/README.md"]
    rules += [{family: pages} for family, pages in _families().items()]
    advisories = sorted(f"advisories/{page.name}" for page in (DOCS / "advisories").glob("SPA*.md"))
    return [
        {"Home": "index.md"},
        {"Tutorial": "tutorial.md"},
        {"How to": sections["How to"]},
        {"Reference": sections["Reference"]},
        {"Rules": rules},
        {"Advisories": ["advisories/README.md", *advisories]},
        {"Explanation": sections["Explanation"]},
        {"Decisions": sections["Decisions"]},
    ]


def _families() -> dict[str, list[Any]]:
    """The rules' pages by their families, in the order of the codes."""
    found: dict[str, list[Any]] = {OWN: [_entry(one.code, one.name) for one in FILE_CODES]}
    for code, name, family in sorted((rule.code, rule.name, rule.family) for rule in RULES):
        found.setdefault(family, []).append(_entry(code, name))
    return found


def _entry(code: str, name: str) -> dict[str, str]:
    return {f"{code} {name}": f"rules/{code}.md"}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Add to a rule's page what `speclaunch explain` shows: severity, algorithms, versions."""
    folder, _, name = page.file.src_uri.rpartition("/")
    if folder != "rules" or not name.startswith("SPL"):
        return markdown
    code = name.removesuffix(".md")
    known = {one.code: one for one in (*RULES, *FILE_CODES)}
    return explained(known[code])

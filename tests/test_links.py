"""Links between pages, and the pages that code names: each leads to a file and a heading.

An anchor must work on the site (Python-Markdown's slug) and in the repository (GitHub's slug).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.loops import over

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted(
    path
    for folder in ("speclaunch", "tools", "campaigns", "conf", "recipes")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".yaml")
)

_FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.M | re.S)
_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *#*$", re.M)
_ID = re.compile(r'<a id="([^"]+)">')
_NAMED = re.compile(r"(?<![\w/.-])docs/(?:howto|reference|explanation|rules)/[\w./-]+(?:#[\w-]+)?")
"""A page or schema that code, help or a message names."""


def targets(text: str) -> list[str]:
    """Return the targets of the links in Markdown, without those in code."""
    return _LINK.findall(_CODE.sub("", _FENCED.sub("", text)))


def github_slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def site_slug(heading: str) -> str:
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page that work on the site and in the repository."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", one) for one in _HEADING.findall(text)]
    both = {github_slug(one) for one in headings} & {site_slug(one) for one in headings}
    return frozenset(both | set(_ID.findall(text)))


def dead(target: str, folder: Path) -> str | None:
    """Return why a target seen from `folder` leads nowhere, or None."""
    name, _, anchor = target.partition("#")
    path = (folder / name).resolve()
    if not path.exists():
        return f"{target}: no such file"
    if anchor and path.suffix == ".md" and anchor not in anchors(path):
        return f"{target}: no such heading; {', '.join(sorted(anchors(path)))}"
    return None


def dead_links(page: Path, text: str) -> Iterator[str]:
    for target in targets(text):
        if not re.match(r"[a-z]+:", target):  # other sites are not asked
            local = f"{page.name}{target}" if target.startswith("#") else target
            if why := dead(local, page.parent):
                yield why


@over(PAGES, lambda path: path.relative_to(ROOT))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    found = list(dead_links(page, page.read_text(encoding="utf-8")))
    assert not found, found


@over(SOURCES, lambda path: path.relative_to(ROOT))
def test_every_page_that_code_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = [one.rstrip(".") for one in _NAMED.findall(text)] if "docs/" in text else []
    found = [why for one in named if (why := dead(one, ROOT))]
    assert not found, found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[a](page.md)", None),
        ("[a](page.md#two-words)", None),
        ("[a](#two-words)", None),
        ("[a](page.md#old)", None),
        ("[a](https://example.com/none.md#none)", None),
        ("`[a](none.md)`\n```\n[a](none.md)\n```\n", None),
        ("[a](none.md)", "none.md: no such file"),
        ("![a](none.svg)", "none.svg: no such file"),
        ("[a](page.md#none)", "page.md#none: no such heading"),
        ("[a](#none)", "page.md#none: no such heading"),
        ("[a](page.md#in-code)", "page.md#in-code: no such heading"),
        ("[a](page.md#a-b)", "page.md#a-b: no such heading"),
    ],
)
def test_a_dead_link_is_found(tmp_path: Path, text: str, why: str | None) -> None:
    page = tmp_path / "page.md"
    page.write_text('# Two `words`\n<a id="old"></a>\n## A + b\n```\n# In code\n```\n')
    found = list(dead_links(page, text))
    assert bool(found) == (why is not None)
    assert why is None or found[0].startswith(why)

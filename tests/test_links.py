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


TEXTS = sorted(
    path
    for pattern in (
        *("speclaunch/**/*.py", "tools/**/*.py", "campaigns/**/*.py", "tests/**/*.py"),
        *("*.md", "*.toml", "*.yml", "Makefile", ".ci/run", ".github/**/*.yml", "docs/**/*.md"),
        *("speclaunch/*/README.md", "tools/README.md", "campaigns/README.md"),
    )
    for path in ROOT.glob(pattern)
    if path.name
    not in ("CHANGELOG.md", "test_sampling.py", "test_links.py", "test_architecture.py")
)
_PATH = re.compile(
    r"(?<![\w/.-])(?:speclaunch|tests|tools|campaigns)/[\w./-]+\.(?:py|json|yaml|jsonl|md|txt|xz)\b"
)
_MODULE = re.compile(
    r"(?<![\w./-])speclaunch(?:\.(?:core|engine|deployments|checks|serving|measure|app))(?:\.(?!__)\w+)*"
)
MADE = {"speclaunch/rule.py", "tests/test_oom.py", "tests/program.py"}
"""Files that a test makes or reads elsewhere, and one of older versions, which the net runs."""


def missing_module(name: str) -> bool:
    """True if a dotted name is neither a module nor a name in one."""
    parts = name.split(".")
    folder = ROOT
    for number, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
        elif (module := folder / f"{part}.py").is_file():
            rest = parts[number + 1 : number + 2]
            return not all(re.search(rf"\b{one}\b", module.read_text()) for one in rest)
        else:
            return not re.search(rf"\b{part}\b", (folder / "__init__.py").read_text())
    return False


@pytest.mark.thorough
@over(TEXTS, lambda path: path.relative_to(ROOT))
def test_every_file_and_module_that_a_text_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    paths = {one for one in _PATH.findall(text) if not re.search("[A-Z]{3}", one)} - MADE
    found = [one for one in paths if not (ROOT / one).exists()]
    found += [one for one in set(_MODULE.findall(text)) if missing_module(one)]
    assert not found, sorted(found)


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

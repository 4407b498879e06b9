"""The page: whole, safe, readable without anything from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.app.output.plan_page import (
    TEMPLATES,
    comparison_page,
    memory_bar,
    plan_page,
    printable,
)
from speclaunch.engine.plan.budget import RankBudget
from speclaunch.measure.advice.plan_requests import compared
from tests.support.app.output.plan.helpers import FAILS, FITS, UNKNOWN, planned

VOID = {"meta", "link", "br", "img", "hr", "input"}
EVIL = "<script>alert('x')</script>\"&'\x1b[2J"


class Reader(HTMLParser):
    """Fails where tags do not match, and collects what is of interest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader


def pages() -> dict[str, str]:
    one, other = planned(version="0.5.9", budget=FAILS), planned()
    none = planned(hardware=None, budget=UNKNOWN, target=None, draft=None)
    return {
        "fits": plan_page(planned("args.max_running_requests=64")),
        "fails": plan_page(one),
        "unknown": plan_page(none),
        "comparison": comparison_page([compared(one, other)]),
        "three": comparison_page([compared(one, other), compared(other, none)]),
        "same": comparison_page([compared(other, other)]),
    }


@pytest.fixture(scope="module")
def all_pages() -> dict[str, str]:
    return pages()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fits", "fails", "unknown", "comparison", "three", "same"])
def test_a_page_is_well_formed_and_needs_nothing_from_elsewhere(
    all_pages: dict[str, str], name: str
) -> None:
    page = all_pages[name]
    found = read(page)
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert {"main", "h1", "style", "title"} <= tags
    for tag, attributes in found.tags:
        assert not any(key.startswith("on") for key in attributes), tag
        assert not {"src", "href"} & attributes.keys(), tag
    assert "@import" not in page
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {"#stripes", "#dots", "#beyond"}
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page and "@media print" in page


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fits", "fails", "unknown", "comparison", "three", "same"])
def test_a_page_is_accessible(all_pages: dict[str, str], name: str) -> None:
    found = read(all_pages[name])
    ids = [a["id"] for _, a in found.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    assert [a.get("lang") for tag, a in found.tags if tag == "html"] == ["en"]
    for tag, attributes in found.tags:
        if tag == "svg":
            hidden = attributes.get("aria-hidden") == "true"
            assert hidden or (attributes.get("role") == "img" and attributes.get("aria-label"))
        if tag == "table":
            assert attributes.get("aria-label")
        if tag == "th":
            assert attributes.get("scope") in ("row", "col", "colgroup")
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_colours_have_enough_contrast() -> None:
    css = (TEMPLATES / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.S)
    assert len(blocks) == 2
    for block in blocks:
        colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        pairs = [("ink", "ground"), ("soft", "ground"), ("ink", "raised"), ("soft", "raised")]
        pairs += [(word, f"{word}-ground") for word in ("good", "bad", "odd", "info")]
        pairs += [("bad", "ground"), ("soft", "free"), ("ink", "bad-ground"), ("good", "raised")]
        for front, back in pairs:
            assert contrast(colors[front], colors[back]) >= 4.5, (front, back)


def contrast(one: str, other: str) -> float:
    def luminance(color: str) -> float:
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.thorough
def test_whatever_comes_from_a_recipe_is_data(tmp_path: Path) -> None:
    recipe = tmp_path / "<b>evil&.yaml"
    recipe.write_text(
        "name: \"<script>alert('x')</script>\"\n"
        'description: "</style><img src=x onerror=alert(1)>"\n'
        "args:\n  model_path: '\"><script>alert(2)</script>'\n"
        "  speculative_algorithm: NGRAM\n  served_model_name: \"a' onload='x\"\n"
        "engine:\n  env:\n    \"SGLANG_X\": '<svg onload=alert(3)>'\n"
    )
    found = planned(recipe=str(recipe), target=None, draft=None)
    found = replace(
        found,
        label=EVIL,
        hardware=EVIL,
        hardware_note=EVIL,
        budget=replace(FAILS, why=EVIL, message=EVIL, notes=(EVIL,), unknown=(EVIL,)),
        findings=tuple(replace(f, message=EVIL, why=EVIL) for f in planned().findings),
    )
    for page in (plan_page(found), comparison_page([compared(planned(), found)])):
        read_page = read(page)
        assert "script" not in {tag for tag, _ in read_page.tags}
        assert "img" not in {tag for tag, _ in read_page.tags}
        assert "alert('x')" in read_page.text  # it is there to be read, as text
        for tag, attributes in read_page.tags:
            assert not any(key.startswith("on") for key in attributes), tag
        assert "\x1b" not in page


@pytest.mark.thorough
def test_secrets_are_in_no_page() -> None:
    found = planned("args.api_key=sk-secret", "+engine.env.HF_TOKEN=hf-secret")
    for page in (plan_page(found), comparison_page([compared(planned(), found)])):
        assert "sk-secret" not in page and "hf-secret" not in page
        assert "${API_KEY:?}" in read(page).text


@pytest.mark.thorough
def test_what_a_page_says() -> None:
    said = read(plan_page(planned(budget=FAILS))).text
    for word in (
        "It does not fit.",
        "capture CUDA graphs",
        "CUDA out of memory",
        "6.2 GiB short",
        "468,000",
        "captured: 8",
        "speculative decoding defaults this to 48",
        "draft was trained for 2048 tokens",
        "--speculative-algorithm EAGLE3",
    ):
        assert word in said, word
    unknown = read(plan_page(planned(hardware=None, budget=UNKNOWN))).text
    assert "Memory use is unknown." in unknown
    assert "the hardware is unknown" in unknown
    compared_ = read(comparison_page([compared(planned(version="0.5.9"), planned())])).text
    assert "0.5.9 → 0.5.23" in compared_ and "--cuda-graph-max-bs-decode 8" in compared_
    same = read(comparison_page([compared(planned(), planned())])).text
    assert "No changes." in same


def test_parts_of_a_bar_add_up() -> None:
    for rank in (FITS.ranks[0], FAILS.ranks[0]):
        bar = memory_bar(rank, "memory")
        widths = re.findall(
            r'<rect x="([\d.]+)%" y="20" width="([\d.]+)%" height="42" (?!fill="url)', bar
        )
        assert sum(float(width) for _, width in widths) == pytest.approx(100, abs=0.1)
        ends = [float(at) + float(width) for at, width in widths]
        starts = [float(at) for at, _ in widths]
        assert starts[1:] == pytest.approx(ends[:-1], abs=0.01)
    assert "short" in bar and "url(#beyond)" in bar
    assert memory_bar(RankBudget((0,), 0, ()), "empty") == ""


def test_control_characters_are_not_in_a_page() -> None:
    assert printable("a\x00b\n") == "a\N{REPLACEMENT CHARACTER}b\n"
    assert printable(12) == 12


def test_every_template_escapes() -> None:
    templates = list(TEMPLATES.glob("*.j2"))
    assert templates
    for template in templates:
        text = template.read_text()
        assert "|safe" not in text and "autoescape" not in text, template.name

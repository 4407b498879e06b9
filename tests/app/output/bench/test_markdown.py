"""Markdown to paste: what a reader of GitHub's dialect makes of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from speclaunch.app.output.bench import certificate_markdown, columns, difference_markdown, escaped
from speclaunch.measure.bench.measurement import Objection
from speclaunch.measure.bench.schema import CertificateDocument, difference
from tests.app.output.bench.strategies import NAMES, certificates
from tests.support.app.output.bench.made import made


def tokens(text: str) -> list[str]:
    return [one.type for one in MarkdownIt("commonmark").enable(["table"]).parse(text)]


def texts(text: str) -> str:
    """What is shown, without markup."""
    found = []
    for one in MarkdownIt("commonmark").enable(["table"]).parse(text):
        for child in one.children or ():
            found.append(child.content)
    return "".join(found)


def rows(text: str) -> list[int]:
    """The cells of each row of its tables."""
    found: list[int] = []
    for kind in tokens(text):
        if kind == "tr_open":
            found.append(0)
        elif kind in ("td_open", "th_open"):
            found[-1] += 1
    return found


def test_a_certificate_is_a_table_and_its_commands_are_folded() -> None:
    found = made()
    said = certificate_markdown(found)
    assert rows(said) == [len(columns(found))] * (len(found.cells) + 1)
    assert "| code | 1 |" in said and "| pays |" in said
    assert said.count("```sh") == said.count("<details>") * 2 == 2
    assert "95% confidence" in said


def test_a_refused_one_says_why() -> None:
    said = certificate_markdown(made(objections=(Objection("errors", "R: *it* failed"),)))
    assert "- R: \\*it\\* failed" in said and "|" not in said


def test_two_compared() -> None:
    before, after = made(), made(seed=3, speed_up=2.0, concurrencies=(1, 8))
    said = difference_markdown(difference(before, after, ("old", "new")))
    assert len(rows(said)) == 5  # four cells in common
    assert "only in old: code at 32, chat at 32" in said


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(certificates())
def test_any_certificate_keeps_its_table(found: CertificateDocument) -> None:
    said = certificate_markdown(found)
    if found.cells:
        assert rows(said) == [len(columns(found))] * (len(found.cells) + 1)
    else:
        assert rows(said) == []
    inline = [
        child.type for one in MarkdownIt("commonmark").enable(["table"]).parse(said)
        for child in one.children or ()
    ]  # fmt: skip
    assert set(inline) <= {"text", "text_special", "softbreak", "strong_open", "strong_close"}
    outside = re.sub(r"^(`{3,}).*?^\1$", "", said, flags=re.S | re.M)
    assert not re.search(r"(?<!\\)@\w", outside)


@pytest.mark.thorough
@given(NAMES | st.text(max_size=60))
def test_escaped_text_is_shown_as_it_is(text: str) -> None:
    said = escaped(text)
    assert "\n" not in said
    shown = texts(f"x {said} x")[2:-2] if said else ""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    assert shown.replace("\N{ZERO WIDTH NON-JOINER}", "") == line.replace(
        "\N{ZERO WIDTH NON-JOINER}", ""
    )

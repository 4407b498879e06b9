"""Texts that failed once (campaigns/fuzz.py), and a sample of new ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from campaigns.fuzz import ask, bounded
from campaigns.fuzzing.targets import TARGETS, Target
from campaigns.fuzzing.texts import texts

HERE = Path(__file__).parent
BY_NAME = {one.name: one for one in TARGETS}
KEPT = sorted(path for path in HERE.glob("*/*.txt"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_text_that_failed_once(path: Path) -> None:
    target = BY_NAME[path.parent.name]
    text = path.read_bytes().decode("utf-8", "surrogatepass")
    for suffix in target.suffixes:
        with bounded():
            ask(target.ask, text, suffix)


@pytest.mark.thorough
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_new_texts(target: Target) -> None:
    @settings(max_examples=60, deadline=None)
    @given(texts(target.suffixes))
    def one(drawn: tuple[str, str]) -> None:
        suffix, text = drawn
        ask(target.ask, text, suffix)

    one()

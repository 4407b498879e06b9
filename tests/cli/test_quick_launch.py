"""A command line of `launch` that is read without the framework is what the framework reads."""

from __future__ import annotations

import random
from typing import Any

import pytest
from typer.main import get_command

from speclaunch.cli import commands, launching, quick
from speclaunch.cli.launching import LaunchWords
from speclaunch.cli.quick import quick_launch

WORDS = (
    *quick.LAUNCH_FLAGS, *quick.TEXTS, *quick.LISTS, *quick.PATHS, quick.FORMAT, "--max-attempts", "--max-attempts=2",
    "--strict", "--no-cache", "-dv", "--", "-", "-x", "--eng", "", "recipe=x", "x", "args.port=1", "++args.port=1", "~args.x",
    "--engine=0.5.23", "0.5.23", "--output-format=json", "--output-format=pdf", "json", "--select=SPL2,SPL3", "--models=m", "ä ö",
    "--hardware=h100:8", "a=b", "--verbose=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def framework() -> Any:
    commands.register(["launch"])
    return get_command(commands.app).commands["launch"]  # type: ignore[attr-defined]


def read(framework: Any, words: list[str], monkeypatch: pytest.MonkeyPatch) -> LaunchWords:
    seen: list[LaunchWords] = []
    monkeypatch.setattr(launching, "launch_recipe", lambda asked: seen.append(asked) or 0)
    framework(words, standalone_mode=False, prog_name="launch")
    return seen[0]


@pytest.mark.thorough
def test_it_is_read_as_the_framework_reads_it(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, quickly = random.Random(13), 0
    for _ in range(1500):
        words = chance.choices(WORDS, k=chance.randint(1, 5))
        found = quick_launch(["launch", *words], {})
        if found is not None:
            quickly += 1
            assert found == read(framework, words, monkeypatch), words
    assert quickly > 100


@pytest.mark.parametrize(
    "words",
    [
        ["recipe=x"],
        ["recipe=x", "args.port=1", "--smoke", "--engine", "0.5.23"],
        ["launch", "x", "-d", "--output-format=json"],
        ["recipe=x", "--dry-run"],
    ],
)
def test_what_people_write_is_read_quickly(words: list[str]) -> None:
    assert quick_launch(words, {}) is not None


@pytest.mark.parametrize(
    "words", [[], ["launch"], ["launch", "--help"], ["--version", "a=b"], ["plan", "recipe=x"]]
)
def test_what_is_not_plain_is_left_to_it(words: list[str]) -> None:
    assert quick_launch(words, {}) is None

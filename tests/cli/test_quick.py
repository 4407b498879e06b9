"""What is read without the framework is what the framework reads."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command

from speclaunch.cli import commands, lint, quick
from speclaunch.cli.linting import LintWords
from speclaunch.cli.quick import quick_lint

_OPTIONS = {*quick.FLAGS, *quick.TEXTS, *quick.LISTS, *quick.PATHS, *quick.OTHERS}
_OPTIONS |= {*quick.NEGATED, *quick.LINT_LISTS, *quick.FILES}
_VALUES = st.sampled_from(
    [
        "0.5.23",
        "a,b",
        "h100:8",
        "SPL2",
        "json",
        "text",
        "sarif",
        "sarif=x",
        "",
        "a=b",
        "ä ö",
        "4",
        "0",
        "-1",
    ]
)
_WORD = st.one_of(
    st.sampled_from(["x.sh", ".", "-", "--", "-h", "--eng", "--wrong", "-x", "", "a b", "ü.yaml"]),
    st.sampled_from(sorted(_OPTIONS)),
    st.builds("{}={}".format, st.sampled_from(sorted(_OPTIONS)), _VALUES),
    _VALUES,
)


@pytest.fixture(scope="module")
def framework() -> Any:
    commands.register(["lint"])
    return get_command(commands.app).commands["lint"]  # type: ignore[attr-defined]


def read(framework: Any, words: list[str], monkeypatch: pytest.MonkeyPatch) -> LintWords:
    seen: list[LintWords] = []
    with monkeypatch.context() as patched:
        patched.setattr(lint, "check_files", lambda asked: seen.append(asked) or 0)
        framework(words, standalone_mode=False, prog_name="lint")
    return seen[0]


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(words=st.lists(_WORD, max_size=6))
def test_it_is_read_as_the_framework_reads_it(framework: Any, words: list[str]) -> None:
    quickly = quick_lint(["lint", *words], {})
    if quickly is not None:
        with pytest.MonkeyPatch.context() as patch:
            assert read(framework, words, patch) == quickly


def test_what_people_write_is_read_quickly() -> None:
    for words in (
        [],
        ["x.sh", "recipes"],
        ["--engine", "0.5.23,0.5.18", "x.sh", "--strict", "--output-format", "json"],
        ["--jobs", "4", "--no-cache", "--jobs=2"],
        ["--hardware=h200:8", "--models", "m", "--models=n", "--select", "SPL2", "-"],
    ):
        assert quick_lint(["lint", *words], {}) is not None


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--engine"], ["--engine", "-x"], ["--output-format", "pdf"], ["--", "x"]],
)
def test_what_is_not_plain_is_left_to_it(words: list[str]) -> None:
    assert quick_lint(["lint", *words], {}) is None
    assert quick_lint(["plan", "x"], {}) is None


def test_every_option_is_known(framework: Any) -> None:
    """An option that is added to `lint` is read by both."""
    declared = {
        option
        for one in framework.params
        for option in (*one.opts, *one.secondary_opts)
        if option[0] == "-"
    }
    assert declared - {"--help", "-h"} == _OPTIONS
    names = {one.name for one in framework.params} - {"help"}
    assert names == {field.name for field in dataclasses.fields(LintWords)}

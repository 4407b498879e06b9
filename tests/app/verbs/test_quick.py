"""What is read without typer is what typer reads."""

from __future__ import annotations

import random
from typing import Any

import pytest
from typer.main import get_command

from speclaunch.app.verbs import commands
from speclaunch.app.verbs.app import QUICK, plain_options, quick_command, quick_explain
from speclaunch.app.verbs.options import VerbOptions
from speclaunch.app.verbs.verbs import Verb, verb_named
from tests.support.loops import rows

WORDS = (
    "x.sh", ".", "-", "--", "-h", "--eng", "--wrong", "-x", "-dv", "", "a b", "ü.yaml", "recipe=x", "x", "args.port=1",
    "++args.port=1", "~args.x", "--strict=1", "0.5.23", "a,b", "h100:8", "SPL2", "json", "text", "sarif", "pdf", "sarif=x",
    "a=b", "ä ö", "4", "0", "-1", "101",
)  # fmt: skip


@pytest.fixture(scope="module", params=QUICK)
def verb(request: pytest.FixtureRequest) -> Verb:
    commands.register([request.param])
    return verb_named(request.param)


def read(verb: Verb, words: list[str], monkeypatch: pytest.MonkeyPatch) -> VerbOptions:
    seen: list[VerbOptions] = []
    with monkeypatch.context() as patched:
        patched.setattr(Verb, "run", lambda _, options: seen.append(options) or 0)
        command: Any = get_command(commands.app).commands[verb.name]  # type: ignore[attr-defined]
        command(words, standalone_mode=False, prog_name=verb.name)
    return seen[0]


@pytest.mark.thorough
def test_it_is_read_as_typer_reads_it(verb: Verb, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, quickly = random.Random(13), 0
    names = sorted(n for one in verb.declared.declared().values() for n in one.spellings)
    for _ in range(1000):
        words = [
            chance.choice(WORDS)
            if not names or chance.random() < 0.5
            else chance.choice(names) + chance.choice(("", "", f"={chance.choice(WORDS)}"))
            for _ in range(chance.randint(1, 5))
        ]
        quick = plain_options(verb.declared, words)
        if quick is not None:
            quickly += 1
            assert quick == read(verb, words, monkeypatch), words
    assert quickly > 100


@rows(
    "words",
    [
        ["lint"],
        ["lint", "x.sh", "recipes"],
        ["lint", "--engine", "0.5.23,0.5.18", "x.sh", "--strict", "--output-format", "json"],
        ["lint", "--jobs", "4", "--no-cache", "--jobs=2"],
        ["lint", "--hardware=h200:8", "--models", "m", "--models=n", "--select", "SPL2", "-"],
        ["recipe=x"],
        ["recipe=x", "args.port=1", "--smoke", "--engine", "0.5.23"],
        ["launch", "x", "-d", "--output-format=json", "--max-attempts", "3"],
        ["recipe=x", "--dry-run"],
    ],
)
def test_what_people_write_is_read_quickly(words: list[str]) -> None:
    assert quick_command(words, {}) is not None


@rows(
    "words",
    [
        ["lint", "--help"],
        ["lint", "--engine"],
        ["lint", "--engine", "-x"],
        ["lint", "--output-format", "pdf"],
        ["lint", "--", "x"],
        ["lint", "-o=x"],
        ["launch"],
        ["launch", "--help"],
        ["launch", "x", "--max-attempts", "101"],
        ["--version", "a=b"],
        ["plan", "recipe=x"],
        [],
    ],
)
def test_what_is_not_plain_is_left_to_typer(words: list[str]) -> None:
    assert quick_command(words, {}) is None


def test_the_page_of_a_rule_needs_no_options() -> None:
    assert quick_explain(["explain", "SPL301"], {})
    for words in (["explain"], ["explain", "a", "b"], ["explain", "-h"], ["lint", "x"]):
        assert not quick_explain(words, {})


def test_a_shell_that_asks_is_not_answered_by_a_verb() -> None:
    assert quick_command(["lint"], {"_SPECLAUNCH_COMPLETE": "bash"}) is None

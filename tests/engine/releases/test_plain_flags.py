"""What is decided without argparse is what argparse decides."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from speclaunch.engine.releases import argv
from speclaunch.engine.releases.argument import Argument
from speclaunch.engine.releases.argv import ParsedArguments, parse_argv
from speclaunch.engine.releases.catalogue import Catalogue, held_versions, load
from speclaunch.engine.releases.parser import parser_of
from tests.support.loops import rows

VERSIONS = ("0.4.6.post5", "0.5.3", "0.5.13.post1", "0.5.20", "0.5.23")
VALUES = (
    *(
        "1",
        "0",
        "-1",
        "-0.5",
        "0.9",
        "1e3",
        "nan",
        "inf",
        "1_000",
        " 7",
        "32k",
        "32Ki",
        "x",
        "auto",
    ),
    *("None", "", "true", "[]", "[1,2]", "{}", '{"a": 1}', "a=b", "a b", "-a b", "-", "--", "-x"),
    *("EAGLE3", "fa3", "triton", "bfloat16", "fp8_e4m3", "cuda", "cuda:1", "$X", "{", "é"),
)
ODD_FLAGS = ("--no-such", "--tp", "--tp=", "--speculative", "--spec=1", "--=x", "--m", "-h", "-x=1")


def _words(rng: random.Random, catalogue: Catalogue) -> list[str]:
    words: list[str] = []
    spellings = list(catalogue._by_flag)
    for _ in range(rng.randint(0, 7)):
        flag = rng.choice(spellings) if rng.random() < 0.85 else rng.choice(ODD_FLAGS)
        if rng.random() < 0.1:
            flag = flag[: rng.randint(1, len(flag))]
        elif rng.random() < 0.05:
            flag = f"--no-{flag.lstrip('-')}"
        values = [
            _value(rng, catalogue.by_flag(flag)) for _ in range(rng.choice((0, 1, 1, 1, 2, 4)))
        ]
        if values and rng.random() < 0.2:
            flag, values = f"{flag}={values[0]}", values[1:]
        words += [flag, *values]
    return words


def _value(rng: random.Random, argument: Argument | None) -> str:
    if argument is not None and argument.choices and rng.random() < 0.5:
        return str(rng.choice(argument.choices))
    return rng.choice(VALUES)


def _all_by_argparse(
    monkeypatch: pytest.MonkeyPatch, words: list[str], catalogue: Catalogue, opaque: set[int]
) -> ParsedArguments:
    with monkeypatch.context() as patch:
        patch.setattr(argv, "is_plain", lambda _: False)
        return parse_argv(words, catalogue, opaque=opaque, with_values=False)


def _lines(seed: int, count: int, version: str) -> Iterator[tuple[list[str], set[int]]]:
    rng = random.Random(f"{seed} {version}")
    catalogue = load(version)
    for _ in range(count):
        words = _words(rng, catalogue)
        share = rng.choice((0, 0, 0.2))
        yield words, {index for index in range(len(words)) if rng.random() < share}


def _agree(monkeypatch: pytest.MonkeyPatch, version: str, seed: int, count: int) -> tuple[int, int]:
    catalogue = load(version)
    parsed = refused = 0
    for words, opaque in _lines(seed, count, version):
        found = parse_argv(words, catalogue, opaque=opaque, with_values=False)
        expected = _all_by_argparse(monkeypatch, words, catalogue, opaque)
        # repr: not-a-number is not equal to itself, and 1 is True
        assert repr(found) == repr(expected), words
        parsed += len(found.parsed)
        refused += len(found.problems)
    return parsed, refused


@pytest.mark.thorough
@pytest.mark.parametrize("version", VERSIONS)
def test_random_command_lines(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed, refused = _agree(monkeypatch, version, 0, 150)
    assert parsed > 100, "most pieces are good"
    assert refused > 100, "and many are not"


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("version", held_versions())
def test_many_random_command_lines(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _agree(monkeypatch, version, 1, 1000)


@rows("version", VERSIONS)
def test_the_parser_knows_the_flags_of_the_catalogue(version: str) -> None:
    catalogue = load(version)
    assert set(parser_of(catalogue)._option_string_actions) == set(catalogue._by_flag)


def test_a_plain_command_line_builds_no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: object, **__: object) -> None:
        raise AssertionError("a parser was built")

    monkeypatch.setattr("speclaunch.engine.releases.parser.parser_of", built)
    line = (
        "--model-path m --tp 2 --mem-fraction-static=0.8 --trust-remote-code --misspelled x "
        "--cuda-graph-bs-decode 1 2 4 --speculative-algorithm EAGLE3 --no-such-flag=1"
    )
    parsed = parse_argv(line.split(), load("0.5.23"), with_values=False)
    assert [problem.message for problem in parsed.problems] == [
        "unrecognized arguments: --misspelled",
        "unrecognized arguments: --no-such-flag=1",
    ]
    assert len(parsed.parsed) == 6

"""Command lines as the engine's parser reads them (tests/e2e/test_parser_agreement.py asks it)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from speclaunch.engine.releases.argv import ParsedArguments, args_of, parse_argv
from speclaunch.engine.releases.catalogue import Argument, ArgumentKind, load
from speclaunch.engine.releases.command import render_args
from tests.support.loops import rows

CATALOGUE = load("0.5.23")


def parse(line: str, **more: Any) -> ParsedArguments:
    return parse_argv(["--model-path", "m", *line.split()], CATALOGUE, **more)


@rows(
    "line, args",
    [
        ("--tp 2", {"tp_size": 2}),
        ("--tensor-parallel-size 2", {"tp_size": 2}),
        ("--speculative-algo EAGLE", {"speculative_algorithm": "EAGLE"}),
        ("--port=1 --port 2", {"port": 2}),
        ("--cuda-graph-bs-decode 1 2 4", {"cuda_graph_bs_decode": [1, 2, 4]}),
        ("--trust-remote-code", {"trust_remote_code": True}),
        ("--no-enable-tf32-matmul", {"enable_tf32_matmul": False}),
        ("--enable-tf32-matmul", {"enable_tf32_matmul": True}),
        ("--context-length 32k", {"context_length": "32k"}),
        ("--context-length 4096", {"context_length": 4096}),
        ("--chunked-prefill-size -1", {"chunked_prefill_size": -1}),
        ("--mem-fraction-static .7", {"mem_fraction_static": 0.7}),
        ("--monokernel-backend amd", {"monokernel_backend": "amd"}),
    ],
)
def test_what_a_recipe_says_for_a_command(line: str, args: dict[str, Any]) -> None:
    parsed = parse(line)
    assert parsed.error is None and not parsed.problems
    assert args_of(parsed) == {"model_path": "m", **args}


def test_every_problem_is_found_with_its_word_and_the_engines_own_text() -> None:
    parsed = parse("--cuda-graph-max-bs 8 --nope 3 --port x --kv-cache-dtype foo stray --tp")
    assert [(problem.index, problem.message.split(":")[0]) for problem in parsed.problems] == [
        (2, "ambiguous option"),
        (4, "unrecognized arguments"),
        (6, "argument --port"),
        (8, "argument --kv-cache-dtype"),
        (10, "unrecognized arguments"),
        (11, "argument --tensor-parallel-size/--tp-size"),
    ] or [problem.index for problem in parsed.problems] == [2, 4, 6, 8, 10, 11]
    assert parsed.error is not None
    assert parsed.error.startswith("ambiguous option: --cuda-graph-max-bs could match")


def test_a_blank_word_is_shown_in_quotes() -> None:
    for word, shown in ((" ", "' '"), ("\xa0", r"'\xa0'"), ("", "''"), ("x y", "x y")):
        parsed = parse_argv(["--model-path", "m", "--trust-remote-code", word], CATALOGUE)
        assert [problem.message for problem in parsed.problems] == [
            f"unrecognized arguments: {shown}"
        ]
        assert (parsed.problems[0].help is not None) == (word == " "), "the arg of a backslash"


def test_the_values_of_an_ambiguous_flag_are_its_own() -> None:
    parsed = parse("--model-path m --cuda-graph-bs 1 2 4 8 --tp 2")
    assert [problem.message.split(":")[0] for problem in parsed.problems] == ["ambiguous option"]
    assert [item.stored for item in parsed.parsed if item.dest == "tp_size"] == [2]


def test_the_model_is_required() -> None:
    (problem,) = parse_argv([], CATALOGUE).problems
    assert problem.index is None and "--model-path" in problem.message


def test_a_word_that_could_not_be_evaluated_is_not_checked() -> None:
    words = ["--model-path", "$MODEL", "--tp", "$TP", "--kv-cache-dtype", "$D"]
    parsed = parse_argv(words, CATALOGUE, opaque={1, 3, 5})
    assert not parsed.problems and parsed.error is None
    assert args_of(parsed) == {"model_path": "$MODEL", "tp_size": "$TP", "kv_cache_dtype": "$D"}
    assert [item.index for item in parsed.parsed] == [0, 2, 4]
    assert [item.value_indices for item in parsed.parsed] == [(1,), (3,), (5,)]


def value_of(argument: Argument, dice: random.Random) -> list[str]:
    if argument.choices:
        return [str(dice.choice(argument.choices))]
    words = {
        "int": ["0", "-1", "30000"],
        "float": ["0.7", "1e-05", "-0.5"],
        "human_readable_int": ["4096", "32k", "1.5M"],
        "json": ['{"a": [1, null]}', "[1]", '"x"'],
        "json_list_type": ["[1, 2]", "[]"],
        "parse_cuda_graph_config_arg": ['{"decode": {"max_bs": 4}}'],
        "bool": ["1"],
    }
    return [dice.choice(words.get(argument.type, ["a", "a b", "None", "", "1", "true", "-x"]))]


@pytest.mark.thorough
@pytest.mark.parametrize("version", ["0.4.6.post5", "0.5.3.post3", "0.5.11", "0.5.14", "0.5.23"])
def test_a_command_survives_being_a_recipe(version: str) -> None:
    """argv → args → argv: the same effective values, for random right command lines."""
    catalogue = load(version)
    dice = random.Random(version)
    skipped = (ArgumentKind.HELP, ArgumentKind.REFUSED)
    arguments = [
        a for a in catalogue.arguments.values() if a.kind not in skipped and not a.deprecated
    ]
    survived = 0
    for _ in range(150):
        words = ["--model-path", "m"]
        for argument in dice.sample(arguments, 5):
            if argument.flag in ("--config", "--model-path"):
                continue
            if argument.kind is ArgumentKind.LIST:
                words += [argument.flag, *(value_of(argument, dice)[0] for _ in range(2))]
            elif argument.kind.takes_value:
                words += [f"{argument.flag}={value_of(argument, dice)[0]}"]
            else:
                words.append(dice.choice(argument.flags))
        parsed = parse_argv(words, catalogue)
        if parsed.error is not None:
            continue
        spelling = render_args(args_of(parsed), {}, catalogue)
        assert not spelling.problems, (words, spelling.problems)
        again = [token for item in spelling.arguments for token in item.tokens]
        reparsed = parse_argv(again, catalogue)
        assert reparsed.error is None, (words, again, reparsed.error)
        assert reparsed.values == parsed.values, (words, again)
        survived += 1
    assert survived > 60

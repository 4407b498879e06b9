"""Random command lines, parsed by us and by the engine's own parser: the same verdict and values.

The lines are drawn from the catalogue (right and wrong ones: types, choices, prefixes, ambiguous
prefixes, missing values, `=`, repeated flags, negative numbers, unknown flags) with a fixed seed;
SPECLAUNCH_SEED draws others.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from typing import Any

import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.engine.releases.argv import args_of, parse_argv
from speclaunch.engine.releases.catalogue import Argument, ArgumentKind, Catalogue, load
from speclaunch.engine.releases.command import render_args

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

COUNT = 2000
VERSION = "0.5.23"

_REAL = """
import argparse, contextlib, io, json, sys
from sglang.srt.server_args import ServerArgs
answers = []
class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise SystemExit(message)
parser = Parser(prog="sglang serve")
ServerArgs.add_cli_args(parser)
for words in json.load(sys.stdin):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            values = vars(parser.parse_args(words))
        values = {k: json.dumps(v, default=repr, sort_keys=True) for k, v in values.items()}
        answers.append({"values": values})
    except SystemExit as stop:
        answers.append({"error": str(stop.code)})
    except Exception as error:
        answers.append({"error": f"{type(error).__name__}: {error}"})
print("ANSWERS" + json.dumps(answers))
"""


ODD = ["x", "-1", "-1.5", "1.5", "", "None", "true", "1e3", "--", "[1", "0x10", " 7 ", "-", "-x"]
ODD += ["-x y", "--no", "\u0663", "nan", "a=b", "-h", "null"]
BY_TYPE = {
    "int": ["0", "1", "-1", "30000", "007", "1_000", "+5", "1.0"],
    "float": ["0.7", "1", "-0.5", "1e-05", "inf", ".5", "-.5", "1_0.5"],
    "human_readable_int": ["4096", "32k", "32Ki", "1.5M", "1.5Ki", "2K", "1G", "-1", " 1k "],
    "json": ['{"a": 1}', "[1]", "3", "{", "null", '"x"', "NaN", "1e400", "true", "[" * 5000],
    "json_list_type": [
        "[1, 2]",
        "[]",
        "1",
        "x",
        "NaN",
        "18446744073709551616",
        '"\\ud800"',
        "1e400",
    ],
    "nullable_str": ["a", "None", "", "none"],
    "parse_cuda_graph_backend_arg": ["tc_piecewise", "disabled", "full", "Full"],
    "parse_cuda_graph_config_arg": [
        '{"decode": {"max_bs": 4}}',
        '{"decode": {"backend": "tc_piecewise"}}',
        '{"prefill": {"bs": [1, 2], "max_seq_len": 8}}',
        '{"decode": {"tc_compiler": "x"}}',
        '{"decode": 1}',
        '{"x": {}}',
        "[]",
        "{",
    ],
}
LORA = ["a", "n=p", '{"lora_name": "a", "lora_path": "b"}', '{"lora_name": "a"}', "{x}", " b "]


def a_value(argument: Argument, dice: random.Random) -> str:
    """A word for an argument; wrong now and then."""
    if dice.random() < 0.1:
        return dice.choice(ODD)
    if argument.choices:
        return str(dice.choice(argument.choices))
    if argument.dest == "lora_paths":
        return dice.choice(LORA)
    return dice.choice(BY_TYPE.get(argument.type, ["a", "some/path", "a b", "None", "3", "é"]))


def a_line(arguments: list[Argument], dice: random.Random) -> list[str]:
    words = ["--model-path", "m"] if dice.random() < 0.95 else []
    rare = [a for a in arguments if a.type in BY_TYPE and a.type not in ("int", "float")]
    rare += [a for a in arguments if a.dest == "lora_paths" or a.deprecated or a.nargs == "?"]
    for argument in dice.sample(arguments, dice.randint(0, 6)):
        chosen = dice.choice(rare) if dice.random() < 0.2 else argument
        for _ in range(2 if dice.random() < 0.1 else 1):
            words += a_use(chosen, dice)
    if dice.random() < 0.05:
        words.insert(dice.randint(0, len(words)), dice.choice(["stray", "--", "-", "", "-z", "-5"]))
    return words


def a_use(argument: Argument, dice: random.Random) -> list[str]:
    flag = dice.choice(argument.flags)
    if dice.random() < 0.15 and len(flag) > 6:
        flag = flag[: dice.randint(5, len(flag))]  # a prefix, ambiguous or not
    if dice.random() < 0.02:
        flag += "x"
    if dice.random() < 0.02:
        flag = dice.choice([flag.replace("-", "_"), flag[1:], flag.upper()])
    if argument.kind is ArgumentKind.LIST:
        values = [a_value(argument, dice) for _ in range(dice.randint(0, 3))]
        return [f"{flag}={values[0]}"] if values and dice.random() < 0.1 else [flag, *values]
    if argument.kind.takes_value != (dice.random() < 0.03):  # a switch has one now and then
        value = a_value(argument, dice)
        return [f"{flag}={value}"] if dice.random() < 0.2 else [flag, value]
    return [flag]


def in_any_order(error: str | None) -> str | None:
    """The catalogue does not keep the order in which flags are declared, nor that of a set."""
    if error is None:
        return None
    head, cut, names = error.partition(" could match ")
    if cut:
        return head + cut + ", ".join(sorted(names.split(", ")))
    head, cut, names = error.partition(" (choose from ")
    return head + cut + ", ".join(sorted(names.removesuffix(")").split(", ")))


def plain(value: Any) -> Any:
    """A value as JSON gives it back (NaN is like itself there)."""
    return json.dumps(value, default=repr, sort_keys=True)


def real_parser(cpu_engine: CpuEngine, lines: list[list[str]]) -> list[dict[str, Any]]:
    """What the engine's own parser says to each line, in one process."""
    done = subprocess.run(
        [str(cpu_engine.python), "-c", _REAL],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        env={**os.environ, **cpu_engine.environment(os.environ)},
        timeout=600,
        check=True,
    )
    answers: list[dict[str, Any]] = json.loads(done.stdout.split("ANSWERS")[1])
    return answers


def difference(words: list[str], real: dict[str, Any], catalogue: Catalogue) -> str | None:
    """What we say otherwise than the engine's parser, if anything."""
    ours = parse_argv(words, catalogue)
    if in_any_order(ours.error) != in_any_order(real.get("error")):
        return f"we say {ours.error!r}, the engine {real.get('error')!r}"
    if (ours.error is None) != (not ours.problems):
        return f"the verdict is {ours.error!r}, the problems are {ours.problems}"
    if ours.error is not None:
        return None
    theirs = {name: value for name, value in real["values"].items() if name != "help"}
    values = {name: plain(value) for name, value in ours.values.items() if name != "help"}
    wrong = {
        name: (values.get(name), theirs.get(name))
        for name in values.keys() | theirs.keys()
        if values.get(name) != theirs.get(name)
    }
    if wrong:
        return f"(ours, the engine's): {wrong}"
    spelling = render_args(args_of(ours), {}, catalogue)
    again = [word for argument in spelling.arguments for word in argument.tokens]
    back = parse_argv(again, catalogue)
    if spelling.problems or back.error or plain(back.values) != plain(ours.values):
        return f"as a recipe it is {again}: {spelling.problems or back.error or 'other values'}"
    return None


def test_two_thousand_command_lines(cpu_engine: CpuEngine) -> None:
    catalogue = load(VERSION)
    skipped = {"--help", "--config"}  # the first ends the process, the second is no argument
    arguments = [a for a in catalogue.arguments.values() if a.flag not in skipped]
    dice = random.Random(int(os.environ.get("SPECLAUNCH_SEED", "20261121")))
    lines = [a_line(arguments, dice) for _ in range(COUNT)]
    answers = real_parser(cpu_engine, lines)
    found = [
        (words, said)
        for words, real in zip(lines, answers, strict=True)
        if (said := difference(words, real, catalogue)) is not None
    ]
    accepted = sum("values" in real for real in answers)
    report = "\n".join(f"{words}\n    {said}" for words, said in found[:10])
    assert not found, f"{len(found)} of {COUNT} differ, the first:\n{report}"
    assert COUNT / 10 < accepted < COUNT * 9 / 10  # neither all wrong nor all right


def test_a_difference_is_seen(cpu_engine: CpuEngine) -> None:
    """The comparison itself: another release's catalogue, and a value changed behind its back."""
    (real,) = real_parser(cpu_engine, [["--model-path", "m", "--port", "5"]])
    words = ["--model-path", "m", "--port", "5"]
    assert difference(words, real, load(VERSION)) is None
    assert difference([*words, "--tp", "2"], real, load(VERSION)) is not None
    assert difference([*words, "--cuda-graph-max-bs", "2"], real, load(VERSION)) is not None
    assert difference(words, {"error": "argument --port: no"}, load(VERSION)) is not None
    assert difference(words, real, load("0.5.11")) is not None

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

from speclaunch.cpu.environment import CpuEngine
from speclaunch.engine.argv import parse_argv
from speclaunch.engine.catalogue import Argument, ArgumentKind, load

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
        answers.append({"values": values})
    except SystemExit as stop:
        answers.append({"error": str(stop.code)})
    except Exception as error:
        answers.append({"error": f"{type(error).__name__}: {error}"})
print("ANSWERS" + json.dumps(answers, default=repr))
"""


def a_value(argument: Argument, dice: random.Random) -> str:
    """A word for an argument; wrong now and then."""
    if dice.random() < 0.1:
        return dice.choice(["x", "-1", "1.5", "", "None", "true", "1e3", "--", "[1", "0x10", " 7 "])
    if argument.choices:
        return str(dice.choice(argument.choices))
    numbers = {
        "int": ["0", "1", "-1", "30000", "007", "1_000"],
        "float": ["0.7", "1", "-0.5", "1e-05", "inf", ".5"],
        "human_readable_int": ["4096", "32k", "32Ki", "1.5M", "1.5Ki", "2K", "1G"],
        "json": ['{"a": 1}', "[1]", "3", "{"],
        "json_list_type": ["[1, 2]", "[]", "1", "x"],
        "parse_cuda_graph_config_arg": ['{"decode": {"max_bs": 4}}', "[]", '{"x": {}}', "{"],
    }
    return dice.choice(numbers.get(argument.type, ["a", "some/path", "a b", "None", "3"]))


def a_line(arguments: list[Argument], dice: random.Random) -> list[str]:
    words = ["--model-path", "m"] if dice.random() < 0.95 else []
    for argument in dice.sample(arguments, dice.randint(0, 6)):
        for _ in range(2 if dice.random() < 0.1 else 1):
            flag = dice.choice(argument.flags)
            if dice.random() < 0.15 and len(flag) > 6:
                flag = flag[: dice.randint(5, len(flag))]  # a prefix, ambiguous or not
            if dice.random() < 0.02:
                flag += "x"
            if not argument.kind.takes_value or dice.random() < 0.03:
                words.append(flag)
            elif argument.kind is ArgumentKind.LIST:
                words += [flag, *(a_value(argument, dice) for _ in range(dice.randint(0, 3)))]
            elif dice.random() < 0.2:
                words.append(f"{flag}={a_value(argument, dice)}")
            else:
                words += [flag, a_value(argument, dice)]
    if dice.random() < 0.02:
        words.insert(dice.randint(0, len(words)), "stray")
    return words


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
    """A value as JSON gives it back."""
    return json.loads(json.dumps(value, default=repr))


def test_two_thousand_command_lines(cpu_engine: CpuEngine) -> None:
    catalogue = load(VERSION)
    skipped = {"--help", "--config"}  # the first ends the process, the second is no argument
    arguments = [a for a in catalogue.arguments.values() if a.flag not in skipped]
    dice = random.Random(int(os.environ.get("SPECLAUNCH_SEED", "20261121")))
    lines = [a_line(arguments, dice) for _ in range(COUNT)]
    done = subprocess.run(
        [str(cpu_engine.python), "-c", _REAL],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        env={**os.environ, **cpu_engine.environment(os.environ)},
        timeout=600,
        check=True,
    )
    answers = json.loads(done.stdout.split("ANSWERS")[1])
    different = []
    accepted = 0
    for words, real in zip(lines, answers, strict=True):
        ours = parse_argv(words, catalogue)
        accepted += "values" in real
        if in_any_order(ours.error) != in_any_order(real.get("error")):
            different.append((words, "error", ours.error, real.get("error")))
        elif ours.error is None:
            assert not ours.problems, (words, ours.problems)
            for name, value in plain(ours.values).items():
                if name != "help" and value != real["values"].get(name):
                    different.append((words, name, value, real["values"].get(name)))
        else:
            assert ours.problems, words
    assert COUNT / 10 < accepted < COUNT  # the lines are neither all wrong nor all right
    assert not different, f"{len(different)} of {COUNT}: {different[:8]}"

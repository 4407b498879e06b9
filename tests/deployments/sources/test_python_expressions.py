"""Expressions of Python programs that make the arguments of a server."""

from __future__ import annotations

from speclaunch.deployments.sources.interface import Invocation
from speclaunch.deployments.sources.python_files import read_python
from tests.support.deployments.sources.helpers import only
from tests.support.loops import over

HEAD = """\
import argparse, itertools, os, shlex, subprocess
from dataclasses import dataclass
"""


def read(text: str) -> Invocation:
    return only(read_python(HEAD + text, "x.py"))


def shown(found: Invocation) -> str:
    """The arguments after the model; `?` for each that is unknown."""
    assert [word.text for word in found.words[:2]] == ["--model-path", "m"]
    return " ".join(word.text if word.evaluated else "?" for word in found.words[2:])


FORMATS = """\
tp = 8
fraction = 0.8
words = ["--tp", "8"]
base = "--tp 8 --dp 2"
subprocess.run("sglang serve --model-path m " + {}, shell=True)
"""


@over(
    [
        ('"--tp {} --dp {}".format(tp, 2)', "--tp 8 --dp 2"),
        ('"--tp {0} --dp {0}".format(tp)', "--tp 8 --dp 8"),
        ('"--tp {size} --x {other}".format(size=tp, other=f())', "--tp 8 --x ?"),
        ('"--tp {} --dp {}".format(*sizes)', "--tp ? --dp ?"),
        ('"--x {{}} --mem {:.2f}".format(fraction)', "--x {} --mem 0.80"),
        ('"--tp %d --mem %.2f%%" % (tp, fraction)', "--tp 8 --mem 0.80%"),
        ('"--tp %(tp)s --dp %(dp)s" % {"tp": tp}', "--tp 8 --dp ?"),
        ('"--tp %s" % sizes', "--tp ?"),
        ('"--tp %d" % True', "--tp 1"),
        ('f"--tp {tp!s} --dp {tp:d} --mem {fraction:.2f}"', "--tp 8 --dp 8 --mem 0.80"),
        ("f\"--x {'a'!r}\"", "--x a"),
        ('f"--tp {tp:>{width}}"', "--tp ?"),
        ('f"--tp {tp:999999999}"', "--tp ?"),
        ("f\"{' '.join(words)} --dp 2\"", "--tp 8 --dp 2"),
        ("f\"--x {','.join(['a', 'b'])}\"", "--x a,b"),
        ("f\"{shlex.join(['--x', 'a b'])}\"", "?"),
    ]
)
def test_formatted_texts(case: tuple[str, str]) -> None:
    expression, expected = case
    assert shown(read(FORMATS.replace("{}", expression, 1))) == expected

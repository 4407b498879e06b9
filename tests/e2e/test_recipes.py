"""The four CPU recipes on the real engine, and every recipe through its real parser."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.load import load
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.engine.releases.catalogue import load as load_catalogue
from speclaunch.engine.releases.command import render_args
from speclaunch.serving.launch.runs import free_port

from .conftest import serving, speclaunch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PROMPT = "the quick brown fox jumps over the lazy dog the quick brown fox"
TOKENS = 48
PLAIN = [
    "args.speculative_algorithm=null",
    "args.speculative_num_steps=null",
    "args.speculative_eagle_topk=null",
    "args.speculative_num_draft_tokens=null",
    "args.speculative_draft_model_path=null",
]
CPU_RECIPES = ["cpu_ngram", "cpu_standalone", "cpu_eagle3", "cpu_mtp_glm"]
_plain: dict[str, list[int]] = {}


def plain_output(recipe: str) -> list[int]:
    """What the same target generates without speculation (once for each target)."""
    target = str(load(recipe).deployment.args["model_path"])
    if target not in _plain:
        with serving(f"recipe={recipe}", *PLAIN) as plain:
            report = plain.report()
            assert report["verification"]["algorithm"] is None
            _plain[target], meta = plain.generate(PROMPT, TOKENS)
            assert not meta.get("spec_verify_ct")
    return _plain[target]


# a start each, and one without speculation for the first of each target
@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(recipe, marks=pytest.mark.core(starts))
        for recipe, starts in zip(CPU_RECIPES, (2, 1, 2, 2), strict=True)
    ],
)
def test_speculation_is_on_and_changes_no_token(recipe: str) -> None:
    expected = plain_output(recipe)
    with serving(f"recipe={recipe}") as speculating:
        verification = speculating.report()["verification"]
        assert verification["ok"] and not verification["problems"]
        assert verification["verifications"] > 0
        assert verification["acceptance_length"] >= 1
        output, meta = speculating.generate(PROMPT, TOKENS)
    assert meta["spec_verify_ct"] > 0
    assert len(output) == TOKENS
    assert output == expected
    if recipe in ("cpu_ngram", "cpu_standalone"):  # the predictable target
        assert verification["acceptance_length"] > 2


def test_a_smoke_test_ends_by_itself_with_a_report() -> None:
    done = speclaunch("recipe=cpu_ngram", "--smoke", f"args.port={free_port()}")
    assert done.returncode == 0, done.stderr
    assert "cpu_ngram is serving" in done.stdout
    assert "acceptance length" in done.stdout
    assert "Traceback" not in done.stderr


_PARSE = """
import json, sys, io, contextlib
from sglang.srt.server_args import ServerArgs
import argparse
verdicts = {}
for name, argv in json.load(sys.stdin).items():
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            parsed = vars(parser.parse_args(argv))
        verdicts[name] = {k: v for k, v in parsed.items() if isinstance(v, (int, float, str, list))}
    except SystemExit:
        verdicts[name] = errors.getvalue().strip().splitlines()[-1]
print("VERDICTS" + json.dumps(verdicts))
"""


def real_parser(commands: dict[str, list[str]], cpu_engine: CpuEngine) -> dict[str, Any]:
    import os

    done = subprocess.run(
        [str(cpu_engine.python), "-c", _PARSE],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        env={**os.environ, **cpu_engine.environment(os.environ)},
        timeout=180,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.split("VERDICTS")[1])
    return found


@pytest.mark.core(0)
def test_the_real_parser_takes_every_recipe_and_reads_what_was_meant(
    cpu_engine: CpuEngine,
) -> None:
    commands: dict[str, list[str]] = {}
    for name in recipe_names():
        spelling = render_args(load(name).deployment.args, {}, load_catalogue("0.5.23"))
        assert not spelling.problems, (name, spelling.problems)
        commands[name] = [token for argument in spelling.arguments for token in argument.tokens]
    commands["a wrong one"] = ["--model-path", "x", "--cuda-graph-max-bs", "8"]
    verdicts = real_parser(commands, cpu_engine)
    assert "ambiguous option" in verdicts.pop("a wrong one")
    for name, parsed in verdicts.items():
        assert isinstance(parsed, dict), f"{name}: {parsed}"
        for argument, value in load(name).deployment.args.items():
            if value is not None and value is not False:
                assert parsed[argument] == value, (name, argument)

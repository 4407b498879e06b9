"""What `init` writes is accepted by the engine's own parser, with the values that were meant."""

from __future__ import annotations

import pytest

from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.engine.releases.catalogue import load
from tests.e2e.test_parser_agreement import VERSION, difference, real_parser
from tests.measure.advice.test_new_recipe import FEW, MANY, written

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_the_engines_parser_takes_them(cpu_engine: CpuEngine) -> None:
    made = [written(target, hardware, VERSION) for target, hardware, _ in (*FEW, *MANY)]
    recipes = [one for one in made if one is not None]
    assert len(recipes) >= 40
    # behind `python3 -m sglang.launch_server`
    lines = [list(one.planned.command.argv[3:]) for one in recipes]
    for words, real in zip(lines, real_parser(cpu_engine, lines), strict=True):
        assert "values" in real, (words, real)
        assert difference(words, real, load(VERSION)) is None

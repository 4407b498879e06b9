"""Two of the stored cases once more, in processes of their own, as a user starts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclaunch.core.files import speclaunch_home
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.serving.cpu_engine.programs import ensure_model
from tests.support.evidence import judging, models, stored
from tests.support.evidence.cases import BY_KEY
from tests.support.evidence.engine import Processes, serve, words

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.mark.parametrize("key", ["SPL409/eagle-narrow", "SPL409/standalone-narrow"])
def test_the_engine_still_does_what_is_stored(key: str, tmp_path: Path) -> None:
    case, known = BY_KEY[key], stored.load()[key]
    engine = CpuEngine(speclaunch_home())
    for made in (case.target, case.draft):
        if made is not None:
            ensure_model(engine, made.base)
    judging.write(case, models.from_engine(engine.models), tmp_path)
    starter = Processes(engine, case.modules)
    run = serve(starter, words(case.arguments()), tmp_path, case.env, seconds=600)
    assert (run.phase, run.error, run.place) == (known.phase, known.error, known.place)
    assert run.exit_code != 0

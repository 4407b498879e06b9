"""What does not count as a measurement: runs of the real engine, broken in every way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from speclaunch.core.errors import LaunchError
from speclaunch.engine.facts.cpu_engine import CpuEngine
from speclaunch.measure.bench.measurement import Objection
from tests.support.measure.bench.live.broken import BROKEN, Dying, Failing
from tests.support.measure.bench.live.proxy import Through
from tests.support.measure.bench.live.sides import OURS, THEIRS, Make, Pair

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def pair(cpu_engine: CpuEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    found = Pair("cpu_ngram", tmp_path_factory.mktemp("gate"))
    yield found
    found.close()


def kinds(found: tuple[Objection, ...]) -> set[str]:
    """But for drift: the machine of the tests does much else."""
    return {one.kind for one in found} - {"drift"}


def test_a_good_run_counts(pair: Pair) -> None:
    found = pair.objections({OURS: (OURS, Through), THEIRS: (THEIRS, Through)}, 1)
    assert kinds(found) == set(), found


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_is_refused(pair: Pair, name: str) -> None:
    make, kind = BROKEN[name]
    rounds = 4 if kind == "drift" else 1
    found = pair.objections({OURS: (OURS, make), THEIRS: (THEIRS, Through)}, rounds)
    assert kind in {one.kind for one in found}, found


@pytest.mark.parametrize(
    ("through", "kind"),
    [
        ({OURS: (THEIRS, Through), THEIRS: (THEIRS, Through)}, "no-drafts"),
        ({OURS: (OURS, Through), THEIRS: (OURS, Through)}, "speculates"),
    ],
)
def test_the_wrong_engine_is_refused(
    pair: Pair, through: dict[str, tuple[str, Make]], kind: str
) -> None:
    found = pair.objections(through, 1)
    assert kinds(found) == {kind}, found


def test_an_engine_that_answers_nothing_but_errors_is_no_measurement(pair: Pair) -> None:
    with pytest.raises(LaunchError, match=r"the load generator failed: .*Internal Server Error"):
        pair.objections({OURS: (OURS, Failing), THEIRS: (THEIRS, Through)}, 1)


def test_a_scheduler_that_is_killed_is_no_measurement(pair: Pair) -> None:
    """The last: its engine is gone."""

    def make(url: str) -> Through:
        through = Dying(url)
        through.pid = pair.pid(OURS)
        return through

    with pytest.raises(LaunchError, match="ours exited during round 1"):
        pair.objections({OURS: (OURS, make), THEIRS: (THEIRS, Through)}, 1)

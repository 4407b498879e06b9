"""A sample of the campaign of campaigns/deployment_mutations.py, and what is stored of the whole."""

from __future__ import annotations

import json

import pytest
import yaml

from campaigns.deployment_mutating.deployed import Lines
from campaigns.deployment_mutating.judge import findings
from campaigns.deployment_mutating.kinds import KINDS
from campaigns.deployment_mutating.shapes import SHAPES, deployment
from campaigns.deployment_mutations import STORED, WANTED, campaign

LEAST_KINDS = 25
LEAST_DEPLOYMENTS = 200


def test_what_is_stored_is_of_all_kinds_and_good() -> None:
    told = json.loads(STORED.read_text())
    assert told["deployments"] >= LEAST_DEPLOYMENTS
    assert told["shapes"] == [shape.__name__ for shape in SHAPES]
    assert list(told["kinds"]) == [kind.name for kind in KINDS]
    assert len(KINDS) >= LEAST_KINDS
    assert told["found_at_all_places"] >= WANTED
    assert told["findings_on_unmutated"] == 0
    assert all(count["at_all_places"] for count in told["kinds"].values())


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(len(SHAPES)), ids=lambda n: SHAPES[n].__name__)
def test_a_sample_is_as_it_is_stored(number: int) -> None:
    result = campaign([number + 10 * len(SHAPES)])
    assert not result.unmutated
    stored = json.loads(STORED.read_text())["kinds"]
    whole = {name for name, one in stored.items() if one["at_all_places"] == one["planted"]}
    assert not [one for one in result.missed if one.split()[2].rstrip(":") in whole]
    assert sum(count.planted for count in result.counts.values()) >= 5


def test_a_deployment_is_a_function_of_its_number() -> None:
    assert deployment(7).text() == deployment(7).text() != deployment(17).text()


def test_lines_are_those_of_the_text() -> None:
    whole = deployment(1)
    lines = Lines(whole)
    for server in whole.servers:
        first, last = lines.region(server.spot("--port"))
        assert first == last
        assert f"--port={server.value('--port')}" in lines.text.splitlines()[first - 1]
        first, last = lines.region(server.owner)
        assert first == last
    assert list(yaml.safe_load_all(lines.text)) == whole.documents


def test_the_judge_sees_the_servers() -> None:
    """A campaign whose judge read nothing would find nothing on the unmutated."""
    whole = deployment(0)
    whole.servers[0].container["image"] = "lmsysorg/sglang:latest"
    assert "SPL861" in {one.code for one in findings(whole.text())}

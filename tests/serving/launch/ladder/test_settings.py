"""The `recovery` section of a recipe."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from speclaunch.core.resources import conf_dir
from speclaunch.deployments.recipe.schema import Recovery, RecoveryPolicy
from speclaunch.engine.plan.budget import Steppable
from tests.support.loops import rows


@pytest.mark.parametrize("name", ["default", "documents", "off"])
def test_each_file_is_valid(name: str) -> None:
    path = conf_dir() / "recovery" / f"{name}.yaml"
    found = Recovery(**yaml.safe_load(path.read_text(encoding="utf-8")))
    expected = {"default": "budget", "documents": "order", "off": "off"}[name]
    assert found.policy is RecoveryPolicy(expected)


def test_the_documents_order_and_values() -> None:
    path = conf_dir() / "recovery" / "documents.yaml"
    found = Recovery(**yaml.safe_load(path.read_text(encoding="utf-8")))
    assert found.order == (
        Steppable.FRACTION,
        Steppable.GRAPHS,
        Steppable.TREE,
        Steppable.RUNNING,
    )
    assert found.floors.mem_fraction_static == 0.5
    assert found.minimal["cuda_graph_max_bs_decode"] == 2


def test_a_plain_off_of_yaml_is_off() -> None:
    assert Recovery(policy=False).policy is RecoveryPolicy.OFF


@rows(
    "given, says",
    [
        ({"policy": "sometimes"}, "'off', 'budget' or 'order'"),
        ({"order": ["draft_tree", "draft_tree"]}, "draft_tree appears twice"),
        ({"policy": "budget", "order": []}, "order is empty"),
        ({"order": ["speculative_num_steps"]}, "draft_tree"),
        ({"max_attempts": 0}, "greater than or equal to 1"),
        ({"floors": {"mem_fraction_static": 0.99}}, "must be below"),
        ({"limits": {"mem_fraction_static": 1.5}}, "less than 1"),
        ({"floors": {"max_running_request": 4}}, "Extra inputs"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as error:
        Recovery(**given)
    assert says in str(error.value)

"""The plain records of a deployment are what the schema makes of the same values."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from speclaunch.deployments.recipe import schema
from speclaunch.deployments.recipe.compose import compose
from speclaunch.deployments.recipe.find_recipe import recipe_names
from speclaunch.deployments.recipe.sections import PlainSection, plain_deployment, schema_paths
from tests.support.loops import rows

ROOT = Path(__file__).parents[3]
VALUES = (
    None, True, False, 0, 1, -1, 2, 63, 64, 100, 101, 4096, 4097, 10**20, 0.0, 0.1, 0.98, 1.0, 1.5, -0.5, 1e300, float("inf"),
    float("nan"), "", "off", "order", "budget", "auto", "never", "text", "5", "0.5", "true", "cpu", "h100", "h100:8", "h100:x",
    "nothing", "0.5.23", "0.05.1", ">=0.5.11", ">=0.5.11,<0.6", ">=0.5.11, <0.6", "==0.5.*", "~=0.5.3", "v0.5.11", "0.5.10.post1",
    "0.5.9rc1", ">0.5,", "5.", [], ["mem_fraction_static"], ["mem_fraction_static", "mem_fraction_static"], ["x"], [1], (), {},
    {"a": 1}, {"A_B": "x", "C": None, "D": True, "E": 1.5}, {"1A": "x"}, {"A": "x\0"}, {"A": [1]}, {1: 2},
    {"x": [1, {"y": 2}], "z": {"q": None}}, {"x": {1: 2}}, {"x": (1,)}, {"policy": "never"}, {"keep": 5},
    {"max_mb": 5}, {"server": 2, "x": 1}, {"server": 0}, {"a": True}, {"enabled": False}, {"name": "cpu"}, {"a-1": {"replicas": 2}}, {"a_b": None},
    {"prefill": None, "decode": {"args": {"tp_size": 2}, "hardware": {"name": "h100:8"}, "engine": None}}, {"router": {}},
    {"prefill": {"args": [1]}}, {"prefill": {"hardware": 1}}, {"prefill": {"nothing": 1}}, {"prefill": {"replicas": 0}},
    {"port": 0}, {"port": "9"}, {"args": {"policy": "cache_aware"}}, "lmsysorg/sglang:v0.5.23", "-x", "a b", {"mem_fraction_static": 0.99}, {"mem_fraction_static": 0.1},
)  # fmt: skip


def told(value: Any) -> Any:
    """A section and all below it, with the types."""
    if is_section(value):
        return {name: told(getattr(value, name)) for name in sorted(type(value).model_fields)}
    if isinstance(value, dict) and any(is_section(one) for one in value.values()):
        return {name: told(one) for name, one in sorted(value.items())}
    return f"{type(value).__name__} {value!r}"


def is_section(value: Any) -> bool:
    return isinstance(value, BaseModel | PlainSection)


def same(values: dict[str, Any]) -> bool:
    """Whether the values are plain; what they give is what the schema gives."""
    found = plain_deployment(copy.deepcopy(values))
    if found is None:
        return False
    expected = schema.Deployment.model_validate(values)
    assert told(found) == told(expected), values
    assert str(found.engine.specifier) == str(expected.engine.specifier), values
    assert found.engine.pinned == expected.engine.pinned, values
    return True


@pytest.mark.thorough
def test_the_table_of_keys_is_that_of_the_schema() -> None:
    """`python tools/section_table.py` writes it."""
    done = subprocess.run([sys.executable, "tools/section_table.py", "--check"], cwd=ROOT)
    assert done.returncode == 0


def test_a_plain_section_can_be_pickled_and_compared() -> None:
    found = plain_deployment({"name": "x", "args": {"tp_size": 2}, "router": {"port": 9000}})
    assert found is not None
    again = pickle.loads(pickle.dumps(found))
    assert again == found and hash(again.launch.restart) == hash(found.launch.restart)
    assert again != found.model_copy(update={"description": "another"})
    assert repr(found.hardware) == "HardwareSection(name='auto')"
    with pytest.raises(AttributeError):
        again.name = "y"


def test_what_is_not_said_is_the_same() -> None:
    assert same({"name": "x", "args": {}})


@rows("name", sorted(recipe_names()))
def test_our_recipes_are_plain(name: str) -> None:
    assert same({"name": name, **compose(name).values})


@pytest.mark.thorough
@pytest.mark.parametrize("path", sorted(schema_paths()))
def test_each_value_at_each_key(path: str) -> None:
    for value in VALUES:
        *sections, key = path.split(".")
        values: dict[str, Any] = {"name": "x", "args": {"model_path": "m"}}
        node = values
        for section in sections:
            node = node.setdefault(section, {})
        node[key] = value
        refused = False
        try:
            schema.Deployment.model_validate(copy.deepcopy(values))
        except ValidationError:
            refused = True
        plain = plain_deployment(copy.deepcopy(values))
        assert not (refused and plain is not None), (path, value)
        if not refused:
            same(values)


@pytest.mark.thorough
def test_values_by_chance() -> None:
    chance, taken = random.Random(13), 0
    paths = sorted(schema_paths())
    for _ in range(20_000):
        values: dict[str, Any] = {"name": "x", "args": {}}
        for path in chance.sample(paths, chance.randint(1, 4)):
            node: Any = values
            *sections, key = path.split(".")
            for section in sections:
                node = node.setdefault(section, {}) if isinstance(node, dict) else {}
            if isinstance(node, dict):
                node[key] = copy.deepcopy(chance.choice(VALUES))
        try:
            schema.Deployment.model_validate(copy.deepcopy(values))
        except ValidationError:
            assert plain_deployment(values) is None, values
        else:
            taken += same(values)
    assert taken > 500


def test_unknown_keys_are_the_schemas() -> None:
    assert plain_deployment({"name": "x", "args": {}, "nothing": 1}) is None
    assert plain_deployment({"name": "x", "args": {}, "launch": {"nothing": 1}}) is None
    assert plain_deployment({"args": {}}) is None


def test_settings_that_contradict_each_other_are_the_schemas() -> None:
    for recovery in ({"policy": "order", "order": []}, {"limits": {"mem_fraction_static": 0.1}}):
        assert plain_deployment({"name": "x", "args": {}, "recovery": recovery}) is None

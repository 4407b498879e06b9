"""YAML is measured before anything that recurses, in C, reads it."""

from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from speclaunch.deployments.recipe.source import (
    MAX_NODES,
    BoundsError,
    compose_node,
    compose_nodes,
    depth_bound,
    events,
    is_small,
)
from tests.support.loops import rows

DEEP = {
    "lists": "a: " + "[" * 50_000 + "]" * 50_000,
    "an open list": "a: " + "[" * 50_000,
    "mappings": "a: " + "{b: " * 50_000 + "1" + "}" * 50_000,
    "blocks": "".join(" " * depth + "a:\n" for depth in range(100)),
    "dashes": "- " * 50_000 + "a",
    "keys": "? " * 50_000 + "a",
    "carriage returns": "".join(" " * depth + "a:\r" for depth in range(100)),
}


@rows("name", DEEP)
def test_what_is_deep_is_refused(name: str) -> None:
    for read in (compose_node, compose_nodes, lambda text: list(events(text))):
        with pytest.raises(BoundsError, match="nested more than 60 levels deep"):
            read(DEEP[name])  # type: ignore[no-untyped-call]


@pytest.mark.thorough
def test_what_has_too_many_values_is_refused_before_there_are_nodes() -> None:
    with pytest.raises(BoundsError, match=f"more than {MAX_NODES} values"):
        compose_node("[" + "a," * (3 * MAX_NODES) + "]")


def test_what_is_deep_on_one_line_only_is_read() -> None:
    assert compose_node("a: " + "[" * 55 + "]" * 55) is not None
    assert compose_node("a: '" + "[" * 50_000 + "'\n") is not None


@pytest.mark.thorough
@given(st.lists(st.sampled_from([*"[]{}-?:a,& !|>#'\"\n\t*", "- ", ": ", "? ", "\n  ", "\r"])))
def test_what_is_small_has_no_more_events(parts: list[str]) -> None:
    """Each node and each end of one is counted by the indicator before it."""
    text = "".join(parts)
    with contextlib.suppress(yaml.YAMLError):
        found = list(yaml.parse(text, Loader=yaml.CSafeLoader))
        assert len(found) <= 3 * sum(map(text.count, ",:-?[{\n")) + 6
        assert not is_small("- " * 100 + text)
        assert depth_bound(text) >= 2

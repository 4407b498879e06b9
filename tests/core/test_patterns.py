"""A pattern that is compiled late is one that can be compiled, and does what `re.compile` gives."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module

import pytest

import speclaunch
from speclaunch.core.safe_text import _Lazy, lazy


@pytest.mark.thorough
def test_every_pattern_compiles() -> None:
    found = 0
    for module in pkgutil.walk_packages(speclaunch.__path__, "speclaunch."):
        if module.name.startswith("speclaunch.serving.cpu_engine") or module.name.endswith(
            "__main__"
        ):
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, _Lazy):
                found += 1
                assert re.compile(value.pattern, value.flags).pattern == value.pattern
    assert found > 100


def test_it_is_used_as_a_pattern() -> None:
    pattern = lazy(r"(?P<first>a+)b", re.IGNORECASE)
    assert pattern.groupindex == {"first": 1}
    assert pattern.sub("-", "AAb b") == "- b"
    found = pattern.search("xaab")
    assert found is not None and found["first"] == "aa"
    assert [one[0] for one in pattern.finditer("ab AB")] == ["ab", "AB"]


def test_a_mistake_is_told_at_the_first_use() -> None:
    pattern = lazy("(")
    with pytest.raises(re.error):
        pattern.match("")

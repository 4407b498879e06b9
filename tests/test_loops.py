"""A loop over cases reports all that fail."""

from __future__ import annotations

import pytest

from tests.support.loops import over


def test_all_failures_are_reported_by_name() -> None:
    @over(range(5), lambda number: f"case {number}")
    def test_it(number: int) -> None:
        assert number != 1, "one"
        assert 10 // (number - 3)

    with pytest.raises(pytest.fail.Exception) as caught:
        test_it()
    first, *failed = str(caught.value).splitlines()
    assert first == "2 of 5 failed:"
    assert failed[0].startswith("case 1: AssertionError: one")
    assert failed[-1].startswith("case 3: ZeroDivisionError: ")
    assert test_it.__name__ == "test_it"


def test_no_cases_are_no_proof() -> None:
    with pytest.raises(AssertionError, match="no cases"):
        over([])(print)()

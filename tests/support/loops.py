"""One test for many cases: it goes through all of them and reports each that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Of = TypeVar("Of")


def each(cases: Iterable[Of], check: Callable[[Of], None], name: Callable[[Of], object]) -> None:
    """Run `check` on all cases, and fail with the name and the message of each that failed."""
    count, failed = 0, []
    for case in cases:
        count += 1
        try:
            check(case)
        except Exception as error:
            failed.append(f"{name(case)}: {type(error).__name__}: {error}")
    assert count, "no cases"
    if failed:
        pytest.fail(f"{len(failed)} of {count} failed:\n" + "\n".join(failed), pytrace=False)


def over(
    cases: Iterable[Of], name: Callable[[Of], object] = str
) -> Callable[[Callable[[Of], None]], Callable[[], None]]:
    """Make one test of a check of one case, instead of a parameter each: for what takes
    microseconds."""

    def decorate(check: Callable[[Of], None]) -> Callable[[], None]:
        def test() -> None:
            each(cases, check, name)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate

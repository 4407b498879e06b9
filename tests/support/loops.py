"""One test for many cases: it goes through all of them and reports each that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

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


def named(test: Of, check: Callable[..., None]) -> Of:
    """Return the test with the name and text of its check."""
    test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
    return test


def over(
    cases: Iterable[Of], name: Callable[[Of], object] = str
) -> Callable[[Callable[[Of], None]], Callable[[], None]]:
    """Make one test of a check of one case, instead of a parameter each: for what takes
    microseconds."""

    def decorate(check: Callable[[Of], None]) -> Callable[[], None]:
        def test() -> None:
            each(cases, check, name)

        return named(test, check)

    return decorate


def rows(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Do what `pytest.mark.parametrize` does, in one test: a test by itself costs 5 ms."""
    arguments = [name.strip() for name in names.split(",")]

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def run(case: Any) -> None:
            values = [case] if len(arguments) == 1 else case
            check(**dict(zip(arguments, values, strict=True)))

        return over(cases, lambda case: repr(case)[:200])(named(run, check))

    return decorate

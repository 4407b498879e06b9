"""Telling versions apart."""

from __future__ import annotations

from speclaunch.engine.releases.versions import precedes, within
from tests.support.loops import rows


@rows(
    "version, specifier, inside",
    [
        ("0.5.14", ">=0.5.14", True),
        ("0.5.13.post1", ">=0.5.14", False),
        ("0.5.13.post1", ">=0.5.13", True),
        ("0.5.10.post1", ">=0.5.7,<0.5.11", True),
        ("0.5.11", ">=0.5.7,<0.5.11", False),
        ("0.5.4", "<0.5.4.post1", True),
        # a fork's name has the release that it was made from
        ("0.5.14+fork.0123456789", ">=0.5.14", True),
        ("0.5.14+fork.0123456789", "<0.5.14", False),
        # a pre-release is on one side or the other: that of its release
        ("0.5.14rc1", ">=0.5.14", True),
        ("0.5.14rc1", "<0.5.14", False),
        ("0.5.14.dev120+g0123456", ">=0.5.14", True),
        ("0.5.14.dev120+g0123456", "<0.5.14", False),
    ],
)
def test_within(version: str, specifier: str, inside: bool) -> None:
    assert within(version, specifier) is inside


def test_precedes() -> None:
    assert precedes("0.5.9", "0.5.10")
    assert precedes("0.5.10", "0.5.10.post1")
    assert not precedes("0.5.10", "0.5.10") and not precedes("0.5.11", "0.5.10.post1")

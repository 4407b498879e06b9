"""Comparing plain versions gives what packaging gives."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from speclaunch.engine.releases import versions
from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.engine.releases.versions import within
from tests.support.loops import rows

PACKAGE = Path(versions.__file__).resolve().parents[2]
ODD = (
    *("0.5", "0.5.0", "0.5.13", "0.5.13.post1", "0.5.13.post01", "1.0", "0.5.13rc1", "0.5.14.dev3"),
    *("0.5.13.post1.dev2", "0.5.13+cu129", "1!0.5", "0.5.00", "v0.5.13", "0.5.13-1", "0.5.14a0"),
)
CLAUSES = [
    f"{operator}{bound}"
    for operator in (">=", "<=", "<", ">", "==", "!=", "~=", "===", ">= ", " <")
    for bound in (
        "0.5",
        "0.5.13",
        "0.5.13.post1",
        "0.5.0",
        "0.5.14",
        "0.5.13rc1",
        "0.5.0rc2",
        "1.0",
    )
]


def _by_packaging(version: str, specifier: str) -> bool:
    found = Version(version)
    asked = found.base_version if found.is_prerelease else version
    return SpecifierSet(specifier).contains(asked, prereleases=True)


def _written() -> set[str]:
    """Every specifier that stands in the code."""
    clause = r'"((?:[<>=!~]=?\s*0[0-9.postrc]+,?\s*)+)"'
    return {
        found
        for file in PACKAGE.rglob("*.py")
        for found in re.findall(clause, file.read_text(encoding="utf-8"))
    }


@pytest.mark.thorough
@pytest.mark.core
def test_every_specifier_of_the_code() -> None:
    specifiers = _written()
    assert len(specifiers) > 50
    for version, specifier in product((*held_versions(), *ODD), specifiers):
        assert within(version, specifier) == _by_packaging(version, specifier), (version, specifier)


@pytest.mark.parametrize("clause", ["", *CLAUSES])
def test_odd_versions_and_clauses(clause: str) -> None:
    for version in (*held_versions(), *ODD):
        assert within(version, clause) == _by_packaging(version, clause), version
        both = f"{clause}, <0.5.20" if clause else "<0.5.20"
        assert within(version, both) == _by_packaging(version, both), version


@rows("version, specifier", [("0.5.x", "<1"), ("0.5.13", "<1,"), ("0.5.13", "<abc"), ("", "<1")])
def test_what_is_no_version_is_refused_as_before(version: str, specifier: str) -> None:
    try:
        expected: object = _by_packaging(version, specifier)
    except ValueError as error:
        expected = type(error)
    try:
        found: object = within(version, specifier)
    except ValueError as error:
        found = type(error)
    assert found == expected

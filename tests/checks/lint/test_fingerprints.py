"""Fingerprints: the same from one lint to the next, whatever is inserted above."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from speclaunch.checks.lint.report import FileReport, deduplicate, fingerprints, for_versions, plain
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.core.errors import Place


def finding(
    message: str = "`x` is wrong",
    line: int = 1,
    path: str = "a.sh",
    code: str = "SPL001",
    engine: str = "0.5.23",
    severity: Severity = Severity.ERROR,
) -> Finding:
    return Finding(code, "a-rule", severity, message, "", None, Place(path, line, 3), engine)


SOME = st.lists(
    st.builds(
        finding,
        st.sampled_from(["`x` is wrong", "`y` is wrong", "8 does not divide 12"]),
        st.integers(1, 9),
        st.sampled_from(["a.sh", "b/c.yaml"]),
        st.sampled_from(["SPL001", "SPL101"]),
    ),
    max_size=12,
)


@pytest.mark.thorough
@given(SOME, st.integers(1, 50))
def test_lines_inserted_above_change_nothing(found: list[Finding], lines: int) -> None:
    moved = [finding(f.message, f.place.line + lines, f.place.path, f.code) for f in found]
    assert fingerprints(found) == fingerprints(moved)


@pytest.mark.thorough
@given(SOME, st.randoms())
def test_the_order_changes_nothing(found: list[Finding], random: object) -> None:
    named = dict(zip(map(repr, found), fingerprints(found), strict=True))
    random.shuffle(found)  # type: ignore[attr-defined]
    assert named == dict(zip(map(repr, found), fingerprints(found), strict=True))


@pytest.mark.thorough
@given(SOME)
def test_two_findings_have_two_fingerprints(found: list[Finding]) -> None:
    different = {(f.code, plain(f.message), f.place.path, f.place.line) for f in found}
    assert len(set(fingerprints(found))) == len(different)


def test_figures_and_versions_do_not_count_and_names_do() -> None:
    old = finding("SGLang 0.5.8.post1 refuses `--x`: 81.2 GiB of 79,6", engine="0.5.8.post1")
    new = finding("SGLang 0.5.23 refuses `--x`: 90 GiB of 141")
    assert fingerprints([old]) == fingerprints([new])
    assert plain("Llama-3.1-8B has no fp8_e4m3 in recipes/a2/3.yaml") == (
        "Llama-3.1-8B has no fp8_e4m3 in recipes/a2/3.yaml"
    )


def test_arguments_and_their_values_count_and_the_wording_does_not() -> None:
    one = replace(finding("2 ranks on 1 GPU"), arguments={"tp_size": "2"})
    reworded = replace(one, message="tp_size 2 exceeds 1 GPU")
    worse = replace(one, arguments={"tp_size": "4"})
    assert fingerprints([one]) == fingerprints([reworded]) != fingerprints([worse])
    both = fingerprints([one, replace(reworded, why="")])
    assert len(set(both)) == 2  # two things at one place


def test_paths_count_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    here = fingerprints([finding(path="sub/a.sh"), finding(path=str(tmp_path / "sub/a.sh"))])
    monkeypatch.chdir(tmp_path / "sub")
    there = fingerprints([finding(path="a.sh")], "..")
    assert {*here, *there} == {there[0]}


def test_a_finding_of_several_versions_is_told_once_with_them() -> None:
    files = [
        FileReport("a.sh", "0.5.8", (finding("no 8 in 0.5.8", engine="0.5.8"),)),
        FileReport("a.sh", "0.5.18", (finding("no 9 in 0.5.18", engine="0.5.18"),)),
        FileReport("a.sh", "0.5.23", (finding("no", engine="0.5.23"),)),
    ]
    first, second = deduplicate(files)
    assert first.engines == ("0.5.8", "0.5.18") and first.finding.engine == "0.5.18"
    assert second.engines == ("0.5.23",) and not second.through


def test_severities_and_two_findings_of_one_version_stay_apart() -> None:
    both = (finding("no 8"), finding("no 9"), finding("no 9", severity=Severity.WARNING))
    assert len(deduplicate([FileReport("a.sh", "0.5.23", both)])) == 3


def test_a_finding_in_a_group_is_told_once_with_the_recipes() -> None:
    shared, other = finding(path="conf/g.yaml"), finding("8 is odd", path="conf/g.yaml")
    more = finding("9 is odd", path="conf/g.yaml")
    files = [
        FileReport("r1.yaml", "0.5.23", (shared, other)),
        FileReport("r2.yaml", "0.5.23", (shared, more)),
    ]
    told = deduplicate(files)
    assert [one.finding.message for one in told] == ["`x` is wrong", "8 is odd", "9 is odd"]
    assert [one.through for one in told] == [("r1.yaml", "r2.yaml"), ("r1.yaml",), ("r2.yaml",)]


def test_several_versions_are_named_once() -> None:
    one = finding("SGLang 0.5.23 refuses this: --x")
    assert for_versions(one, ()) == one.message
    assert for_versions(one, ("0.5.23",)) == for_versions(one, ("0.5.18", "0.5.23")) == "--x"
    two = finding("SGLang 0.5.23 has no argument --x")
    assert for_versions(two, ("0.5.18", "0.5.23")) == "SGLang has no argument --x"

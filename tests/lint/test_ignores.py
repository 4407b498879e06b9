from __future__ import annotations

import pytest

from speclaunch.errors import Place
from speclaunch.lint.ignores import Extent, complaints, kept, read_ignores
from speclaunch.rules.finding import Finding, Severity

KNOWN = ["SPL203", "SPL211", "SPL801"]


def finding(code: str, line: int, path: str = "a.yaml") -> Finding:
    return Finding(code, "x", Severity.ERROR, "m", "", None, Place(path, line), "0.5.23")


def left(text: str, *found: Finding, commands: tuple[Extent, ...] = ()) -> list[str]:
    ignores = read_ignores(text, "a.yaml", commands)
    return [f"{f.code}:{f.place.line}" for f in kept(found, ignores)]


def said(text: str, *found: Finding, all_asked: bool = True) -> list[str]:
    ignores = read_ignores(text, "a.yaml")
    kept(found, ignores)
    return [f"{n.code} {m}" for n, _, m, _ in complaints(ignores, KNOWN, all_asked=all_asked)]


def test_at_the_end_of_a_line_it_holds_for_that_line() -> None:
    text = "a: 1  # speclaunch: ignore[SPL211] we know\nb: 2\n"
    assert left(text, finding("SPL211", 1), finding("SPL211", 2)) == ["SPL211:2"]


def test_on_its_own_line_it_holds_for_the_next_line_that_is_no_comment() -> None:
    text = "# speclaunch: ignore[SPL211] we know\n# more\n\na: 1\nb: 2\n"
    assert left(text, finding("SPL211", 4), finding("SPL211", 5)) == ["SPL211:5"]


def test_above_a_command_it_holds_for_the_whole_command() -> None:
    text = "# speclaunch: ignore[SPL2] we know\npython3 -m x \\\n  --a \\\n  --b\npython3\n"
    found = [finding("SPL211", line) for line in (2, 3, 4, 5)]
    assert left(text, *found, commands=(Extent(2, 4),)) == ["SPL211:5"]


def test_for_the_file() -> None:
    text = "a: 1\n# speclaunch: ignore-file[SPL211, SPL8] we know\n"
    found = [finding("SPL211", 1), finding("SPL801", 9), finding("SPL203", 1)]
    assert left(text, *found) == ["SPL203:1"]


def test_another_file_is_not_silenced() -> None:
    text = "# speclaunch: ignore-file[SPL211] we know\n"
    assert left(text, finding("SPL211", 1, "b.yaml")) == ["SPL211:1"]


def test_two_comments_for_one_finding_are_both_used() -> None:
    text = "# speclaunch: ignore-file[SPL211] all\na: 1  # speclaunch: ignore[SPL2] this\n"
    assert said(text, finding("SPL211", 2)) == []


@pytest.mark.parametrize(
    ("comment", "complaint"),
    [
        ("# speclaunch: ignore", "SPL092 an ignore comment without a code"),
        ("# speclaunch: ignore[]", "SPL092 an ignore comment without a code"),
        ("# speclaunch: ignore[SPL211]", "SPL092 an ignore comment without a reason"),
        ("# speclaunch: ignore[SPL999] x", "SPL092 unknown rule code SPL999"),
        ("# speclaunch: ignore[E501] x", "SPL092 unknown rule code E501"),
        (
            "# speclaunch: ignore[SPL203] x",
            "SPL091 no finding with the code SPL203 here",
        ),
    ],
)
def test_complaints(comment: str, complaint: str) -> None:
    assert said(f"a: 1  {comment}\n", finding("SPL211", 1)) == [complaint]


def test_nothing_is_called_unused_when_not_every_rule_was_asked() -> None:
    assert said("a: 1  # speclaunch: ignore[SPL203] x\n", all_asked=False) == []


def test_codes_in_small_letters_and_with_spaces() -> None:
    assert left("a: 1 #speclaunch:ignore[ spl211 ,spl203 ] x", finding("SPL211", 1)) == []

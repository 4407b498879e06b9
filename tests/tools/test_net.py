"""`make net`: a version agrees with itself wherever it runs, and what differs is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from net import Net, workplace  # noqa: E402
from netting.cases import PARTS, Option, dealt, settle  # noqa: E402
from netting.sides import Answer, Side  # noqa: E402

pytestmark = pytest.mark.thorough

SHARE = 120
VERBS = {
    "plan": (Option(("--output-format",), "<text|json>"), Option(("--hardware",), "NAME[:COUNT]")),
    "lint": (Option(("--output-format",), "<text|json|sarif>"), Option(("--fix",), "")),
    "runs show": (Option(("--dir",), "<path>"),),
}


def side(hash_seed: str) -> Side:
    return Side(ROOT, Path(sys.executable), is_base=True, hash_seed=hash_seed)


def answers(hash_seed: str) -> dict[str, Answer]:
    """A sample of all parts that need the same scenes, in a folder with a new name."""
    with workplace() as place:
        scenes = place / "scenes"
        (scenes / "empty").mkdir(parents=True)
        PARTS["left"].scenes(scenes, True)
        settle(scenes)
        cases = [
            case
            for name in ("left", "recipes", "options", "completion", "knowledge", "logs")
            for case in PARTS[name].cases(scenes, VERBS)
            if dealt(case.name, SHARE) and not case.serves
        ]
        return side(hash_seed).answers(cases, place, 1)


def test_a_version_agrees_with_itself() -> None:
    first, second = answers("1"), answers("2")
    assert len(first) > 10
    assert {code for code in (one.code for one in first.values()) if code} >= {2}
    assert first == second


def test_what_differs_is_found() -> None:
    def differences(before: Answer, after: Answer, *, words: bool = False) -> list[str]:
        net = Net(side("0"), side("0"), is_quick=True, words_may_differ=words)
        return list(net.differences(before, after))

    one = Answer(0, '{"message": "3 of 4", "code": "SPL301"}', "a\nb\n", {"x": "1\n"})
    reworded = Answer(0, '{"message": "4, not 3", "code": "SPL301"}', "c\nd\n", {"x": "1\n"})
    assert differences(one, one) == []
    assert "standard output:" in differences(one, reworded)
    assert differences(one, reworded, words=True) == []
    for other in (
        Answer(1, one.out, one.err, one.files),
        Answer(0, one.out.replace("301", "302"), one.err, one.files),
        Answer(0, one.out.replace("4", "5"), one.err, one.files),
        Answer(0, one.out, one.err + "2\n", one.files),
        Answer(0, one.out, one.err, {"x": "2\n"}),
        Answer(0, one.out, one.err),
        Answer(0, one.out, one.err, {"x": "1\n", "y": "2\n"}),
    ):
        assert differences(one, other) and differences(one, other, words=True), other

"""A proof on disk: what was heard is there again, and nothing else is taken for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from speclaunch.core.errors import InputError
from speclaunch.measure.prove.answers import PROOF, ProofAnswer, StoredAnswers, StoredProof
from speclaunch.serving.launch.unfinished_work import digest

HEARD = StoredAnswers(
    {1: [ProofAnswer((1, 2, 3), 5, 2), ProofAnswer((4,), 6, 1)]}, [[ProofAnswer((7, 8), 5, 1)]]
)


def begun(key: str, about: dict[str, str], *, fresh: bool) -> StoredProof:
    return StoredProof.begin(PROOF, "one", key, about, StoredAnswers({}), fresh=fresh)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path))
    return tmp_path


def test_an_interrupted_proof_goes_on_where_it_was() -> None:
    first = begun("key", {"engine": "0.5.23"}, fresh=False)
    assert first.progress.saved == ""
    first.add(HEARD)
    again = begun("key", {}, fresh=False)
    assert (again.directory, again.progress, again.progress.saved) == (
        first.directory,
        HEARD,
        "3 answers",
    )


@pytest.mark.parametrize("key", ["key", "other"])
def test_another_or_a_fresh_proof_begins_anew(key: str) -> None:
    first = begun("key", {}, fresh=False)
    first.add(HEARD)
    other = begun(key, {}, fresh=key == "key")
    assert other.directory != first.directory
    assert other.progress.saved == ""


def test_an_older_proof_does_not_come_back_where_a_fresh_one_was_begun() -> None:
    begun("key", {}, fresh=False).add(HEARD)
    fresh = begun("key", {}, fresh=True)
    again = begun("key", {}, fresh=False)
    assert (again.directory, again.progress.saved) == (fresh.directory, "")


def test_a_finished_proof_is_not_gone_on_with() -> None:
    first = begun("key", {}, fresh=False)
    first.add(HEARD)
    first.write({"lossless": True})
    assert begun("key", {}, fresh=False).directory != first.directory


@pytest.mark.parametrize("text", ["", "[]", '{"key": "key", "greedy": 3}', '{"key": "key"}'])
def test_a_file_that_is_none_is_left_alone(text: str) -> None:
    first = begun("key", {}, fresh=False)
    (first.directory / "proof.json").write_text(text)
    assert begun("key", {}, fresh=False).directory != first.directory
    assert (first.directory / "proof.json").read_text() == text


def test_the_result_stands_with_the_answers() -> None:
    first = begun("key", {"engine": "0.5.23"}, fresh=False)
    first.add(HEARD)
    first.write({"lossless": True})
    said = json.loads((first.directory / "proof.json").read_text())
    assert (said["version"], said["result"]) == (1, {"lossless": True})
    assert said["about"] == {"engine": "0.5.23"}
    assert said["greedy"]["1"][0]["ids"] == [1, 2, 3]


def test_a_home_that_cannot_be_written_is_told(home: Path) -> None:
    (home / "proofs").write_text("a file")
    with pytest.raises(InputError, match="cannot create"):
        begun("key", {}, fresh=False)


def test_the_key_is_of_all_that_is_asked() -> None:
    one = {"questions": [["a", 8]], "levels": (1, 4)}
    assert digest(one) == digest(dict(reversed(one.items())))
    assert digest(one) != digest({**one, "levels": (1, 8)})

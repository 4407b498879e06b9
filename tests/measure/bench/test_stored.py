"""Comparisons by name: which one is meant, and what is said where none is."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec.json
import pytest
from msgspec import to_builtins

from speclaunch.core.errors import InputError
from speclaunch.measure.bench.certificate import single
from speclaunch.measure.bench.measurement import Objection
from speclaunch.measure.bench.stored import (
    StoredBench,
    find_certificate,
    find_measured,
    require_cells,
    stored_benches,
)
from speclaunch.measure.bench.stored_names import FILE, directory, stored_names
from tests.support.app.output.bench.made import OURS, THEIRS, keep, made
from tests.support.measure.bench.making import a_round

STAMPS = ("20261101-100000", "20261102-100000", "20261103-100000")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))
    return tmp_path


def said(error: pytest.ExceptionInfo[InputError]) -> str:
    problem = error.value.problems[0]
    return f"{problem.message} {problem.help}"


def test_names_directories_files_and_last(tmp_path: Path) -> None:
    first, second = made(), made(seed=2)
    one = keep(f"{STAMPS[0]}-eagle3", first)
    keep(f"{STAMPS[1]}-eagle3", second)
    keep(f"{STAMPS[2]}-other", None)
    alone = tmp_path / "certificate.json"
    alone.write_bytes(msgspec.json.encode(first))
    for name in (one.parent.name, str(one), str(one.parent), str(alone)):
        assert find_certificate(name) == first, name
    for name in ("last", "eagle3"):  # the newest that was finished
        assert find_certificate(name) == second, name


def test_names_with_hyphens(tmp_path: Path) -> None:
    keep(f"{STAMPS[0]}-my-own-recipe", made())
    assert find_certificate("my-own-recipe") == made()


def test_a_slip_is_told() -> None:
    keep(f"{STAMPS[0]}-eagle3", made())
    with pytest.raises(InputError) as error:
        find_certificate("eagel3")
    assert "did you mean `eagle3`" in said(error)
    with pytest.raises(InputError) as error:
        find_certificate("nothing_like_it")
    assert "`speclaunch bench ls` lists them" in said(error)


def test_nothing_is_kept() -> None:
    with pytest.raises(InputError) as error:
        find_certificate("last")
    assert "no comparison is saved" in said(error) and "speclaunch bench recipe=" in said(error)


def test_what_was_not_finished() -> None:
    keep(f"{STAMPS[0]}-eagle3", None, rounds=[a_round(), a_round("plain")])
    for name in ("last", "eagle3", f"{STAMPS[0]}-eagle3"):
        with pytest.raises(InputError) as error:
            find_certificate(name)
        assert "is not finished: 2 rounds measured" in said(error)


def test_what_does_not_count_is_found_but_has_nothing_to_compare() -> None:
    refused = made(objections=(Objection("errors", "R: 3 requests failed"),))
    keep(f"{STAMPS[0]}-eagle3", refused)
    found = find_certificate("last")
    assert found == refused
    with pytest.raises(InputError) as error:
        require_cells("last", found)
    assert "does not count: R: 3 requests failed" in said(error)
    require_cells("x", made())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a JSON document"),
        ("[]", "not a JSON document"),
        ("{}", "not a certificate of `speclaunch bench`"),
        ('{"rounds": [], "result": {"version": 1}}', "not a certificate"),
        ('{"version": 2}', "not a certificate"),
        ('{"version": 1, "candidate": "a", "baseline": null}', "missing required field `counts`"),
    ],
)
def test_files_that_are_no_certificate(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        find_certificate(str(path))
    assert words in said(error)


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    for name in (str(tmp_path / "none"), "none.json", str(tmp_path)):
        with pytest.raises(InputError) as error:
            find_certificate(name)
        assert name in said(error)


def test_a_list_of_all() -> None:
    assert stored_benches() == [] and stored_names() == []
    keep(f"{STAMPS[1]}-b", made(objections=(Objection("errors", "x"),)))
    keep(f"{STAMPS[0]}-a", made(falls=1.0))
    keep(f"{STAMPS[2]}-c", None, rounds=[a_round()])
    (directory() / "broken").mkdir()
    (directory() / "broken" / FILE).write_text("{")
    alone = single("S", [], (), simulated={})
    StoredBench(keep("20261104-100000-d", None).parent, "d", {"sides": ["S"]}).write(
        [], to_builtins(alone)
    )
    *found, last = stored_benches()
    assert (last.state, last.sides) == ("one server", ("S",))
    with pytest.raises(InputError) as error:
        find_certificate("last")
    assert "single server" in said(error)
    assert find_measured("last") == alone
    assert [one.name for one in found] == [f"{STAMPS[n]}-{name}" for n, name in enumerate("abc")]
    assert [one.state for one in found] == ["pays", "does not count", "interrupted"]
    assert [one.rounds for one in found] == [0, 0, 1]
    assert found[0].sides == (OURS, THEIRS)
    assert json.loads(found[0].path.read_text())["result"]["claim"] == "pays"

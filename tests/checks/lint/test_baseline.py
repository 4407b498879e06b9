"""Findings that a repository knows of are not told again; new ones are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from speclaunch.checks.lint import baseline
from speclaunch.checks.lint.baseline import (
    Covered,
    all_findings,
    read_baseline,
    without_known,
    write_baseline,
)
from speclaunch.checks.lint.report import FileReport, Report, fingerprints_by_message
from speclaunch.checks.rules.interface import Finding, Severity
from speclaunch.core.errors import InputError
from speclaunch.core.errors import Place as EnginePlace
from tests.checks.lint.linting import ENGINE, GROUP, RECIPE, SERVER, Place, Said

WRONG = SERVER.format(model="m", more="--no-such 1")


def lint(place: Place, *words: str) -> Said:
    return place.lint("--engine", ENGINE, *words)


def messages(path: Path) -> list[tuple[str, str, str]]:
    said = json.loads(path.read_text())["findings"]
    return [(one["code"], one["path"], one["message"].rpartition(" ")[2]) for one in said]


@pytest.fixture
def old(place: Place) -> Place:
    """A repository with findings, and a baseline of them."""
    place.write("scripts/a.sh", WRONG + "sleep 1\n" + WRONG)
    place.write("scripts/b.sh", WRONG.replace("--no-such", "--none-such"))
    done = lint(place, "scripts", "--write-baseline", "known.json")
    assert (done.code, done.err) == (0, "known.json: 3 findings\n")
    return place


@pytest.mark.thorough
def test_what_is_known_is_counted_and_does_not_fail(old: Place) -> None:
    assert messages(old.folder / "known.json") == [
        ("SPL001", "scripts/a.sh", "--no-such"),
        ("SPL001", "scripts/a.sh", "--no-such"),
        ("SPL001", "scripts/b.sh", "--none-such"),
    ]
    assert lint(old, "scripts").code == 1
    done = lint(old, "scripts", "--baseline", "known.json")
    assert done.code == 0 and "3 known findings in the baseline" in done.out
    assert "SPL001" not in done.out and "no longer" not in done.out
    old.write("speclaunch.toml", 'baseline = "known.json"\n')
    assert lint(old, "scripts") == done
    assert lint(old, "scripts/b.sh").code == 0
    document = json.loads(lint(old, "scripts", "--output-format", "json").out)
    assert document["baseline"] == {"known": 3, "gone": []}
    assert document["summary"]["errors"] == 0


@pytest.mark.thorough
def test_a_new_finding_is_told_and_lines_above_change_nothing(old: Place) -> None:
    path = old.folder / "scripts/a.sh"
    path.write_text(f"# one\n\n# two\n{path.read_text()}{WRONG}")
    done = lint(old, "scripts", "--baseline", "known.json")
    assert done.code == 1 and "3 known" in done.out and "1 error" in done.out
    assert "scripts/a.sh:7:" in done.out  # the third of its kind


@pytest.mark.thorough
def test_what_is_no_longer_found_is_named(old: Place) -> None:
    old.write("scripts/b.sh", "sleep 1\n")
    (old.folder / "scripts/a.sh").unlink()
    done = lint(old, "scripts", "serve.sh", "--baseline", "known.json")
    assert "3 baseline findings no longer found" in done.out
    assert "SPL001 in scripts/b.sh: " in done.out
    told = json.loads(
        lint(old, "scripts", "--baseline", "known.json", "--output-format", "json").out
    )
    assert [one["path"] for one in told["baseline"]["gone"]] == ["scripts/a.sh"] * 2 + [
        "scripts/b.sh"
    ]


@pytest.mark.thorough
def test_what_was_not_looked_at_is_not_gone(old: Place) -> None:
    for words in (
        ("scripts/a.sh",),
        ("serve.sh",),
        ("scripts", "--select", "SPL1"),
        ("scripts", "--ignore", "SPL001"),
    ):
        assert "no longer" not in lint(old, *words, "--baseline", "known.json").out, words


@pytest.mark.thorough
def test_it_is_written_again_for_a_part(old: Place) -> None:
    old.write("scripts/a.sh", "sleep 1\n")
    before = (old.folder / "known.json").read_text()
    assert lint(old, "scripts/b.sh", "--write-baseline", "known.json").code == 0
    assert (old.folder / "known.json").read_text() == before
    assert lint(old, "scripts", "--write-baseline", "known.json").code == 0
    assert messages(old.folder / "known.json") == [("SPL001", "scripts/b.sh", "--none-such")]
    old.write("scripts/b.sh", "sleep 1\n")
    lint(old, "scripts", "serve.sh", "--select", "SPL001", "--write-baseline", "known.json")
    assert json.loads((old.folder / "known.json").read_text())["findings"] == []


@pytest.mark.thorough
def test_the_directory_and_the_versions_do_not_matter(old: Place) -> None:
    old.write("scripts/known.json", (old.folder / "known.json").read_text())
    done = old.lint("scripts", "--engine", "0.5.18,0.5.23", "--baseline", "known.json")
    assert done.code == 0 and "3 known findings" in done.out
    assert lint(old, "scripts", "--baseline", "scripts/known.json").code == 1


@pytest.mark.thorough
def test_a_finding_in_a_group_is_known_once(place: Place) -> None:
    place.write("groups/speculation/mine.yaml", GROUP.format(algorithm="NO_SUCH"))
    for name in ("r3", "r4"):
        text = RECIPE.format(name=name, engine=ENGINE, model="org/model", tp=1)
        place.write(f"recipes/{name}.yaml", text)
    some = ("--config-dir", "groups", "recipes/r3.yaml", "recipes/r4.yaml", "groups")
    assert place.lint(*some).code == 1
    assert place.lint(*some, "--write-baseline", "known.json").code == 0
    known = messages(place.folder / "known.json")
    assert len(known) == len(set(known)) and "groups/speculation/mine.yaml" in {
        p for _, p, _ in known
    }
    assert place.lint(*some, "--baseline", "known.json").code == 0


def test_what_cannot_be_read_is_never_known(place: Place) -> None:
    done = place.lint("recipes/broken.yaml", "--write-baseline", "known.json")
    assert done.code == 2 and "SPL000" in done.out
    assert messages(place.folder / "known.json") == []


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "not JSON"),
        ("[]", "not a baseline"),
        ('{"version": 1,\n "findings": [}', ":2:15"),
        ('{"version": 3, "findings": []}', "format 3"),
        ('{"version": 1, "findings": [{"code": 3}]}', "not a baseline"),
        ('{"version": 1, "findings": [{"code":1,"path":2,"message":3,"fingerprint":4}]}', "not a"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "known.json"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_baseline(path)
    (problem,) = raised.value.problems
    assert part in f"{problem.place}: {problem.message}"


def by_message(old: Place) -> Path:
    """The same baseline as the release before wrote it: fingerprints of the messages."""
    path = old.folder / "known.json"
    document = json.loads(path.read_text())
    found = [
        Finding(one["code"], "", Severity.ERROR, one["message"], "", None,
                EnginePlace(str(old.folder / one["path"]), number), ENGINE)
        for number, one in enumerate(document["findings"])
    ]  # fmt: skip
    marks = fingerprints_by_message(found, old.folder)
    for one, mark in zip(document["findings"], marks, strict=True):
        one["fingerprint"] = mark
    path.write_text(json.dumps(document | {"version": 1}))
    return path


@pytest.mark.thorough
def test_a_baseline_of_format_1_still_counts_and_is_written_anew(old: Place) -> None:
    path = by_message(old)
    assert json.loads(path.read_text())["version"] == 1
    done = lint(old, "scripts", "--baseline", "known.json")
    assert done.code == 0 and "3 known findings" in done.out and "no longer" not in done.out
    assert lint(old, "scripts/b.sh", "--write-baseline", "known.json").code == 0  # a part of it
    done = lint(old, "scripts", "--baseline", "known.json")
    assert done.code == 0 and "3 known findings" in done.out and "no longer" not in done.out
    assert lint(old, "scripts", "--write-baseline", "known.json").code == 0
    assert "1:" not in path.read_text() and json.loads(path.read_text())["version"] == 2


RANKS = "SPL506"


def ranks(number: int, message: str = "") -> Report:
    said = message or f"ranks: {number}, GPUs: 1"
    one = Finding(RANKS, "ranks-beyond-gpus", Severity.ERROR, said, "", None,
                  EnginePlace("a.sh", 3, 5), ENGINE, arguments={"tp_size": str(number)})  # fmt: skip
    return Report((FileReport("a.sh", ENGINE, (one,)),))


@pytest.mark.parametrize("version", [1, 2])
def test_a_known_error_that_got_worse_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path, covered = tmp_path / "known.json", Covered(("a.sh",))
    write_baseline(path, all_findings(ranks(2)), covered)
    if version == 1:
        document = json.loads(path.read_text()) | {"version": 1}
        (document["findings"][0]["fingerprint"],) = fingerprints_by_message(
            all_findings(ranks(2)), tmp_path
        )
        path.write_text(json.dumps(document))

    def left(report: Report) -> int:
        return len(list(all_findings(without_known(report, lambda _: path, covered))))

    assert left(ranks(2)) == 0
    assert left(ranks(4)) == 1
    assert left(ranks(2, "ranks: 2, GPUs: 0")) == 0  # no value of the user


@pytest.mark.thorough
def test_a_reworded_finding_of_format_1_stays_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule of the table: another wording of the same arguments is known, others are not."""
    monkeypatch.chdir(tmp_path)
    path, covered = tmp_path / "known.json", Covered(("a.sh",))
    texts = json.loads((Path(baseline.__file__).parent / "data/texts_1.json").read_text())
    assert len(texts) > 200
    wrong = []
    for code, rows in texts.items():
        if any(not text.replace("{}", "").strip() for text, _ in rows):
            continue  # the engine's message, or another one that is made as the rule runs
        for text, names in rows:
            arguments = dict.fromkeys(["tp_size"] if names is None else names, "1")
            old = Finding(code, "", Severity.ERROR, text.replace("{}", "x"), "", None,
                          EnginePlace("a.sh", 3), ENGINE, arguments=arguments)  # fmt: skip
            entry = {"code": code, "path": "a.sh", "message": old.message}
            (entry["fingerprint"],) = fingerprints_by_message([old], tmp_path)
            path.write_text(json.dumps({"version": 1, "findings": [entry]}))
            new = replace(old, message=f"Reworded: {code}")
            other = replace(new, arguments={"another": ""})
            for one, expected in ((old, 0), (new, 0), (other, 0 if names is None else 1)):
                report = Report((FileReport("a.sh", ENGINE, (one,)),))
                left = all_findings(without_known(report, lambda _: path, covered))
                if len(list(left)) != expected:
                    wrong.append((code, text, one.message))
    assert not wrong


@pytest.mark.thorough
def test_none_is_there(place: Place) -> None:
    done = place.lint("serve.sh", "--baseline", "known.json")
    assert done.code == 2 and "--write-baseline known.json" in done.err
    assert place.lint("serve.sh", "--write-baseline", "nowhere/known.json").code == 2
    assert not list(place.folder.glob(".known*"))

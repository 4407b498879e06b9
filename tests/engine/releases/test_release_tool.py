"""``tools/release.py``: data that hold different releases are told, and so is what a release changed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from speclaunch.engine.releases.catalogue import held_versions
from speclaunch.engine.releases.extraction.source import PackageSource

TOOLS = Path(__file__).resolve().parents[3] / "tools"
NEWEST = held_versions()[-1]


@pytest.fixture(scope="module")
def release() -> Iterator[ModuleType]:
    sys.path.insert(0, str(TOOLS))
    import release

    yield release
    sys.path.remove(str(TOOLS))


@pytest.fixture
def copied(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All data sets, in a folder of their own."""
    for module, name in (
        (release.catalogue, "DATA"),
        (release.architectures, "DATA"),
        (release.refusals, "OUTPUT"),
        (release.refusals, "REPORT"),
        (release.engine_states, "OUTPUT"),
        (release.auto_memory.auto_memory, "DATA"),
        (release.engine_verdicts.data, "VERDICTS"),
    ):
        place = getattr(module, name)
        copy = tmp_path / place.name
        if place.is_dir():
            shutil.copytree(place, copy)
        else:
            shutil.copy(place, copy)
        monkeypatch.setattr(module, name, copy)
    monkeypatch.setattr(release.metrics, "DATA", release.catalogue.DATA / "metrics.json")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".xz")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.thorough
def test_all_data_of_the_repository_hold_the_same_releases(release: ModuleType) -> None:
    assert release.unequal() == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["architectures", "metrics", "refusals", "states", "memory", "verdicts"]
)
def test_data_that_lack_a_release_are_named(
    release: ModuleType, copied: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    next(one for one in release.SETS if one.name == name).remove(NEWEST)
    (problem,) = release.unequal()
    assert problem.endswith(f": lacks {NEWEST}")
    assert release.main(["--check"]) == 1
    assert problem in capsys.readouterr().err


@pytest.mark.thorough
def test_data_beside_the_catalogue_are_named(release: ModuleType, copied: Path) -> None:
    release.catalogue.remove_release(NEWEST)
    problems = release.unequal()
    for name in (
        "architectures.json",
        "metrics.json",
        "refusals.json",
        "engine_states.json",
        "auto_memory.json",
        "verdicts",
    ):
        assert any(name in one and f"holds {NEWEST}" in one for one in problems)
    history = copied / "data" / "history.json"
    text = history.read_text()
    history.write_text(text.replace(f',"{held_versions()[-2]}"],', "],", 1))
    assert any("history.json" in one for one in release.unequal())


@pytest.mark.thorough
def test_what_is_removed_and_put_back_gives_the_same_bytes(
    release: ModuleType, copied: Path
) -> None:
    before = contents(copied)
    arguments = release.catalogue.stored("arguments.json")
    variables = release.catalogue.stored("variables.json")
    architectures = release.architectures.stored()
    metrics = release.metrics.stored()
    cells = release.auto_memory.auto_memory.records()
    refusals = release.refusals.stored()
    states = json.loads(release.engine_states.OUTPUT.read_text())
    release.remove(NEWEST)
    assert NEWEST not in release.catalogue.held()
    assert all(before[name] != now for name, now in contents(copied).items())
    release.catalogue.write(arguments, variables)
    release.architectures.store(architectures)
    release.metrics.store(metrics)
    release.refusals.store(refusals)
    release.auto_memory.store(cells)
    release.engine_states.store(states)
    assert contents(copied) == before


OLD = """
def check(args):
    if args.tree > 1:
        raise ValueError(
            f"trees of {args.tree} are not supported"
        )
    assert args.pages == 1, "pages must be one in this release"
    logger.info(f"Load weight begin. avail mem={free:.2f} GB")
    logger.info("The server is fired up and ready to roll!")
class SpeculativeAlgorithm:
    EAGLE = auto()
"""
NEW = """
def other(args):
    '''Lines move.'''
def check(args):
    if args.tree > 1:
        raise ValueError(f"trees of {args.tree} are not supported")
    assert args.pages == 1, "pages must be one or two now"
    logger.info(f"Load weight begin. avail mem={left:.3f} GB")
    logger.info("The server is fired up and ready to go!")
class SpeculativeAlgorithm:
    EAGLE = auto()
    DFLASH = auto()
"""


@pytest.fixture
def sources(release: ModuleType, tmp_path: Path) -> dict[str, Any]:
    from releasing.sources import Sources

    found = {}
    for version, text in (("1.0", OLD), ("1.1", NEW)):
        place = tmp_path / version / "sglang" / "srt" / "speculative"
        place.mkdir(parents=True)
        (place / "spec_info.py").write_text(text)
        found[version] = Sources(PackageSource(tmp_path / version))
    return found


def test_a_statement_that_we_cite_is_followed(sources: dict[str, Any]) -> None:
    from releasing.evidence import Citation, review

    file = "speculative/spec_info.py"
    cited = [Citation("1.0", file, line, f"ours.py:{line}") for line in (4, 5, 7)]
    found = review(iter(cited), sources.get, "1.0", "1.1")
    assert found.kept == 2, "another layout is the same statement"
    (changed,) = found.changed
    assert changed.startswith(f"ours.py:7 cites 1.0 {file}:7")
    missing = review(iter([Citation("0.9", file, 1, "ours.py:1")]), sources.get, "1.0", "1.1")
    assert missing.unread == ["0.9"]


def test_messages_and_members(sources: dict[str, Any]) -> None:
    old, new = sources["1.0"], sources["1.1"]
    file = "speculative/spec_info.py"
    assert old.messages["trees of {} are not supported"] == f"{file}:4"
    assert old.messages.keys() - new.messages.keys() == {"pages must be one in this release"}
    assert new.members(file, "SpeculativeAlgorithm") == ["EAGLE", "DFLASH"]


def test_our_quotations_and_signatures_without_their_message(
    release: ModuleType, tmp_path: Path
) -> None:
    from releasing.evidence import Citation, citations, quoted, unrecognised

    package = tmp_path / "speclaunch"
    package.mkdir()
    (tmp_path / "docs" / "rules").mkdir(parents=True)
    page = "# SPL999\n\nIt says pages must be\none in this release; sglang 1.0 a.py:7\n- 0.5.9 b/c.py:12\n"
    (tmp_path / "docs" / "rules" / "SPL999.md").write_text(page)
    (package / "rule.py").write_text(
        '"""x"""\nWHY = (\n    "it says: pages must be "\n    "one in this release"\n)\n'
    )
    gone = {"pages must be one in this release": "a.py:7", "another text of some length": "a.py:9"}
    assert [line.partition(" quotes")[0] for line in quoted(tmp_path, gone)] == [
        "docs/rules/SPL999.md:1",
        "speclaunch/rule.py:3",
    ]
    (cited,) = citations(tmp_path)
    assert cited == Citation("0.5.9", "b/c.py", 12, "docs/rules/SPL999.md:5")
    text = "The memory capacity is unbalanced. Some GPUs may be occupied by {}"
    (cause,) = unrecognised({text: "a.py:1"}, {})
    assert cause.startswith("gpus-unbalanced")
    assert not [*unrecognised({text: "a.py:1"}, {text: "b.py:2"})]


def test_a_mark_that_no_line_is_any_more(sources: dict[str, Any]) -> None:
    from releasing.evidence import unmarked

    old, new = sources["1.0"].course, sources["1.1"].course
    assert [*unmarked(old, new)] == [
        "READY: `The server is fired up and ready to roll!` (speculative/spec_info.py:9 of the "
        "release before)"
    ]
    assert not [*unmarked(old, old)]


def test_flags_that_are_new_gone_renamed_or_changed(release: ModuleType) -> None:
    old = {"--cuda-graph-max-bs": {"type": "int"}, "--steps": {"default": 1}, "--gone": {}}
    new = {"--cuda-graph-max-bs-decode": {"type": "int"}, "--steps": {"default": 3}}
    assert [*release.differences.flags(old, new)] == [
        'new: --cuda-graph-max-bs-decode {"type": "int"}',
        "gone: --cuda-graph-max-bs; perhaps renamed: --cuda-graph-max-bs-decode",
        "gone: --gone",
        "changed: --steps: default 1 → 3",
    ]


def test_what_cannot_be_asked(release: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        release.main(["9.9.9", "--skip", "verdict"])
    assert ended.value.code == 2
    assert "the steps are catalogue" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"9\.9\.9 is not held"):
        release.main(["--remove", "9.9.9"])
    with pytest.raises(SystemExit, match=r"9\.9\.9 is not held"):
        release.main(["--report-only", "9.9.9"])


def test_a_release_that_is_nowhere_is_named(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release.catalogue.subprocess, "run", lambda *_, **__: None)  # pip has none
    with pytest.raises(SystemExit, match=r"has no wheel of sglang 9\.9\.9, and pip got none"):
        release.main(["9.9.9", "--wheels", str(tmp_path), "--skip", "memory,verdicts"])

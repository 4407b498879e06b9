"""A repository with known defects: each is found at its line and column, and nothing else is;
what has one obvious edit is set right, and nothing else is changed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.bash import Sandbox, sandbox
from tests.support.corpora.known_meaning import as_texts, asked
from tests.support.corpora.known_repository import KnownFile, expected, repository, write
from tests.support.program import run

SAYS_ITS_VERSION = {"recipe", "compose", "compose_crlf", "kubernetes"}
INFOS = {"SPL801"}
"""Defects of severity info; the others that are told are changes that the engine makes by itself."""

LINT = ("lint", "--hardware", "h200:8", "--output-format", "json")
Found = set[tuple[str, int, int, str, str]]
Asked = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Campaign:
    """A repository, linted, fixed, and fixed again; all that the tests ask of it."""

    files: list[KnownFile]
    groups: Mapping[str, str]
    written: dict[str, str]
    """The texts of all files, groups among them, before."""
    texts: dict[str, str]
    again: dict[str, str]
    """After the first `--unsafe-fixes`, and after the second."""
    found: Found
    left: Found
    """What lint finds before, and after the second."""
    meant: Asked
    means: Asked
    """What each file asks for before, and afterwards."""

    @property
    def fixable(self) -> set[str]:
        """The files whose defect has one obvious edit."""
        return {f.path for f in self.files if f.defect is not None and f.defect.fixed is not None}


def linted(folder: Path, files: list[KnownFile], *options: str) -> Found:
    """Path, line, column, code and severity of what lint finds; files of one version together."""
    by_version: dict[str | None, list[str]] = defaultdict(list)
    for file in files:
        by_version[None if file.form in SAYS_ITS_VERSION else file.engine].append(file.path)
    found: Found = set()
    for version, paths in by_version.items():
        engine = [] if version is None else ["--engine", version]
        done = run(*LINT, *options, *engine, *paths, cwd=folder, timeout=900)
        assert "Traceback" not in done.stderr
        for file in json.loads(done.stdout)["files"]:
            for one in file["findings"]:
                if one["severity"] != "info" or one["code"] in INFOS:
                    keys = ("path", "line", "column", "code", "severity")
                    found.add(tuple(one[key] for key in keys))
    return found


def meaning(files: list[KnownFile], texts: Mapping[str, str], known: Asked, box: Sandbox) -> Asked:
    """What each file asks for, told by a real bash and by plain YAML; `known`: of some already."""
    return {
        file.path: known.get(file.path) or asked(file.path, file.form, texts, box) for file in files
    }


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((40, slice(None)), marks=pytest.mark.timeout(600)),
        *(
            pytest.param(
                (1000, slice(part, None, 10)),
                marks=[
                    *(pytest.mark.thorough, pytest.mark.timeout(600)),
                    pytest.mark.campaign(f"known defects {part}"),
                ],
                id=f"1000-{part}",
            )
            for part in range(10)
        ),
    ],
    ids=str,
)
def campaign(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Campaign]:
    """So many recipes and so many other files, and what becomes of them."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield made(*request.param, tmp_path_factory, monkeypatch)


def made(
    count: int,
    part: slice,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Campaign:
    """Lint, fix, lint and fix again."""
    folder = tmp_path_factory.mktemp("known")
    files, groups = repository(count, count)
    files = files[part]
    write(folder, files, groups)
    paths = (*groups, *(file.path for file in files))

    def texts() -> dict[str, str]:
        return {path: (folder / path).read_bytes().decode() for path in paths}

    written = texts()
    monkeypatch.delenv("SPECLAUNCH_NO_CACHE", raising=False)  # a file that stays is checked once
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path_factory.mktemp("home")))
    found = linted(folder, files)
    linted(folder, files, "--unsafe-fixes")
    fixed = texts()
    left = linted(folder, files, "--unsafe-fixes")
    with sandbox() as box:
        meant = meaning(files, written, {}, box)
        same = {path: meant[path] for path in meant if written[path] == fixed[path]}
        means = meaning(files, fixed, same, box)
    return Campaign(files, groups, written, fixed, texts(), found, left, meant, means)


@pytest.mark.thorough
def test_each_defect_is_found_at_its_place_and_nothing_else(campaign: Campaign) -> None:
    wanted = expected(campaign.files)
    assert len(wanted) > len(campaign.files) // 2  # half of the files have one
    assert sorted(wanted - campaign.found) == []
    assert sorted(campaign.found - wanted) == []


@pytest.mark.thorough
def test_fixes_do_what_they_say_and_nothing_else(campaign: Campaign) -> None:
    assert len(campaign.fixable) > len(campaign.files) // 4
    for file in campaign.files:
        assert campaign.meant[file.path] == as_texts(file.args), file.path
        wanted = file.fixed if file.path in campaign.fixable else file.args
        assert campaign.means[file.path] == as_texts(wanted), file.path


@pytest.mark.thorough
def test_what_is_not_fixed_stays_to_the_byte(campaign: Campaign) -> None:
    """A group, too: others choose it."""
    for path, text in campaign.texts.items():
        if path not in campaign.fixable:
            assert text == campaign.written[path], path
        lines = text.count("\n") if "\r\n" in campaign.written[path] else 0
        assert text.count("\r\n") == lines, path


@pytest.mark.thorough
def test_a_second_run_changes_nothing_and_finds_what_is_left(campaign: Campaign) -> None:
    assert campaign.again == campaign.texts
    unfixed = [file for file in campaign.files if file.path not in campaign.fixable]
    shared = [file for file in campaign.files if file.place and file.place[0] in campaign.groups]
    assert sorted(expected(unfixed) - campaign.left) == []
    assert sorted(campaign.left - expected(unfixed) - expected(shared)) == []

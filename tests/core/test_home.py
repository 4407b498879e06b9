from __future__ import annotations

import grp
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from speclaunch.checks.engine_check.mode import has_judges
from speclaunch.core.errors import InputError
from speclaunch.core.files import (
    EntryFiles,
    _distrust_of,
    distrust,
    expand_user,
    make_private,
    require_own,
    speclaunch_home,
)
from speclaunch.engine.facts.cpu_engine import CpuEngine
from tests.support.program import run


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SPECLAUNCH_HOME": "/a/b"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/speclaunch"),
        ({"XDG_CACHE_HOME": "not/absolute", "HOME": "/u"}, "/u/.cache/speclaunch"),
        ({"HOME": "/u"}, "/u/.cache/speclaunch"),
        ({"SPECLAUNCH_HOME": "~/x", "HOME": "/u"}, "/u/x"),
    ],
)
def test_where_things_are_kept(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPECLAUNCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert speclaunch_home() == Path(expected)


def test_the_home_of_an_unknown_user_is_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_user("~/models") == Path("/home/me/models")
    assert expand_user("~=0.5.3") == Path("~=0.5.3")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home in a folder that everybody can enter, unlike `tmp_path`."""
    above = Path(tempfile.mkdtemp())
    above.chmod(0o755)
    found = above / "home"
    found.mkdir(0o755)
    monkeypatch.setenv("SPECLAUNCH_HOME", str(found))
    yield found
    shutil.rmtree(above)


def why(folder: Path) -> str | None:
    found = distrust(folder)
    return None if found is None else found.why


def test_a_folder_of_this_user_alone_is_trusted(home: Path) -> None:
    assert why(home / "missing") is None
    folder = home / "judges" / "a"
    make_private(folder)
    assert why(folder) is None
    assert {one.stat().st_mode & 0o777 for one in (folder, folder.parent)} == {0o700}


@pytest.mark.parametrize("place", ["", "judges", "judges/a"])
def test_a_folder_where_others_can_write_is_not(home: Path, place: str) -> None:
    folder = home / "judges" / "a"
    folder.mkdir(0o755, parents=True)
    (home / place).chmod(0o1777)  # what others have made there stays theirs, and is there
    assert why(folder) == f"other users can write to {(home / place).resolve()}"
    found = distrust(folder)
    assert found is not None and found.help.startswith("chmod go-w /")
    home.parent.chmod(0o700)
    assert why(folder) is None, "nobody else can come there"


def test_a_folder_above_needs_the_sticky_bit(home: Path) -> None:
    home.parent.chmod(0o1777)
    assert why(home) is None
    home.parent.chmod(0o777)
    assert why(home) == f"other users can write to {home.parent.resolve()}"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_folder_of_another_user_is_not_trusted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(home, 4242, 4242)
    assert why(home) == f"{home.resolve()} belongs to another user (uid 4242)"
    home.parent.chmod(0o700)
    assert why(home) is not None, "an owner can have opened it before"
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    home.parent.chmod(0o755)
    assert why(home) is None
    monkeypatch.setattr(os, "geteuid", lambda: 4243)
    os.chown(home, 0, 0)
    assert why(home) is None, "root may do anything anyway"


@pytest.mark.parametrize(
    ("name", "members", "trusted"),
    [("me", [], True), ("me", ["me"], True), ("me", ["you"], False), ("users", [], False)],
)
def test_a_group_of_one_user_may_write(
    monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], *, trusted: bool
) -> None:
    user = SimpleNamespace(pw_name="me", pw_gid=7)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=name, gr_mem=members))
    seen = os.stat_result((0o40775, 1, 1, 2, os.geteuid(), 7, 0, 0, 0, 0))
    assert (_distrust_of(Path("/a"), seen, is_own=True) is None) is trusted


def test_programs_of_others_are_not_executed(home: Path) -> None:
    engine = CpuEngine(home)
    engine.python.parent.mkdir(parents=True)
    require_own(engine.python.parent, "the CPU engine", home)
    (home / "judges" / "a").mkdir(parents=True)
    assert has_judges()
    home.chmod(0o777)
    with pytest.raises(InputError, match="the CPU engine is not executed: other users can write"):
        require_own(engine.python.parent, "the CPU engine", home)
    assert not has_judges()


def test_entries_of_others_are_not_believed(home: Path) -> None:
    def entries() -> EntryFiles:
        return EntryFiles(str(home / "lint"), 100, 10, 1000)

    entries().put("ab1", b"text")
    assert entries().get("ab1") == b"text"
    home.chmod(0o777)
    assert entries().get("ab1") is None
    entries().put("ab2", b"text")
    home.chmod(0o755)
    assert entries().get("ab2") is None


@pytest.mark.thorough
def test_a_lint_without_its_cache_says_so_once(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("python3 -m sglang.launch_server --model-path m\n" * 2)
    clean = run("lint", str(script), cwd=tmp_path)
    home.chmod(0o777)
    found = run("lint", str(script), cwd=tmp_path)
    assert (found.returncode, found.stdout) == (clean.returncode, clean.stdout)
    assert found.stderr.count("note: not using the cache: other users can write to") == 1
    assert run("lint", "--no-cache", str(script), cwd=tmp_path).stderr == clean.stderr

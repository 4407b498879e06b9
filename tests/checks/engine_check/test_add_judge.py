"""`judge add` with everything scripted: what is put in place, and what is left when it is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from speclaunch.checks.engine_check import add_judge as adding
from speclaunch.checks.engine_check.add_judge import First, NotLightError, add
from speclaunch.checks.engine_check.installed_judges import SITE, added_judges, folder, remove
from speclaunch.checks.engine_check.worker import compiled
from speclaunch.core.errors import LaunchError
from speclaunch.core.files import judges_home
from speclaunch.engine.releases.catalogue import every_name

FIRST = First("0.5.18", ())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLAUNCH_HOME", str(tmp_path / "home"))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "sglang-0.5.18-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("sglang/__init__.py", "")
        file.writestr("sglang/version.py", '__version__ = "0.5.18"\n')
    return path


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Nothing is fetched or asked: `light` is done, or raised, in the place of the packages."""

    def script(light: Any = None, first: Any = FIRST) -> None:
        def done(what: Any) -> Callable[..., Any]:
            def act(*_: Any, **__: Any) -> Any:
                if isinstance(what, BaseException):
                    raise what
                return what

            return act

        monkeypatch.setattr(adding, "install_light", done(light))
        monkeypatch.setattr(adding, "_first", done(first))
        catalogue = judges_home().parent / "catalogue"

        def forked(_: Path) -> str:
            name = f"0.5.18+fork.{'a' * 8}"
            (catalogue / "forks").mkdir(parents=True, exist_ok=True)
            (catalogue / "forks" / f"{name}.json").write_text("{}")
            return name

        monkeypatch.setattr(adding, "add_fork", forked)

    return script


def left() -> list[str]:
    """What is in the folder of the judges, and in that of the catalogues."""
    places = (judges_home(), judges_home().parent / "catalogue" / "forks")
    return [path.name for place in places if place.is_dir() for path in place.glob("[!.]*")] + [
        path.name for path in judges_home().glob(".new-*")
    ]


def test_a_judge_is_put_in_place(wheel: Path, scripted: Callable[..., None]) -> None:
    scripted()
    made = add("0.5.18", str(wheel))
    assert (made.release, made.light, made.catalogue) == ("0.5.18", True, "")
    assert added_judges() == [made]
    assert sorted(path.name for path in (folder("0.5.18") / SITE).iterdir()) == [
        *(compiled.NAME, "sglang")
    ]
    assert left() == ["0.5.18"]


@pytest.mark.parametrize(
    "fault",
    [
        LaunchError("the release's packages cannot be fetched: no network"),
        KeyboardInterrupt(),
        OSError(28, "No space left on device"),
    ],
)
def test_nothing_is_left_of_one_that_fails(
    wheel: Path, scripted: Callable[..., None], fault: BaseException
) -> None:
    scripted(light=fault)
    with pytest.raises(type(fault)):
        add("my-fork", str(wheel))
    assert left() == []
    scripted()
    add("my-fork", str(wheel))
    scripted(light=fault)
    with pytest.raises(type(fault)):
        add("my-fork", str(wheel))
    assert [one.name for one in added_judges()] == ["my-fork"]  # the older one stays


def test_a_failure_at_the_very_end_takes_the_catalogue_along(
    wheel: Path, scripted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted()

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(adding, "write", full)
    with pytest.raises(OSError, match="No space"):
        add("my-fork", str(wheel))
    assert left() == []


def test_what_cannot_be_exact_without_torch_says_so(
    wheel: Path, scripted: Callable[..., None]
) -> None:
    told: list[str] = []
    scripted(first=NotLightError("sglang.srt.x ends with TypeError: no Thing"))
    with pytest.raises(LaunchError) as caught:
        add("0.5.18", str(wheel), tell=told.append)
    why = "SGLang 0.5.18 cannot validate without torch: sglang.srt.x ends with TypeError: no Thing"
    assert why in told and caught.value.problems[0].message == why
    assert "engine install cpu" in str(caught.value.problems[0].help)
    assert left() == []


def test_a_fork_takes_its_catalogue_along(wheel: Path, scripted: Callable[..., None]) -> None:
    scripted()
    one, other = add("one", str(wheel)), add("other", str(wheel))
    assert one.catalogue == other.catalogue == one.release and one.release in every_name()
    assert remove("one")
    assert one.release in every_name()  # the other brought it, too
    add("other", str(wheel))  # replaced by itself: nothing goes
    assert one.release in every_name()
    assert remove("other")
    assert left() == []


def test_a_catalogue_that_was_there_before_stays(
    wheel: Path, scripted: Callable[..., None]
) -> None:
    scripted()
    name = adding.add_fork(wheel)
    made = add("one", str(wheel))
    assert (made.release, made.catalogue) == (name, "")
    assert remove("one")
    assert name in every_name()


def test_what_a_killed_one_left_is_removed_by_the_next(
    wheel: Path, scripted: Callable[..., None]
) -> None:
    scripted()
    for name in (".new-abc/site", "half/site"):
        (judges_home() / name).mkdir(parents=True)
    add("0.5.18", str(wheel))
    assert left() == ["0.5.18"]


SLOW = """
import sys, time
from pathlib import Path
from speclaunch.checks.engine_check import add_judge as adding
from speclaunch.checks.engine_check.add_judge import First
def slow(*_, **__):
    print("slow", flush=True)
    time.sleep(float(sys.argv[2]))
adding.install_light = slow
adding._first = lambda *_, **__: First("0.5.18", ())
adding.add("0.5.18", sys.argv[1], tell=lambda what: print(what, flush=True))
"""


def started(wheel: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SLOW, str(wheel), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ},
    )


@pytest.mark.thorough
def test_interrupted_it_leaves_nothing_and_killed_nothing_that_counts(wheel: Path) -> None:
    for sign, expected in ((signal.SIGINT, []), (signal.SIGKILL, [])):
        child = started(wheel, 60)
        assert child.stdout is not None and child.stdout.readline() == "slow\n"
        child.send_signal(sign)
        child.wait(30)
        child.stdout.close()
        assert added_judges() == expected
        assert [name for name in left() if not name.startswith(".new-")] == []
        if sign == signal.SIGINT:
            assert left() == []


@pytest.mark.thorough
def test_the_second_one_waits(wheel: Path) -> None:
    first = started(wheel, 1.5)
    assert first.stdout is not None and first.stdout.readline() == "slow\n"
    began = time.monotonic()
    second = started(wheel, 0)
    assert second.stdout is not None
    said = [second.stdout.readline()]
    assert said == ["another process is adding a judge: waiting\n"]
    assert second.wait(60) == first.wait(60) == 0
    assert time.monotonic() - began > 0.5
    assert json.loads((folder("0.5.18") / "judge.json").read_text())["light"] is True
    for one in (first, second):
        assert one.stdout is not None
        one.stdout.close()

"""Nothing that a lint looks at escapes the recorder: what it does not know of, it cannot check."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from speclaunch.checks.lint import collect
from speclaunch.checks.lint.collect import read_found
from speclaunch.checks.lint.configuration import Options, find_files
from speclaunch.checks.lint.run import check, result_of
from speclaunch.checks.rules.examine import Lookup
from speclaunch.checks.rules.registry import all_rules, import_checks
from speclaunch.core import reads, resources
from speclaunch.core.reads import Reads
from speclaunch.core.reads.states import Now
from speclaunch.engine.facts import find_checkpoint, project_settings
from tests.checks.lint.linting import Place
from tests.checks.lint.test_cache import CHANGES

EXAMPLES = Path(__file__).resolve().parents[2]
_LOOKING = ("stat", "lstat", "readlink", "access", "listdir", "scandir")
_HEARD: list[str] = []
_IS_HEARD = [False]


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _IS_HEARD[0] and event in ("open", "os.listdir", "os.scandir", "glob.glob"):
        _HEARD.append(arguments[0])


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every path that is looked at from now on, by whatever call."""

    def listening(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if _IS_HEARD[0]:
                _HEARD.append(path)
            return call(path, *args, **kwargs)

        return wrapped

    for name in _LOOKING:
        monkeypatch.setattr(os, name, listening(getattr(os, name)))
    sys.addaudithook(_hear)
    _HEARD.clear()
    yield _HEARD
    _IS_HEARD[0] = False


def known_places() -> tuple[str, ...]:
    """Where our own files and Python's lie."""
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    python |= {folder for folder in sys.path if folder.endswith("-packages")}
    python |= {str(Path(sys.base_prefix) / "share")}  # texts in the user's language
    ours = set(map(str, resources.shipped()))
    return tuple(f"{folder}/" for folder in python | ours)


def _absolute(path: object) -> str:
    return os.path.abspath(path)  # type: ignore[call-overload,no-any-return]  # noqa: PTH100  links stay


def unknown(heard: list[str], recorded: Reads, file: str) -> set[str]:
    """The paths that were looked at, and that nobody noted."""
    noted = {_absolute(name) for _, name in recorded.seen}
    # who resolves a path looks at all directories above it, and at where its links lead
    for kind, name in recorded.seen:
        if kind == "r":
            whole = Path(_absolute(name))
            noted |= {str(whole), *map(str, whole.parents)}
    looked = {_absolute(os.fsdecode(one)) for one in heard if not isinstance(one, int)}
    ours = known_places()
    folders = {folder.rstrip("/") for folder in ours}
    folders |= {str(above) for folder in folders for above in Path(folder).parents}
    return {
        one
        for one in looked - noted - {_absolute(file), str(Path.cwd())} - folders
        if not one.startswith(ours)
    }


def forget() -> None:
    """What this process remembers is as old as it is."""
    find_checkpoint._found.cache_clear()
    project_settings.read_settings.cache_clear()
    project_settings.nearest_file.cache_clear()
    collect._with_comments.cache_clear()


def recorded_lint(heard: list[str], path: str, options: Options, dirs: tuple[Path, ...]) -> None:
    for found in find_files([path]):
        heard.clear()
        with reads.recording(tuple(f"{one}/" for one in resources.shipped())) as looked:
            _IS_HEARD[0] = True
            try:
                source = read_found(found, b"", dirs)
                if source is not None and not source.not_read:
                    result_of(check(source, options))
            finally:
                _IS_HEARD[0] = False
        if looked.repeatable:
            assert not unknown(list(heard), looked, found.path), found.path
            now = Now(lambda: None)
            changed = [one for one in looked.seen.items() if not now.holds(*one[0], one[1])]
            assert not changed, found.path


def options(*models: Path) -> Options:
    import_checks()
    return Options(Lookup(tuple(models)), all_rules(), installed=lambda: None)


@pytest.mark.thorough
def test_a_folder_with_one_of_everything(
    place: Place,
    heard: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.setenv("SPECLAUNCH_HOME", str(place.home))
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for change in (None, "a checkpoint appears", "a hub cache", "an entry of .speclaunch/models"):
        if change is not None:
            CHANGES[change](place)
            forget()
        recorded_lint(heard, ".", options(place.folder / "drafts"), (Path("groups"),))


@pytest.mark.thorough
@pytest.mark.parametrize("folder", ["importer", "recipes", "checkpoints", "translations"])
def test_the_test_data(folder: str, heard: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    if folder == "recipes":
        monkeypatch.chdir(EXAMPLES.parent)
    recorded_lint(heard, folder, options(), ())


def test_what_somebody_forgets_is_found(
    tmp_path: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the tests above can fail."""
    file = tmp_path / "a.sh"
    file.write_text("python3 -m sglang.launch_server --model-path m\n")
    monkeypatch.setattr(
        "speclaunch.deployments.sources.source_text.reads.is_file",
        lambda path: Path(path).is_file(),
    )
    with pytest.raises(AssertionError, match=r"Chart\.yaml"):
        recorded_lint(heard, str(file), options(), ())


def test_what_is_remembered_counts_again() -> None:
    looked_at: list[str] = []

    @reads.cached(2)
    def looking(name: str) -> bool:
        looked_at.append(name)
        return reads.is_file(name)

    assert not looking("a")  # nobody records: what it rests on is not known
    for _ in range(2):
        with reads.recording() as outer, reads.recording():
            assert not looking("a")
        assert outer.seen == {("k", "a"): "-"}
    assert looked_at == ["a", "a"]
    looking("b"), looking("c"), looking("a")
    assert looked_at == ["a", "a", "b", "c", "a"]


def test_what_changes_in_between_is_not_repeatable(tmp_path: Path) -> None:
    file = tmp_path / "f"
    with reads.recording() as looked:
        assert not reads.is_file(file)
        file.write_text("x")
        assert reads.is_file(file)
    assert not looked.repeatable


@pytest.mark.parametrize("seconds", [0, 10])
def test_a_file_that_was_just_written_is_read_again(tmp_path: Path, seconds: int) -> None:
    """Its time stamps may be those of its next content, too; only `settled` ones count."""
    file = tmp_path / "f"
    file.write_text("one")
    with reads.recording() as looked:
        reads.read_bytes(file)
    ((kind, name), state) = next(iter(looked.seen.items()))
    stamp, settled, digest = state.rsplit(" ", 2)
    assert settled == "0"
    assert Now(lambda: None).holds(kind, name, state)
    forged = f"{stamp} {int(seconds > 0)} {'0' * len(digest)}"
    assert Now(lambda: None).holds(kind, name, forged) == (seconds > 0)
    with reads.recording() as looked:
        reads.content(file, file.stat())
    assert not looked.repeatable

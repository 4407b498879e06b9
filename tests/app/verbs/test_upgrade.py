"""`upgrade --write`: a recipe and its lock change together, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.app.verbs import releases
from speclaunch.app.verbs.releases import bisect
from speclaunch.app.verbs.run_options import BisectOptions
from speclaunch.app.verbs.start_options import UpgradeOptions
from speclaunch.checks import Lookup, all_rules
from speclaunch.core import ExitCode, InputError, Problem, SpeclaunchError
from speclaunch.deployments import (
    load,
    lock_and_recipe,
    prepare,
    read_lock,
    recipe_differences,
    record,
)
from speclaunch.measure import UpgradeSettings, UpgradeVerdict, recipe_upgrades
from speclaunch.measure.releases.upgrade import Aspect, UpgradeReason
from speclaunch.serving import lock_request, write_lock
from tests.support.serving.launch import fake_sglang

pytestmark = pytest.mark.thorough
OLD, NEW = "0.5.22", "0.5.23"
KEY = "args.api_key=sk-9f2c1e7ab04d"


class Locked(Struct):
    """A recipe on the old release, its lock, and an interpreter with the new one."""

    recipe: Path
    lock: Path
    python: str
    words: tuple[str, ...]

    def texts(self) -> tuple[str, str]:
        return self.recipe.read_text(), self.lock.read_text()

    def write(self, verdict: UpgradeVerdict = UpgradeVerdict.DIFFERS) -> None:
        settings = UpgradeSettings(NEW, OLD, (), Lookup(), all_rules())
        (found,) = recipe_upgrades(self.words, settings)
        found = replace(found, reasons=(UpgradeReason(Aspect.VALUE, verdict, "planted"),))
        options = UpgradeOptions(words=list(self.words), to=NEW, write=True)
        releases._write(options, settings, found, self.python)


@pytest.fixture
def locked(tmp_path: Path) -> Locked:
    old = fake_sglang.install(tmp_path / "old", OLD)
    path = tmp_path / "mine.yaml"
    path.write_text(fake_sglang.RECIPE.format(python=old).replace(NEW, OLD))
    words = (f"recipe={path}", KEY)
    recipe = load(str(path), (KEY,))
    prepared = releases.recipe_for(words, OLD, ()).prepared()
    lock = write_lock(prepared, releases.plan_here(prepared), lock_request(recipe, (KEY,)))
    assert prepare(recipe, OLD, dry_run=True).version == OLD
    return Locked(path, lock, str(fake_sglang.install(tmp_path / "new", NEW)), words)


def test_a_lock_moves_with_its_recipe_to_the_interpreter_that_ran(locked: Locked) -> None:
    locked.write()
    lock, recipe = lock_and_recipe(load(str(locked.recipe)))
    assert record(lock).engine.version == NEW
    assert lock.deployment.engine.python == locked.python
    assert recipe.deployment.engine.pinned == NEW
    assert not list(recipe_differences(recipe, lock))
    assert "sk-9f2c" not in locked.lock.read_text()


@pytest.mark.parametrize(
    ("failing", "error"),
    [("write_lock", InputError(Problem("no"))), ("migrate", KeyboardInterrupt())],
)
def test_an_error_changes_neither_file(
    locked: Locked, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    before = locked.texts()
    monkeypatch.setattr(releases, failing, fail)
    with pytest.raises(type(error)):
        locked.write()
    assert locked.texts() == before


def test_without_a_run_or_if_not_safe_nothing_is_written(locked: Locked) -> None:
    before = locked.texts()
    settings = UpgradeSettings(NEW, OLD, (), Lookup(), all_rules())
    options = UpgradeOptions(words=list(locked.words), to=NEW, write=True)
    with pytest.raises(InputError, match="would not match the migrated recipe"):
        releases._require_writable(options, settings)
    locked.write(UpgradeVerdict.NOT_SAFE)
    assert locked.texts() == before


def test_a_directory_without_a_deployment_has_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(SpeclaunchError, match="no deployment in") as caught:
        releases.upgrade(UpgradeOptions(words=[str(tmp_path)], to=NEW))
    assert caught.value.exit_code is ExitCode.NOTHING


def test_a_bisect_on_gpus_without_interpreters_is_a_usage_error() -> None:
    words = ["recipe=eagle3_llama8b"]
    options = BisectOptions(overrides=words, good=OLD, bad=NEW, check="start", dry_run=True)
    with pytest.raises(InputError, match=f"no engine for SGLang {OLD}") as caught:
        bisect(options)
    assert caught.value.problems[0].help == f"name its interpreter: --engine-python {OLD}=PATH"


def test_an_unknown_release_of_a_bisect_is_not_replaced() -> None:
    options = BisectOptions(overrides=["recipe=cpu_ngram"], good="9.9", bad=NEW, check="start")
    with pytest.raises(InputError, match=r"newer than every known release$"):
        bisect(options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "mine.lock.yaml is a directory"),
        (lambda path: None, "there is no lock"),
    ],
)
def test_a_lock_that_is_no_file_is_named(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "mine.lock.yaml"
    make(path)
    with pytest.raises(InputError, match=message):
        read_lock(path)

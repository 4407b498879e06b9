"""Recipes for a release: migrated like `migrate`, and launched as a server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from speclaunch.checks import Lookup, Migration, migrate_recipe
from speclaunch.core import (
    InputError,
    LaunchError,
    Problem,
    reads,
    replace_file,
)
from speclaunch.deployments import Prepared, Recipe, load, prepare, split_recipe, with_overrides
from speclaunch.engine import Plan, is_version, resolve
from speclaunch.measure.bench.engines import EngineOrder, MeasuredEngine, next_log
from speclaunch.measure.bench.sides import UNATTENDED, without_speculation
from speclaunch.measure.prove.proof import served_dtype
from speclaunch.measure.upgrade.observation import ObservedServer, Say
from speclaunch.serving import free_port, local_lookup

CPU = "cpu"
_PIN = "engine.version"
_UNCHANGED = ("--fresh", "--max-attempts=1", "--force")
"""Launch options that start exactly the recipe's settings, without retries."""


class ReleaseRecipe(Struct, frozen=True):
    """A recipe for one release: its file's new text, and the overrides that select the release."""

    version: str
    path: Path
    migration: Migration
    overrides: tuple[str, ...]
    config_dirs: tuple[Path, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Parts of the recipe that have no counterpart in this release."""
        return tuple(self.migration.problems)

    @property
    def _is_pinned(self) -> bool:
        """True if the overrides select the release."""
        return any(word.lstrip("+").startswith(f"{_PIN}=") for word in self.overrides)

    def load(self) -> Recipe:
        """Return the migrated recipe. Raises InputError."""
        with self._overlaid():
            return load(str(self.path), self.overrides, self.config_dirs)

    def prepared(self, recipe: Recipe | None = None) -> Prepared:
        """Return the recipe or one role, prepared but not started. Raises InputError."""
        found = recipe or self.load()
        return prepare(found, None if self._is_pinned else self.version, dry_run=True)

    @contextmanager
    def _overlaid(self) -> Iterator[None]:
        texts = {os.path.realpath(self.path): self.migration.text.encode()}
        with reads.overlay(texts if not self.problems else {}):
            yield

    def words(self, folder: Path) -> tuple[str, ...]:
        """Return launch arguments; writes a changed recipe below `folder`.

        Raises InputError if writing fails.
        """
        directories = [f"--config-dir={path}" for path in self.config_dirs]
        path = self.path
        if not self.problems and self.migration.text != reads.read_text(path):
            path = folder / self.version / path.name
            try:
                path.parent.mkdir(mode=0o700, exist_ok=True)
                replace_file(path, self.migration.text)
            except OSError as error:
                raise InputError(Problem(f"cannot write {path}: {error.strerror}")) from error
            directories.append(f"--config-dir={self.path.parent}")
        engine = [] if self._is_pinned else [f"--engine={self.version}"]
        return (f"recipe={path}", *self.overrides, *directories, *engine)


def recipe_for(
    words: Sequence[str],
    version: str,
    config_dirs: Sequence[Path],
    *,
    python: str | None = None,
) -> ReleaseRecipe:
    """Return the recipe of `words` for `version`. `python`: interpreter with that release.

    A version pin selects the CPU engine of another release; a path selects an interpreter. Raises
    InputError if the recipe cannot be read.
    """
    name, overrides = split_recipe(words)
    recipe = load(name, overrides, config_dirs)
    migration = migrate_recipe(recipe.path, str(recipe.path), version, keep_images=True)
    deployment = recipe.deployment
    chosen = tuple(overrides)
    if python is not None:
        chosen = with_overrides(chosen, (f"engine.python={python}",))
    elif CPU in (deployment.engine.python, deployment.hardware.name) and is_version(version):
        chosen = with_overrides(chosen, (f"{_PIN}={version}", f"engine.requires={version}"))
    return ReleaseRecipe(version, recipe.path, migration, chosen, tuple(config_dirs))


def plan_here(prepared: Prepared) -> Plan:
    """Return the plan of a deployment with this machine's facts and environment."""
    is_cpu = prepared.cpu is not None
    request = prepared.request(os.environ)
    facts = local_lookup(Lookup(), prepared.recipe, probe=not is_cpu, cpu=is_cpu)
    return resolve(request, facts.facts(request))


class StartFailedError(LaunchError):
    """The release does not serve."""


class LaunchedRelease(Struct, frozen=True):
    """A serving release. `seconds`: time from start to verification."""

    release: str
    engine: MeasuredEngine
    plan: Plan
    observed: ObservedServer
    seconds: float
    can_run_twice: bool
    """True if a second server without speculation fits alongside: only on the CPU engine."""


@contextmanager
def launched(
    found: ReleaseRecipe,
    folder: Path,
    seconds: float,
    say: Say,
    *,
    speculates: bool = True,
) -> Iterator[LaunchedRelease]:
    """Serve a recipe within the block, and stop the server at the end.

    `folder` receives the log and, if changed, the recipe. `speculates`: False for the same server
    without speculation. Raises InputError if the release does not support the recipe, and
    LaunchError if it does not serve within `seconds` (StartFailedError).
    """
    prepared = found.prepared()
    off = without_speculation(prepared.recipe)
    port = free_port()
    changes = (f"args.port={port}", *UNATTENDED, *(() if speculates else off))
    words = (*with_overrides(found.words(folder), changes), *_UNCHANGED)
    name = f"SGLang {found.version}{'' if speculates else ' without speculation'}"
    order = EngineOrder(name, words, port, key=prepared.address.api_key)
    engine = MeasuredEngine(order, next_log(folder))
    try:
        try:
            taken = engine.wait(seconds, say)
        except LaunchError as error:
            problem = error.problems[0]
            why = (problem.help or "").removeprefix(f"see {engine.log}: ")
            raise StartFailedError(why or problem.message, help=f"see {engine.log}") from error
        plan = plan_here(prepared)
        observed = ObservedServer(engine.address, served_dtype(plan))
        can_run_twice = prepared.cpu is not None and bool(off) and speculates
        yield LaunchedRelease(found.version, engine, plan, observed, taken, can_run_twice)
    finally:
        engine.stop()

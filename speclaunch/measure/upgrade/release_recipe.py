"""A recipe for a release, as `migrate` would write it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from speclaunch.checks import Migration, migrate_recipe
from speclaunch.core import InputError, Problem, reads, replace_file
from speclaunch.deployments import Prepared, Recipe, load, prepare, split_recipe
from speclaunch.engine import is_version
from speclaunch.measure.bench.sides import with_overrides

CPU = "cpu"
_PIN = "engine.version"


class ReleaseRecipe(Struct, frozen=True):
    """A recipe for one release: its file's new text, and the overrides that select the release."""

    version: str
    path: Path
    migration: Migration
    overrides: tuple[str, ...]
    config_dirs: tuple[Path, ...]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Parts that have no counterpart in this release."""
        return tuple(self.migration.problems)

    def load(self) -> Recipe:
        """Return the recipe of the migrated text. Raises InputError."""
        with self._overlaid():
            return load(str(self.path), self.overrides, self.config_dirs)

    def prepared(self, recipe: Recipe | None = None) -> Prepared:
        """Return it (or one of its roles) prepared without starting anything. Raises InputError."""
        found = recipe or self.load()
        is_pinned = any(word.lstrip("+").startswith(f"{_PIN}=") for word in self.overrides)
        return prepare(found, None if is_pinned else self.version, dry_run=True)

    @contextmanager
    def _overlaid(self) -> Iterator[None]:
        texts = {os.path.realpath(self.path): self.migration.text.encode()}
        with reads.overlay(texts if not self.problems else {}):
            yield

    def words(self, folder: Path) -> tuple[str, ...]:
        """Return the arguments of a launch; a changed text is written below `folder`.

        Raises InputError if it cannot be written.
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
        is_pinned = any(word.lstrip("+").startswith(f"{_PIN}=") for word in self.overrides)
        engine = [] if is_pinned else [f"--engine={self.version}"]
        return (f"recipe={path}", *self.overrides, *directories, *engine)


def recipe_for(
    words: Sequence[str],
    version: str,
    config_dirs: Sequence[Path],
    *,
    python: str | None = None,
) -> ReleaseRecipe:
    """Return the recipe of `words` for `version`. `python`: interpreter with that release.

    The CPU engine of another release is selected by its pin, an interpreter by its path. Raises
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

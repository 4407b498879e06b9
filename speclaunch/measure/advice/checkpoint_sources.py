"""Checkpoint facts from all sources on this machine, highest priority first.

Also pulls and compares the facts that a team shares in `.speclaunch/models/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import (
    InputError,
    Problem,
    UnreadableFileError,
    expand_user,
    is_directory,
    is_file,
    recipes_dir,
    text,
)
from speclaunch.deployments import Recipe, load, recipe_names
from speclaunch.engine import (
    HUB_NAME,
    MAIN,
    Checkpoint,
    CheckpointFile,
    HubRefusedError,
    Origin,
    Sources,
    UnknownFact,
    checkpoint_sources,
    facts_file,
    fetch_facts,
    find_checkpoint,
    home_of_facts,
    read_file,
    recorded,
    revision_of,
    store_facts,
    stored_names,
    suggest,
    value_of,
)

_NOT_SHOWN = frozenset({"name", "path", "config", "raw", "origin", "unread", "tensors"})
FACTS = tuple(name for name in Checkpoint.__struct_fields__ if name not in _NOT_SHOWN)
"""Facts of a checkpoint in display order."""


class CheckpointSources(Struct, frozen=True):
    """The checkpoint facts in use, and the facts from other sources."""

    used: Checkpoint | UnknownFact
    others: tuple[Checkpoint | UnknownFact, ...]
    """Facts from sources of lower priority, and unreadable files."""


def sources_of(name: str, sources: Sources) -> CheckpointSources:
    """Return the facts from every source. `used`: the facts that `lint` and `plan` use."""
    used = find_checkpoint(name, sources, tokenizer=True)
    origin = used.origin if isinstance(used, Checkpoint) else None
    others = [checkpoint for checkpoint in _each(name, sources) if not _is(checkpoint, origin)]
    return CheckpointSources(used, tuple(checkpoint for checkpoint in others if checkpoint != used))


def fact_value(found: Checkpoint, fact: str) -> Any:
    """Return a fact; None if the source does not have it."""
    value = found.field_or_none(fact)
    return None if value in ((), {}) else value


def _each(name: str, sources: Sources) -> Iterator[Checkpoint | UnknownFact]:
    near = find_checkpoint(name, Sources(sources.directories), tokenizer=True)
    if isinstance(near, Checkpoint):
        yield near
    files = [Sources(repository=(folder,)) for folder in sources.repository]
    for stored in (
        checkpoint_sources(name, source) for source in (*files, Sources(index=sources.index))
    ):
        if stored is not None:
            yield stored


def _is(found: Checkpoint | UnknownFact, origin: Origin | None) -> bool:
    return isinstance(found, Checkpoint) and found.origin == origin


DIRECTORY = "directory"
"""Source name of facts read from a local directory."""
_ROLES = (
    ("model_path", "revision"),
    ("speculative_draft_model_path", "speculative_draft_model_revision"),
)


class CheckpointToPull(Struct, frozen=True):
    """A checkpoint whose facts will be stored."""

    name: str
    folder: Path
    revision: str = MAIN
    directory: Path | None = None
    """Local directory; None if the checkpoint is on the hub."""


def checkpoints_to_pull(
    words: Sequence[str],
    config_dirs: Sequence[Path] = (),
    *,
    called: str | None = None,
    revision: str | None = None,
    into: Path | None = None,
) -> tuple[list[CheckpointToPull], list[Problem]]:
    """Return the checkpoints in `words`, and a problem for each recipe path without a name.

    Each word is a recipe (its target and draft), a name, or a path. `called`: name for a directory.
    `into`: folder for the facts; by default searched upward from the recipe or the working
    directory. Raises InputError.
    """
    if called is not None:
        return [_on_disk(words, called, revision, into or home_of_facts(Path.cwd()))], []
    found: list[CheckpointToPull] = []
    problems: list[Problem] = []
    common: list[str] = []
    ours = recipe_names(config_dirs)
    left = list(words)
    while left:
        word = left.pop(0)
        if _overrides(word):
            common.append(word)
            continue
        if not _names_a_recipe(word, ours):
            found.append(_on_hub(word, revision, into, ours))
            continue
        own = []
        while left and _overrides(left[0]):
            own.append(left.pop(0))
        recipe = load(word.removeprefix("recipe="), [*common, *own], config_dirs)
        named = list(_of_recipe(recipe, into))
        found += [entry for entry in named if isinstance(entry, CheckpointToPull)]
        problems += [entry for entry in named if isinstance(entry, Problem)]
        if revision is not None:
            raise InputError(
                Problem("--revision needs a checkpoint name, not a recipe", help="drop one")
            )
    if common and not any(_names_a_recipe(word, ours) for word in words):
        raise InputError(
            Problem(f"{common[0]}: an override needs a recipe", help="name the recipe")
        )
    return list(dict.fromkeys(found)), list(dict.fromkeys(problems))


def pulled(checkpoint: CheckpointToPull, today: date) -> CheckpointFile:
    """Return the facts of a checkpoint. Raises HubRefusedError and UnreadableFileError."""
    if checkpoint.directory is None:
        return fetch_facts(checkpoint.name, revision=checkpoint.revision, today=today)
    return recorded(checkpoint.directory, checkpoint.name, source=DIRECTORY, read=today.isoformat())


class FactsState(StrEnum):
    """State of a facts file relative to the hub."""

    CURRENT = "current"
    STALE = "stale"
    UPDATED = "updated"
    UNKNOWN = "unknown"
    """The hub or the file cannot be read."""
    LOCAL = "local"
    """Facts from a directory; the hub is not queried."""


class ComparedFacts(Struct, frozen=True):
    """A facts file compared with the hub."""

    name: str
    path: Path
    state: FactsState
    differences: tuple[str, ...] = ()
    """Differences, each as `key: here -> on the hub`."""
    why: str | None = None
    help: str | None = None


def check(folder: Path, today: date, *, update: bool = False) -> Iterator[ComparedFacts]:
    """Compare every file of a folder with the hub; `update` rewrites stale files."""
    for name in stored_names(folder):
        yield _check(folder, name, today, update=update)


def read_stored(folder: Path, name: str) -> tuple[Path, CheckpointFile]:
    """Return the path and content of a file of a folder. Raises UnreadableFileError."""
    path = facts_file([folder], name)
    if path is None:
        raise UnreadableFileError(f"{name}: no such file in {folder}")
    return path, read_file(path, name)


def _check(folder: Path, name: str, today: date, *, update: bool) -> ComparedFacts:
    path = folder / f"{name}.json"
    try:
        path, here = read_stored(folder, name)
        revision = revision_of(here.source)
        if revision is None:
            return ComparedFacts(name, path, FactsState.LOCAL, why=f"from {here.source}")
        there = fetch_facts(name, revision=revision, today=today)
        differing = tuple(differences(here, there))
        if not differing:
            return ComparedFacts(name, path, FactsState.CURRENT)
        if not update:
            return ComparedFacts(name, path, FactsState.STALE, differing)
        store_facts(folder, there)
        return ComparedFacts(name, path, FactsState.UPDATED, differing)
    except HubRefusedError as error:
        return ComparedFacts(name, path, FactsState.UNKNOWN, why=str(error), help=error.help)
    except (UnreadableFileError, OSError) as error:
        return ComparedFacts(name, path, FactsState.UNKNOWN, why=str(error))


def differences(here: CheckpointFile, there: CheckpointFile) -> Iterator[str]:
    """Yield the differences between two facts files, one per config key, ignoring the date."""
    for name in CheckpointFile.__struct_fields__:
        mine, other = getattr(here, name), getattr(there, name)
        if name == "read" or mine == other:
            continue
        if name in ("config", "quantization_file", "tensors"):
            for key in sorted({*mine, *other}):
                if mine.get(key) != other.get(key):
                    yield f"{key}: {_short(mine.get(key))} -> {_short(other.get(key))}"
        else:
            yield f"{name}: {_short(mine)} -> {_short(other)}"


def _short(value: Any) -> str:
    if value is None:
        return "not known"
    shown = str(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _overrides(word: str) -> bool:
    return word.startswith(("~", "+")) or ("=" in word and not word.startswith("recipe="))


def _names_a_recipe(word: str, ours: dict[str, Path]) -> bool:
    return word.startswith("recipe=") or word.endswith((".yaml", ".yml")) or word in ours


def _on_disk(
    words: Sequence[str], called: str, revision: str | None, folder: Path
) -> CheckpointToPull:
    if len(words) != 1:
        raise InputError(Problem("--as needs one directory", help="pull the others separately"))
    if not HUB_NAME.match(called):
        raise InputError(
            Problem(f"--as {called}: use the form ORGANIZATION/NAME", help="write my-org/my-model")
        )
    if revision is not None:
        raise InputError(Problem("--revision cannot be combined with --as"))
    directory = expand_user(words[0])
    if not is_directory(directory) or not is_file(directory / "config.json"):
        raise InputError(Problem(f"{words[0]}: not a directory with a config.json"))
    return CheckpointToPull(called, folder, directory=directory)


def _on_hub(
    word: str, revision: str | None, into: Path | None, ours: dict[str, Path]
) -> CheckpointToPull:
    if HUB_NAME.match(word):
        if "/" not in word and (near := suggest(word, ours)):
            raise InputError(Problem(f"{word} is not a recipe", help=near))
        return CheckpointToPull(word, into or home_of_facts(Path.cwd()), revision or MAIN)
    raise InputError(_needs_a_name(word))


def _needs_a_name(path: str) -> Problem:
    if is_directory(expand_user(path)):
        command = f"speclaunch models pull {path} --as ORGANIZATION/NAME"
        return Problem(f"{path} is a directory: it needs a name", help=command)
    if "/" in path:
        remedy = "run on its machine: speclaunch models pull DIR --as ORGANIZATION/NAME"
        return Problem(f"{path} is a path that does not exist on this machine", help=remedy)
    return Problem(f"{path} names neither a recipe nor a model")


def _of_recipe(recipe: Recipe, into: Path | None) -> Iterator[CheckpointToPull | Problem]:
    ours = recipe.path.resolve().is_relative_to(recipes_dir())
    folder = into or home_of_facts(Path.cwd() if ours else recipe.path)
    args = recipe.deployment.args
    named = [(text(value_of(args, role)), role, of_role) for role, of_role in _ROLES]
    if not any(path for path, *_ in named):
        yield Problem(f"{recipe.deployment.name} names no model", recipe.place("args"))
    for path, role, of_role in named:
        if path is not None and HUB_NAME.match(path):
            yield CheckpointToPull(path, folder, text(value_of(args, of_role)) or MAIN)
        elif path is not None:
            yield replace(_needs_a_name(path), place=recipe.place("args", role))

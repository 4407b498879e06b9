"""Facts of a checkpoint from all sources on this machine, and checks of its files.

Sources are listed in order of priority. This module also pulls the facts that a team shares in
`.speclaunch/models/`, and compares them with the hub.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.checks import (
    Finding,
    Severity,
    TensorComparison,
    check_rules,
    drafts_itself,
    selected,
    subject,
)
from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    Place,
    Problem,
    UnreadableFileError,
    expand_user,
    is_directory,
    is_file,
    models_dir,
    recipes_dir,
    text,
)
from speclaunch.deployments import Recipe, load, recipe_names
from speclaunch.engine import (
    HUB_NAME,
    MAIN,
    NOWHERE_ELSE,
    Checkpoint,
    CheckpointFile,
    Facts,
    HubRefusedError,
    Plan,
    Request,
    RequestedValue,
    RequestOrigin,
    Sources,
    TensorHeader,
    UnknownFact,
    UnknownValueError,
    checkpoint_sources,
    facts_file,
    fetch_facts,
    fetch_tensors,
    find_checkpoint,
    home_of_facts,
    models_folders,
    read_file,
    recorded,
    resolve,
    revision_of,
    store_facts,
    stored_names,
    suggest,
    value_of,
)
from speclaunch.engine import load as load_catalogue

_NOT_SHOWN = frozenset({"name", "path", "config", "raw", "origin", "unread", "tensors"})
FACTS = tuple(name for name in Checkpoint.__struct_fields__ if name not in _NOT_SHOWN)
"""Names of the facts, in display order."""


class CheckpointSources(Struct, frozen=True):
    """The checkpoint facts in use, and the facts from other sources."""

    used: Checkpoint | UnknownFact
    others: tuple[Checkpoint | UnknownFact, ...]
    """Facts from sources of lower priority, and unreadable files."""


def sources_of(name: str, sources: Sources) -> CheckpointSources:
    """Return the facts from every source. `lint` and `plan` use the result's `used`."""
    used = find_checkpoint(name, sources, tokenizer=True)
    origin = used.origin if isinstance(used, Checkpoint) else None
    others = tuple(
        found
        for found in _each(name, sources)
        if found != used and not (isinstance(found, Checkpoint) and found.origin == origin)
    )
    return CheckpointSources(used, others)


def fact_value(found: Checkpoint, fact: str) -> Any:
    """Return the value of `fact`; None if `found` lacks it."""
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
    """Return the checkpoints in `words`, and a problem for each model path without a hub name.

    Each word is a recipe (its target and draft), a name, or a path. `called`: name for a directory.
    `into`: folder for the facts; by default, the nearest one above the recipe or the working
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
                "--revision needs a checkpoint name, not a recipe", help="remove --revision"
            )
    if common and not any(_names_a_recipe(word, ours) for word in words):
        raise InputError(f"{common[0]}: an override needs a recipe", help="name the recipe")
    return list(dict.fromkeys(found)), list(dict.fromkeys(problems))


def pulled(checkpoint: CheckpointToPull, today: date) -> CheckpointFile:
    """Pull and return a checkpoint's facts. Raises HubRefusedError and UnreadableFileError."""
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
    """Yield each facts file's comparison with the hub. `update` rewrites stale files."""
    for name in stored_names(folder):
        yield _check(folder, name, today, update=update)


def read_stored(folder: Path, name: str) -> tuple[Path, CheckpointFile]:
    """Return the path and content of a facts file. Raises UnreadableFileError."""
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
        raise InputError("--as needs exactly one directory", help="pull the others separately")
    if not HUB_NAME.match(called):
        raise InputError(
            f"--as {called}: not in the form ORGANIZATION/NAME", help="write my-org/my-model"
        )
    if revision is not None:
        raise InputError("--revision cannot be combined with --as", help="remove --revision")
    directory = expand_user(words[0])
    if not is_directory(directory) or not is_file(directory / "config.json"):
        message = f"{words[0]}: not a directory with a config.json"
        raise InputError(message, help="name the directory of a checkpoint")
    return CheckpointToPull(called, folder, directory=directory)


def _on_hub(
    word: str, revision: str | None, into: Path | None, ours: dict[str, Path]
) -> CheckpointToPull:
    if HUB_NAME.match(word):
        if "/" not in word and (near := suggest(word, ours)):
            raise InputError(f"{word} is not a recipe", help=near)
        return CheckpointToPull(word, into or home_of_facts(Path.cwd()), revision or MAIN)
    raise InputError(_needs_a_name(word))


def _needs_a_name(path: str) -> Problem:
    if is_directory(expand_user(path)):
        command = f"speclaunch models pull {path} --as ORGANIZATION/NAME"
        return Problem(f"{path} is a directory and needs a name", help=f"run `{command}`")
    if "/" in path:
        remedy = "run `speclaunch models pull DIR --as ORGANIZATION/NAME` where the checkpoint is"
        return Problem(f"{path} does not exist on this machine", help=remedy)
    remedy = "name a recipe or a model: ORGANIZATION/NAME"
    return Problem(f"{path} names neither a recipe nor a model", help=remedy)


def _of_recipe(recipe: Recipe, into: Path | None) -> Iterator[CheckpointToPull | Problem]:
    ours = recipe.path.resolve().is_relative_to(recipes_dir())
    folder = into or home_of_facts(Path.cwd() if ours else recipe.path)
    args = recipe.deployment.args
    named = [(text(value_of(args, role)), role, of_role) for role, of_role in _ROLES]
    if not any(path for path, *_ in named):
        place = recipe.place("args")
        yield Problem(f"{recipe.deployment.name} names no model", place, "set args.model_path")
    for path, role, of_role in named:
        if path is not None and HUB_NAME.match(path):
            yield CheckpointToPull(path, folder, text(value_of(args, of_role)) or MAIN)
        elif path is not None:
            yield replace(_needs_a_name(path), place=recipe.place("args", role))


_ALGORITHMS = {
    "LlamaForCausalLMEagle3": "EAGLE3",
    "LlamaForCausalLMEagle": "EAGLE",
    "Qwen2ForCausalLMEagle": "EAGLE",
    "DFlashDraftModel": "DFLASH",
}
_UNKNOWN_TARGET = "its target"
_FILES = ("SPL95",)
_PAIR = ("SPL95", "SPL406", "SPL407", "SPL408", "SPL409", "SPL410", "SPL411", "SPL416")
"""Rules that check a draft's files against its target. `_FILES` lists rules for the files alone."""


class Inspection(Struct, frozen=True):
    """An inspected checkpoint, its assumed use, and the findings."""

    checkpoint: Checkpoint
    target: Checkpoint | None
    engine: str
    algorithm: str | None
    """Algorithm that the draft is for; None if the checkpoint is inspected as a complete model."""
    findings: tuple[Finding, ...]
    headers: Mapping[str, TensorHeader]
    loader: str | None
    """Engine class that loads the checkpoint; None if unknown."""
    source: str | None
    comparison: TensorComparison | None
    numbers_read: bool
    """True if tensor values were read; from the hub, only headers are read."""

    def status(self, name: str) -> str:
        """Return a tensor's state: `loaded`, `wrong shape`, `not read`, `skipped`, or `unknown`."""
        compared = self.comparison
        if compared is None:
            return "unknown"
        if any(tensor.name == name for tensor in compared.misshapen):
            return "wrong shape"
        if name in compared.own:
            return "loaded"
        return "not read" if name in compared.unread else "skipped"


def inspect_checkpoint(name: str, target: str | None, engine: str) -> Inspection:
    """Return the inspection of a checkpoint: a directory, a cached name, or a hub name.

    Raises InputError if the checkpoint does not exist or has no safetensors file.
    """
    found = _found(name)
    if found.tensors is None:
        raise InputError(
            f"{name} has no safetensors file",
            Place(COMMAND_LINE, text=name),
            "name the directory with the weights",
        )
    other = None if target is None else _found(target, weights=False)
    plan = _plan(found, other, engine)
    results = check_rules(plan, selected(_FILES if other is None else _PAIR))
    findings = tuple(
        finding for finding in results.findings if finding.severity is not Severity.INFO
    )
    try:
        looked_at = subject(plan)
    except UnknownValueError:
        looked_at = None
    headers = found.tensors.headers
    if headers.unread is not None:
        raise InputError(f"{name} cannot be read: {headers.unread}")
    loader = None if looked_at is None else looked_at.loader
    return Inspection(
        found,
        other,
        engine,
        plan.algorithm,
        findings,
        headers.tensors,
        None if loader is None else loader.name,
        None if loader is None else loader.source,
        None if looked_at is None else looked_at.compared(),
        found.path is not None,
    )


def _found(name: str, *, weights: bool = True) -> Checkpoint:
    sources = replace(NOWHERE_ELSE, online=True)
    if not weights:  # a target: also from the index and the repository
        sources = Sources((), models_folders(Path.cwd()), models_dir(), online=True)
    found = find_checkpoint(name, sources, tokenizer=True)
    if isinstance(found, UnknownFact):
        raise InputError(
            f"{name} cannot be inspected: {found.why}",
            help="name the directory with its config.json and its weights",
        )
    if found.tensors is None and weights and HUB_NAME.match(name):
        try:
            return replace(found, tensors=fetch_tensors(name))
        except HubRefusedError as error:
            raise InputError(f"{name} cannot be inspected: {error}", help=error.help) from None
    return found


def _plan(found: Checkpoint, target: Checkpoint | None, engine: str) -> Plan:
    algorithm = _algorithm(found, target)
    own = algorithm is None or (target is None and drafts_itself(found))
    place = Place(COMMAND_LINE, text=found.name)
    values = {"model_path": found.name if own else target.name if target else _UNKNOWN_TARGET}
    if algorithm is not None:
        values["speculative_algorithm"] = algorithm
        if not own:
            values["speculative_draft_model_path"] = found.name
    arguments = {key: RequestedValue(key, value, key, place) for key, value in values.items()}
    request = Request(found.name, RequestOrigin.COMMAND, load_catalogue(engine), place, arguments)
    facts = Facts(found) if own else Facts(target, found)
    return resolve(request, facts)


def _algorithm(found: Checkpoint, target: Checkpoint | None) -> str | None:
    name = found.architecture or ""
    if name in _ALGORITHMS:
        return _ALGORITHMS[name]
    if drafts_itself(found) and found.mtp_layers != 0:
        return "EAGLE"
    return None if target is None else "STANDALONE"

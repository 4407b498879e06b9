"""Finds the checkpoint facts for a model path, nearest source first.

Also gathers the facts of a deployment, reading each checkpoint once.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import UnreadableFileError, is_directory, is_file, lazy, read_start, reads
from speclaunch.engine.facts.checkpoint_file import (
    checkpoint_of,
    facts_file,
    file_of,
    origin_of,
    read_file,
)
from speclaunch.engine.facts.facts import (
    Checkpoint,
    Facts,
    FactSource,
    Origin,
    PartialConfig,
    UnknownFact,
    checkpoint_fact,
)
from speclaunch.engine.facts.hardware import Hardware
from speclaunch.engine.facts.known_models import (
    HUB_NAME,
    candidates_for,
    likely,
    same_quantization,
    seems_to_be,
)
from speclaunch.engine.facts.read_checkpoint import from_config, read_checkpoint

if TYPE_CHECKING:
    from speclaunch.engine.facts.runtime import Runtime


class Sources(Struct, frozen=True):
    """Sources of checkpoint facts: directories, a repository's facts, the index, the hub."""

    directories: tuple[Path, ...] = ()
    """Directories from `--models`, in command-line order."""
    repository: tuple[Path, ...] = ()
    """Folders named `.speclaunch/models`, nearest first."""
    index: Path | None = None
    """The shipped index; None if it is not used."""
    online: bool = False
    assume: tuple[tuple[str, str], ...] = ()
    """Pairs of a checkpoint and the checkpoint whose facts it uses. The first match applies."""

    def assumed(self, name: str) -> str | None:
        return next((sibling for checkpoint, sibling in self.assume if checkpoint == name), None)


NOWHERE_ELSE = Sources()
"""No sources except this machine's directories and caches."""


_COMMIT = lazy(r"[0-9a-f]{1,64}\Z")
_MOST_SNAPSHOTS = 100


def places(
    name: str,
    model_dirs: Sequence[Path],
    environment: Mapping[str, str],
    revision: str | None,
) -> Iterator[Path]:
    """Yield the directories that may contain a checkpoint, nearest first."""
    if "\0" in name or not name:
        return
    path = Path(os.path.expanduser(name))  # noqa: PTH111  Path's own raises if there is no home
    if is_directory(path):
        yield path
    on_hub = HUB_NAME.match(name) is not None
    for directory in model_dirs:
        if on_hub:
            yield directory / name
            yield from _cached(directory, name, revision)
            yield from _cached(directory / "hub", name, revision)
        if path.name not in ("", "..") and revision is None:
            yield from _called(directory, path, on_hub=on_hub)
    if on_hub:
        yield from _cached(hub_cache(environment), name, revision)


def _called(directory: Path, path: Path, *, on_hub: bool) -> Iterator[Path]:
    """Yield candidates below `directory` for a `path` from another machine (`/data/Llama-3.1-8B`)
    or a name without an organization."""
    yield directory / path.name
    if on_hub:  # the same name from another organization is a different model
        return
    if path.parent.name not in ("", ".."):
        yield directory / path.parent.name / path.name
    found = list(islice(_below(directory, path.name), 2))
    if len(found) == 1:  # `meta-llama/Llama-3.1-8B`, if the name is unique
        yield found[0]


def _below(directory: Path, name: str) -> Iterator[Path]:
    try:
        inner = reads.names(directory)
    except OSError:
        return
    for organization in inner:
        checkpoint = directory / organization / name
        with contextlib.suppress(PermissionError):
            if reads.exists(checkpoint / "config.json"):
                yield checkpoint


def hub_cache(environment: Mapping[str, str], home: Path | None = None) -> Path:
    """Return huggingface_hub's download cache directory (constants.py).

    `home`: the home directory; None for the current user's.
    """
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(variable):
            return expanded(environment[variable], home)
    return hub_home(environment, home) / "hub"


def hub_home(environment: Mapping[str, str], home: Path | None = None) -> Path:
    """Return huggingface_hub's home directory, which contains its cache and token."""
    chosen = environment.get("HF_HOME")
    if chosen:
        return expanded(chosen, home)
    caches = environment.get("XDG_CACHE_HOME")
    if caches or home is None:
        return expanded(caches or "~/.cache", home) / "huggingface"
    return home / ".cache" / "huggingface"


def expanded(path: str, home: Path | None = None) -> Path:
    """Expand `~` and variables, as huggingface_hub does. Relative paths start at `home`, if set."""
    if "$" in path:
        reads.mark_uncacheable()  # depends on any variable
    return (home or Path()) / os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111


def _cached(cache: Path, name: str, revision: str | None) -> Iterator[Path]:
    """Yield a model's snapshots in a hub cache: the requested revision, or by default `main` and
    then the others, newest first."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshots = repository / "snapshots"
    if not is_directory(snapshots):
        return
    if revision is not None and _COMMIT.match(revision):
        yield snapshots / revision
    commit = _reference(repository / "refs" / (revision or "main"))
    if commit is not None:
        yield snapshots / commit
    if revision is None:
        yield from _newest_first(snapshots)


def _reference(path: Path) -> str | None:
    try:
        commit = read_start(path, 100)[0].decode("ascii", "replace").strip()
    except UnreadableFileError:
        return None
    return commit if _COMMIT.match(commit) else None


def _newest_first(snapshots: Path) -> list[Path]:
    try:
        found = [snapshots / name for name in reads.names(snapshots)]
        dated = [(reads.changed(path), path) for path in found]
    except OSError:
        return []
    return [path for _, path in sorted(dated, reverse=True)[:_MOST_SNAPSHOTS]]


_REMOTE = lazy(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_REVISION = lazy(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})*\Z", re.ASCII)


def find_checkpoint(
    name: str,
    sources: Sources = NOWHERE_ELSE,
    *,
    tokenizer: bool = False,
    revision: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Checkpoint | UnknownFact:
    """Return the facts of the checkpoint called `name`, or why they are unknown.

    Never raises because of file contents. Sources, in this order:

    - a directory of that name;
    - below each of the sources' directories: `organization/name`, a hub cache, `name`;
    - the Hugging Face cache;
    - the repository's own facts, else the shipped index;
    - the hub, if online and if the stored facts are missing, incomplete or doubtful;
    - the checkpoint that `name` is assumed to match.

    `revision` names a branch, a tag or a commit. `tokenizer`: also read the vocabulary.
    """
    refused = _not_looked_for(name, revision)
    if refused is not None:
        return UnknownFact(checkpoint_fact(name), refused)
    variables = os.environ if environment is None else environment
    for directory in places(name, sources.directories, variables, revision):
        if is_file(directory / "config.json"):
            origin = Origin(_provenance(directory, sources, variables), str(directory))
            return read_checkpoint(name, directory, tokenizer=tokenizer, origin=origin)
    stored = checkpoint_sources(name, sources, revision)
    complete = isinstance(stored, Checkpoint) and not stored.unread
    if (
        isinstance(stored, Checkpoint)
        and stored.origin is not None
        and stored.origin.doubt is not None
    ):
        complete = False
    if sources.online and HUB_NAME.match(name) and not complete:
        from speclaunch.engine.facts.hub import fetch_checkpoint  # noqa: PLC0415

        fetched = fetch_checkpoint(name, tokenizer=tokenizer, revision=revision or "main")
        stored = fetched if isinstance(fetched, Checkpoint) else stored or fetched
    other = sources.assumed(name)
    if not isinstance(stored, Checkpoint) and other not in (None, name):
        plain = replace(sources, assume=())
        return _as(name, str(other), find_checkpoint(str(other), plain, environment=environment))
    if stored is not None:
        return stored
    why, remedy = _nowhere(name, sources, revision), _remedy(name, sources)
    return UnknownFact(checkpoint_fact(name), why, remedy)


def _not_looked_for(name: str, revision: str | None) -> str | None:
    if _REMOTE.match(name):
        return "URLs are not read"
    if name.lower().endswith(".gguf"):
        return "GGUF files are not read"
    if revision is not None and not _REVISION.match(revision):
        return f"{revision[:200]!r} is not a revision"
    return None


def checkpoint_sources(
    name: str, sources: Sources, revision: str | None = None
) -> Checkpoint | UnknownFact | None:
    """Return a checkpoint's facts from the repository's files, else the index; None if in neither.

    Returns an UnknownFact for an unreadable file, or if config.json was not read. A local path is
    looked up in the index only if nothing is assumed for it.
    """
    try:
        path = facts_file(sources.repository, name)
        if path is not None:
            found = read_file(path, name)
            origin = origin_of(found, FactSource.REPOSITORY, path, revision)
            return checkpoint_of(found, name, origin)
        if sources.index is None:
            return None
        listed, doubt = name, None
        path = file_of(sources.index, name)
        if path is None or not is_file(path):
            meant = likely(name) if sources.assumed(name) is None else None
            if meant is None:
                return None
            listed, doubt = meant
            path = sources.index / f"{listed}.json"
        found = read_file(path, listed)
    except UnreadableFileError as error:
        return UnknownFact(checkpoint_fact(name), str(error))
    origin = origin_of(found, FactSource.INDEX, path, revision)
    return checkpoint_of(found, name, replace(origin, doubt=doubt or origin.doubt))


def _as(name: str, other: str, found: Checkpoint | UnknownFact) -> Checkpoint | UnknownFact:
    """Return `found`, the facts of `other`, as those of `name`. Weight storage is unknown unless
    both names state the same quantization."""
    if isinstance(found, UnknownFact):
        why = f"it is assumed to match {other}, which is unknown: {found.why}"
        return UnknownFact(checkpoint_fact(name), why, found.help)
    origin = None if found.origin is None else replace(found.origin, assumed=other, stated=())
    known = {
        field: found.field_or_none(field) for field in _OF_TENSORS if field not in found.unread
    }
    raw = found.raw
    if not same_quantization(name, other):
        before = raw.unread if isinstance(raw, PartialConfig) else frozenset()
        raw = PartialConfig(name, _without_storage(raw), _STORAGE | before)
        known |= {"weight_bytes": None, "weights_rounded": False}
    elif found.field_or_none("quantization") is not None:
        known |= {key: found.field_or_none(key) for key in ("quantization", "quantization_config")}
    return from_config(name, raw, None, **known, origin=origin)


def _without_storage(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_storage(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in _STORAGE
    }


_STORAGE = frozenset({"quantization_config", "compression_config", "torch_dtype", "dtype"})
_OF_TENSORS = (
    *("mtp_weights", "has_token_map", "tokenizer_size", "tokenizer_digest"),
    *("weight_bytes", "weights_rounded"),
)


def _provenance(directory: Path, sources: Sources, environment: Mapping[str, str]) -> FactSource:
    in_model_dirs = any(directory.is_relative_to(source) for source in sources.directories)
    cached = directory.is_relative_to(hub_cache(environment))
    return FactSource.CACHE if cached and not in_model_dirs else FactSource.DIRECTORY


def _nowhere(name: str, sources: Sources, revision: str | None) -> str:
    on_hub = HUB_NAME.match(name) is not None
    where = ["the Hugging Face cache" if on_hub else "a directory of that name"]
    where += [str(directory) for directory in sources.directories]
    revision_text = "" if revision is None else f" of its revision {revision}"
    listed = ", and it is not in speclaunch's index" if on_hub and sources.index else ""
    return f"no config.json{revision_text} in {' or '.join(where)}{listed}"


def _remedy(name: str, sources: Sources) -> str:
    options = "pass --models DIR" + ("" if sources.online else " or --online")
    sibling = seems_to_be(name) if sources.index is not None else None
    if sibling is None:
        return options
    return f"it seems to be {sibling}: if so, pass --assume {name}={sibling}; otherwise, {options}"


def gather(
    target: str | None,
    draft: str | None,
    *,
    sources: Sources = NOWHERE_ELSE,
    tokenizers: bool = False,
    hardware: Hardware | None = None,
    runtime: Runtime | None = None,
    target_revision: str | None = None,
    draft_revision: str | None = None,
) -> Facts:
    """Return the facts of a target, a draft and their hardware. A checkpoint is None if it is
    unset or unknown.

    `tokenizers`: also read the vocabularies, which only STANDALONE compares. Results are cached
    until the process exits.
    """
    found = [
        None if name is None else _found(name, sources, tokenizers, revision)
        for name, revision in ((target, target_revision), (draft, draft_revision))
    ]
    known = [result if isinstance(result, Checkpoint) else None for result in found]
    unknown = dict.fromkeys(result for result in found if isinstance(result, UnknownFact))
    made = () if target is None or sources.index is None else candidates_for(target)
    return Facts(known[0], known[1], hardware, runtime, tuple(unknown), made)


@reads.cached(1024)
def _found(
    name: str, sources: Sources, tokenizers: bool, revision: str | None
) -> Checkpoint | UnknownFact:
    return find_checkpoint(name, sources, tokenizer=tokenizers, revision=revision)

"""Finds the facts of the checkpoint that a model path means, the nearest source first, and gathers
those of a deployment, each checkpoint read once.
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
from speclaunch.engine.facts.checkpoint import Checkpoint, FactSource, Origin, PartialConfig
from speclaunch.engine.facts.checkpoint_file import checkpoint_of, file_of, origin_of, read_file
from speclaunch.engine.facts.facts import Facts, UnknownFact, checkpoint_fact
from speclaunch.engine.facts.hardware import Hardware
from speclaunch.engine.facts.known_models import (
    HUB_NAME,
    candidates_for,
    likely,
    same_quantization,
    seems_to_be,
)
from speclaunch.engine.facts.read_checkpoint import from_config, read_checkpoint
from speclaunch.engine.facts.repository_facts import facts_file

if TYPE_CHECKING:
    from speclaunch.engine.facts.runtime import Runtime


class Sources(Struct, frozen=True):
    """Directories of checkpoints, the facts that a repository keeps, the index, the hub."""

    directories: tuple[Path, ...] = ()
    """`--models`, in the order given."""
    repository: tuple[Path, ...] = ()
    """Folders `.speclaunch/models`, the nearest first."""
    index: Path | None = None
    """The index that ships; None: not asked."""
    online: bool = False
    assume: tuple[tuple[str, str], ...] = ()
    """Pairs of a checkpoint and the one whose facts are taken for it, the first counts."""

    def assumed(self, name: str) -> str | None:
        """The checkpoint that `name` is assumed to be as."""
        return next((other for one, other in self.assume if one == name), None)


NOWHERE_ELSE = Sources()
"""This machine's directories and caches alone."""


_COMMIT = lazy(r"[0-9a-f]{1,64}\Z")
_MOST_SNAPSHOTS = 100


def places(
    name: str,
    model_dirs: Sequence[Path],
    environment: Mapping[str, str],
    revision: str | None,
) -> Iterator[Path]:
    """The directories where a checkpoint may be, nearest first."""
    if "\0" in name or not name:
        return
    path = Path(os.path.expanduser(name))  # noqa: PTH111  Path's own raises where there is no home
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
    """`/data/Llama-3.1-8B` of a script that runs elsewhere, or a model without its organisation."""
    yield directory / path.name
    if on_hub:  # another organisation's model of that name is another model
        return
    if path.parent.name not in ("", ".."):
        yield directory / path.parent.name / path.name
    found = list(islice(_below(directory, path.name), 2))
    if len(found) == 1:  # `meta-llama/Llama-3.1-8B`, when no other is called so
        yield found[0]


def _below(directory: Path, name: str) -> Iterator[Path]:
    """The checkpoints of that name in the directories below one."""
    try:
        inner = reads.names(directory)
    except OSError:
        return
    for organisation in inner:
        checkpoint = directory / organisation / name
        with contextlib.suppress(PermissionError):
            if reads.exists(checkpoint / "config.json"):
                yield checkpoint


def hub_cache(environment: Mapping[str, str], home: Path | None = None) -> Path:
    """Where the hub's library keeps what it downloads (huggingface_hub constants.py).

    `home`: the user's home directory; None: that of this process.
    """
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(variable):
            return expanded(environment[variable], home)
    return hub_home(environment, home) / "hub"


def hub_home(environment: Mapping[str, str], home: Path | None = None) -> Path:
    """The directory of the hub's library: its cache, its token."""
    chosen = environment.get("HF_HOME")
    if chosen:
        return expanded(chosen, home)
    caches = environment.get("XDG_CACHE_HOME")
    if caches or home is None:
        return expanded(caches or "~/.cache", home) / "huggingface"
    return home / ".cache" / "huggingface"


def expanded(path: str, home: Path | None = None) -> Path:
    """As the hub's library expands it; without a home directory `~` stays what it is."""
    if "$" in path:
        reads.unrepeatable()  # any variable
    return (home or Path()) / os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111


def _cached(cache: Path, name: str, revision: str | None) -> Iterator[Path]:
    """The snapshots of a model in a hub cache: the one asked for; else `main`, then the newest."""
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
    """The commit that a branch or tag of a hub cache points at."""
    try:
        said = read_start(path, 100)[0].decode("ascii", "replace").strip()
    except UnreadableFileError:
        return None
    return said if _COMMIT.match(said) else None


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
    """The facts of the checkpoint called `name`.

    The order: a directory of that name; below each of the sources' directories
    `organisation/name`, a hub cache, `name`; the Hugging Face cache; the repository's own facts;
    the index that ships; online the hub. Where the index knows only a part, or is in doubt, the
    hub goes before it. Then what `name` is assumed to be as. `revision` names a branch, a tag or a
    commit. Never raises for what it finds.
    """
    refused = _not_looked_for(name, revision)
    if refused is not None:
        return UnknownFact(checkpoint_fact(name), refused)
    variables = os.environ if environment is None else environment
    for directory in places(name, sources.directories, variables, revision):
        if is_file(directory / "config.json"):
            origin = Origin(_provenance(directory, sources, variables), str(directory))
            return read_checkpoint(name, directory, tokenizer=tokenizer, origin=origin)
    kept = kept_facts(name, sources, revision)
    whole = isinstance(kept, Checkpoint) and not kept.unread
    if isinstance(kept, Checkpoint) and kept.origin is not None and kept.origin.doubt is not None:
        whole = False
    if sources.online and HUB_NAME.match(name) and not whole:
        from speclaunch.engine.facts.hub import fetch_checkpoint  # noqa: PLC0415

        fetched = fetch_checkpoint(name, tokenizer=tokenizer, revision=revision or "main")
        kept = fetched if isinstance(fetched, Checkpoint) else kept or fetched
    other = sources.assumed(name)
    if not isinstance(kept, Checkpoint) and other not in (None, name):
        plain = replace(sources, assume=())
        return _as(name, str(other), find_checkpoint(str(other), plain, environment=environment))
    if kept is not None:
        return kept
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


def kept_facts(
    name: str, sources: Sources, revision: str | None = None
) -> Checkpoint | UnknownFact | None:
    """What the repository's files say, else the index; None where neither has the name.

    The index is asked by the path of a directory only where nothing is assumed of that name.
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
    """The facts of `other` for `name`; how the weights are stored only where the names agree."""
    if isinstance(found, UnknownFact):
        why = f"it is assumed to be as {other}, of which nothing is known: {found.why}"
        return UnknownFact(checkpoint_fact(name), why, found.help)
    origin = None if found.origin is None else replace(found.origin, assumed=other, stated=())
    known = {field: found.told(field) for field in _OF_TENSORS if field not in found.unread}
    raw = found.raw
    if not same_quantization(name, other):
        before = raw.unread if isinstance(raw, PartialConfig) else frozenset()
        raw = PartialConfig(name, _without_storage(raw), _STORAGE | before)
        known |= {"weight_bytes": None, "weights_rounded": False}
    elif found.told("quantization") is not None:
        known |= {key: found.told(key) for key in ("quantization", "quantization_config")}
    return from_config(name, raw, None, **known, origin=origin)


def _without_storage(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config and its parts without what says how the weights are stored."""
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
    given = any(directory.is_relative_to(one) for one in sources.directories)
    cached = directory.is_relative_to(hub_cache(environment))
    return FactSource.CACHE if cached and not given else FactSource.DIRECTORY


def _nowhere(name: str, sources: Sources, revision: str | None) -> str:
    on_hub = HUB_NAME.match(name) is not None
    where = ["the Hugging Face cache" if on_hub else "a directory of that name"]
    where += [str(directory) for directory in sources.directories]
    wanted = "" if revision is None else f" of its revision {revision}"
    listed = ", and it is not in speclaunch's index" if on_hub and sources.index else ""
    return f"no config.json{wanted} in {' or '.join(where)}{listed}"


def _remedy(name: str, sources: Sources) -> str:
    """What would make a checkpoint known; a listed one that it seems to be is only named."""
    told = "give --models DIR" + ("" if sources.online else ", or --online")
    sibling = seems_to_be(name) if sources.index is not None else None
    if sibling is None:
        return told
    return f"it seems to be {sibling}: if so give --assume {name}={sibling}; else {told}"


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
    """The facts of a target and a draft (None: not named, or not known) and of what they run on.

    `tokenizers`: read their vocabularies, too; only STANDALONE compares them. What is read is
    kept for as long as this process runs: a checkpoint that many files name is read once.
    """
    found = [
        None if name is None else _found(name, sources, tokenizers, revision)
        for name, revision in ((target, target_revision), (draft, draft_revision))
    ]
    known = [one if isinstance(one, Checkpoint) else None for one in found]
    unknown = dict.fromkeys(one for one in found if isinstance(one, UnknownFact))
    made = () if target is None or sources.index is None else candidates_for(target)
    return Facts(known[0], known[1], hardware, runtime, tuple(unknown), made)


@reads.remembered(1024)
def _found(
    name: str, sources: Sources, tokenizers: bool, revision: str | None
) -> Checkpoint | UnknownFact:
    return find_checkpoint(name, sources, tokenizer=tokenizers, revision=revision)

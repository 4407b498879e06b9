"""The directories where a checkpoint may be: of its name, below others, in a hub cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from speclaunch import reads
from speclaunch.facts.hub_name import HUB_NAME
from speclaunch.patterns import lazy
from speclaunch.reads.safe_json import UnreadableFileError, is_directory, read_start

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

"""Finds the checkpoint that a model path means: a directory, a cache, or the hub."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from speclaunch.facts.checkpoint import Checkpoint
from speclaunch.facts.facts import UnknownFact
from speclaunch.facts.read_checkpoint import read_checkpoint

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?\Z")
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


def find_checkpoint(
    name: str,
    model_dirs: Sequence[Path] = (),
    *,
    online: bool = False,
    tokenizer: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Checkpoint | UnknownFact:
    """The facts of the checkpoint called `name`.

    The order: a directory of that name; `DIR/name` and the hub cache in each of `model_dirs`; the
    Hugging Face cache; with `online` the hub. Never raises for what it finds.
    """
    what = f"the checkpoint {name}"
    if _REMOTE.match(name) or name.endswith(".gguf"):
        return UnknownFact(what, "only directories and hub names are read", None)
    try:
        for directory in _places(name, model_dirs, environment or os.environ):
            if (directory / "config.json").is_file():
                return read_checkpoint(name, directory, tokenizer=tokenizer)
    except (OSError, ValueError) as error:  # a name that no file system takes
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return UnknownFact(what, f"{reason}")
    if online and _HUB_NAME.match(name):
        from speclaunch.facts.hub import fetch_checkpoint  # noqa: PLC0415

        return fetch_checkpoint(name, tokenizer=tokenizer)
    where = "the directories of --models and the Hugging Face cache"
    return UnknownFact(
        what, f"it is not in {where}", "give --models DIR" + ("" if online else ", or --online")
    )


def _places(
    name: str, model_dirs: Sequence[Path], environment: Mapping[str, str]
) -> Iterator[Path]:
    """The directories where a checkpoint may be, nearest first."""
    if "\0" in name or not name:
        return
    path = Path(os.path.expanduser(name))  # noqa: PTH111  Path's own raises where there is no home
    if path.is_dir():
        yield path
    inside = _HUB_NAME.match(name) is not None
    for directory in model_dirs:
        if inside:
            yield directory / name
            yield from _cached(directory, name)
        elif path.name not in ("", ".."):
            # `/models/Llama-3.1-8B` of a script that runs elsewhere: the same directory's name
            yield directory / path.name
            below = list(directory.glob(f"*/{glob.escape(path.name)}/config.json"))
            if len(below) == 1:  # `meta-llama/Llama-3.1-8B`, when no other is called so
                yield below[0].parent
    if inside:
        yield from _cached(_hub_cache(environment), name)


def _hub_cache(environment: Mapping[str, str]) -> Path:
    """As huggingface_hub finds it (its constants.py)."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(variable):
            return Path(os.path.expanduser(environment[variable]))  # noqa: PTH111
    home = environment.get("HF_HOME")
    if not home:
        cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
        home = f"{cache}/huggingface"
    return Path(os.path.expanduser(home)) / "hub"  # noqa: PTH111


def _cached(cache: Path, name: str) -> Iterator[Path]:
    """The snapshots of a model in a hub cache: that of `main` first, then the newest."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshots = repository / "snapshots"
    if not snapshots.is_dir():
        return
    main = repository / "refs" / "main"
    if main.is_file():
        revision = main.read_text(encoding="utf-8", errors="replace").strip()
        if re.fullmatch(r"[0-9a-f]{1,64}", revision):
            yield snapshots / revision
    yield from sorted(snapshots.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)

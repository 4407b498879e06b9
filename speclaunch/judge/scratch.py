"""The files of one question: configs of models that are known without being on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from speclaunch.judge.interface import Question
from speclaunch.record import record

_RESERVED = frozenset(
    {
        *("HOME", "TMPDIR", "XDG_CACHE_HOME", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD"),
        *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
    }
)
_RESERVED_BEGIN = ("HF_", "TRANSFORMERS_", "HUGGING", "PYTHON", "http", "HTTP", "no_proxy")
"""Variables that are the worker's own: where it writes, that it has no network."""


@record
class Placed:
    """A question whose files are laid out."""

    words: list[str]
    env: dict[str, str]
    folder: Path
    """Where it is asked."""
    ids: dict[str, str]
    """Paths that stand for model ids, and those ids."""

    def own_names(self, text: str) -> str:
        """A text of the engine's with the ids as they were written."""
        for path, name in self.ids.items():
            text = text.replace(path, name)
        return text

    def own_names_in(self, value: Any) -> Any:
        """The same for a value of its settings."""
        if isinstance(value, str):
            return self.own_names(value)
        if isinstance(value, list):
            return [self.own_names_in(one) for one in value]
        return value


@contextmanager
def place(question: Question, scratch: Path) -> Iterator[Placed]:
    """Lay the files of a question out for as long as the block lasts.

    A model whose config is known becomes a folder. Where the engine is asked in a folder of ours
    and the id can be the folder's path, the command stays as it is; else the path takes the id's
    place in the words, and back in what the engine says.
    """
    if question.folder is not None and not question.configs:
        yield Placed(list(question.words), _own_env(question), question.folder, {})
        return
    own = Path(tempfile.mkdtemp(dir=scratch))
    try:
        folder = question.folder or own
        ids: dict[str, str] = {}
        for name, text in question.configs:
            if not name:
                continue
            parts = [part for part in PurePosixPath(name).parts if part.strip("/") and part != ".."]
            plain = question.folder is None and "/".join(parts) == name and "~" not in name
            model = own.joinpath(*parts) if plain else own.joinpath("models", *parts)
            model.mkdir(parents=True, exist_ok=True)
            (model / "config.json").write_text(text, encoding="utf-8")
            if not plain:
                ids[str(model)] = name
        paths = {name: path for path, name in ids.items()}
        words = [_with_path(word, paths) for word in question.words]
        yield Placed(words, _own_env(question), folder, ids)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _own_env(question: Question) -> dict[str, str]:
    return {
        name: value
        for name, value in question.env
        if name not in _RESERVED and not name.startswith(_RESERVED_BEGIN)
    }


def _with_path(word: str, paths: dict[str, str]) -> str:
    flag, equals, value = word.partition("=")
    if equals and flag.startswith("--") and value in paths:
        return f"{flag}={paths[value]}"
    return paths.get(word, word)

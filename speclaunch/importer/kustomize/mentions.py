"""Whether a kustomization has anything to do with a server: asked before anything is composed.

Most kustomizations of a repository have not: of theirs only the kustomizations are parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from speclaunch import reads
from speclaunch.errors import InputError
from speclaunch.importer import nodes
from speclaunch.importer.file_kinds import KUSTOMIZATIONS, MAX_BYTES
from speclaunch.importer.source_text import Document
from speclaunch.importer.wrappers import READ

_FILES = ("resources", "bases", "components", "patchesStrategicMerge")
_WITH_PATH = ("patches", "patchesJson6902")
_MOST = 300


def mentions_a_server(path: Path, data: bytes, roots: list[Path]) -> bool:
    """Whether a kustomization, or a file below `roots` that it names, mentions one."""
    waiting = [(path, data)]
    seen: set[Path] = set()
    while waiting and len(seen) < _MOST:
        found, content = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        text = content.decode("utf-8", "replace")
        if READ.search(text) is not None:
            return True
        if found.name in KUSTOMIZATIONS:
            waiting += _named(text, found.parent, roots)
    return False


def _named(text: str, base: Path, roots: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """The files that a kustomization names."""
    try:
        documents = nodes.load(Document(text.replace("\0", ""), "kustomization.yaml"))
    except InputError:
        return
    for name in _names(documents[0] if documents else None):
        path = base / name
        try:
            if reads.is_dir(path):
                path = next(
                    (path / one for one in KUSTOMIZATIONS if reads.is_file(path / one)), path
                )
            if not any(reads.resolve(path).is_relative_to(root) for root in roots):
                continue
            if reads.is_file(path) and reads.size(path) <= MAX_BYTES:
                yield path, reads.read_bytes(path)
        except (OSError, ValueError):
            continue


def _names(root: yaml.Node | None) -> Iterator[str]:
    keys = nodes.entries(root)
    for name in _FILES:
        for item in nodes.items(keys.get(name)):
            text = nodes.text(item)
            if text and "\n" not in text:
                yield text
    for name in _WITH_PATH:
        for item in nodes.items(keys.get(name)):
            text = nodes.text(nodes.entries(item).get("path"))
            if text:
                yield text
    for item in nodes.items(keys.get("configMapGenerator")):
        for one in nodes.items(nodes.entries(item).get("files")):
            yield (nodes.text(one) or "").rpartition("=")[2]

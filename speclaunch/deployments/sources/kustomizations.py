"""Compose a directory's kustomization without running kustomize, and search the result for servers.

Every value keeps its place: in a base, in a patch, or in the kustomization. Unsupported parts are
reported, and the result is then not checked.

Files are only read below the working directory or the repository, because a finding must never
quote a line from elsewhere on the machine. Nothing is fetched. Most kustomizations of a repository
do not concern a server; the files that they name are not parsed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import InputError, Place, Problem, reads
from speclaunch.deployments.sources import kustomize_transforms, nodes
from speclaunch.deployments.sources.effective_words import allowed_roots
from speclaunch.deployments.sources.interface import READ, Reading
from speclaunch.deployments.sources.kustomize_transforms import (
    NotUnderstoodError,
    Resource,
    apply_patch,
    resource,
)
from speclaunch.deployments.sources.nodes import Entries, changed, mapping, scalar
from speclaunch.deployments.sources.source_text import KUSTOMIZATIONS, MAX_BYTES, Document


class Mark(Struct, frozen=True):
    """Position of a node, with the attributes of a PyYAML mark that the readers use."""

    index: int
    line: int
    column: int


class JoinedDocument(Document):
    """Concatenated texts of several files; `shown` names the first file."""

    def __init__(self, shown: str) -> None:
        super().__init__("", shown)
        self._parts: list[Document] = []
        self._starts: list[int] = []

    def add(self, text: str, shown: str) -> tuple[Document, int]:
        """Add a file. Return its own document, and its start offset in this document."""
        part = Document(text, shown)
        start = len(self.text)
        self._parts.append(part)
        self._starts.append(start)
        self.text += part.text + "\n"
        return part, start

    def _part(self, at: int) -> int:
        return max(bisect_right(self._starts, at) - 1, 0)

    def place(self, at: int, length: int = 1) -> Place:
        """Return the place of a character in its own file."""
        if not self._parts:
            return Place(self.shown)
        index = self._part(at)
        return self._parts[index].place(at - self._starts[index], length)

    def at(self, place: Place) -> int:
        """Return the offset in this document of a place in one of its files."""
        for part, start in zip(self._parts, self._starts, strict=True):
            if part.shown == place.path:
                return start + part.at(place)
        return 0

    def stretch(self, at: int) -> tuple[int, int]:
        if not self._parts:
            return super().stretch(at)
        index = self._part(at)
        return self._starts[index], self._starts[index] + len(self._parts[index].text)

    def excerpt(self, start: int, text: str) -> Document:
        """Return `text`, which begins a line at `start`, as a document with the file's places."""
        index = self._part(start)
        found = self._parts[index].excerpt(start - self._starts[index], text)
        found._parent = self
        found._chars_above = start
        return found


def moved(roots: Sequence[yaml.Node], where: Sequence[int] | int) -> None:
    """Set the marks of nodes to their positions in the joined document.

    `where` is the start offset of their text, or the offset of each of its characters.
    """
    for root in roots:
        for node in nodes.walk(root):
            _move(node, where)
            if isinstance(node, yaml.MappingNode):
                for key, _ in node.value:
                    _move(key, where)


def _move(node: yaml.Node, where: Sequence[int] | int) -> None:
    start, end = node.start_mark, node.end_mark
    if isinstance(start, Mark):
        return
    if isinstance(where, int):
        first, last = where + start.index, where + end.index
    else:
        first = where[min(start.index, len(where) - 1)] if where else 0
        last = where[min(end.index, len(where)) - 1] + 1 if where and end.index else first
    node.start_mark = Mark(first, start.line, start.column)
    node.end_mark = Mark(max(last, first), end.line, end.column)


_MAX_FILES = 300
_MAX_DEPTH = 12
_READ_ONLY = "kustomize composes it from several files"
_IGNORED = frozenset(
    {"apiVersion", "kind", "metadata", "commonAnnotations", "secretGenerator", "buildMetadata"}
    | {"generatorOptions", "sortOptions", "crds", "openapi"}
)
"""Keys that do not affect the servers."""
_READ_KEYS = frozenset(
    {"resources", "bases", "components", "patches", "patchesStrategicMerge", "patchesJson6902"}
    | {"images", "replicas", "namePrefix", "nameSuffix", "namespace", "labels", "commonLabels"}
    | {"configMapGenerator"}
)
_REMOTE = ("://", "git@", "github.com/", "?ref=")


def read_kustomization(path: Path, data: bytes, shown: str) -> Reading:
    """Return the servers in a composed kustomization; empty if none of its files has a server."""
    roots = [reads.resolve(folder) for folder in allowed_roots(path.parent)]
    if not mentions_a_server(path, data, roots):
        return Reading()
    composing = _Composing(roots, shown)
    try:
        composed = composing.directory(path, data, shown)
    except NotUnderstoodError as error:
        return Reading(problems=(composing.problem(error, shown),))
    from speclaunch.deployments.sources import containers  # noqa: PLC0415  few of them hold a server

    objects = [manifest.node for manifest in composed]
    reading = containers.read_kubernetes(objects, composing.document)
    found = tuple(replace(invocation, read_only=_READ_ONLY) for invocation in reading.invocations)
    return replace(reading, invocations=found)


def composed_objects(path: Path) -> list[yaml.Node] | None:
    """Return the objects that a kustomization composes; None if a part is unsupported."""
    composing = _Composing(
        [reads.resolve(folder) for folder in allowed_roots(path.parent)], str(path)
    )
    try:
        found = composing.directory(path, reads.read_bytes(path), str(path))
    except NotUnderstoodError:
        return None
    return [manifest.node for manifest in found]


class _Composing:
    def __init__(self, roots: list[Path], shown: str) -> None:
        self.document = JoinedDocument(shown)
        self._roots = roots
        self._read: dict[str, tuple[str, int]] = {}
        self._open: list[Path] = []
        self._bytes = 0

    def problem(self, error: NotUnderstoodError, shown: str) -> Problem:
        place = Place(shown) if error.node is None else nodes.place(error.node, self.document)
        return Problem(f"the output of this kustomization is unknown: {error}", place)

    def directory(self, path: Path, data: bytes, shown: str) -> list[Resource]:
        """Return the objects that a kustomization composes."""
        roots = self._nodes(path, data, shown)
        with self._inside(path.parent):
            return self._composed(roots[0], path.parent, []) if roots else []

    @contextmanager
    def _inside(self, directory: Path) -> Iterator[None]:
        """Track the directory while its kustomization is composed.

        Raise NotUnderstoodError if the kustomization contains itself or is nested too deeply.
        """
        real = reads.resolve(directory)
        if len(self._open) >= _MAX_DEPTH or real in self._open:
            raise NotUnderstoodError("kustomizations contain each other")
        self._open.append(real)
        try:
            yield
        finally:
            self._open.pop()

    def _composed(self, root: yaml.Node, base: Path, found: list[Resource]) -> list[Resource]:
        keys = nodes.entries(root)
        for key, key_node, _ in nodes.pairs(root):
            if key not in _READ_KEYS and key not in _IGNORED:
                raise NotUnderstoodError(f"`{key}` is not supported", key_node)
        for name in ("resources", "bases"):
            for item in nodes.items(keys.get(name)):
                found += self._resource(item, base)
        for item in nodes.items(keys.get("components")):
            path, data, shown = self._kustomization(item, base)
            roots = self._nodes(path, data, shown)
            with self._inside(path.parent):
                found = self._composed(roots[0], path.parent, found) if roots else found
        for item in nodes.items(keys.get("configMapGenerator")):
            self._config_map(item, base, found)
        self._patches(keys, base, found)
        kustomize_transforms.names(keys, found)
        kustomize_transforms.labels(keys, found)
        for item in nodes.items(keys.get("patchesJson6902")):
            self._patch(item, base, found)
        kustomize_transforms.replicas(keys, found)
        kustomize_transforms.images(keys, found, self.document)
        return found

    def _resource(self, item: yaml.Node, base: Path) -> list[Resource]:
        name = nodes.text(item)
        if name is None:
            raise NotUnderstoodError("a resource is not a path", item)
        if any(mark in name for mark in _REMOTE):
            raise NotUnderstoodError(f"`{name}` is not on this machine", item)
        if reads.is_dir(base / name):
            path, data, shown = self._kustomization(item, base)
            return self.directory(path, data, shown)
        return [
            resource(node)
            for root in self._file(name, base, item)
            for node in (nodes.items(nodes.entries(root).get("items")) or [root])
        ]

    def _kustomization(self, item: yaml.Node, base: Path) -> tuple[Path, bytes, str]:
        name = nodes.text(item) or ""
        for each in sorted(KUSTOMIZATIONS, reverse=True):
            path = base / name / each
            if reads.is_file(path):
                return path, self._bytes_of(path, item), _shown(path)
        raise NotUnderstoodError(f"`{name}` has no kustomization", item)

    def _patches(self, keys: Entries, base: Path, found: list[Resource]) -> None:
        for item in nodes.items(keys.get("patchesStrategicMerge")):
            text = nodes.text(item) or ""
            if isinstance(item, yaml.ScalarNode) and "\n" in text:
                patches = self._inline(item)
            else:
                patches = self._file(text, base, item)
            apply_patch(patches, None, found, item, self.document)
        for item in nodes.items(keys.get("patches")):
            self._patch(item, base, found)

    def _patch(self, item: yaml.Node, base: Path, found: list[Resource]) -> None:
        entry = nodes.entries(item)
        inline, name = entry.get("patch"), nodes.text(entry.get("path"))
        if "options" in entry:
            raise NotUnderstoodError("`options` of a patch are not supported", entry["options"])
        if isinstance(inline, yaml.ScalarNode):
            patches = self._inline(inline)
        elif name is not None:
            patches = self._file(name, base, item)
        else:
            raise NotUnderstoodError("a patch has neither `path` nor `patch`", item)
        target = nodes.entries(entry["target"]) if "target" in entry else None
        apply_patch(patches, target, found, item, self.document)

    def _config_map(self, item: yaml.Node, base: Path, found: list[Resource]) -> None:
        entry = nodes.entries(item)
        name, behavior = entry.get("name"), nodes.text(entry.get("behavior"))
        data: dict[str, yaml.Node] = {}
        for literal in nodes.items(entry.get("literals")):
            key, equals, value = (nodes.text(literal) or "").partition("=")
            if equals:
                data[key] = scalar(value.strip("\"'"), literal)
        for source in nodes.items(entry.get("files")):
            key, equals, file = (nodes.text(source) or "").rpartition("=")
            data[key if equals else Path(file).name] = self._text(file, base, source)
        if name is None or "envs" in entry or "env" in entry:
            why = "a generator that reads variables from a file is not supported"
            raise NotUnderstoodError(why, item)
        maps = (known for known in found if known.kind == "ConfigMap")
        held = next((known for known in maps if nodes.text(name) in known.names), None)
        if held is not None and behavior in ("merge", "replace"):
            old = nodes.entries(nodes.entries(held.node).get("data"))
            merged = {**(old if behavior == "merge" else {}), **data}
            held.node = changed(held.node, {"data": _mapped(merged, item)})
            return
        fields = {
            "kind": scalar("ConfigMap", item),
            "metadata": _mapped({"name": name}, item),
            "data": _mapped(data, item),
        }
        found.append(resource(_mapped(fields, item)))

    # -- files --------------------------------------------------------------------------

    def _inline(self, node: yaml.ScalarNode) -> list[yaml.Node]:
        """Return the documents of a patch that the kustomization contains as text."""
        source = nodes.source(node, self.document)
        where = source.where
        offsets = [where + i for i in range(len(source.text))] if isinstance(where, int) else where
        roots = _parsed(source.text, self.document.place(source.offset(0)).path, node)
        moved(roots, offsets)
        return roots

    def _file(self, name: str, base: Path, item: yaml.Node) -> list[yaml.Node]:
        path = base / name
        return self._nodes(path, self._bytes_of(path, item), _shown(path), item)

    def _nodes(
        self, path: Path, data: bytes, shown: str, item: yaml.Node | None = None
    ) -> list[yaml.Node]:
        """Return the documents of a file, which is added to `document` only once."""
        key = os.path.normpath(path)
        if key not in self._read:
            part, start = self.document.add(_decoded(data, shown, item), shown)
            self._read[key] = part.text, start
        text, start = self._read[key]
        roots = _parsed(text, shown, item)
        moved(roots, start)
        return roots

    def _text(self, name: str, base: Path, item: yaml.Node) -> yaml.Node:
        path = base / name
        part, start = self.document.add(
            _decoded(self._bytes_of(path, item), name, item), _shown(path)
        )
        node = scalar(part.text, item)
        node.style = "file"
        node.start_mark = Mark(start, 0, 0)
        node.end_mark = Mark(start + len(part.text), 0, 0)
        return node

    def _bytes_of(self, path: Path, item: yaml.Node | None) -> bytes:
        real = reads.resolve(path)
        if not any(real.is_relative_to(root) for root in self._roots):
            raise NotUnderstoodError(f"`{path}` is outside the checked directories", item)
        try:
            if not reads.is_file(path):
                raise NotUnderstoodError(f"`{path}` does not exist", item)
            self._bytes += reads.size(path)
            if self._bytes > MAX_BYTES or len(self._read) > _MAX_FILES:
                raise NotUnderstoodError("it has too many files, or they are too large", item)
            return reads.read_bytes(path)
        except (OSError, ValueError) as error:
            raise NotUnderstoodError(f"`{path}` cannot be read", item) from error


def _mapped(values: dict[str, yaml.Node], like: yaml.Node) -> yaml.MappingNode:
    return mapping([(scalar(key, value), value) for key, value in values.items()], like)


def _parsed(text: str, shown: str, item: yaml.Node | None) -> list[yaml.Node]:
    try:
        return nodes.load(Document(text, shown))
    except InputError as error:
        raise NotUnderstoodError(f"{shown} is not YAML", item) from error


def _decoded(data: bytes, shown: str, item: yaml.Node | None) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotUnderstoodError(f"{shown} is not UTF-8 text", item) from error
    if "\0" in text:
        raise NotUnderstoodError(f"{shown} is not a text file", item)
    return text


def _shown(path: Path) -> str:
    return os.path.normpath(path)


_FILES = ("resources", "bases", "components", "patchesStrategicMerge")
_WITH_PATH = ("patches", "patchesJson6902")


def mentions_a_server(path: Path, data: bytes, roots: list[Path]) -> bool:
    """True if a kustomization, or a file below `roots` that it names, mentions a server."""
    waiting = [(path, data)]
    seen: set[Path] = set()
    while waiting and len(seen) < _MAX_FILES:
        found, content = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        text = content.decode("utf-8", "replace")
        if READ.search(text) is not None:
            return True
        if found.name in KUSTOMIZATIONS:
            waiting += _named_files(text, found.parent, roots)
    return False


def _named_files(text: str, base: Path, roots: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield the files below `roots` that a kustomization names, with their contents."""
    try:
        documents = nodes.load(Document(text.replace("\0", ""), "kustomization.yaml"))
    except InputError:
        return
    for name in _names(documents[0] if documents else None):
        path = base / name
        try:
            if reads.is_dir(path):
                path = next(
                    (path / name for name in KUSTOMIZATIONS if reads.is_file(path / name)), path
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
        for source in nodes.items(nodes.entries(item).get("files")):
            yield (nodes.text(source) or "").rpartition("=")[2]

"""Containers in YAML: docker-compose services and Kubernetes pods of any kind of object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

import yaml

from speclaunch.errors import InputError, Problem
from speclaunch.importer import nodes
from speclaunch.importer.commands import Around, look
from speclaunch.importer.config_maps import ConfigMaps, config_maps
from speclaunch.importer.interface import Comment, Dropped, Invocation, Reading, Word
from speclaunch.importer.interpret import run
from speclaunch.importer.scope import Field, ShellScope, Value
from speclaunch.importer.source_text import (
    DefaultOf,
    Document,
    SourceSpan,
    SourceText,
    WordPiece,
    joined,
)
from speclaunch.importer.splitting import split
from speclaunch.importer.wrappers import SERVER
from speclaunch.patterns import lazy

_MARK = r"\{\{[^{}\n]*\}\}"
"""What a template fills in."""
_COMPOSE = lazy(rf"\$(?:\$|\{{([A-Za-z_]\w*)(?:(:?[-?+])([^{{}}]*))?\}}|([A-Za-z_]\w*))|{_MARK}")
_KUBERNETES = lazy(rf"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))|{_MARK}")
_COMMENT = lazy(r"(?:^|[ \t])#[^\n]*", re.MULTILINE)

_READ_OF_SERVICES = frozenset({"image", "entrypoint", "command", "environment", "env_file"})
_READ_OF_CONTAINERS = frozenset({"name", "image", "command", "args", "env", "envFrom"})
_CONTAINERS = ("initContainers", "containers")
_READ_OF_PODS = frozenset(_CONTAINERS)

Env = dict[str, Field]


def read_compose(root: yaml.Node, document: Document) -> Reading:
    """The server commands of a docker-compose file."""
    reading = _Collected(document)
    for name, service in nodes.entries(nodes.entries(root).get("services")).items():
        keys = nodes.entries(service)
        env, passed = _compose_environment(keys.get("environment"), document)
        dropped = (
            *_noted(keys, ("env_file",), document, "the variables in that file are not read"),
            *_left_out(keys, _READ_OF_SERVICES, document),
        )
        words = [
            *_compose_words(keys.get("entrypoint"), document),
            *_compose_words(keys.get("command"), document),
        ]
        with reading.within(_image(keys, document)):
            reading.command(words, env, passed, name, dropped)
    return reading.done()


def read_kubernetes(roots: Sequence[yaml.Node], document: Document) -> Reading:
    """The server commands of every container in Kubernetes objects."""
    reading = _Collected(document)
    maps = config_maps(roots, document)
    for root in roots:
        owner = nodes.text(nodes.entries(nodes.entries(root).get("metadata")).get("name"))
        for node in nodes.walk(root):
            keys = nodes.entries(node)
            pod = tuple(_left_out(keys, _READ_OF_PODS, document, "pod"))
            for group in _CONTAINERS:
                for container in nodes.items(keys.get(group)):
                    _container(container, owner, maps.seen_from(root), pod, reading)
        if nodes.text(nodes.entries(root).get("kind")) == "ConfigMap":
            for name, value in nodes.entries(nodes.entries(root).get("data")).items():
                reading.script(value, Around(name=f"{owner}/{name}" if owner else name))
    return reading.done()


def read_scripts(roots: Sequence[yaml.Node], document: Document) -> Reading:
    """The server commands in any other YAML: texts that are scripts, lists that are commands."""
    reading = _Collected(document)
    for root in roots:
        for node in nodes.walk(root):
            if isinstance(node, yaml.SequenceNode):
                words = [
                    _substituted(nodes.source(item, document), {})
                    for item in node.value
                    if isinstance(item, yaml.ScalarNode)
                ]
                if any(word.text in ("-m", "sglang") for word in words):
                    reading.command(words, {}, {}, None, ())
            else:
                reading.script(node, Around())
    return reading.done()


def _container(
    container: yaml.Node,
    owner: str | None,
    maps: ConfigMaps,
    pod: tuple[Dropped, ...],
    reading: _Collected,
) -> None:
    keys, document = nodes.entries(container), maps.document
    env: Env = maps.variables(keys.get("envFrom"))
    for item in nodes.items(keys.get("env")):
        entry = nodes.entries(item)
        name = nodes.text(entry.get("name"))
        if name is None:
            continue
        value = entry.get("value")
        if isinstance(value, yaml.ScalarNode):
            env[name] = _substituted(nodes.source(value, document), env)
        elif entry.get("valueFrom") is not None:
            source = entry["valueFrom"]
            env[name] = maps.value(source) or _elsewhere(name, source, document)
        else:
            env[name] = _text_at("", item, document)
    words = [
        _substituted(nodes.source(item, document), env)
        for key in ("command", "args")
        for item in _listed(keys.get(key))
        if isinstance(item, yaml.ScalarNode)
    ]
    own = nodes.text(keys.get("name"))
    name = "/".join(part for part in (owner, own) if part) or None
    dropped = (
        *maps.elsewhere(keys.get("envFrom")),
        *_left_out(keys, _READ_OF_CONTAINERS, document),
        *pod,
    )
    with reading.within(_image(keys, document)):
        reading.command(words, env, {}, name, dropped)


def _image(keys: Mapping[str, yaml.Node], document: Document) -> str | None:
    """The image of a container, with the defaults of Compose's variables."""
    node = keys.get("image")
    if not isinstance(node, yaml.ScalarNode) or nodes.text(node) is None:
        return None
    return _interpolated(nodes.source(node, document)).text


def _listed(node: yaml.Node | None) -> list[yaml.Node]:
    return [node] if isinstance(node, yaml.ScalarNode) else nodes.items(node)


def _elsewhere(name: str, node: yaml.Node, document: Document) -> Field:
    """A variable whose value the cluster gives."""
    kind = next(iter(nodes.entries(node)), "another object")
    detail = nodes.entries(nodes.entries(node).get(kind))
    which = "/".join(
        shown for key in ("name", "key", "fieldPath") if (shown := nodes.text(detail.get(key)))
    )
    why = f"`{name}` comes from the cluster ({kind}{' ' + which if which else ''})"
    found = _text_at(f"$({name})", node, document)
    return Field(tuple(replace(piece, unknown=why) for piece in found.pieces))


def _text_at(text: str, node: yaml.Node, document: Document) -> Field:
    start, _ = nodes.offsets(node, document)
    return Field((WordPiece(text, SourceText(document, text, [start] * len(text) or [start]), 0),))


def _noted(
    keys: Mapping[str, yaml.Node], names: Sequence[str], document: Document, why: str
) -> tuple[Dropped, ...]:
    return tuple(
        Dropped(name, nodes.place(keys[name], document), why) for name in names if name in keys
    )


def _left_out(
    keys: Mapping[str, yaml.Node], read: frozenset[str], document: Document, what: str = "container"
) -> Iterator[Dropped]:
    """How a container or pod is set up (`volumes`, `shm_size`, `ports`, …), in one remark."""
    rest = [name for name in keys if name not in read]
    if rest:
        why = f"the caller sets up the {what}"
        yield Dropped(", ".join(rest), nodes.place(keys[rest[0]], document), why)


def _substituted(source: SourceText, env: Mapping[str, Field]) -> Field:
    """Kubernetes' ``$(NAME)`` replaced by the variables before it; others stay as they are."""
    pieces: list[WordPiece] = []
    at = 0
    for match in _KUBERNETES.finditer(source.text):
        pieces.append(_exact(source, at, match.start()))
        at = match.end()
        if match[0].startswith("{"):
            pieces.append(_filled_in(source, match))
        elif match[1] is None:
            pieces.append(WordPiece("$", source, match.start(), quoted=True, exact=False))
        elif match[1] in env:
            pieces.extend(env[match[1]].pieces)
        else:
            why = f"`{match[1]}` is not set in this object"
            raw = _exact(source, match.start(), match.end())
            pieces.append(replace(raw, unknown=why))
        source.document.spend(1 + len(pieces) // 50)
        if sum(len(piece.text) for piece in pieces) > 1 << 16:
            why = "it is longer than 65536 characters"
            return Field((WordPiece(source.text, source, 0, quoted=True, unknown=why),))
    pieces.append(_exact(source, at, len(source.text)))
    kept = tuple(piece for piece in pieces if piece.text)
    whole = SourceSpan(source, 0, len(source.text))
    if len({id(piece.source) for piece in kept}) > 1:
        return Field(kept, whole)  # put together here
    if kept and kept[0].source is not source:
        return Field(kept, None, whole)
    return Field(kept or (WordPiece("", source, 0, quoted=True),))


def _filled_in(source: SourceText, mark: re.Match[str]) -> WordPiece:
    why = f"a template fills in `{mark[0]}`"
    return replace(_exact(source, mark.start(), mark.end()), unknown=why, inside=True)


def _exact(source: SourceText, start: int, end: int) -> WordPiece:
    return WordPiece(source.text[start:end], source, start, quoted=True)


def _compose_words(node: yaml.Node | None, document: Document) -> list[Field]:
    """A ``command`` or ``entrypoint``: a list of words, or a text that is split into words."""
    if isinstance(node, yaml.SequenceNode):
        return [
            _interpolated(nodes.source(item, document))
            for item in node.value
            if isinstance(item, yaml.ScalarNode)
        ]
    if not isinstance(node, yaml.ScalarNode) or nodes.text(node) is None:
        return []
    whole = _interpolated(nodes.source(node, document))
    document.spend(len(whole.pieces) + len(str(node.value)) // 20)
    return split(whole.pieces)


def _interpolated(source: SourceText) -> Field:
    """Compose's own ``${NAME:-default}``: the variables of whoever runs it are not known."""
    pieces: list[WordPiece] = []
    at = 0
    for match in _COMPOSE.finditer(source.text):
        pieces.append(_exact(source, at, match.start()))
        at = match.end()
        name = match[1] or match[4]
        if match[0].startswith("{"):
            pieces.append(_filled_in(source, match))
        elif name is None:
            pieces.append(WordPiece("$", source, match.start(), quoted=True, exact=False))
        elif match[2] in ("-", ":-"):
            note = f"the default of `{name}`, which comes from the environment of Compose"
            start = match.start(3)
            piece = replace(_exact(source, start, match.end(3)), note=note)
            around = DefaultOf(name, match[2] == ":-", start, 0)
            pieces.append(replace(piece, around=(around,)))
        else:
            why = f"`{name}` comes from the environment of Compose"
            pieces.append(replace(_exact(source, match.start(), match.end()), unknown=why))
    pieces.append(_exact(source, at, len(source.text)))
    source.document.spend(len(pieces))
    kept = tuple(piece for piece in pieces if piece.text)
    return Field(kept or (WordPiece("", source, 0, quoted=True),))


def _compose_environment(node: yaml.Node | None, document: Document) -> tuple[Env, Env]:
    """The environment of a service, and the variables that it passes on."""
    env: Env = {}
    passed: Env = {}
    for key, key_node, value in nodes.pairs(node):
        if isinstance(value, yaml.ScalarNode) and nodes.text(value) is not None:
            env[key] = _interpolated(nodes.source(value, document))
        else:
            passed[key] = nodes.field(key_node, document)
    for item in nodes.items(node):
        if not isinstance(item, yaml.ScalarNode):
            continue
        source = nodes.source(item, document)
        name, equals, _ = source.text.partition("=")
        if equals:
            env[name] = _interpolated(source.part(len(name) + 1, len(source.text)))
        else:
            passed[name] = nodes.field(item, document)
    return env, passed


class _Collected:
    """Gathers what the containers of one file hold."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.invocations: list[Invocation] = []
        self.problems: list[Problem] = []
        self.unread: list[Problem] = []
        self.misread: list[Problem] = []

    @contextmanager
    def within(self, image: str | None) -> Iterator[None]:
        """What is found inside runs in this image."""
        first = len(self.invocations)
        yield
        for index in range(first, len(self.invocations)):
            found = self.invocations[index]
            self.invocations[index] = replace(found, image=found.image or image)

    def done(self) -> Reading:
        return Reading(
            tuple(self.invocations),
            tuple(self.problems),
            tuple(self.unread),
            tuple(self.misread),
        )

    def command(
        self,
        words: Sequence[Field],
        env: Env,
        passed: Env,
        name: str | None,
        dropped: tuple[Dropped, ...],
    ) -> None:
        """A command as a list of words: a server, or a shell with a script."""
        found = look(words)
        known = {key: value.word() for key, value in env.items()}
        for key, value in passed.items():
            why = f"`{key}` comes from the environment of the container"
            known[key] = Word(value.text, value.place, evaluated=False, why=why)
        known |= {key: value.word() for key, value in found.wrapping.env.items()}
        rest = (*dropped, *found.wrapping.dropped)
        if found.invocation is not None:
            self.invocations.append(
                replace(
                    found.invocation,
                    env=MappingProxyType(known),
                    dropped=(*rest, *found.invocation.dropped),
                    name=name,
                    comments=self._comments(words),
                )
            )
            self.problems.extend(found.problems)
        elif found.script:
            pieces = [piece for field in found.script for piece in field.pieces]
            before = tuple(field.word() for field in found.before)
            around = Around(before, rest, name, base=known)
            unknown = frozenset(
                part
                for piece in pieces
                if piece.unknown
                for part in re.findall(r"[A-Za-z_]\w*", piece.text)
            )
            variables = {
                key: Value(value.stretch, value.pieces, exported=True)
                for key, value in env.items()
                if value.pieces and key not in unknown
            }
            scope = ShellScope(variables, positional=found.positional, passed=unknown)
            self._run(joined(pieces, self.document), scope, around)

    def script(self, node: yaml.Node, around: Around) -> None:
        """A text that may be a script."""
        if isinstance(node, yaml.ScalarNode) and SERVER.search(str(node.value)):
            self._run(nodes.source(node, self.document), ShellScope(), around)

    def _run(self, source: SourceText, scope: ShellScope, around: Around) -> None:
        try:
            reading = run(source, scope, around)
        except InputError as error:
            self.unread.extend(error.problems)
            return
        self.invocations.extend(reading.invocations)
        self.problems.extend(reading.problems)
        self.unread.extend(reading.unread)
        self.misread.extend(reading.misread)

    def _comments(self, words: Sequence[Field]) -> tuple[Comment, ...]:
        """The comments on the lines of the command and between them."""
        offsets = [piece.offset(0) for word in words for piece in word.pieces[:1]]
        if not offsets:
            return ()
        text = self.document.text
        start = text.rfind("\n", 0, min(offsets)) + 1
        end = text.find("\n", max(offsets))
        quoted = [(o, o + len(w.text)) for o, w in zip(offsets, words, strict=False)]
        found = []
        for match in _COMMENT.finditer(text, start, len(text) if end < 0 else end):
            at = match.start() + match[0].index("#")
            if not any(first <= at < last for first, last in quoted):
                place = self.document.place(at, match.end() - at)
                found.append(Comment(match[0].strip().lstrip("#").strip(), place))
        return tuple(found)

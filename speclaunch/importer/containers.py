"""Containers in YAML: those of Kubernetes pods in any kind of object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import yaml

from speclaunch.engine.entrypoint import CONFIG
from speclaunch.importer import nodes
from speclaunch.importer.collected import Collected, Env
from speclaunch.importer.commands import CommandContext
from speclaunch.importer.config_maps import ConfigMaps, config_maps
from speclaunch.importer.fields import Field
from speclaunch.importer.interface import Dropped, Invocation, Reading
from speclaunch.importer.source_text import (
    DefaultOf,
    Document,
    SourceSpan,
    SourceText,
    WordPiece,
)
from speclaunch.patterns import lazy
from speclaunch.record import record

_MARK = r"\{\{[^{}\n]*\}\}"
"""What a template fills in."""
_COMPOSE = lazy(rf"\$(?:\$|\{{([A-Za-z_]\w*)(?:(:?[-?+])([^{{}}]*))?\}}|([A-Za-z_]\w*))|{_MARK}")
_KUBERNETES = lazy(rf"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))|{_MARK}")

_GIVEN = lazy(
    r"LWS_(?:LEADER_ADDRESS|GROUP_SIZE|WORKER_INDEX)|PARALLELISM_SIZE|POD_GROUP_INDEX"
    r"|RBG_(?:LWP|ROLE|GROUP|COMPONENT)_|ROLE_(?:NAME|INDEX|REPLICA_INDEX)|ROLESET_NAME"
)
"""Variables that a controller gives its pods (`around/given.py`)."""
_WITH_ROLES = frozenset({"RoleBasedGroup", "RoleBasedGroupSet"})
_READ_OF_CONTAINERS = frozenset({"name", "image", "command", "args", "env", "envFrom"})
_CONTAINERS = ("initContainers", "containers")
_ROLES = frozenset({"roles", "components"})
_READ_OF_PODS = frozenset(_CONTAINERS)


def read_kubernetes(roots: Sequence[yaml.Node], document: Document) -> Reading:
    """The server commands of every container in Kubernetes objects.

    A container is whatever has a `command` or `args`: those of a pod, and what the objects of
    others call so (Dynamo's `mainContainer`, the `runner` of OME, the `model` of KServe).
    """
    reading = Collected(document)
    maps = config_maps(roots, document)
    sites: list[Site] = []
    is_given = _GIVEN.search(document.text) is not None
    for root in objects(roots, document):
        owner = nodes.text(nodes.entries(nodes.entries(root).get("metadata")).get("name"))
        seen: set[tuple[int, int]] = set()
        start: tuple[yaml.Node, str | None, Owned] = (root, None, Owned())
        waiting = [start]
        while waiting:
            node, key, owned = waiting.pop()
            if key in _ROLES and isinstance(node, yaml.MappingNode):
                owned = replace(owned, item=id(node))
            if (id(node), owned.item) in seen:
                continue
            seen.add((id(node), owned.item))
            keys = nodes.entries(node)
            if keys:
                document.spend()
                owned = owned.below(key, keys, document)
                if "command" in keys or "args" in keys:
                    first, before = len(reading.invocations), len(reading.routers)
                    site = Site(root, owned.steps, range(0), range(0), owned.envs)
                    _container(
                        keys,
                        owner,
                        maps.seen_from(root),
                        owned,
                        reading,
                        _given(site, document) if is_given else {},
                    )
                    if key not in _CONTAINERS:
                        reading.leave_open(first)
                    servers = range(first, len(reading.invocations))
                    routers = range(before, len(reading.routers))
                    if servers or routers:
                        sites.append(replace(site, servers=servers, routers=routers))
            waiting += [(value, name, owned) for name, value in reversed(keys.items())]
            waiting += [(item, key, owned) for item in reversed(nodes.items(node))]
        if nodes.text(nodes.entries(root).get("kind")) == "ConfigMap":
            for name, value in nodes.entries(nodes.entries(root).get("data")).items():
                reading.script(value, CommandContext(name=f"{owner}/{name}" if owner else name))
    done = reading.reading()
    done = replace(done, invocations=tuple(_with_config(one, maps) for one in done.invocations))
    if not done.invocations:
        return done
    from speclaunch.importer.around import kubernetes  # noqa: PLC0415  few manifests have a server

    return kubernetes.surrounded(done, sites, roots, maps)


def objects(roots: Sequence[yaml.Node], document: Document) -> list[yaml.Node]:
    """The objects of a file, those of a `List` one by one, with the templates of their roles."""
    found: list[yaml.Node] = []
    for root in roots:
        keys = nodes.entries(root)
        held = nodes.items(keys.get("items")) if "spec" not in keys else []
        found += held or [root]
    if any(nodes.text(nodes.entries(one).get("kind")) in _WITH_ROLES for one in found):
        from speclaunch.importer import role_templates  # noqa: PLC0415  few manifests have them

        return [role_templates.expanded(one, document) for one in found]
    return found


def _with_config(found: Invocation, maps: ConfigMaps) -> Invocation:
    """With the file of `--config`, where a ConfigMap beside the container holds it."""
    words = [word for word in found.words if word.evaluated]
    at = next((index for index, word in enumerate(words) if word.text == CONFIG), len(words))
    config = maps.config(words[at + 1].text) if at + 1 < len(words) else None
    return found if config is None else replace(found, config=config)


Steps = tuple[tuple[str, Mapping[str, yaml.Node]], ...]


@record
class Site:
    """A container that holds servers or routers: `steps` lead from its object to it."""

    root: yaml.Node
    steps: Steps
    servers: range
    """Their numbers among the invocations of the file."""
    routers: range
    envs: tuple[yaml.Node, ...] = ()


@record
class Owned:
    """What the objects around a container say of it.

    `envs` are the lists of variables of a Dynamo service and of its graph.
    """

    pod: tuple[Dropped, ...] = ()
    envs: tuple[yaml.Node, ...] = ()
    name: str | None = None
    """That of the service or component, whose container is called alike in all of them."""
    steps: Steps = ()
    """The mappings from the object down, each with the key of its value, or of its list's."""
    item: int = 0
    """Which role it is: several may share one template."""

    def below(self, key: str | None, keys: Mapping[str, yaml.Node], document: Document) -> Owned:
        """The same for what stands in this mapping, the value of `key`."""
        pod = self.pod
        if keys.keys() & set(_CONTAINERS):
            pod = tuple(left_out(keys, _READ_OF_PODS, document, "pod"))
        envs = keys.get("envs")
        name = self.name
        if "extraPodSpec" in keys:
            name = key
        elif "podTemplate" in keys:
            name = nodes.text(keys.get("name"))
        all_envs = (*self.envs, envs) if envs is not None else self.envs
        return Owned(pod, all_envs, name, (*self.steps, (key or "", keys)), self.item)


def _container(
    keys: Mapping[str, yaml.Node],
    owner: str | None,
    maps: ConfigMaps,
    owned: Owned,
    reading: Collected,
    given: Env,
) -> None:
    document = maps.document
    env: Env = maps.variables(keys.get("envFrom"))
    lists = [*owned.envs, keys.get("env")]
    for item in (one for held in lists for one in nodes.items(held)):
        entry = nodes.entries(item)
        name = nodes.text(entry.get("name"))
        if name is None:
            continue
        value = entry.get("value")
        if isinstance(value, yaml.ScalarNode):
            env[name] = substituted(nodes.source(value, document), given | env)
        elif entry.get("valueFrom") is not None:
            source = entry["valueFrom"]
            known = given.get(name) if "fieldRef" in nodes.entries(source) else None
            env[name] = maps.value(source) or known or _elsewhere(name, source, document)
        else:
            env[name] = text_at("", item, document)
    words = [
        substituted(nodes.source(item, document), given | env)
        for key in ("command", "args")
        for item in listed(keys.get(key))
        if isinstance(item, yaml.ScalarNode)
    ]
    own = nodes.text(keys.get("name"))
    if owned.name is not None and own in (None, "main"):
        own = owned.name
    name = "/".join(part for part in (owner, own) if part) or None
    dropped = (
        *maps.elsewhere(keys.get("envFrom")),
        *left_out(keys, _READ_OF_CONTAINERS, document),
        *owned.pod,
    )
    with reading.within(image_in(keys, document)):
        reading.command(words, env, {}, name, dropped, given)


def _given(site: Site, document: Document) -> Env:
    """The variables that the controller of an object gives its containers."""
    from speclaunch.importer.around import given  # noqa: PLC0415  few manifests use one

    return given.variables(site, document)


def image_in(keys: Mapping[str, yaml.Node], document: Document) -> str | None:
    """The image that a container names."""
    node = keys.get("image")
    if not isinstance(node, yaml.ScalarNode) or nodes.text(node) is None:
        return None
    return image_of(node, document)


def image_of(node: yaml.ScalarNode, document: Document) -> str:
    """The image of a container, with the defaults of Compose's variables."""
    return interpolated(nodes.source(node, document)).text


def listed(node: yaml.Node | None) -> list[yaml.Node]:
    """The items of a list; a scalar is a list of one."""
    return [node] if isinstance(node, yaml.ScalarNode) else nodes.items(node)


def _elsewhere(name: str, node: yaml.Node, document: Document) -> Field:
    """A variable whose value the cluster gives."""
    kind = next(iter(nodes.entries(node)), "another object")
    detail = nodes.entries(nodes.entries(node).get(kind))
    which = "/".join(
        shown for key in ("name", "key", "fieldPath") if (shown := nodes.text(detail.get(key)))
    )
    why = f"`{name}` comes from the cluster ({kind}{' ' + which if which else ''})"
    found = text_at(f"$({name})", node, document)
    return Field(tuple(replace(piece, unknown=why) for piece in found.pieces))


def text_at(text: str, node: yaml.Node, document: Document) -> Field:
    """A text that is not written so: all of it stands where `node` begins."""
    start, _ = nodes.offsets(node, document)
    return Field((WordPiece(text, SourceText(document, text, [start] * len(text) or [start]), 0),))


def left_out(
    keys: Mapping[str, yaml.Node], read: frozenset[str], document: Document, what: str = "container"
) -> Iterator[Dropped]:
    """How a container or pod is set up (`volumes`, `shm_size`, `ports`, …), in one remark."""
    rest = [name for name in keys if name not in read]
    if rest:
        why = f"the caller sets up the {what}"
        yield Dropped(", ".join(rest), nodes.place(keys[rest[0]], document), why)


def substituted(source: SourceText, env: Mapping[str, Field]) -> Field:
    """Kubernetes' ``$(NAME)`` replaced by the variables before it; others stay as they are.

    What a template fills in (`{{ name }}`) is not known.
    """
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


def interpolated(source: SourceText) -> Field:
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

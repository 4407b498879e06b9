"""Read the server commands of every container in Kubernetes objects.

A container gets variables from ConfigMaps in the same file: `envFrom` applies first, in order, and
`env` overrides it (Kubernetes, API reference: Container v1 core). A ConfigMap's value is used
unchanged: `$(NAME)` is only substituted in `env`, `command` and `args`.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import lazy
from speclaunch.deployments.sources import nodes
from speclaunch.deployments.sources.commands import CommandContext
from speclaunch.deployments.sources.containers import (
    Collected,
    Env,
    image_in,
    image_program,
    left_out,
    listed,
    substituted,
    text_at,
)
from speclaunch.deployments.sources.effective_words import config_path
from speclaunch.deployments.sources.fields import Field
from speclaunch.deployments.sources.interface import Dropped, Invocation, Reading
from speclaunch.deployments.sources.nodes import Entries
from speclaunch.deployments.sources.pods import (
    ConfigMaps,
    Site,
    Steps,
    config_maps,
    objects,
)
from speclaunch.deployments.sources.source_text import Document

_CONTROLLER_VARIABLES = lazy(
    r"LWS_(?:LEADER_ADDRESS|GROUP_SIZE|WORKER_INDEX)|PARALLELISM_SIZE|POD_GROUP_INDEX"
    r"|RBG_(?:LWP|ROLE|GROUP|COMPONENT)_|ROLE_(?:NAME|INDEX|REPLICA_INDEX)|ROLESET_NAME"
)
"""Variables that a controller sets in its pods (`server_context/kubernetes.py`)."""
_READ_OF_CONTAINERS = frozenset({"name", "image", "command", "args", "env", "envFrom"})
_CONTAINERS = ("initContainers", "containers")
_ROLES = frozenset({"roles", "components"})
_READ_OF_PODS = frozenset(_CONTAINERS)


def read_kubernetes(roots: Sequence[yaml.Node], document: Document) -> Reading:
    """Return the server commands of every container in Kubernetes objects.

    A container is any mapping with `command` or `args`: those of a pod, and their equivalents in
    custom objects (Dynamo's `mainContainer`, the `runner` of OME, the `model` of KServe).
    """
    reading = Collected(document)
    maps = config_maps(roots, document)
    sites: list[Site] = []
    has_controller_variables = _CONTROLLER_VARIABLES.search(document.text) is not None
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
                        _controller_variables(site, document) if has_controller_variables else {},
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
    done = replace(
        done, invocations=tuple(_with_config(invocation, maps) for invocation in done.invocations)
    )
    if not done.invocations:
        return done
    from speclaunch.deployments.sources.server_context import kubernetes  # noqa: PLC0415  few manifests have a server

    return kubernetes.add_server_context(done, sites, roots, maps)


def _with_config(found: Invocation, maps: ConfigMaps) -> Invocation:
    """Return the command with its `--config` file if a ConfigMap in the file contains it."""
    path = config_path(found)
    config = maps.config(path) if path is not None else None
    return found if config is None else replace(found, config=config)


class Owned(Struct, frozen=True):
    """Settings that a container gets from its enclosing objects.

    `envs` holds the variable lists of a Dynamo service and of its graph.
    """

    pod: tuple[Dropped, ...] = ()
    envs: tuple[yaml.Node, ...] = ()
    name: str | None = None
    """Name of the service or component. Container names are equal in all of them."""
    steps: Steps = ()
    """Mappings from the object to the container, each with the key of its value or list."""
    item: int = 0
    """Identity of the role: several roles may share one template."""

    def below(self, key: str | None, keys: Entries, document: Document) -> Owned:
        """Return the settings for this mapping, the value of `key`."""
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
    keys: Entries,
    owner: str | None,
    maps: ConfigMaps,
    owned: Owned,
    reading: Collected,
    pod_env: Env,
) -> None:
    document = maps.document
    env: Env = maps.variables(keys.get("envFrom"))
    lists = [*owned.envs, keys.get("env")]
    for item in (entry for held in lists for entry in nodes.items(held)):
        entry = nodes.entries(item)
        name = nodes.text(entry.get("name"))
        if name is None:
            continue
        value = entry.get("value")
        if isinstance(value, yaml.ScalarNode):
            env[name] = substituted(nodes.source(value, document), pod_env | env)
        elif entry.get("valueFrom") is not None:
            source = entry["valueFrom"]
            known = pod_env.get(name) if "fieldRef" in nodes.entries(source) else None
            env[name] = maps.value(source) or known or _elsewhere(name, source, document)
        else:
            env[name] = text_at("", item, document)
    words = image_program(keys, "command", document)
    words += [
        substituted(nodes.source(item, document), pod_env | env)
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
        reading.command(words, env, {}, name, dropped, pod_env)


def _controller_variables(site: Site, document: Document) -> Env:
    """Return the variables that the controller of an object sets in its containers."""
    from speclaunch.deployments.sources.server_context import kubernetes  # noqa: PLC0415  few manifests use one

    return kubernetes.controller_variables(site, document)


def _elsewhere(name: str, node: yaml.Node, document: Document) -> Field:
    """Return an unknown value for a variable that the cluster sets."""
    kind = next(iter(nodes.entries(node)), "another object")
    detail = nodes.entries(nodes.entries(node).get(kind))
    which = "/".join(
        shown for key in ("name", "key", "fieldPath") if (shown := nodes.text(detail.get(key)))
    )
    why = f"`{name}` comes from the cluster ({kind}{' ' + which if which else ''})"
    found = text_at(f"$({name})", node, document)
    return Field(tuple(replace(piece, unknown=why) for piece in found.pieces))

"""The pod around a container of Kubernetes, and the container's own setup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.around import probes, values
from speclaunch.importer.config_maps import ConfigMaps
from speclaunch.importer.source_text import Document
from speclaunch.surroundings import Pod, Setting, Volume

_SOURCES = {
    "hostPath": "path",
    "persistentVolumeClaim": "claimName",
    "secret": "secretName",
    "configMap": "name",
    "nfs": "server",
}
"""What a kind of volume comes from."""

Entries = Mapping[str, yaml.Node]


def of_container(
    container: Entries,
    pod: Entries,
    labels: Mapping[str, str],
    maps: ConfigMaps,
    envs: tuple[yaml.Node, ...] = (),
) -> Pod:
    """The pod that runs a container: `pod` is its `spec`, `labels` those of its `metadata`.

    `envs` are lists of variables that an object of others sets besides the container's own.
    """
    document = maps.document
    resources = nodes.entries(container.get("resources"))
    security = nodes.entries(container.get("securityContext"))
    written, secret = environment([*envs, *_one(container.get("env"))], document)
    return Pod(
        image=values.setting(container.get("image"), document),
        requests=amounts(resources.get("requests"), document),
        limits=amounts(resources.get("limits"), document),
        probes=tuple(probes.of_container(container, document)),
        volumes=tuple(_volumes(container, pod, document)),
        ipc_host=values.setting(pod.get("hostIPC"), document),
        grace=values.number(values.setting(pod.get("terminationGracePeriodSeconds"), document)),
        privileged=values.setting(security.get("privileged"), document),
        host_network=values.setting(pod.get("hostNetwork"), document),
        ports=tuple(_ports(container, document)),
        env=written,
        secrets=secret,
        labels=dict(labels),
        restart=values.setting(pod.get("restartPolicy"), document),
        capabilities=frozenset(_texts(nodes.entries(security.get("capabilities")).get("add"))),
    )


def _texts(node: yaml.Node | None) -> Iterator[str]:
    return (text for one in nodes.items(node) if (text := nodes.text(one)))


def _one(node: yaml.Node | None) -> list[yaml.Node]:
    return [] if node is None else [node]


def amounts(node: yaml.Node | None, document: Document) -> dict[str, Setting]:
    """Resources by name; whole numbers as numbers."""
    return {
        name: values.number(one) or one for name, one in values.settings(node, document).items()
    }


def environment(
    lists: list[yaml.Node], document: Document
) -> tuple[dict[str, Setting], frozenset[str]]:
    """The variables that are written out, and the names of those that come from a secret."""
    written: dict[str, Setting] = {}
    secret: set[str] = set()
    for item in (one for held in lists for one in nodes.items(held)):
        entry = nodes.entries(item)
        name = nodes.text(entry.get("name"))
        if name is None:
            continue
        value = values.setting(entry.get("value"), document)
        if value is not None:
            written[name] = value
        elif "secretKeyRef" in nodes.entries(entry.get("valueFrom")):
            secret.add(name)
    return written, frozenset(secret)


def _ports(container: Entries, document: Document) -> Iterator[Setting]:
    for item in nodes.items(container.get("ports")):
        found = values.number(values.setting(nodes.entries(item).get("containerPort"), document))
        if found is not None:
            yield found


def _volumes(container: Entries, pod: Entries, document: Document) -> Iterator[Volume]:
    named = {
        nodes.text(nodes.entries(item).get("name")): item
        for item in nodes.items(pod.get("volumes"))
    }
    for item in nodes.items(container.get("volumeMounts")):
        entry = nodes.entries(item)
        mount = values.setting(entry.get("mountPath"), document)
        if mount is None:
            continue
        held = named.get(nodes.text(entry.get("name")))
        place = nodes.place(item if held is None else held, document)
        keys = {key: value for key, value in nodes.entries(held).items() if key != "name"}
        kind = next(iter(keys), "unknown" if held is None else "emptyDir")
        details = nodes.entries(keys.get(kind))
        yield Volume(
            mount,
            kind,
            place,
            source=values.setting(details.get(_SOURCES.get(kind, "")), document),
            medium=nodes.text(details.get("medium")),
            size=values.in_bytes(values.setting(details.get("sizeLimit"), document)),
        )

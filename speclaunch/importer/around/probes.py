"""Probes of containers: Kubernetes' three, and the healthcheck of Compose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

import yaml

from speclaunch.errors import Place
from speclaunch.importer import nodes
from speclaunch.importer.around import values
from speclaunch.importer.source_text import Document
from speclaunch.patterns import lazy
from speclaunch.surroundings import Probe, ProbeKind, Setting

_URL = lazy(r"https?://[^\s\"'`|;)]+")
_KINDS = (ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS)


def of_container(keys: Mapping[str, yaml.Node], document: Document) -> Iterator[Probe]:
    """The probes of a container of Kubernetes."""
    ports = {
        nodes.text(nodes.entries(item).get("name")): nodes.entries(item).get("containerPort")
        for item in nodes.items(keys.get("ports"))
    }
    for kind in _KINDS:
        node = keys.get(kind.value)
        held = nodes.entries(node)
        if node is None or not held:
            continue
        probe = _asked(kind, nodes.place(node, document), held, document)
        if probe.port is not None and (named := ports.get(str(probe.port.value))) is not None:
            probe = replace(probe, port=values.number(values.setting(named, document)))
        yield replace(
            probe,
            initial_delay=_count(held, "initialDelaySeconds", document),
            period=_count(held, "periodSeconds", document),
            timeout=_count(held, "timeoutSeconds", document),
            failure_threshold=_count(held, "failureThreshold", document),
        )


def _count(held: Mapping[str, yaml.Node], key: str, document: Document) -> Setting | None:
    return values.number(values.setting(held.get(key), document))


def _asked(
    kind: ProbeKind, place: Place, held: Mapping[str, yaml.Node], document: Document
) -> Probe:
    """What is asked: a path, a port, a command."""
    http = nodes.entries(held.get("httpGet"))
    if http:
        path = values.setting(http.get("path"), document)
        port = values.number(values.setting(http.get("port"), document))
        headers = (nodes.text(nodes.entries(one).get("name")) for one in _headers(http))
        return Probe(
            kind,
            place,
            path,
            port,
            scheme=nodes.text(http.get("scheme")),
            host=nodes.text(http.get("host")),
            headers=frozenset(name.lower() for name in headers if name),
        )
    if "exec" in held:
        command = nodes.items(nodes.entries(held["exec"]).get("command"))
        return asked_by_command(Probe(kind, place), command, document)
    for name in ("tcpSocket", "grpc"):
        if name in held:
            port = values.number(values.setting(nodes.entries(held[name]).get("port"), document))
            return Probe(kind, place, port=port)
    return Probe(kind, place)


def _headers(http: Mapping[str, yaml.Node]) -> list[yaml.Node]:
    return nodes.items(http.get("httpHeaders"))


def asked_by_command(probe: Probe, words: list[yaml.Node], document: Document) -> Probe:
    """A probe with the words of its command, and the first URL in them."""
    scalars = [word for word in words if isinstance(word, yaml.ScalarNode)]
    found = replace(probe, command=tuple(str(word.value) for word in scalars))
    for word in scalars:
        source = nodes.source(word, document)
        url = _URL.search(source.text)
        if url is None:
            continue
        known = "$" not in url[0] and "{" not in url[0]
        where = source.place(url.start(), url.end())
        try:
            parts = urlsplit(url[0])
            port = parts.port if known else None
        except ValueError:  # no port, or not of a host
            return found
        path = Setting(parts.path or "/", where, known="$" not in parts.path)
        default = 443 if parts.scheme == "https" else 80
        number = Setting(port or default, where) if known else Setting(url[0], where, known=False)
        return replace(found, path=path, port=number)
    return found


def of_service(node: yaml.Node | None, document: Document) -> Iterator[Probe]:
    """The healthcheck of a service of Compose; one that is switched off is none."""
    keys = nodes.entries(node)
    test = keys.get("test")
    off = values.setting(keys.get("disable"), document)
    words = nodes.items(test) or ([test] if isinstance(test, yaml.ScalarNode) else [])
    if node is None or not words or (off is not None and off.value is True):
        return
    if nodes.text(words[0]) == "NONE":
        return
    probe = asked_by_command(
        Probe(ProbeKind.HEALTHCHECK, nodes.place(node, document)), words, document
    )
    yield replace(
        probe,
        initial_delay=values.in_seconds(values.setting(keys.get("start_period"), document)),
        period=values.in_seconds(values.setting(keys.get("interval"), document)),
        timeout=values.in_seconds(values.setting(keys.get("timeout"), document)),
        failure_threshold=values.number(values.setting(keys.get("retries"), document)),
    )

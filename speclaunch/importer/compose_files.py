"""Compose files: the services that start servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from speclaunch.importer import nodes
from speclaunch.importer.collected import Collected, Env
from speclaunch.importer.containers import image_in, interpolated, left_out
from speclaunch.importer.fields import Field, split
from speclaunch.importer.interface import Dropped, Reading
from speclaunch.importer.source_text import Document

_READ_OF_SERVICES = frozenset({"image", "entrypoint", "command", "environment", "env_file"})


def read_compose(root: yaml.Node, document: Document) -> Reading:
    """The server commands of a docker-compose file."""
    reading = Collected(document)
    held: list[tuple[str, yaml.Node, yaml.Node, range, range]] = []
    for name, key, service in nodes.pairs(nodes.entries(root).get("services")):
        first, before = len(reading.invocations), len(reading.routers)
        keys = nodes.entries(service)
        env, passed = _compose_environment(keys.get("environment"), document)
        dropped = (
            *_noted(keys, ("env_file",), document, "the variables in that file are not read"),
            *left_out(keys, _READ_OF_SERVICES, document),
        )
        words = [
            *_compose_words(keys.get("entrypoint"), document),
            *_compose_words(keys.get("command"), document),
        ]
        with reading.within(image_in(keys, document)):
            reading.command(words, env, passed, name, dropped)
        servers = range(first, len(reading.invocations))
        routers = range(before, len(reading.routers))
        if servers or routers:
            held.append((name, service, key, servers, routers))
    done = reading.reading()
    if not done.invocations:
        return done
    from speclaunch.importer.around import compose  # noqa: PLC0415  few files have a server

    return compose.surrounded(done, [compose.ServiceSite(*one) for one in held], document)


def _compose_words(node: yaml.Node | None, document: Document) -> list[Field]:
    """A ``command`` or ``entrypoint``: a list of words, or a text that is split into words."""
    if isinstance(node, yaml.SequenceNode):
        return [
            interpolated(nodes.source(item, document))
            for item in node.value
            if isinstance(item, yaml.ScalarNode)
        ]
    if not isinstance(node, yaml.ScalarNode) or nodes.text(node) is None:
        return []
    whole = interpolated(nodes.source(node, document))
    document.spend(len(whole.pieces) + len(str(node.value)) // 20)
    return split(whole.pieces)


def _noted(
    keys: Mapping[str, yaml.Node], names: Sequence[str], document: Document, why: str
) -> tuple[Dropped, ...]:
    return tuple(
        Dropped(name, nodes.place(keys[name], document), why) for name in names if name in keys
    )


def _compose_environment(node: yaml.Node | None, document: Document) -> tuple[Env, Env]:
    """The environment of a service, and the variables that it passes on."""
    env: Env = {}
    passed: Env = {}
    for key, key_node, value in nodes.pairs(node):
        if isinstance(value, yaml.ScalarNode) and nodes.text(value) is not None:
            env[key] = interpolated(nodes.source(value, document))
        else:
            passed[key] = nodes.field(key_node, document)
    for item in nodes.items(node):
        if not isinstance(item, yaml.ScalarNode):
            continue
        source = nodes.source(item, document)
        name, equals, _ = source.text.partition("=")
        if equals:
            env[name] = interpolated(source.part(len(name) + 1, len(source.text)))
        else:
            passed[name] = nodes.field(item, document)
    return env, passed

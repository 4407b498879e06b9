"""A deployment as objects of YAML, and where in its text something stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml


class Spot(NamedTuple):
    """A value by what holds it: a mapping and its key, a list and its index."""

    holder: Any
    key: Any


@dataclass
class Server:
    """A server of a deployment: its container, the pod around it, the object that has both."""

    name: str
    container: dict[str, Any]
    pod: dict[str, Any]
    owner: Spot
    role: str = "server"
    part: str | None = None

    @property
    def words(self) -> list[str]:
        """Its command."""
        found: list[str] = self.container["command"]
        return found

    def index(self, flag: str) -> int | None:
        """Which word is an argument."""
        return next((n for n, w in enumerate(self.words) if w.partition("=")[0] == flag), None)

    def value(self, flag: str) -> str | None:
        """What an argument is given."""
        at = self.index(flag)
        return None if at is None else self.words[at].partition("=")[2]

    def spot(self, flag: str) -> Spot:
        """The argument; the command where it is not written."""
        at = self.index(flag)
        return Spot(self.container, "command") if at is None else Spot(self.words, at)

    def put(self, flag: str, value: object) -> Spot:
        """Give an argument a value."""
        at = self.index(flag)
        word = flag if value is True else f"{flag}={value}"
        if at is None:
            self.words.append(word)
            return Spot(self.words, len(self.words) - 1)
        self.words[at] = word
        return Spot(self.words, at)

    def drop(self, flag: str) -> None:
        """Leave an argument out."""
        at = self.index(flag)
        if at is not None:
            del self.words[at]

    def number(self, flag: str, default: int) -> int:
        """A number that an argument is given."""
        value = self.value(flag)
        return int(value) if value is not None and value.isdecimal() else default


@dataclass
class Deployed:
    """A deployment of some shape."""

    shape: str
    documents: list[Any]
    servers: list[Server]
    router: Server | None = None
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Services of Kubernetes by the name of the server that they lead to."""

    @property
    def is_compose(self) -> bool:
        """Whether it is a file of Compose."""
        return self.shape.startswith("compose")

    def role(self, role: str) -> Server | None:
        """The first server of a role."""
        return next((one for one in self.servers if one.role == role), None)

    def leader(self) -> Server | None:
        """The first leader."""
        return next((one for one in self.servers if one.part == "leader"), None)

    def worker(self) -> Server | None:
        """The first worker."""
        return next((one for one in self.servers if one.part == "worker"), None)

    def text(self) -> str:
        """As a person would write it."""
        return yaml.dump_all(self.documents, Dumper=_Plain, sort_keys=False, width=4000)


class _Plain(yaml.SafeDumper):
    """No anchors: nothing is shared in the file of a person."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


Region = tuple[int, int]
"""First and last line, from 1 on."""


class Lines:
    """Where everything of a deployment stands in its text."""

    def __init__(self, deployed: Deployed) -> None:
        self.text = deployed.text()
        self._found: dict[tuple[int, Any], Region] = {}
        for document, node in zip(
            deployed.documents, yaml.compose_all(self.text, yaml.SafeLoader), strict=True
        ):
            self._found.update(_walk(document, node))

    def region(self, spot: Spot) -> Region:
        """The lines of a value, its key included."""
        return self._found[id(spot.holder), spot.key]


def _walk(value: Any, node: yaml.Node) -> Iterator[tuple[tuple[int, Any], Region]]:
    if isinstance(node, yaml.MappingNode):
        for key, held in node.value:
            end = held.end_mark.line + (held.end_mark.column > 0)
            yield (id(value), key.value), (key.start_mark.line + 1, end)
            yield from _walk(value[key.value], held)
    elif isinstance(node, yaml.SequenceNode):
        for index, held in enumerate(node.value):
            end = held.end_mark.line + (held.end_mark.column > 0)
            yield (id(value), index), (held.start_mark.line + 1, end)
            yield from _walk(value[index], held)

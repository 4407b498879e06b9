"""A server or router of a file with what the file says of it, before anybody is grouped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from speclaunch.errors import Place
from speclaunch.importer.interface import Invocation, Word
from speclaunch.patterns import lazy
from speclaunch.record import record
from speclaunch.surroundings import Pod, Router, Setting

_ROLES = {"prefill": "prefill", "prefiller": "prefill", "decode": "decode", "decoder": "decode"}
_PART = lazy(r"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])")
MODE = "--disaggregation-mode"
SBATCH, SCRIPT = "sbatch", "script"
SCRIPTS = frozenset({SBATCH, SCRIPT})
"""Platforms of a script, whose name is that of no server in it."""


@record
class Owner:
    """The object (or service of Compose) that runs a container, as its kind reads it.

    `key` is the same for all containers of one object. `names` are the host names that may lead to
    it. `instance`: what several objects of one deployment have in common by their labels.
    """

    key: str
    name: str
    platform: str
    place: Place
    namespace: str | None = None
    role: str | None = None
    role_place: Place | None = None
    part: str | None = None
    nodes: Setting | None = None
    replicas: Setting | None = None
    gpus_per_node: Setting | None = None
    names: frozenset[str] = frozenset()
    labels: Mapping[str, str] = field(default_factory=dict)
    restart: Setting | None = None
    """What happens to the group when a pod of it restarts; None: as its pods say."""


@record
class Member:
    """A server (`index` among the invocations of a reading) or a router, its owner and its pod."""

    owner: Owner
    pod: Pod
    server: Invocation | None = None
    index: int = -1
    router: Router | None = None


def value_of(words: Sequence[Word], *flags: str) -> Word | None:
    """The value that a command gives a flag last; None where it does not, or it is not known."""
    found: Word | None = None
    for index, word in enumerate(words):
        name, equals, _ = word.text.partition("=")
        if name not in flags:
            continue
        if equals:
            found = word
        elif index + 1 < len(words):
            found = words[index + 1]
    return found


def text_of(words: Sequence[Word], *flags: str) -> str | None:
    """The text of the same, where it is known."""
    word = value_of(words, *flags)
    if word is None or not word.evaluated:
        return None
    name, equals, value = word.text.partition("=")
    return value if equals and name in flags else word.text


def role_in(name: str | None) -> str | None:
    """`prefill` or `decode` where a name says one of them."""
    parts = [part.lower() for part in _PART.split(name or "")]
    said = {_ROLES[part] for part in parts if part in _ROLES}
    return said.pop() if len(said) == 1 else None


def role_of(owner: Owner, container: str | None, server: Invocation) -> str:
    """The role of a server: as the file calls it, else as its command says."""
    for name in (owner.role, *(() if owner.platform in SCRIPTS else (owner.name, container))):
        role = role_in(name)
        if role is not None:
            return role
    mode = text_of(server.words, MODE)
    if mode in ("prefill", "decode"):
        return mode
    return owner.role or owner.name


def part_of(owner: Owner, server: Invocation) -> str | None:
    """`leader` or `worker`, where the servers of one engine have commands of their own."""
    if owner.part is not None:
        return owner.part
    nodes, rank = text_of(server.words, "--nnodes"), text_of(server.words, "--node-rank")
    if rank is None or not rank.isdecimal() or nodes in (None, "1"):
        return None
    return "leader" if int(rank) == 0 else "worker"

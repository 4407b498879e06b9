"""The roles of an srt-slurm job: workers, the nodes of each, the router before them.

Source: NVIDIA/srt-slurm at c88ef73. src/srtctl/core/schema.py, ResourceConfig: a worker has
`gpus_per_ROLE` GPUs, else its share of `ROLE_nodes`; topology.py, allocate_endpoints: over as many
nodes as it takes; backends/sglang.py: a worker of several nodes gets `--dist-init-addr`, `--nnodes`
and `--node-rank`; FrontendConfig: the router is Dynamo's, or SGLang's for `type: sglang`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import yaml

from speclaunch.errors import Place
from speclaunch.importer import nodes
from speclaunch.importer.around import values
from speclaunch.importer.interface import Invocation, Word
from speclaunch.importer.source_text import Document
from speclaunch.surroundings import Group, Pod, Router, Setting, Surroundings

_WHY = "srt-slurm fills it in"
_GPUS = 4
"""`gpus_per_node`, where a recipe does not say it."""
_PROGRAMS = {"sglang": "sglang_router.launch_router", "dynamo": "dynamo.frontend"}

Found = Mapping[str, object]


def group(job: Found, name: str | None, place: Place, document: Document) -> Group:
    """The deployment that a job is, with its router."""
    frontend = _below(job, "frontend")
    kind = _text(frontend.get("type")) or "dynamo"
    routers: tuple[Router, ...] = ()
    if kind in _PROGRAMS:
        options = {
            key.replace("_", "-"): one
            for key, node in _below(frontend, "args").items()
            if isinstance(node, yaml.Node) and not key.endswith("\0keys")
            if (one := values.setting(node, document)) is not None
        }
        where = next((n for n in frontend.values() if isinstance(n, yaml.ScalarNode)), None)
        at = place if where is None else nodes.place(where, document)
        routers = (Router("frontend", _PROGRAMS[kind], at, options=options),)
    return Group(name or "srt-slurm", "srt-slurm", place, routers)


def _below(tree: Found, name: str) -> Found:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _text(node: object) -> str | None:
    return nodes.text(node) if isinstance(node, yaml.ScalarNode) else None


def with_role(
    found: Invocation, job: Found, role: str, prefix: str, belongs: Group, document: Document
) -> Invocation:
    """A role's server with its surroundings, and with the words that several nodes make it get.

    `prefix` is how `resources` begins its names for the role.
    """
    resources = _below(job, "resources")

    def number(name: str) -> Setting | None:
        node = resources.get(name)
        if not isinstance(node, yaml.ScalarNode):
            return None
        return values.number(values.setting(node, document))

    per_node = number("gpus_per_node")
    hosts = _hosts(number, prefix, per_node)
    around = Surroundings(
        belongs,
        role,
        found.place,
        nodes=hosts,
        replicas=number(f"{prefix}_workers"),
        gpus_per_node=per_node,
        pod=Pod(image=_image(job, document)),
    )
    return replace(found, surroundings=around, added=_added(hosts))


def _hosts(
    number: Callable[[str], Setting | None], prefix: str, per_node: Setting | None
) -> Setting | None:
    """The nodes of one worker, where the recipe says enough."""
    gpus = number(f"gpus_per_{prefix}")
    each = _GPUS if per_node is None else _whole(per_node)
    if gpus is not None and each and (count := _whole(gpus)):
        return replace(gpus, value=-(-count // each))
    total, workers = number(f"{prefix}_nodes"), number(f"{prefix}_workers")
    if total is None or workers is None:
        return None
    all_nodes, several = _whole(total), _whole(workers)
    if not all_nodes or not several or not each:
        return None
    return replace(total, value=max(-(-(all_nodes * each // several) // each), 1))


def _whole(found: Setting) -> int | None:
    value = found.value
    usable = found.known and isinstance(value, int) and 0 < value < 10**5
    return value if usable else None


def _added(hosts: Setting | None) -> tuple[Word, ...]:
    if hosts is None or hosts.value <= 1:
        return ()
    place = hosts.place
    return (
        Word("--dist-init-addr", place),
        Word("{leader}", place, evaluated=False, inside=True, why=_WHY),
        Word("--nnodes", place),
        Word(str(hosts.value), place),
        Word("--node-rank", place),
        Word("{rank}", place, evaluated=False, inside=True, why=_WHY),
    )


def _image(job: Found, document: Document) -> Setting | None:
    node = _below(job, "model").get("container")
    return values.setting(node, document) if isinstance(node, yaml.ScalarNode) else None

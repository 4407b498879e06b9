"""Read NVIDIA's srt-slurm recipes, with SGLang's arguments by role in `backend.sglang_config`.

Sources (NVIDIA/srt-slurm at c88ef73):
- src/srtctl/backends/sglang.py creates the command. `_` becomes `-`, true becomes a flag, false and
  null are omitted, and lists become tokens. The model path is the recipe's `model.path`. A worker
  of several nodes gets `--dist-init-addr`, `--nnodes` and `--node-rank`.
- docs/overrides.md: `base` is not a job itself if `override_*` (merged over it) or `zip_override_*`
  exist. Each item of a list in `zip_override_*` is one job; a list in an item is a value.
- src/srtctl/core/schema.py, ResourceConfig: a worker has `gpus_per_ROLE` GPUs, else its share of
  the GPUs on `ROLE_nodes`. FrontendConfig: the router is Dynamo's, or SGLang's for `type: sglang`.
- topology.py, allocate_endpoints: a worker uses as many nodes as it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources import nodes, pods
from speclaunch.deployments.sources.interface import (
    Dropped,
    Invocation,
    InvocationKind,
    Reading,
    Word,
)
from speclaunch.deployments.sources.server_groups import words_of_hosts
from speclaunch.deployments.sources.source_text import Document
from speclaunch.deployments.sources.wrappers import declared
from speclaunch.engine import Group, Pod, Router, ServerContext, Setting

_ROLES = {"prefill": "prefill", "decode": "decode", "aggregated": "agg"}
"""Prefix of each role's keys in `resources` (`agg_workers`)."""
_MAX_VARIANTS = 200
_MAX_DEPTH = 12
_IMAGE = lazy(r"(?P<repository>[\w.-]+)\+(?P<name>sglang[\w.-]*)\+(?P<tag>[\w.-]+?)(?:\.sqsh)?\Z")
"""Pattern of an enroot image's file name: `lmsysorg+sglang+v0.5.5.sqsh`."""
_RELEASE = lazy(r"v?\d+\.\d+\.\d+(?:\.post\d+)?(?:-[\w.-]+)?\Z")
"""Pattern of a container alias that is the image tag of an SGLang release."""
_FILLED_IN = lazy(r"\{[A-Za-z_]\w*\}")
"""Pattern of a placeholder for a sweep's parameter or a worker's node."""
_OVERRIDES = ("override_", "zip_override_")
_LAUNCHER = frozenset({"model_path", "nccl_port"})
"""Arguments that srt-slurm sets itself, ignoring the recipe."""
_WHY = "srt-slurm fills it in"
_GPUS = 4
"""Default of `gpus_per_node`."""
_PROGRAMS = {"sglang": "sglang_router.launch_router", "dynamo": "dynamo.frontend"}
_READ_ONLY = "srt-slurm builds the command line from these keys"

Tree = dict[str, "Tree | yaml.Node"]
"""Nested mappings, after merging. All other values are nodes of the file."""


class _Key(Struct, frozen=True):
    """Server argument in the file."""

    name: str
    node: yaml.ScalarNode
    value: yaml.Node


def looks_like(root: yaml.Node) -> bool:
    """True if a document is an srt-slurm recipe for SGLang, with or without variants."""
    keys = nodes.entries(root)
    return _has_config(keys) or _has_config(nodes.entries(keys.get("base")))


def _has_config(keys: Mapping[str, yaml.Node]) -> bool:
    config = nodes.entries(nodes.entries(keys.get("backend")).get("sglang_config"))
    return bool(config.keys() & _ROLES.keys())


def read_recipes(roots: Sequence[yaml.Node], document: Document) -> Reading:
    """Return one command for each role of each job."""
    found: list[Invocation] = []
    for root in roots:
        for job in _jobs(root, document):
            config = _below(_below(job, "backend"), "sglang_config")
            name = _scalar(job.get("name"))
            if name is not None:
                start = nodes.place(name, document)
            else:
                start = document.place(nodes.offsets(root, document)[0])
            belongs = _group(job, nodes.text(name), start, document)
            for role in _ROLES:
                if isinstance(config.get(role), dict):
                    invocation = _invocation(job, role, document)
                    found.append(_with_server_context(invocation, job, role, belongs, document))
    return Reading(tuple(found))


def _below(tree: Tree, name: str) -> Tree:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _jobs(root: yaml.Node, document: Document) -> Iterator[Tree]:
    keys = nodes.entries(root)
    if not _has_config(nodes.entries(keys.get("base"))):
        yield _tree(root, document)
        return
    base = _tree(keys["base"], document)
    variants = [name for name in keys if name.startswith(_OVERRIDES)]
    if not variants:
        yield base
    count = 0
    for name in variants:
        over = _tree(keys[name], document)
        sizes = _sizes(over) if name.startswith("zip_") else {1}
        for index in range(max(sizes, default=1)):
            count += 1
            if count > _MAX_VARIANTS:
                return
            own = _zipped(over, index) if name.startswith("zip_") else over
            yield _merged(base, own, document)


_KEYS = "\0keys"


def _tree(node: yaml.Node, document: Document, depth: int = 0) -> Tree:
    """Return a node's nested mappings as a tree that also contains the key nodes."""
    document.spend()
    tree: Tree = {}
    for key, key_node, value in nodes.pairs(node):
        if isinstance(value, yaml.MappingNode) and depth < _MAX_DEPTH:
            tree[key] = _tree(value, document, depth + 1)
        else:
            tree[key] = value
        tree[f"{key}{_KEYS}"] = key_node
    return tree


def _merged(base: Tree, over: Tree, document: Document) -> Tree:
    document.spend(1 + len(base) // 4)
    found = dict(base)
    for key, value in over.items():
        old = found.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            found[key] = _merged(old, value, document)
        elif not (key.endswith(_KEYS) and isinstance(old, yaml.Node) and _keeps(key, over)):
            found[key] = value
    return found


def _keeps(key: str, over: Tree) -> bool:
    """True if an override only extends a key's mapping, so the key keeps its position."""
    return isinstance(over.get(key.removesuffix(_KEYS)), dict)


def _sizes(tree: Tree) -> set[int]:
    """Return the distinct list lengths in a `zip_override_*`."""
    found: set[int] = set()
    for value in tree.values():
        if isinstance(value, dict):
            found |= _sizes(value)
        elif isinstance(value, yaml.SequenceNode):
            found.add(min(len(value.value), _MAX_VARIANTS))
    return found


def _zipped(tree: Tree, index: int) -> Tree:
    found: Tree = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found[key] = _zipped(value, index)
        elif isinstance(value, yaml.SequenceNode) and value.value:
            found[key] = value.value[index if index < len(value.value) else 0]
        else:
            found[key] = value
    return found


def _invocation(job: Tree, role: str, document: Document) -> Invocation:
    backend = _below(job, "backend")
    config = _below(_below(backend, "sglang_config"), role)
    words: list[Word] = []
    dropped: list[Dropped] = []
    names = {key.name.replace("-", "_") for key in _keys(config)}
    for key in _keys(config):
        if key.name.replace("-", "_") in _LAUNCHER:
            place = nodes.place(key.node, document)
            why = "srt-slurm sets this argument itself"
            dropped.append(Dropped(key.name, place, why))
        else:
            words += _argument(key, document, dropped)
    where = _below(backend, "sglang_config")[f"{role}{_KEYS}"]
    place = nodes.place(where, document) if isinstance(where, yaml.Node) else document.place(0)
    if role in ("prefill", "decode") and "disaggregation_mode" not in names:
        words += [Word("--disaggregation-mode", place), Word(role, place)]
    name = nodes.text(_scalar(job.get("name")))
    return Invocation(
        InvocationKind.SRT_SLURM,
        (*_model(job, document), *words),
        place,
        env=_environment(job, role, document),
        dropped=tuple(dropped),
        name=f"{name}/{role}" if name else role,
        image=_image(job),
        hardware=_hardware(job, role),
        read_only=_READ_ONLY,
    )


def _keys(config: Tree) -> Iterator[_Key]:
    for name, value in config.items():
        node = config.get(f"{name}{_KEYS}")
        if isinstance(node, yaml.ScalarNode) and isinstance(value, yaml.Node):
            yield _Key(name, node, value)


def _argument(key: _Key, document: Document, dropped: list[Dropped]) -> list[Word]:
    place = nodes.place(key.node, document)
    flag = Word(f"--{key.name.replace('_', '-')}", place)
    if isinstance(key.value, yaml.SequenceNode):
        items = [item for item in key.value.value if isinstance(item, yaml.ScalarNode)]
        return [flag, *(_word(item, document) for item in items)]
    if not isinstance(key.value, yaml.ScalarNode):
        why = "srt-slurm writes a mapping in Python syntax"
        where = nodes.place(key.value, document)
        return [flag, Word("{…}", where, evaluated=False, inside=True, why=why)]
    tag = key.value.tag.rpartition(":")[2]
    true = str(key.value.value).lower() in ("true", "yes", "on")
    if tag == "null" or (tag == "bool" and not true):
        why = "srt-slurm omits false and null values"
        dropped.append(Dropped(f"{key.name}: {key.value.value}", place, why))
        return []
    return [flag] if tag == "bool" else [flag, _word(key.value, document)]


def _word(node: yaml.ScalarNode, document: Document) -> Word:
    text = str(node.value)
    if _FILLED_IN.search(text) and not text.lstrip().startswith(('{"', "[")):
        why = "the value is a parameter of the recipe"
        return Word(text, nodes.place(node, document), evaluated=False, inside=True, why=why)
    return Word(text, nodes.place(node, document))


def _model(job: Tree, document: Document) -> list[Word]:
    node = _scalar(_below(job, "model").get("path"))
    path = nodes.text(node)
    if node is None or path is None:
        return []
    where = nodes.place(node, document)
    flag = Word("--model-path", where)
    if path.startswith("hf:"):
        return [flag, Word(path.removeprefix("hf:"), where)]
    if path.count("/") == 1 and not path.startswith((".", "/")):
        return [flag, Word(path, where)]
    return [
        flag,
        Word(
            path, where, evaluated=False, inside=True, why="the cluster sets the path of the model"
        ),
    ]


def _environment(job: Tree, role: str, document: Document) -> dict[str, Word]:
    env: dict[str, Word] = {}
    for held in (_below(job, "environment"), _below(_below(job, "backend"), f"{role}_environment")):
        for name, value in held.items():
            if isinstance(value, yaml.ScalarNode) and not name.endswith(_KEYS):
                env[name] = _word(value, document)
    return env


def _image(job: Tree) -> str | None:
    container = nodes.text(_scalar(_below(job, "model").get("container")))
    found = _IMAGE.search(container.rpartition("/")[2]) if container and "+" in container else None
    if found is not None:
        return f"{found['repository']}/{found['name']}:{found['tag']}"
    return f"sglang:{container}" if container and _RELEASE.match(container) else container


def _hardware(job: Tree, role: str) -> str | None:
    """Return a role's `--hardware` value, or None. It has a GPU count if workers use full nodes.

    Otherwise, the arguments determine the GPU count.
    """
    resources = _below(job, "resources")
    kind = nodes.text(_scalar(resources.get("gpu_type")))
    if kind is None:
        return None
    gpus = _number(resources.get("gpus_per_node"))
    workers = _number(resources.get(f"{_ROLES[role]}_workers"))
    count = _number(resources.get(f"{_ROLES[role]}_nodes"))
    if gpus and count and workers and count % workers == 0:
        return declared(f"{kind}:{gpus}") or declared(kind)
    return declared(kind)


def _number(node: object) -> int | None:
    text = nodes.text(_scalar(node)) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else None


def _scalar(node: object) -> yaml.ScalarNode | None:
    return node if isinstance(node, yaml.ScalarNode) else None


def _group(job: Tree, name: str | None, place: Place, document: Document) -> Group:
    frontend = _below(job, "frontend")
    kind = nodes.text(_scalar(frontend.get("type"))) or "dynamo"
    routers: tuple[Router, ...] = ()
    if kind in _PROGRAMS:
        options = {
            key.replace("_", "-"): setting
            for key, node in _below(frontend, "args").items()
            if isinstance(node, yaml.Node) and not key.endswith(_KEYS)
            if (setting := pods.setting(node, document)) is not None
        }
        where = next((n for n in frontend.values() if isinstance(n, yaml.ScalarNode)), None)
        at = place if where is None else nodes.place(where, document)
        routers = (Router("frontend", _PROGRAMS[kind], at, options=options),)
    return Group(name or "srt-slurm", "srt-slurm", place, routers)


def _with_server_context(
    found: Invocation, job: Tree, role: str, belongs: Group, document: Document
) -> Invocation:
    """Return a role's server with its server context and multi-node tokens."""
    resources, prefix = _below(job, "resources"), _ROLES[role]

    def number(name: str) -> Setting | None:
        return pods.number_at(_scalar(resources.get(name)), document)

    per_node = number("gpus_per_node")
    hosts = _hosts(number, prefix, per_node)
    image = pods.setting(_scalar(_below(job, "model").get("container")), document)
    context = ServerContext(
        belongs,
        role,
        found.place,
        nodes=hosts,
        replicas=number(f"{prefix}_workers"),
        gpus_per_node=per_node,
        pod=Pod(image=image),
    )
    several = hosts is not None and hosts.value > 1
    added = words_of_hosts(hosts, "{leader}", "{rank}", _WHY) if hosts and several else ()
    return replace(found, server_context=context, added=added)


def _hosts(
    number: Callable[[str], Setting | None], prefix: str, per_node: Setting | None
) -> Setting | None:
    """Return the number of nodes of one worker; None if the recipe does not determine it."""
    gpus = number(f"gpus_per_{prefix}")
    each = _GPUS if per_node is None else _positive(per_node)
    if gpus is not None and each and (count := _positive(gpus)):
        return replace(gpus, value=-(-count // each))
    total, workers = number(f"{prefix}_nodes"), number(f"{prefix}_workers")
    if total is None or workers is None:
        return None
    all_nodes, several = _positive(total), _positive(workers)
    if not all_nodes or not several or not each:
        return None
    return replace(total, value=max(-(-(all_nodes * each // several) // each), 1))


def _positive(found: Setting) -> int | None:
    value = found.value
    usable = found.known and isinstance(value, int) and 0 < value < 10**5
    return value if usable else None

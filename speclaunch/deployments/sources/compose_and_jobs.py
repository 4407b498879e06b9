"""Find servers that work together in a Compose file, a Slurm job, or a script with a router.

Directives are `#SBATCH` lines before the first command (sbatch's manual). A step (`srun`) uses its
own nodes if it states any, else the job's. A server that no `srun` starts runs on the first node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

import yaml
from msgspec.structs import replace

from speclaunch.core import Place, lazy
from speclaunch.deployments.sources import nodes, pods
from speclaunch.deployments.sources.containers import ServiceSite, image_in, image_of, listed
from speclaunch.deployments.sources.fields import Value
from speclaunch.deployments.sources.interface import Invocation, Reading, Word
from speclaunch.deployments.sources.nodes import Entries
from speclaunch.deployments.sources.server_groups import (
    MODE,
    SBATCH,
    SCRIPT,
    Member,
    Owner,
    read_router,
    text_of,
    with_server_context,
)
from speclaunch.deployments.sources.source_text import Document, SourceSpan, WordPiece
from speclaunch.engine import Pod, Setting, Volume

_GPU = "nvidia.com/gpu"
_LOOPBACK = ("127.", "::1", "[::1]")
_PATH = lazy(r"[./~]|[A-Za-z]:\\|\$")
"""Pattern of the start of a host path. Any other source of a mount is a volume's name."""


def add_compose_context(
    reading: Reading, sites: Sequence[ServiceSite], document: Document
) -> Reading:
    """Return a Compose file's `reading` with the server context of each server."""
    members: list[Member] = []
    for site in sites:
        keys = nodes.entries(site.node)
        pod = read_pod(keys, document)
        deploy = nodes.entries(keys.get("deploy"))
        scale = deploy.get("replicas", keys.get("scale"))
        hosts = (nodes.text(keys.get(key)) for key in ("container_name", "hostname"))
        names = {site.name, *filter(None, hosts)}
        owner = Owner(
            f"service/{site.name}",
            site.name,
            "compose",
            nodes.place(site.key, document),
            role=site.name,
            replicas=pods.number_at(scale, document),
            names=frozenset(names),
        )
        document.spend(10 + len(pod.env) + len(pod.volumes))
        for index in site.servers:
            members.append(Member(owner, pod, reading.invocations[index], index))
        for index in site.routers:
            members.append(Member(owner, pod, router=read_router(reading.routers[index], pod)))
    return with_server_context(reading, members, (), document)


def read_pod(keys: Entries, document: Document) -> Pod:
    """Return the container setup of a Compose service."""
    deploy = nodes.entries(keys.get("deploy"))
    resources = nodes.entries(deploy.get("resources"))
    requests = _resources(resources.get("reservations"), document)
    limits = _resources(resources.get("limits"), document)
    for key, name in (("mem_limit", "memory"), ("cpus", "cpu")):
        found = pods.setting(keys.get(key), document)
        if found is not None:
            limits.setdefault(name, found)
    network = pods.setting(keys.get("network_mode"), document)
    ipc = pods.setting(keys.get("ipc"), document)
    ports = [*nodes.items(keys.get("ports")), *nodes.items(keys.get("expose"))]
    return Pod(
        image=_image(keys, document),
        requests=requests,
        limits=limits,
        probes=tuple(pods.probes_of_service(keys.get("healthcheck"), document)),
        volumes=tuple(_volumes(keys, document)),
        shm_size=pods.in_bytes(pods.setting(keys.get("shm_size"), document), compose=True),
        ipc_host=None if ipc is None else replace(ipc, value=ipc.value == "host"),
        grace=pods.in_seconds(pods.setting(keys.get("stop_grace_period"), document)),
        privileged=pods.setting(keys.get("privileged"), document),
        host_network=None if network is None else replace(network, value=network.value == "host"),
        ports=tuple(port for item in ports if (port := _inside(item, document)) is not None),
        published=tuple(_published(keys, document)),
        env=_environment(keys.get("environment"), document),
        secrets=frozenset(),
        labels={},
        restart=pods.setting(keys.get("restart"), document),
    )


def _image(keys: Entries, document: Document) -> Setting | None:
    text = image_in(keys, document)
    if text is None:
        return None
    return Setting(text, nodes.place(keys["image"], document), known="$" not in text)


def _resources(node: yaml.Node | None, document: Document) -> dict[str, Setting]:
    keys = nodes.entries(node)
    found = {}
    for key, name in (("memory", "memory"), ("cpus", "cpu")):
        amount = pods.setting(keys.get(key), document)
        if amount is not None:
            found[name] = amount
    for item in nodes.items(keys.get("devices")):
        entry = nodes.entries(item)
        kinds = {nodes.text(capability) for capability in nodes.items(entry.get("capabilities"))}
        if "gpu" not in kinds:
            continue
        ids = entry.get("device_ids")
        count = pods.number_at(entry.get("count"), document)
        if isinstance(ids, yaml.SequenceNode):
            found[_GPU] = _listed_gpus(ids, document)
        elif count is not None:
            found[_GPU] = count
    return found


def _listed_gpus(ids: yaml.SequenceNode, document: Document) -> Setting:
    """Return the number of GPUs in `device_ids`. An item may list several (`"0,1"`).

    Docker joins the items with commas (moby 18a2f3f, daemon/nvidia_linux.go).
    """
    items = [pods.setting(item, document) for item in ids.value]
    unknown = next((item for item in items if item is not None and not item.known), None)
    if unknown is not None:
        return unknown
    count = sum(len(str(item.value).split(",")) for item in items if item is not None)
    return Setting(count, nodes.place(ids, document))


def _volumes(keys: Entries, document: Document) -> Iterator[Volume]:
    for item in listed(keys.get("tmpfs")):
        found = pods.setting(item, document)
        if found is not None:
            path, _, options = str(found.value).partition(":")
            size = next((o[5:] for o in options.split(",") if o.startswith("size=")), None)
            amount = None if size is None else pods.byte_count(size, compose=True)
            yield Volume(
                replace(found, value=path),
                "tmpfs",
                found.place,
                medium="Memory",
                size=None if amount is None else replace(found, value=amount),
            )
    for item in nodes.items(keys.get("volumes")):
        entry = nodes.entries(item)
        if entry:
            mount = pods.setting(entry.get("target"), document)
            kind = nodes.text(entry.get("type")) or "volume"
            tmpfs = nodes.entries(entry.get("tmpfs"))
            if mount is not None:
                yield Volume(
                    mount,
                    kind,
                    nodes.place(item, document),
                    source=pods.setting(entry.get("source"), document),
                    medium="Memory" if kind == "tmpfs" else None,
                    size=pods.in_bytes(pods.setting(tmpfs.get("size"), document), compose=True),
                )
        elif isinstance(item, yaml.ScalarNode):
            yield from _short_volume(item, document)


def _short_volume(node: yaml.ScalarNode, document: Document) -> Iterator[Volume]:
    """Yield the volume of `SOURCE:TARGET[:MODE]`. A colon in `${NAME:-…}` is not a separator."""
    text = image_of(node, document)  # with the defaults of its variables
    place = nodes.place(node, document)
    parts = text.split(":") if "${" not in text else [text]
    if len(parts) == 1:
        known = "$" not in text
        yield Volume(Setting(text, place, known), "volume" if known else "unknown", place)
        return
    source, target = parts[0], parts[1]
    kind = "bind" if _PATH.match(source) else "volume"
    known = "$" not in source
    yield Volume(Setting(target, place), kind, place, source=Setting(source, place, known))


def _published(keys: Entries, document: Document) -> Iterator[Setting]:
    for item in nodes.items(keys.get("ports")):
        entry = nodes.entries(item)
        address = pods.setting(entry.get("host_ip") if entry else item, document)
        port = _inside(item, document)
        is_own = address is not None and str(address.value).startswith(_LOOPBACK)
        if port is not None and not is_own:
            yield port


def _inside(item: yaml.Node, document: Document) -> Setting | None:
    entry = nodes.entries(item)
    found = pods.setting(entry.get("target") if entry else item, document)
    if found is None or not found.known:
        return None
    text = str(found.value).partition("/")[0].rpartition(":")[2]
    return replace(found, value=int(text)) if text.isascii() and text.isdecimal() else None


def _environment(node: yaml.Node | None, document: Document) -> dict[str, Setting]:
    found = dict(pods.settings(node, document))
    for item in nodes.items(node):
        setting = pods.setting(item, document)
        text = nodes.text(item)
        if setting is not None and text is not None and "=" in text:
            name, _, value = text.partition("=")
            found[name] = Setting(value, setting.place, setting.known)
    return found


_DIRECTIVE = lazy(r"#SBATCH[ \t]+([^\n]*)")
_OPTION = lazy(
    r"(?P<name>--[a-z][a-z-]*|-[A-Za-z])(?:(?:[= \t]+|(?<=-[A-Za-z]))(?P<value>[^\s#-]\S*))?"
)
_SHORT = {"-N": "--nodes", "-n": "--ntasks", "-J": "--job-name", "-G": "--gpus", "-w": "--nodelist"}
_GRES = lazy(r"gpu(?::[^:,\s]+)?:(\d+)")
_COUNT = lazy(r"(?:[a-z][\w-]*:)?(\d+)\Z", 2)
_NNODES = "--nnodes"
_JOB_VARIABLES = (
    ("SLURM_NNODES", "--nodes"),
    ("SLURM_JOB_NUM_NODES", "--nodes"),
    ("SLURM_NTASKS", "--ntasks"),
    ("SLURM_NTASKS_PER_NODE", "--ntasks-per-node"),
    ("SLURM_GPUS_ON_NODE", "--gres"),
    ("SLURM_GPUS_ON_NODE", "--gpus-per-node"),
)


def may_form_deployment(reading: Reading, text: str) -> bool:
    """True if a script's servers may form one deployment. This test is cheap."""
    if not reading.invocations:
        return False
    if reading.routers or "#SBATCH" in text:
        return True
    if len(reading.invocations) < 2:
        return False
    modes = {text_of(invocation.words, MODE) for invocation in reading.invocations}
    ranked = [
        invocation
        for invocation in reading.invocations
        if text_of(invocation.words, _NNODES) not in (None, "1")
    ]
    return {"prefill", "decode"} <= modes or len(ranked) > 1


def add_script_context(reading: Reading, document: Document) -> Reading:
    """Return a script's `reading` with the server context of each server."""
    job = directives(document)
    platform = SBATCH if "#SBATCH" in document.text else SCRIPT
    title = job.get("--job-name")
    name = str(title.value) if title is not None else PurePath(document.shown).stem
    place = title.place if title is not None else Place(document.shown)
    members: list[Member] = []
    for index, found in enumerate(reading.invocations):
        step = _step(found.program)
        owner = Owner(
            f"{index}",
            name,
            platform,
            place,
            role=text_of(found.words, MODE) or name,
            role_place=found.place,
            nodes=_nodes(job, step, found, platform),
            gpus_per_node=_gpus(step) or _gpus(job),
        )
        members.append(Member(owner, Pod(image=_container_image(found)), found, index))
    for number, command in enumerate(reading.routers):
        owner = Owner(f"router {number}", name, platform, place)
        members.append(Member(owner, Pod(), router=read_router(command)))
    return with_server_context(reading, members, (), document)


def directives(document: Document) -> dict[str, Setting]:
    """Return the options of a batch job by their long names; the last duplicate wins."""
    found: dict[str, Setting] = {}
    at = 0
    for line in document.text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        match = _DIRECTIVE.match(line)
        if match is not None:
            for option in _OPTION.finditer(match[1]):
                start = at + match.start(1) + option.start()
                place = document.place(start, len(option[0]))
                name = _SHORT.get(option["name"], option["name"])
                value = option["value"]
                if value is not None:
                    begin = at + match.start(1) + option.start("value")
                    place = document.place(begin, len(value))
                found[name] = Setting(True if value is None else value.strip("\"'"), place)
        at += len(line) + 1
    return found


def job_variables(document: Document) -> dict[str, Value]:
    """Return Slurm's variables that the options of a batch job determine."""
    job, source = directives(document), document.source()
    found: dict[str, Value] = {}
    for name, option in _JOB_VARIABLES:
        setting = job.get(option)
        count = (_GRES if option == "--gres" else _COUNT).match(str(setting and setting.value))
        if setting is not None and count is not None:
            at = document.at(setting.place)
            note = f"`{option}` of this script, unless sbatch gets another"
            piece = WordPiece(count[1], source, at + count.start(1), note=note)
            found[name] = Value(SourceSpan(source, at, at + len(count[0])), (piece,))
    return found


def _step(program: Sequence[Word]) -> dict[str, Setting]:
    """Return the options of a server's `srun` by their long names; empty without `srun`."""
    at = next((i for i, word in enumerate(program) if word.text.rpartition("/")[2] == "srun"), None)
    if at is None:
        return {}
    found = {"srun": Setting(True, program[at].place)}
    words = program[at + 1 :]
    for index, word in enumerate(words):
        if not word.text.startswith("-"):
            continue
        name, equals, value = word.text.partition("=")
        if not name.startswith("--") and len(name) > 2:
            name, value, equals = name[:2], name[2:], "="
        holder = word
        if not equals and index + 1 < len(words) and not words[index + 1].text.startswith("-"):
            holder = words[index + 1]
            value = holder.text
        found[_SHORT.get(name, name)] = Setting(value, holder.place, holder.evaluated)
    return found


def _nodes(
    job: Mapping[str, Setting], step: Mapping[str, Setting], found: Invocation, platform: str
) -> Setting | None:
    """Return the host count of a server's `srun`; None if unknown or if each rank has an `srun`."""
    if platform != SBATCH or "srun" not in step:
        return None
    held = step.get("--nodes") or (None if "--nodelist" in step else job.get("--nodes"))
    if (text_of(found.words, "--node-rank") or "").isdecimal():
        return None  # each rank has a separate command
    return pods.numeric(held)


def _gpus(options: Mapping[str, Setting]) -> Setting | None:
    for name, pattern in (("--gpus-per-node", _COUNT), ("--gres", _GRES)):
        option = options.get(name)
        match = pattern.search(str(option.value)) if option is not None and option.known else None
        if option is not None and match is not None and len(match[1]) < 5:
            return Setting(int(match[1]), option.place)
    return None


def _container_image(found: Invocation) -> Setting | None:
    if found.image is None:
        return None
    word = next((w for w in found.program if w.text == found.image), None)
    place = found.place if word is None else word.place
    return Setting(found.image, place, word is None or word.evaluated)

"""The variables that a controller gives its pods, with the values that its object says.

LeaderWorkerSet: pkg/utils/pod (LWS_LEADER_ADDRESS, LWS_GROUP_SIZE, LWS_WORKER_INDEX), and so what
is built on it (OME, KServe, RoleBasedGroup v1alpha1). RoleBasedGroup: RBG_LWP_…, RBG_ROLE_…
(api/workloads/constants/env.go). OME: PARALLELISM_SIZE, the GPUs of a pod times its hosts
(inferenceservice/components/engine.go). AIBrix: pkg/controller/constants/stormservice.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import yaml

from speclaunch.errors import Place
from speclaunch.importer import nodes
from speclaunch.importer.around import kinds, values
from speclaunch.importer.around.members import Owner
from speclaunch.importer.containers import Site
from speclaunch.importer.fields import Field
from speclaunch.importer.source_text import Document, SourceText, WordPiece
from speclaunch.surroundings import Setting

_LWS = ("LeaderWorkerSet", "RoleBasedGroup", "RoleBasedGroupSet", "LLMInferenceService")
_OME = ("InferenceService", "ServingRuntime", "ClusterServingRuntime")
_RBG = ("RoleBasedGroup", "RoleBasedGroupSet")
_AIBRIX = ("StormService", "RoleSet", "PodSet")
_OPEN = {
    "rbg": ("RBG_GROUP_NAME", "RBG_ROLE_INDEX", "RBG_ROLE_INSTANCE_NAME", "RBG_COMPONENT_INDEX"),
    "aibrix": ("POD_GROUP_INDEX", "ROLE_REPLICA_INDEX", "ROLESET_NAME", "STORM_SERVICE_NAME"),
}
"""Given to each pod, and not known from the object."""


def variables(site: Site, document: Document) -> dict[str, Field]:
    """The variables that the controller gives the container at a site."""
    owner = kinds.owner_of(site, document)
    kind = owner.platform
    found: dict[str, Field] = {}
    for prefix in _prefixes(kind):
        for name, setting in _of_group(owner):
            found[prefix + name] = _field(prefix + name, setting, owner, document)
    if kind in _RBG:
        named = None if owner.role is None else Setting(owner.role, owner.place)
        for name in ("RBG_ROLE_NAME", "ROLE_NAME"):
            found[name] = _field(name, named, owner, document)
        for name in _OPEN["rbg"]:
            found[name] = _field(name, None, owner, document)
    if kind in _AIBRIX:
        for name in _OPEN["aibrix"]:
            found[name] = _field(name, None, owner, document)
    if kind in _OME:
        gpus = _parallelism(owner, site.steps[-1][1], document)
        found["PARALLELISM_SIZE"] = _field("PARALLELISM_SIZE", gpus, owner, document)
    return found


def _prefixes(kind: str) -> Iterator[str]:
    if kind in _LWS or kind in _OME:
        yield "LWS_"
    if kind in _RBG:
        yield "RBG_LWP_"


def _of_group(owner: Owner) -> Iterator[tuple[str, Setting | None]]:
    """The leader's address, the size of the group, the index in it."""
    yield "LEADER_ADDRESS", None
    yield "GROUP_SIZE", owner.nodes
    yield "WORKER_INDEX", _index(owner)


def _index(owner: Owner) -> Setting | None:
    """That of the leader, of the only host, of the only worker."""
    size = owner.nodes
    hosts = size.value if size is not None and size.known else None
    if owner.part == "leader" or hosts == 1:
        return Setting(0, owner.place)
    if owner.part == "worker" and hosts == 2:
        return Setting(1, owner.place)
    return None


def _parallelism(
    owner: Owner, container: Mapping[str, yaml.Node], document: Document
) -> Setting | None:
    resources = nodes.entries(container.get("resources"))
    limits = values.settings(resources.get("limits"), document)
    gpus = values.number(limits.get("nvidia.com/gpu"))
    hosts = 1 if owner.nodes is None else owner.nodes.value
    if gpus is None or not isinstance(gpus.value, int) or not isinstance(hosts, int):
        return None
    return replace(gpus, value=gpus.value * hosts)


def _field(name: str, setting: Setting | None, owner: Owner, document: Document) -> Field:
    if setting is None or not setting.known:
        why = f"`{name}` comes from the controller of {owner.platform}"
        piece = _piece(f"$({name})", owner.place, document)
        return Field((replace(piece, unknown=why, inside=True),))
    note = f"`{name}` is what {owner.platform} makes of this object"
    return Field((replace(_piece(str(setting.value), setting.place, document), note=note),))


def _piece(text: str, place: Place, document: Document) -> WordPiece:
    start = document.at(place)
    return WordPiece(text, SourceText(document, text, [start] * len(text)), 0, quoted=True)

"""Build a server container's mounts, and the variables that point the engine to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from speclaunch.core import Problem
from speclaunch.deployments.recipe.values import EMPTY_DIR
from speclaunch.deployments.targets.interface import Rendering, Role, SpeclaunchFrom
from speclaunch.deployments.targets.words import (
    CHECKPOINTS,
    host_paths,
    instances,
    name_of,
    uses_hub,
)
from speclaunch.engine import load as load_catalogue

MODELS = "/cache/models"
KERNELS = "/cache/kernels"
SPECLAUNCH = "/opt/speclaunch"
WHEELS = "/opt/speclaunch-wheels"
SPECLAUNCH_HOME = "/var/lib/speclaunch"
RECIPE_DIR = "/etc/speclaunch"
RECIPE_FILE = "recipe.yaml"
_CLAIM = "pvc:"
_USUAL_WEIGHTS = 150 << 30
"""Bytes reserved for a checkpoint of unknown size."""
_KERNELS = 50 << 30
"""Bytes reserved for compiled kernels."""
_MARGIN = 1.2
"""Factor for a new revision, which is downloaded next to the old one, and for logs."""


class Mount(Struct, frozen=True):
    """Volume of a container; empty without a store and a claim.

    `store`: a host directory, or `pvc:NAME`, from the recipe. `claim`: the volume claim that the
    text creates.
    """

    name: str
    path: str
    store: str | None = None
    claim: str | None = None
    read_only: bool = False

    @property
    def source(self) -> dict[str, Any]:
        """Volume in Kubernetes's format."""
        claim = self.claim or (self.store or "").removeprefix(_CLAIM)
        if self.claim is not None or (self.store or "").startswith(_CLAIM):
            return {"persistentVolumeClaim": {"claimName": claim}}
        if self.store is not None:
            kind = "Directory" if self.read_only else "DirectoryOrCreate"
            return {"hostPath": {"path": self.store, "type": kind}}
        return {"emptyDir": {}}


class VolumeClaim(Struct, frozen=True):
    """Volume claim that a Kubernetes target creates."""

    name: str
    bytes: int
    contents: str
    """Stored checkpoints and their sizes."""
    shared: bool = False
    """True if pods on several hosts write it."""
    is_guess: bool = False
    """True if the size of a checkpoint is unknown."""


def own_claim(deployment: Rendering) -> VolumeClaim | None:
    """Return the claim for checkpoints if the recipe sets no storage; None if none is needed.

    A single pod's claim also stores compiled kernels. Several pods share a claim for checkpoints,
    and compile kernels on their node's disk.
    """
    if deployment.options.models is not None:
        return None
    shared = instances(deployment) > 1
    roles = [role for role in deployment.roles if uses_hub(role)]
    if shared and not roles:
        return None
    sizes = {
        tuple(map(role.rendered_args.value, CHECKPOINTS)): stored_bytes(role) for role in roles
    }
    size, contents = sum(sizes.values()), [stored_contents(role) for role in roles]
    has_kernels = not shared and deployment.options.jit_cache is None
    if has_kernels:
        size += _KERNELS
        contents.append(f"kernels {_KERNELS >> 30} GiB")
    return VolumeClaim(
        f"{name_of(deployment)}-{'models' if shared else 'cache'}",
        size,
        ", ".join(dict.fromkeys(contents)),
        shared,
        any(role.needs.weight_bytes is None for role in roles),
    )


def stored_bytes(role: Role) -> int:
    """Return the disk space of a role's checkpoints in bytes."""
    size = role.needs.weight_bytes
    return _USUAL_WEIGHTS if size is None else round(size * _MARGIN)


def stored_contents(role: Role) -> str:
    """Return text that lists the parts of `stored_bytes`."""
    size = role.needs.weight_bytes
    if size is None:
        return f"checkpoints of unknown size {_USUAL_WEIGHTS >> 30} GiB"
    return f"checkpoints {size / 1e9:,.1f} GB plus a fifth"


def volume_refusals(deployment: Rendering, target: str) -> Iterator[Problem]:
    """Yield problems with Kubernetes volumes in a recipe, for targets that lack them."""
    for name in ("models", "jit_cache", "shared_dir", "speclaunch_source"):
        store = str(getattr(deployment.options, name) or "")
        if store == EMPTY_DIR or store.startswith(_CLAIM):
            kind = "an emptyDir" if store == EMPTY_DIR else "a volume claim"
            yield Problem(
                f"deploy.{name} is {kind}, which only Kubernetes targets support, not {target}",
                help="set it to a directory on the host",
            )


def mounts(deployment: Rendering, role: Role) -> Iterator[Mount]:
    """Yield the volumes of a role's servers, except `/dev/shm` and the recipe."""
    options = deployment.options
    claim = own_claim(deployment)
    if claim is not None and not claim.shared and options.jit_cache is None:
        yield Mount("cache", "/cache", claim=claim.name)
    else:
        store = None if options.models == EMPTY_DIR else options.models
        yield Mount("models", MODELS, store, claim.name if claim is not None else None)
        yield Mount("kernels", KERNELS, options.jit_cache)
    for number, path in enumerate(host_paths(role)):
        yield Mount(f"checkpoint-{number}", path, path, read_only=True)
    if keeps_a_home(deployment, role):
        yield Mount("speclaunch-home", SPECLAUNCH_HOME, options.shared_dir)
    if deployment.runs_speclaunch:
        if options.speclaunch is SpeclaunchFrom.MOUNTED:
            yield Mount("speclaunch", SPECLAUNCH, options.speclaunch_source, read_only=True)
        elif options.speclaunch is SpeclaunchFrom.WHEEL:
            yield Mount("speclaunch", SPECLAUNCH)


def keeps_a_home(deployment: Rendering, role: Role) -> bool:
    """True if journals are in a volume. A CPU engine image uses its own home directory."""
    shared = deployment.options.shared_dir is not None
    return deployment.runs_speclaunch and (shared or not role.own_engine)


def wheels(deployment: Rendering) -> Mount | None:
    """Return the mount of speclaunch's wheels; None if they come from the package index."""
    source = deployment.options.speclaunch_source
    return None if source is None else Mount("wheels", WHEELS, source, read_only=True)


def cache_variables(deployment: Rendering, role: Role) -> dict[str, str]:
    """Return this release's variables for the directories of checkpoints and compiled kernels.

    Variables that the recipe sets are excluded.
    """
    found = {
        "HF_HOME": MODELS,
        "TRITON_CACHE_DIR": f"{KERNELS}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{KERNELS}/inductor",
        "FLASHINFER_WORKSPACE_BASE": f"{KERNELS}/flashinfer",
    }
    known = load_catalogue(deployment.version).variables
    own: Mapping[str, str] = {
        "SGLANG_CACHE_DIR": f"{KERNELS}/sglang",
        "SGLANG_DG_CACHE_DIR": f"{KERNELS}/deep_gemm",
    }
    found |= {name: path for name, path in own.items() if name in known}
    if keeps_a_home(deployment, role):
        found["SPECLAUNCH_HOME"] = SPECLAUNCH_HOME
    if role.gpus_per_node == 0:
        found.pop("FLASHINFER_WORKSPACE_BASE")
    return {name: path for name, path in found.items() if name not in role.rendered_args.env}

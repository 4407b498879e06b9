"""What a server's container mounts, and the variables that lead the engine there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from speclaunch.deploy.interface import Rendering, Role, SpeclaunchFrom
from speclaunch.deploy.names import instances, name_of
from speclaunch.deploy.words import host_paths
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.record import record

MODELS = "/cache/models"
KERNELS = "/cache/kernels"
SPECLAUNCH = "/opt/speclaunch"
WHEELS = "/opt/speclaunch-wheels"
SPECLAUNCH_HOME = "/var/lib/speclaunch"
RECIPE_DIR = "/etc/speclaunch"
RECIPE_FILE = "recipe.yaml"
_CLAIM = "pvc:"


@record
class Mount:
    """A volume of a container. `store` is what the recipe says: a directory of the host,
    `pvc:NAME`; None: an empty one of the platform's own, `claim`: one that is asked for."""

    name: str
    path: str
    store: str | None = None
    claim: str | None = None
    read_only: bool = False

    @property
    def source(self) -> dict[str, Any]:
        """The volume as Kubernetes has it."""
        claim = self.claim or (self.store or "").removeprefix(_CLAIM)
        if self.claim is not None or (self.store or "").startswith(_CLAIM):
            return {"persistentVolumeClaim": {"claimName": claim}}
        if self.store is not None:
            kind = "Directory" if self.read_only else "DirectoryOrCreate"
            return {"hostPath": {"path": self.store, "type": kind}}
        return {"emptyDir": {}}


def own_claim(deployment: Rendering) -> str | None:
    """The claim that the text itself makes: where one pod is all there is, and the recipe says
    nothing of a cache. Several pods would need one that can be written from several hosts."""
    if deployment.options.model_cache is None and instances(deployment) == 1:
        return f"{name_of(deployment)}-cache"
    return None


def mounts(deployment: Rendering, role: Role) -> Iterator[Mount]:
    """The volumes of a role's servers, `/dev/shm` and the recipe not among them."""
    options = deployment.options
    claim = own_claim(deployment)
    if claim is not None and options.jit_cache is None:
        yield Mount("cache", "/cache", claim=claim)
    else:
        yield Mount("models", MODELS, options.model_cache, claim)
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
    """Whether journals lie in a volume. The home of an image that holds the CPU engine stays."""
    shared = deployment.options.shared_dir is not None
    return deployment.runs_speclaunch and (shared or not role.own_engine)


def wheels(deployment: Rendering) -> Mount | None:
    """Where the wheels of speclaunch lie; None: they come from the package index."""
    source = deployment.options.speclaunch_source
    return None if source is None else Mount("wheels", WHEELS, source, read_only=True)


def cache_variables(deployment: Rendering, role: Role) -> dict[str, str]:
    """Where checkpoints and compiled kernels are kept, as the libraries and this release take it.

    What the recipe sets itself stays as it is.
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
    return {name: path for name, path in found.items() if name not in role.spelling.env}

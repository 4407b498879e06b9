"""Build a server's command (`speclaunch launch` with the recipe), its script and its mounts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct

from speclaunch.core import Problem, lazy
from speclaunch.deployments.recipe.sections import EMPTY_DIR
from speclaunch.deployments.targets.interface import (
    CHECKPOINTS,
    FLAGS,
    PlatformArgs,
    Rendering,
    Role,
    SpeclaunchFrom,
    host_paths,
    instances,
    name_of,
    uses_hub,
)
from speclaunch.engine import PATIENCE, USUAL_PATIENCE, argument_text, exports
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
"""Factor applied to checkpoint sizes, to leave room for logs and a new revision."""


class Mount(Struct, frozen=True):
    """Volume of a container; initially empty unless `store` or `claim` is set.

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
    """Text that lists the stored checkpoints and their sizes."""
    shared: bool = False
    """True if pods on several hosts write to the volume."""
    is_guess: bool = False
    """True if the size of a checkpoint is unknown."""


def own_claim(deployment: Rendering) -> VolumeClaim | None:
    """Return the claim for checkpoints; None if the recipe sets their storage or needs none.

    A single pod's claim also stores compiled kernels. Several pods share a claim for checkpoints,
    and compile kernels on their nodes' disks.
    """
    if deployment.options.models is not None:
        return None
    shared = instances(deployment) > 1
    roles = [role for role in deployment.roles if uses_hub(role)]
    if shared and not roles:
        return None
    sizes = {tuple(map(r.rendered_args.value, CHECKPOINTS)): stored_bytes(r) for r in roles}
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
    """Return the disk space in bytes to reserve for a role's checkpoints."""
    size = role.needs.weight_bytes
    return _USUAL_WEIGHTS if size is None else round(size * _MARGIN)


def stored_contents(role: Role) -> str:
    """Return text that explains `stored_bytes`."""
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
    """True if journals are in a volume. A CPU engine needs `deploy.shared_dir` for that."""
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
    for name, folder in (("SGLANG_CACHE_DIR", "sglang"), ("SGLANG_DG_CACHE_DIR", "deep_gemm")):
        if name in known:
            found[name] = f"{KERNELS}/{folder}"
    if keeps_a_home(deployment, role):
        found["SPECLAUNCH_HOME"] = SPECLAUNCH_HOME
    if role.gpus_per_node == 0:
        found.pop("FLASHINFER_WORKSPACE_BASE")
    return {name: path for name, path in found.items() if name not in role.rendered_args.env}


PATH = "/health_generate"
"""Endpoint that generates a token in every release. `/health` does so only in 0.5.1 and later."""

_ANSWERS = 5
"""Seconds added to the engine's own timeout, so that the engine times out first."""
_STARTUP_PERIOD = 10
_READINESS_PERIOD = 10
_READINESS_FAILURES = 3
_LIVENESS_PERIOD = 30
_WATCHDOG = 300
"""Default `watchdog_timeout` of the engine, in seconds. The watchdog ends a scheduler whose forward
pass hangs, and reports where it hangs. The liveness probe covers all other hangs."""
UNKNOWN_START = 3600
"""Seconds allowed for a start of unknown duration, as in `launch.ready_timeout_seconds`."""


class ProbeTimes(Struct, frozen=True):
    """A probe's period and timeout in seconds, and its failure threshold."""

    period: int
    timeout: int
    failures: int

    @property
    def slack(self) -> int:
        """Seconds of consecutive failure after which the platform acts."""
        return self.period * self.failures


class Probes(Struct, frozen=True):
    """Probes of a server."""

    startup: ProbeTimes
    readiness: ProbeTimes
    liveness: ProbeTimes


def probes_of(role: Role) -> Probes:
    """Return the probes of a role's servers."""
    text = role.env.get(PATIENCE) or ""
    patience = int(text) if text.isdecimal() else USUAL_PATIENCE
    timeout = patience + _ANSWERS
    period = max(_LIVENESS_PERIOD, timeout + _ANSWERS)
    limit = role.rendered_args.value("watchdog_timeout") or ""
    watchdog = round(float(limit)) if limit.replace(".", "", 1).isdecimal() else _WATCHDOG
    return Probes(
        startup=ProbeTimes(_STARTUP_PERIOD, timeout, -(-start_seconds(role) // _STARTUP_PERIOD)),
        readiness=ProbeTimes(_READINESS_PERIOD, timeout, _READINESS_FAILURES),
        liveness=ProbeTimes(period, timeout, watchdog // period + 1),
    )


def start_seconds(role: Role) -> int:
    """Return a server's maximum startup time in seconds."""
    return (role.needs.start_seconds or UNKNOWN_START) * role.starts


def start_comment(role: Role) -> str:
    """Return a comment that explains the startup time."""
    seconds = f"{start_seconds(role)} s"
    if role.starts > 1:
        seconds += f" for up to {role.starts} start attempts"
    if role.needs.start_seconds is None:
        return f"{seconds}: {role.needs.unknown or 'the size of the weights is unknown'}"
    return f"{seconds}: {role.needs.start_why}"


ALONE = (
    "Runs plain SGLang. Set deploy.speclaunch (image, wheel or mounted) to add speclaunch's "
    "validation, diagnosis and recovery."
)
"""Comment in every text that starts the engine without speclaunch."""
WITHIN = (
    "speclaunch starts the engine: it checks the recipe, diagnoses failed starts, and "
    "recovers from out-of-memory errors."
)


def program_of(deployment: Rendering, folder: str | None = SPECLAUNCH) -> tuple[str, ...]:
    """Return the command that runs speclaunch, without a verb.

    The image or the hosts' PATH provides it, or else the virtual environment in `folder`.
    """
    if deployment.options.speclaunch is SpeclaunchFrom.IMAGE:
        return ("speclaunch",)
    return (f"{folder}/bin/python", "-m", "speclaunch")  # a script would contain its old path


def launch_words(
    deployment: Rendering,
    role: Role,
    platform_args: PlatformArgs,
    recipe: str = f"{RECIPE_DIR}/{RECIPE_FILE}",
) -> list[str]:
    """Return the `launch` verb with its arguments. `platform_args` are in the target's syntax.

    The arguments disable restarts by speclaunch, because the platform restarts all ranks. They
    also let a stopped engine finish its requests.
    """
    words = ["launch", f"recipe={recipe}"]
    inside = ""
    if deployment.has_roles:
        words.append(f"--role={role.name}")
        inside = f"roles.{role.name}."
    for name, texts in platform_args.items():
        if texts is not None:
            words.append(f"++{inside}args.{name}={' '.join(texts)}")
    drain = max(deployment.options.drain_seconds, role.grace_seconds)
    settings = {"grace_seconds": str(drain), "restart.policy": "never"}
    start_limit = start_seconds(role) // role.starts
    if start_limit > role.ready_seconds:
        settings["ready_timeout_seconds"] = str(start_limit)
    return words + [f"++{inside}launch.{name}={value}" for name, value in settings.items()]


def launches_in(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the arguments of each `speclaunch launch` in YAML lists, from `launch` on."""
    return tuple(words for root in yaml.safe_load_all(text) for words in launches_of(root))


def launches_of(value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of each `speclaunch launch` in parsed YAML."""
    if isinstance(value, dict):
        for item in value.values():
            yield from launches_of(item)
    elif isinstance(value, list):
        words = tuple(item for item in value if isinstance(item, str))
        if words[:1] == ("launch",) and len(words) == len(value):
            yield words
        for item in value:
            yield from launches_of(item)


# -- scripts of the schedulers (Slurm, Ray)

RECIPE = "SPECLAUNCH_RECIPE"
"""Variable with the path of the recipe embedded in a text."""
_LAUNCH = lazy(r"^exec (?P<words>.*? launch (?:[^\n]*\\\n)*[^\n]*)$", re.M)


def variables(deployment: Rendering, role: Role) -> dict[str, str]:
    """Return the variables that a target adds to the role's, for checkpoint storage."""
    cache = deployment.options.models
    return {"HF_HOME": cache} if cache is not None and "HF_HOME" not in role.env else {}


def grace_of(deployment: Rendering) -> int:
    """Return the seconds that a server may take to finish its requests and stop."""
    longest = max(role.grace_seconds for role in deployment.roles)
    return max(deployment.options.drain_seconds, longest)


def task_script(deployment: Rendering, role: Role, platform_args: PlatformArgs) -> str:
    """Return the script that each host of a server runs with `bash -c`.

    The values of `platform_args` are shell text, including variables.
    """
    if deployment.runs_speclaunch:
        return _launch(deployment, role, platform_args)
    words = [shlex.join(["exec", *role.program])]
    words += [
        argument_text(argument)
        for argument in role.rendered_args.arguments
        if argument.name not in platform_args
    ]
    words += [f'{FLAGS[name]}="{texts[0]}"' for name, texts in platform_args.items() if texts]
    environment = exports({**variables(deployment, role), **role.env})
    return "\n" + environment + " \\\n  ".join(words) + "\n"


def _launch(deployment: Rendering, role: Role, platform_args: PlatformArgs) -> str:
    home = deployment.options.shared_dir
    set_ = {**variables(deployment, role), **({"SPECLAUNCH_HOME": home} if home else {})}
    program = shlex.join(["exec", *program_of(deployment, deployment.options.speclaunch_source)])
    words = launch_words(deployment, role, platform_args, f"${RECIPE}")
    quoted = [f'"{word}"' if "$" in word else shlex.quote(word) for word in words]
    return "\n" + exports(set_) + " \\\n  ".join([f"{program} {quoted[0]}", *quoted[1:]]) + "\n"


def own_refusals(deployment: Rendering, target: str) -> list[Problem]:
    """Return the reasons why a target cannot mount the volumes or start speclaunch."""
    options = deployment.options
    found = list(volume_refusals(deployment, target))
    if not deployment.runs_speclaunch:
        return found
    if options.speclaunch is SpeclaunchFrom.WHEEL:
        message = f"{target} cannot install speclaunch before a start (deploy.speclaunch: wheel)"
        help_ = "set deploy.speclaunch to image (hosts have it) or mounted (a directory)"
        found.append(Problem(message, help=help_))
    elif options.speclaunch is SpeclaunchFrom.MOUNTED and options.speclaunch_source is None:
        message = "deploy.speclaunch is `mounted`, but deploy.speclaunch_source is not set"
        help_ = "set deploy.speclaunch_source to a virtual environment that all hosts share"
        found.append(Problem(message, help=help_))
    return found


def launches_of_script(script: str, recipe: str, known: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the arguments of each `speclaunch launch` in a script.

    `recipe` is the value of its recipe variable, and `known` maps other variables to values.
    """
    found = []
    for match in _LAUNCH.finditer(script):
        text = match["words"].replace("\\\n", " ")
        for name, value in {**known, RECIPE: recipe}.items():
            text = text.replace(f"${name}", value)
        words = shlex.split(text)
        found.append(tuple(words[words.index("launch") :]))
    return found

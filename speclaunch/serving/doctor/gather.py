"""Gather the facts about the machine and the recipe. The checks read nothing else."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import psutil
from msgspec import Struct, field
from msgspec.structs import replace

from speclaunch import __version__
from speclaunch.checks import (
    CheckedRequest,
    Finding,
    Lookup,
    Rule,
    SkippedRule,
    all_rules,
    check_request,
    findings_across,
    unsilenced,
)
from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    LaunchError,
    Place,
    from_here,
    recipes_dir,
)
from speclaunch.deployments import Recipe, from_recipe
from speclaunch.engine import (
    AUTO,
    BACKENDS,
    SGLANG_VERSION,
    Checkpoint,
    CpuEngine,
    Hardware,
    MissingPath,
    NoEngineError,
    Packages,
    Plan,
    Runtime,
    UnknownFact,
    UnknownValueError,
    UnknownVersion,
    Vendor,
    choose_hardware,
    declare,
    declared,
    find_runtime,
    gpus_needed,
    held_versions,
    is_installed,
    memory_verdict,
    missing_paths,
    probe,
    probe_hardware,
    read_packages,
    render_args,
    resolve_version,
    unset_in,
    value_of,
)
from speclaunch.engine import load as load_catalogue
from speclaunch.serving.doctor.facts import (
    SECONDS,
    BoundedTasks,
    CpuEngineState,
    Hub,
    LocalModel,
    MachineFacts,
    OwnInstallation,
    Port,
    RecipeNeeds,
    VolumeUse,
    unknown,
)
from speclaunch.serving.doctor.machine import (
    read_hub,
    read_limits,
    read_memory,
    read_model,
    read_port,
    read_processes,
    read_tools,
    read_volume,
)

if TYPE_CHECKING:
    from speclaunch.checks import EngineQuerier


_CPU = "cpu"
T = TypeVar("T")


class RecipeResults(Struct, frozen=True):
    """Results of the rules for a recipe. `plan` is the plan for the first of `versions`."""

    plan: Plan
    findings: tuple[Finding, ...]
    skipped: tuple[SkippedRule, ...]
    versions: tuple[str, ...]
    examined: tuple[CheckedRequest, ...] = ()
    """One checked request per version, as input for the engine checks."""


def is_cpu(recipe: Recipe) -> bool:
    """True if a recipe runs on the CPU engine."""
    deployment = recipe.deployment
    return (deployment.engine.python or deployment.hardware.name) == _CPU


def versions_to_check(
    recipe: Recipe, requested: tuple[str, ...], installed: str | None
) -> tuple[str, ...]:
    """Return the `requested` versions; if empty, the recipe's pinned version; without a pin, the
    `installed` version if allowed, otherwise the newest allowed. Raises InputError if the recipe
    excludes a requested version or every release."""
    engine = recipe.deployment.engine
    for version in requested:
        if not engine.bounds.contains(version):
            name, needs = recipe.deployment.name, " and ".join(engine.needs)
            message = f"{name} cannot be served by SGLang {version}: it needs {needs}"
            raise InputError(message, Place(COMMAND_LINE, text=f"--engine {version}"))
    if requested:
        return requested
    if engine.catalogue is not None:
        near = recipe.path.parent
        return (declared(engine.catalogue, engine.python, engine.pinned, near),)
    if engine.pinned is not None:
        return (resolve_version(engine.pinned).held,)
    if installed is not None and engine.specifier.contains(installed):
        try:
            return (resolve_version(installed).held,)
        except UnknownVersion:  # the environment's line reports it
            pass
    fitting = [version for version in held_versions() if engine.specifier.contains(version)]
    if not fitting:
        needs = " and ".join(engine.needs)
        message = f"no known SGLang release can serve this recipe, which needs {needs}"
        raise InputError(message, recipe.place("engine", "version"))
    return (fitting[-1],)


def check_recipe(
    recipe: Recipe,
    versions: tuple[str, ...],
    lookup: Lookup,
    rules: tuple[Rule, ...],
    inherited: Mapping[str, str],
) -> RecipeResults:
    """Return the rules' results for all `versions`, except findings that comments in the recipe
    ignore."""
    examined: list[CheckedRequest] = []
    for version in versions:
        catalogue = load_catalogue(version)
        deployment = recipe.deployment
        rendered = render_args(deployment.args, deployment.engine.env, catalogue)
        request = from_recipe(recipe, rendered, catalogue, inherited)
        examined.append(check_request(request, lookup, rules))
    findings = [finding for result in examined for finding in result.results.findings]
    skipped = [reason for result in examined for reason in result.results.skipped]
    return RecipeResults(
        examined[0].plan,
        tuple(unsilenced(findings, recipe.path)),
        tuple(dict.fromkeys(skipped)),
        versions,
        tuple(examined),
    )


def with_other_roles(
    results: RecipeResults, recipe: Recipe, lookup: Lookup, rules: tuple[Rule, ...]
) -> RecipeResults:
    """Return the results plus, for each version, findings about mismatches between roles."""

    more = [
        finding
        for version in results.versions
        for finding in findings_across(recipe, version, lookup, rules)
    ]
    return replace(results, findings=(*results.findings, *more))


def with_engine_checks(
    results: RecipeResults, asker: EngineQuerier, recipe: Recipe, python: Path | None
) -> RecipeResults:
    """Return the results plus the findings of each version's engine check. Raises NoJudgeError if a
    version cannot be queried."""
    from speclaunch.checks import engine_findings  # noqa: PLC0415

    findings, skipped = list(results.findings), list(results.skipped)
    for checked in results.examined:
        opinion = asker.opinion(checked.plan, python, checked.results.blamed)
        if opinion is not None:
            more = engine_findings(opinion, checked.plan, checked.results.findings)
            findings += unsilenced(more.findings, recipe.path)
            skipped += more.skipped
    return replace(results, findings=tuple(findings), skipped=tuple(dict.fromkeys(skipped)))


def known_python(runtime: object) -> Path | None:
    """Return the interpreter of `runtime` if it was executed; None otherwise."""
    return runtime.interpreter if isinstance(runtime, Runtime) and runtime.executed else None


def target_of(
    recipe: Recipe,
    plan: Plan | None,
    *,
    version: str,
    requested: tuple[str, ...],
    installed: str | None,
    hardware: str | None,
    elsewhere: bool,
    meant_for: str | None,
    compiled: bool,
    own_variables: frozenset[str],
) -> RecipeNeeds:
    """Return the recipe's requirements for the machine. `plan`: None if the rules failed."""
    engine = recipe.deployment.engine
    # in pip's syntax
    needs = (f"=={need}" if need[:1].isdigit() else need for need in engine.needs)
    target = RecipeNeeds(
        name=recipe.deployment.name,
        version=version,
        needs=",".join(needs) or engine.version,
        pinned=engine.pinned if not requested else None,
        fits=installed is None
        or (engine.bounds if requested else engine.specifier).contains(installed),
        requested=requested,
        python=engine.python,
        cpu=is_cpu(recipe),
        hardware=hardware,
        elsewhere=elsewhere,
        meant_for=meant_for,
        device=_CPU if is_cpu(recipe) else None,
        compiled=compiled,
        own_variables=own_variables,
    )
    if plan is None:
        return target
    fraction, size = plan.value_or_none("mem_fraction_static"), plan.value_or_none("tp_size")
    backends = {str(value) for name in BACKENDS if (value := plan.value_or_none(name)) is not None}
    return replace(
        target,
        device=_device(recipe, plan),
        gpus=_known(lambda: gpus_needed(plan)),  # replicas of data parallelism have separate GPUs
        tensor_parallel=size if type(size) is int and size > 0 else None,
        mem_fraction=float(fraction) if isinstance(fraction, int | float) else None,
        attention_backends=tuple(sorted(backends)),
        algorithm=_known(lambda: plan.algorithm),
        budget=memory_verdict(plan),
        dummy_weights=plan.value_or_none("load_format") == "dummy",
    )


def is_elsewhere(declared: Hardware | None, found: object) -> bool:
    """True if this machine (`found`) lacks the GPUs of `declared`."""
    if declared is None or declared.vendor is Vendor.CPU:
        return False
    if not isinstance(found, Hardware) or found.vendor is not declared.vendor:
        return True
    known = found.memory_mib is not None and declared.memory_mib is not None
    near = known and abs(found.memory_mib - declared.memory_mib) < 0.1 * declared.memory_mib  # type: ignore[operator]
    return found.capability != declared.capability or not near or found.count < declared.count


def _known(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except UnknownValueError:
        return None


def _device(recipe: Recipe, plan: Plan) -> str | None:
    if is_cpu(recipe):
        return _CPU
    configured = plan.value_or_none("device")
    return "cuda" if configured is None else str(configured)


_DEFAULT_HOST, _DEFAULT_PORT = "127.0.0.1", 30000
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_ONLINE_SECONDS = 90.0


class DoctorRequest(Struct, frozen=True):
    """Options of `speclaunch doctor`."""

    recipe: Recipe | None = None
    complete_recipe: Recipe | None = None
    """Recipe of the complete deployment if `recipe` is one of its roles; otherwise None."""
    versions: tuple[str, ...] = ()
    lookup: Lookup = field(default_factory=Lookup)
    """Lookup with the hardware that the user set, if any."""
    asker: EngineQuerier | None = None
    """Querier for the engine's own checks of the recipe; None to skip them."""


def gather(
    request: DoctorRequest, home: Path
) -> tuple[MachineFacts, RecipeResults | UnknownFact | None]:
    """Return the machine's facts and the rules' results. The results are None without a recipe, and
    an UnknownFact if the rules did not end in time or raised an error.

    `home`: speclaunch's own directory, not the user's. Raises InputError if no version can serve
    the recipe.
    """
    recipe = request.recipe
    cpu = CpuEngine(home)
    env, own_variables = _environment(recipe, cpu)
    user_home = _user_home(env)
    start = BoundedTasks().start
    engine = start("the engine", partial(_engine, recipe, cpu))
    cpu_engine = start(
        "the CPU engine",
        lambda: CpuEngineState(is_installed(cpu), SGLANG_VERSION, cpu.python, cpu.root.is_dir()),
    )
    gpus = start("the GPUs", probe_hardware)
    processes = start("processes", read_processes)
    name = start("user", lambda: psutil.Process().username())
    memory = start("memory", read_memory)
    limits = start("limits", read_limits)
    shared = start(
        VolumeUse.SHARED_MEMORY, partial(read_volume, VolumeUse.SHARED_MEMORY, _SHARED_MEMORY)
    )
    cache = start("the hub", partial(read_hub, env, user_home))
    tools = start("tools", partial(read_tools, env))
    port = start("port", partial(_port, recipe))
    # loading them takes as long as an interpreter takes to answer
    loading = start("the rules", lambda: all_rules() if recipe is not None else ())

    answer = engine.get()
    runtime, packages = (answer, answer) if isinstance(answer, UnknownFact) else answer
    hardware, hub, user, rules = gpus.get(), cache.get(), name.get(), loading.get()
    installed = runtime.sglang if isinstance(runtime, Runtime) else None
    tasks = BoundedTasks()
    places = _places(home, hub, env, user_home)
    volumes = [tasks.start(use, partial(read_volume, use, path)) for use, path in places.items()]
    found = MachineFacts(
        own=OwnInstallation(__version__, platform.python_version(), Path(sys.executable), home),
        runtime=runtime,
        packages=packages,
        cpu_engine=cpu_engine.get(),
        hardware=hardware,
        processes=processes.get(),
        user=user if isinstance(user, str) else "",
        volumes=tuple(volume.get() for volume in volumes),
        memory=memory.get(),
        shared_memory=shared.get(),
        limits=limits.get(),
        hub=hub,
        port=port.get(),
        tools=tools.get(),
        env=env,
    )
    if recipe is None:
        return found, None
    versions = versions_to_check(recipe, request.versions, installed)
    lookup = _lookup(request.lookup, recipe, hardware, runtime)
    results: RecipeResults | UnknownFact
    if isinstance(rules, UnknownFact):
        results = rules
    else:
        check = partial(check_recipe, recipe, versions, lookup, rules, os.environ)
        seconds = _ONLINE_SECONDS if lookup.online else SECONDS  # a disk may not answer
        results = BoundedTasks(seconds).start("the rules", check).get()
        if isinstance(results, RecipeResults) and request.complete_recipe is not None:
            results = with_other_roles(results, request.complete_recipe, request.lookup, rules)
        if isinstance(results, RecipeResults) and request.asker is not None:
            results = with_engine_checks(results, request.asker, recipe, known_python(runtime))
    target = target_of(
        recipe,
        results.plan if isinstance(results, RecipeResults) else None,
        version=versions[0],
        requested=request.versions,
        installed=installed,
        hardware=_hardware_text(lookup.hardware),
        elsewhere=is_elsewhere(request.lookup.hardware, hardware),
        meant_for=_meant_for(recipe, hardware),
        compiled=is_cpu(recipe) and os.access(cpu.cache / "ngram-corpus.done", os.R_OK),
        own_variables=own_variables,
    )
    models: tuple[LocalModel, ...] = ()
    if isinstance(results, RecipeResults) and isinstance(hub, Hub):
        models = _models(results.plan, hub, cpu.models)
    ours = recipe.path.parent == recipes_dir().resolve()  # other commands name it by its path
    target = replace(target, called=recipe.path.stem if ours else from_here(recipe.path))
    there = partial(_missing, recipe, versions[0], cpu)  # a disk may not answer
    missing = BoundedTasks().start("the paths", there).get()
    return replace(found, target=target, models=models, missing=missing), results


def _missing(recipe: Recipe, version: str, cpu: CpuEngine) -> tuple[MissingPath, ...]:
    catalogue = load_catalogue(version)
    deployment = recipe.deployment
    rendered = render_args(deployment.args, deployment.engine.env, catalogue)
    return missing_paths(rendered, catalogue, made=(cpu.models,))


def _environment(recipe: Recipe | None, cpu: CpuEngine) -> tuple[dict[str, str], frozenset[str]]:
    """Return the engine's environment, and the names of the variables that the recipe or
    speclaunch sets in it."""
    env = dict(os.environ)
    if recipe is None:
        return env, frozenset()
    overlay: dict[str, str | None] = {}
    if is_cpu(recipe):
        with suppress(OSError):  # the engine's own line reports that it cannot be read
            overlay |= cpu.environment(env)
    own = recipe.deployment.engine.env
    overlay |= {name: value for name, value in own.items() if not unset_in(value)}
    for name, value in overlay.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env, frozenset(overlay)


def _engine(recipe: Recipe | None, cpu: CpuEngine) -> tuple[Runtime, Packages | UnknownFact]:
    if recipe is not None and is_cpu(recipe):
        runtime = probe(cpu.python)
    else:
        try:
            runtime = find_runtime(recipe.deployment.engine.python if recipe is not None else None)
        except NoEngineError as error:
            raise error.for_user(is_installed(cpu)) from None
    if not runtime.executed:
        why = f"{runtime.interpreter} was not executed, because it is named in a file"
        return runtime, UnknownFact("packages", why, "add --trust-engine to execute it")
    try:
        return runtime, read_packages(runtime.interpreter)
    except (LaunchError, OSError) as error:
        return runtime, unknown("packages", error)


def _port(recipe: Recipe | None) -> Port:
    args = recipe.deployment.args if recipe is not None else {}
    host = str(value_of(args, "host") or _DEFAULT_HOST)
    number = value_of(args, "port") or _DEFAULT_PORT
    if isinstance(number, str) and number.isdecimal():  # from the environment
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 65536:
        raise ValueError(f"{number!r} is not a port")
    return read_port(host, number)


def _places(
    home: Path, hub: object, env: Mapping[str, str], user_home: Path
) -> dict[VolumeUse, Path]:
    places = {VolumeUse.MODELS: hub.cache} if isinstance(hub, Hub) else {}
    caches = env.get("XDG_CACHE_HOME")
    places[VolumeUse.SPECLAUNCH] = home
    places[VolumeUse.TEMPORARY] = Path(tempfile.gettempdir())
    places[VolumeUse.KERNELS] = Path(caches) if caches else user_home / ".cache"
    return places


def _user_home(env: Mapping[str, str]) -> Path:
    """Return the home directory that the engine's libraries use; `/nonexistent` if unknown."""
    chosen = env.get("HOME")
    if chosen:
        return Path(chosen)
    try:
        return Path.home()
    except (RuntimeError, OSError):
        return Path("/nonexistent")


def _lookup(
    lookup: Lookup, recipe: Recipe, found: Hardware | UnknownFact, runtime: Runtime | UnknownFact
) -> Lookup:
    """Return the lookup with the hardware that the rules assume.

    The doctor checks a start on this machine, so this machine's GPUs override the recipe's
    hardware. The GPU line reports any difference.
    """
    chosen = choose_hardware(
        lookup.hardware,
        recipe.deployment.hardware.name,
        lambda: found,
        cpu=is_cpu(recipe),
        here_first=True,
    )
    known = runtime if isinstance(runtime, Runtime) else None
    return replace(lookup, hardware=chosen.hardware, runtime=known)


def _meant_for(recipe: Recipe, found: object) -> str | None:
    """Return the recipe's hardware if this machine is known to lack it; otherwise None."""
    name = recipe.deployment.hardware.name
    if name == AUTO or is_cpu(recipe) or not isinstance(found, Hardware):
        return None
    named = declare(name)
    return _hardware_text(named) if is_elsewhere(named, found) else None


def _hardware_text(hardware: Hardware | None) -> str | None:
    if hardware is None or hardware.vendor is Vendor.CPU:
        return hardware.name if hardware is not None else None
    return f"{hardware.count} x {hardware.name}"


def _models(plan: Plan, hub: Hub, made: Path) -> tuple[LocalModel, ...]:
    facts, values = plan.facts, plan.request.values
    named: list[tuple[str, str, Checkpoint | UnknownFact | None]] = []
    for role, name, checkpoint in (
        ("target", "model_path", facts.target),
        ("draft", "speculative_draft_model_path", facts.draft),
    ):
        value = values.get(name)
        if value is not None and value.known and isinstance(value.value, str):
            named.append((role, value.value, checkpoint or facts.why_unknown(value.value)))
    tasks = BoundedTasks()
    found = [
        tasks.start(role, partial(read_model, role, name, hub, made, known))
        for role, name, known in named
    ]
    return tuple(model for answer in found if isinstance(model := answer.get(), LocalModel))

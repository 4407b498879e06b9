"""Prepare a recipe for one engine: interpreter, version, command, environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from speclaunch.core import (
    COMMAND_LINE,
    InputError,
    LaunchError,
    Place,
    Problem,
    is_secret_variable,
    speclaunch_home,
)
from speclaunch.deployments.recipe.load import Recipe, changed_args
from speclaunch.deployments.sources.requests import from_recipe
from speclaunch.engine import (
    MODULE,
    RELEASES,
    SGLANG_VERSION,
    Address,
    Catalogue,
    CpuEngine,
    NoEngineError,
    RenderedArgs,
    Request,
    UnknownVersion,
    check_values,
    declared,
    find_runtime,
    forks,
    held_versions,
    installed_catalogue,
    is_installed,
    is_secret_text,
    named,
    nodes_of,
    overrides_pin,
    render_args,
    resolve_version,
    trust,
    unset_in,
    value_of,
    why_not_on_cpu,
)
from speclaunch.engine import load as load_catalogue

CPU = "cpu"
"""Value of `engine.python` and `hardware.name` for the CPU engine."""

_UNKNOWN_PYTHON = "python3"
_DEFAULT_HOST, _DEFAULT_PORT = "127.0.0.1", 30000


class Prepared(Struct, frozen=True):
    """Recipe prepared for one engine."""

    recipe: Recipe
    version: str
    python: str
    cpu: CpuEngine | None
    """CPU engine that serves the recipe; None if another engine does."""
    rendered_args: RenderedArgs
    overlay: Mapping[str, str | None]
    """Changes to the environment that the engine inherits; None removes a variable."""
    address: Address
    catalogue: Catalogue
    overridden: str | None = None
    """Message that `--engine` overrides the recipe's pin; None if it does not."""

    def request(self, inherited: Mapping[str, str]) -> Request:
        """Return the request for this engine, with the `inherited` environment variables."""
        return from_recipe(self.recipe, self.rendered_args, self.catalogue, inherited)

    @property
    def program(self) -> tuple[str, ...]:
        return (self.python, "-m", MODULE)

    @property
    def is_left_alone(self) -> bool:
        """True for a rank of a multi-host server without `launch.agreement.directory`.

        Such a rank must not recover, because hosts with different settings cannot serve together.
        Raises LaunchError for an invalid rank.
        """
        deployment = self.recipe.deployment
        shared = deployment.launch.agreement.directory
        return shared is None and nodes_of(deployment.args)[1] > 1

    @property
    def secrets(self) -> tuple[str, ...]:
        arguments, variables = self.rendered_args.arguments, self.overlay.items()
        return (
            *(v for a in arguments for v in a.values if a.secret or is_secret_text(v)),
            *(v for n, v in variables if v and (is_secret_variable(n) or is_secret_text(v))),
        )

    @property
    def model(self) -> str:
        """Model name for clients."""
        args = self.recipe.deployment.args
        return str(value_of(args, "served_model_name") or value_of(args, "model_path") or "default")

    def changed(self, changes: Mapping[str, Any]) -> Prepared:
        """Return a copy with changed server arguments, rendered for the same engine.

        `changes` uses the newest engine's names; None restores the engine's default. Raises
        LaunchError if this version does not support a change.
        """
        if not changes:
            return self
        deployment = self.recipe.deployment
        args = changed_args(deployment.args, changes)
        rendered = render_args(args, deployment.engine.env, self.catalogue)
        refused = [*rendered.problems, *check_values(rendered, self.catalogue)]
        if refused:
            message = "; ".join(problem.message for problem in refused)
            raise LaunchError(f"SGLang {self.version} cannot start with these arguments: {message}")
        recipe = replace(self.recipe, deployment=deployment.model_copy(update={"args": args}))
        rendered = replace(rendered, notes=(*self.rendered_args.notes, *rendered.notes))
        return replace(self, recipe=recipe, rendered_args=rendered)


def prepare(
    recipe: Recipe,
    engine_version: str | None = None,
    *,
    dry_run: bool = False,
    launches: bool | None = None,
) -> Prepared:
    """Choose a recipe's interpreter and version, and render its arguments for that version.

    The version is `engine_version`, else the recipe's pin, else the installed engine's, else (in a
    dry run) the newest known version. In a dry run only, unset environment variables count as
    unknown values. `launches`: True if the engine is about to start, so the recipe's interpreter
    may run (default: `not dry_run`). Raises InputError if the version does not support the recipe,
    and LaunchError if no engine is available to start.
    """
    if not dry_run:
        recipe.require_environment()
    deployment = recipe.deployment
    if deployment.engine.python is not None and (not dry_run if launches is None else launches):
        trust(deployment.engine.python)
    chosen = deployment.engine.python or (CPU if deployment.hardware.name == CPU else None)
    if engine_version is not None:
        engine_version = _normal(engine_version)
    fork = _fork(recipe, chosen, engine_version)
    requested = engine_version or deployment.engine.pinned
    cpu = _cpu_engine(recipe) if chosen == CPU else None
    unidentified: tuple[str, ...] = ()
    if cpu is not None:
        python, version = str(cpu.python), cpu.release
        if engine_version and engine_version != version:
            message = f"the CPU engine is SGLang {version}"
            raise InputError(_version_problem(message, engine_version))
    elif fork is not None:
        python, version = chosen or _UNKNOWN_PYTHON, fork
        if not dry_run:
            python, *_ = _installed(recipe, chosen, None, dry_run)
    elif dry_run and requested:
        python, version = chosen or _UNKNOWN_PYTHON, requested
    else:
        python, version, unidentified = _installed(recipe, chosen, requested, dry_run)
    overridden = _require_served(recipe, version, engine_version)
    catalogue, notes = _catalogue(version, engine_version)
    notes = (*unidentified, *((overridden,) if overridden else ()), *notes)
    rendered = render_args(deployment.args, deployment.engine.env, catalogue)
    refused = [*rendered.problems, *check_values(rendered, catalogue)]
    if refused:
        raise InputError(
            Problem(problem.message, recipe.place("args", problem.name), problem.help)
            for problem in refused
        )
    overlay = {**(cpu.environment(os.environ) if cpu else {}), **rendered.env}
    return Prepared(
        recipe,
        version,
        python,
        cpu,
        RenderedArgs(version, rendered.arguments, rendered.env, (*notes, *rendered.notes)),
        overlay,
        _address(recipe),
        catalogue,
        overridden,
    )


def _cpu_engine(recipe: Recipe) -> CpuEngine:
    """Return the pinned or default release's CPU engine. Raises InputError if it has none."""
    release = recipe.deployment.engine.pinned or SGLANG_VERSION
    if (why_not := why_not_on_cpu(release)) is not None:
        place = recipe.place("engine", "version")
        raise InputError(why_not, place, f"set engine.version to one of {', '.join(RELEASES)}")
    return CpuEngine(speclaunch_home(), release)


def _normal(version: str) -> str:
    """Return a version's usual form: `0.5.11` for `v0.5.11`. Raises InputError if invalid."""
    try:
        resolved = named(version)
    except UnknownVersion as error:
        raise InputError(_version_problem(str(error), version)) from error
    return resolved.held if resolved.exact else resolved.requested.strip().removeprefix("v")


def _installed(
    recipe: Recipe, interpreter: str | None, version: str | None, dry_run: bool
) -> tuple[str, str, tuple[str, ...]]:
    """Return the interpreter and version of this machine's engine, and notes on failed queries.

    The installed version must equal `version`, if set. In a dry run without any engine, the version
    is the newest that can serve the recipe.
    """
    try:
        runtime = find_runtime(interpreter)
    except LaunchError as error:
        fitting = recipe.deployment.engine.specifier.filter(held_versions())
        newest = next(reversed(list(fitting)), None)
        if not dry_run or interpreter is not None or newest is None:
            if isinstance(error, NoEngineError):
                raise error.for_user(is_installed(CpuEngine(speclaunch_home()))) from None
            raise
        failed = error.failed if isinstance(error, NoEngineError) else ()
        return _UNKNOWN_PYTHON, newest, tuple(f"engine unknown: {why}" for why in failed)
    installed = runtime.sglang or ""
    if version and installed != version:
        pinned = recipe.deployment.engine.pinned == version
        override = f", or override the recipe's pin: --engine {installed}" if pinned else ""
        raise LaunchError(
            f"SGLang {version} was requested, but {runtime.interpreter} has {installed}",
            help="install this version there, or use a different interpreter: engine.python=…"
            + override,
        )
    held = installed_catalogue(runtime) or installed
    return str(runtime.interpreter), held if forks.MARK in held else installed, ()


def _fork(recipe: Recipe, python: str | None, engine_version: str | None) -> str | None:
    """Return the catalogue named by `engine_version` (a fork) or `engine.catalogue`, if any."""
    if engine_version is not None:
        return engine_version if forks.MARK in engine_version else None
    engine = recipe.deployment.engine
    if engine.catalogue is None or python == CPU:
        return None
    try:
        return declared(engine.catalogue, python, engine.pinned, recipe.path.parent)
    except InputError as error:
        place = recipe.place("engine", "catalogue")
        raise InputError(replace(problem, place=place) for problem in error.problems) from error


def _require_served(recipe: Recipe, version: str, engine_version: str | None) -> str | None:
    """Return the note that `engine_version` overrides the recipe's pin; None if it does not.

    Raises InputError or LaunchError for a version that the recipe's bounds exclude.
    """
    engine = recipe.deployment.engine
    if engine.needs and not engine.bounds.contains(version):
        message = (
            f"{recipe.deployment.name} cannot be served by SGLang {version}: "
            f"it needs {' and '.join(engine.needs)}"
        )
        if engine_version:
            raise InputError(_version_problem(message, engine_version))
        raise LaunchError(message, help="use a different interpreter: engine.python=…")
    if engine_version is None or engine.pinned is None or engine.pinned == version:
        return None
    return overrides_pin(version, engine.pinned)


def _catalogue(version: str, engine_version: str | None) -> tuple[Catalogue, tuple[str, ...]]:
    try:
        resolved = resolve_version(version)
    except UnknownVersion as error:
        raise InputError(_version_problem(str(error), engine_version or version)) from error
    notes = (resolved.note,) if resolved.note else ()
    return load_catalogue(resolved.held), notes


def _version_problem(message: str, version: str) -> Problem:
    return Problem(message, Place(COMMAND_LINE, text=f"--engine {version}"))


def _address(recipe: Recipe) -> Address:
    args = recipe.deployment.args
    port = value_of(args, "port")
    port = _DEFAULT_PORT if port is None or unset_in(port) else port
    if isinstance(port, str) and port.isdecimal():  # all environment values are text
        port = int(port)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise InputError(f"port: {port!r} is not a port (1 to 65535)", recipe.place("args", "port"))
    key = value_of(args, "api_key")
    return Address(
        host=str(value_of(args, "host") or _DEFAULT_HOST),
        port=port,
        tls=bool(value_of(args, "ssl_certfile")),
        api_key=str(key) if key is not None else None,
    )

"""From a recipe to everything needed to start it: interpreter, engine version, command."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from speclaunch.cpu.artifacts import ensure_model, has_model
from speclaunch.cpu.environment import SGLANG_VERSION, CpuEngine
from speclaunch.cpu.manifest import is_installed
from speclaunch.engine import forks
from speclaunch.engine.canonical import canonical, value_of
from speclaunch.engine.catalogue import Catalogue, UnknownVersion, held_versions, resolve_version
from speclaunch.engine.catalogue import load as load_catalogue
from speclaunch.engine.check_values import check_values
from speclaunch.engine.command import MODULE, RenderedArgs, SpelledArgument, is_secret_text, spell
from speclaunch.engine.entrypoint import config_refuses
from speclaunch.engine.environment import unset_in
from speclaunch.errors import COMMAND_LINE, InputError, LaunchError, Place, Problem
from speclaunch.facts.engines import at_hand, declared, named, overrides_pin
from speclaunch.facts.runtime import NoEngineError, find_runtime, trust
from speclaunch.home import expand_user, make_private, speclaunch_home
from speclaunch.launch.start import Address
from speclaunch.plan.request import Request, from_recipe
from speclaunch.recipe.load import Recipe
from speclaunch.redaction import is_secret_variable

CPU = "cpu"
"""What `engine.python` and `hardware.name` say for the CPU engine."""

_UNKNOWN_PYTHON = "python3"
_DEFAULT_HOST, _DEFAULT_PORT = "127.0.0.1", 30000
_NOTIFICATION = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Meant for speclaunch: the engine, and what it starts, must not answer in its place."""


class Prepared(Struct, frozen=True):
    """A recipe made ready for one engine."""

    recipe: Recipe
    version: str
    """The engine version that the command is for."""
    python: str
    cpu: CpuEngine | None
    """The CPU engine, when it serves."""
    spelling: RenderedArgs
    overlay: Mapping[str, str | None]
    """Environment variables on top of our own; None takes one away."""
    address: Address
    catalogue: Catalogue
    overridden: str | None = None
    """The note that `--engine` overrides the recipe's pin."""

    def request(self, inherited: Mapping[str, str]) -> Request:
        """What the recipe asks of this engine; `inherited`: the environment that we pass on."""
        return from_recipe(self.recipe, self.spelling, self.catalogue, inherited)

    @property
    def program(self) -> tuple[str, ...]:
        """What is run, without the server arguments."""
        return (self.python, "-m", MODULE)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that no log may show."""
        found = [
            v for a in self.spelling.arguments for v in a.values if a.secret or is_secret_text(v)
        ]
        found += [
            v for n, v in self.overlay.items() if v and (is_secret_variable(n) or is_secret_text(v))
        ]
        return tuple(found)

    @property
    def model(self) -> str:
        """The name that clients call the model by."""
        args = self.recipe.deployment.args
        return str(value_of(args, "served_model_name") or value_of(args, "model_path") or "default")

    def changed(self, changes: Mapping[str, Any]) -> Prepared:
        """The same deployment with other server arguments, spelled for the same engine.

        `changes` goes by the newest engine's names; None leaves the engine's default. Raises
        LaunchError when this version cannot be told so.
        """
        if not changes:
            return self
        deployment = self.recipe.deployment
        args = dict(deployment.args)
        for name, value in changes.items():
            for other in [given for given in args if canonical(given) == canonical(name)]:
                del args[other]
            args[name] = value
        spelling = spell(args, deployment.engine.env, self.catalogue)
        refused = [*spelling.problems, *check_values(spelling, self.catalogue)]
        if refused:
            said = "; ".join(problem.message for problem in refused)
            raise LaunchError(f"SGLang {self.version} cannot start with these arguments: {said}")
        recipe = replace(self.recipe, deployment=deployment.model_copy(update={"args": args}))
        return replace(
            self,
            recipe=recipe,
            spelling=replace(spelling, notes=(*self.spelling.notes, *spelling.notes)),
        )

    def environment(self) -> dict[str, str]:
        """The whole environment of the engine."""
        env = {**os.environ, **{name: v for name, v in self.overlay.items() if v is not None}}
        for name, value in self.overlay.items():
            if value is None:
                env.pop(name, None)
        without_notification(env)  # systemd is told by us
        return env

    def command(self, secrets_file: Path | None) -> list[str]:
        """The command line, its secrets in `secrets_file` when one is given."""
        argv = list(self.program)
        if secrets_file is not None:
            argv += ["--config", str(secrets_file)]
        for argument in self.spelling.arguments:
            if secrets_file is None or not self._may_be_in_file(argument):
                argv += argument.tokens
        return argv

    def _may_be_in_file(self, argument: SpelledArgument) -> bool:
        """True if an argument is a secret that the engine reads from the file of `--config`."""
        key = argument.flag.removeprefix("--")
        single = len(argument.values) == 1
        return argument.secret and single and not config_refuses(key, self.catalogue)

    @property
    def secrets_in_file(self) -> dict[str, str]:
        """The secret arguments that the engine reads from the file of `--config`."""
        return {
            one.flag.removeprefix("--"): str(one.values[0])
            for one in self.spelling.arguments
            if self._may_be_in_file(one)
        }


def prepare(
    recipe: Recipe,
    engine_version: str | None = None,
    *,
    dry_run: bool = False,
    launches: bool | None = None,
) -> Prepared:
    """Choose interpreter and version, and spell the arguments for it.

    The version is `engine_version`, else the recipe's pin, else the installed engine's, else (in
    a dry run) the newest known. Raises InputError for what the version cannot be told, and
    LaunchError when no engine is there to start.  A variable of the environment that is not set
    is an unknown value in a dry run; nothing can be started without it. `launches`: the engine is
    about to start, so that the interpreter that the recipe names may run (default: no dry run).
    """
    if not dry_run:
        recipe.require_environment()
    deployment = recipe.deployment
    if deployment.engine.python is not None and (not dry_run if launches is None else launches):
        trust(deployment.engine.python)
    wanted = deployment.engine.python or (CPU if deployment.hardware.name == CPU else None)
    cpu = CpuEngine(speclaunch_home()) if wanted == CPU else None
    if engine_version is not None:
        engine_version = _normal(engine_version)
    fork = _fork(recipe, wanted, engine_version)
    asked = engine_version or deployment.engine.pinned
    unidentified: tuple[str, ...] = ()
    if cpu is not None:
        python, version = str(cpu.python), SGLANG_VERSION
        if engine_version and engine_version != version:
            raise InputError(
                _version_problem(f"the CPU engine is SGLang {version}", engine_version)
            )
    elif fork is not None:
        python, version = wanted or _UNKNOWN_PYTHON, fork
        if not dry_run:
            python, *_ = _installed(recipe, wanted, None, dry_run)
    elif dry_run and asked:
        python, version = wanted or _UNKNOWN_PYTHON, asked
    else:
        python, version, unidentified = _installed(recipe, wanted, asked, dry_run)
    overridden = _require_served(recipe, version, engine_version)
    catalogue, notes = _catalogue(version, engine_version)
    notes = (*unidentified, *((overridden,) if overridden else ()), *notes)
    spelling = spell(deployment.args, deployment.engine.env, catalogue)
    refused = [*spelling.problems, *check_values(spelling, catalogue)]
    if refused:
        raise InputError(
            Problem(problem.message, recipe.place("args", problem.name), problem.help)
            for problem in refused
        )
    overlay = {**(cpu.environment(os.environ) if cpu else {}), **spelling.env}
    return Prepared(
        recipe,
        version,
        python,
        cpu,
        RenderedArgs(
            version,
            spelling.arguments,
            spelling.env,
            (*notes, *spelling.notes),
        ),
        overlay,
        _address(recipe),
        catalogue,
        overridden,
    )


def without_notification(environment: MutableMapping[str, str]) -> None:
    """Remove the variables of systemd's notification protocol from an environment."""
    for name in _NOTIFICATION:
        environment.pop(name, None)


def new_run_dir(recipe: Recipe) -> Path:
    """A fresh directory for the log of one launch, readable by this user only."""
    base = recipe.deployment.launch.log_dir
    parent = expand_user(base).absolute() if base else speclaunch_home() / "runs"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(100):
        suffix = f"-{attempt}" if attempt else ""
        name = recipe.deployment.name.replace("/", "-")  # that of a role: NAME/ROLE
        path = parent / f"{stamp}-{name}{suffix}"
        try:
            if not base:
                make_private(parent)
            path.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise LaunchError(
                f"cannot create {path}: {error.strerror}",
                help="choose a directory: launch.log_dir=…, or SPECLAUNCH_HOME",
            ) from error
        return path
    raise LaunchError(f"cannot create a directory for this launch in {parent}")


def secrets_of(prepared: Prepared, directory: Path) -> tuple[Path, str] | None:
    """The private file for the engine's `--config` with its secret arguments, and its text.

    None when there are no secrets, or the version (before 0.5.3) has no `--config`.
    """
    secrets = prepared.secrets_in_file
    catalogue, _ = _catalogue(prepared.version, None)
    taken = catalogue.by_name("config") is None or prepared.spelling.value("config")
    if not secrets or taken:
        return None
    return directory / "secrets.yaml", yaml.safe_dump(secrets)


def _normal(version: str) -> str:
    """`v0.5.11` is 0.5.11; what is no version is refused."""
    try:
        resolved = named(version)
    except UnknownVersion as error:
        raise InputError(_version_problem(str(error), version)) from error
    return resolved.held if resolved.exact else resolved.asked.strip().removeprefix("v")


def _installed(
    recipe: Recipe, wanted: str | None, asked: str | None, dry_run: bool
) -> tuple[str, str, tuple[str, ...]]:
    """The interpreter and version of an engine on this machine, which must be the one asked for,
    and notes.

    A dry run without any engine gets the newest version that can serve the recipe.
    """
    try:
        runtime = find_runtime(wanted)
    except LaunchError as error:
        fitting = recipe.deployment.engine.specifier.filter(held_versions())
        newest = next(reversed(list(fitting)), None)
        if not dry_run or wanted is not None or newest is None:
            if isinstance(error, NoEngineError):
                from speclaunch.cpu.manifest import is_installed  # noqa: PLC0415 - for an error

                raise error.for_user(is_installed(CpuEngine(speclaunch_home()))) from None
            raise
        failed = error.failed if isinstance(error, NoEngineError) else ()
        return _UNKNOWN_PYTHON, newest, tuple(f"engine unknown: {why}" for why in failed)
    installed = runtime.sglang or ""
    if asked and installed != asked:
        pinned = recipe.deployment.engine.pinned == asked
        override = f", or override the recipe's pin: --engine {installed}" if pinned else ""
        raise LaunchError(
            f"SGLang {asked} was requested, {runtime.interpreter} has {installed}",
            help="install that version there, or set another interpreter: engine.python=…"
            + override,
        )
    held = at_hand(runtime) or installed
    return str(runtime.interpreter), held if forks.MARK in held else installed, ()


def _fork(recipe: Recipe, python: str | None, engine_version: str | None) -> str | None:
    """The catalogue of the engine that is declared to be no release: by `--engine`, else by the
    recipe's `engine.catalogue`."""
    if engine_version is not None:
        return engine_version if forks.MARK in engine_version else None
    wanted = recipe.deployment.engine
    if wanted.catalogue is None or python == CPU:
        return None
    try:
        return declared(wanted.catalogue, python, wanted.pinned, recipe.path.parent)
    except InputError as error:
        place = recipe.place("engine", "catalogue")
        raise InputError(replace(one, place=place) for one in error.problems) from error


def _require_served(recipe: Recipe, version: str, engine_version: str | None) -> str | None:
    """The note that `engine_version` overrides the recipe's pin; None if it does not. Raises
    InputError or LaunchError for a version that the recipe's bounds exclude."""
    wanted = recipe.deployment.engine
    if wanted.needs and not wanted.bounds.contains(version):
        message = (
            f"{recipe.deployment.name} cannot be served by SGLang {version}: "
            f"it needs {' and '.join(wanted.needs)}"
        )
        if engine_version:
            raise InputError(_version_problem(message, engine_version))
        raise LaunchError(message, help="set another engine: engine.python=…")
    if engine_version is None or wanted.pinned is None or wanted.pinned == version:
        return None
    return overrides_pin(version, wanted.pinned)


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
    if isinstance(port, str) and port.isdecimal():  # out of the environment everything is text
        port = int(port)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise InputError(
            Problem(f"port: {port!r} is not a port (1 to 65535)", recipe.place("args", "port"))
        )
    key = value_of(args, "api_key")
    return Address(
        host=str(value_of(args, "host") or _DEFAULT_HOST),
        port=port,
        tls=bool(value_of(args, "ssl_certfile")),
        api_key=str(key) if key is not None else None,
    )


Busy = Callable[[str], contextlib.AbstractContextManager[None]]
"""Tells what takes a few seconds."""


def _quietly(_what: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def tiny_models(prepared: Prepared) -> Iterator[Path]:
    """Yield the arguments that name a model which speclaunch makes for the CPU engine."""
    if prepared.cpu is None:
        return
    for value in prepared.recipe.deployment.args.values():
        if isinstance(value, str) and Path(value).parent == prepared.cpu.models:
            yield Path(value)


def ensure_cpu_models(prepared: Prepared, busy: Busy = _quietly) -> None:
    """Write the models of a deployment of the CPU engine that are not there yet; nothing is done
    for other deployments. Their facts are known only then.

    Raises LaunchError where the engine is not installed, InstallError where a model cannot be
    written.
    """
    engine = prepared.cpu
    if engine is None:
        return
    if not is_installed(engine):
        raise LaunchError("the CPU engine is not installed", help="speclaunch engine install cpu")
    for path in tiny_models(prepared):
        if has_model(engine, path.name):
            continue
        with busy(f"the tiny model {path.name}"):
            ensure_model(engine, path.name)

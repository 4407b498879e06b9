"""`speclaunch launch`: compose, validate, start, verify, serve."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from speclaunch.app.output.console import err
from speclaunch.app.verbs.launch_process import hide_secrets
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.shared import asks, chosen_rules, lookup
from speclaunch.checks import ask_mode, querier_for
from speclaunch.core import COMMAND_LINE, ExitCode, InputError, Place, children
from speclaunch.deployments import load, prepare, require_host, select_role, split_recipe
from speclaunch.engine import EngineCheckMode
from speclaunch.serving import (
    PlannerResult,
    PreflightResult,
    Session,
    absent_paths,
    ensure_cpu_models,
    hand_over,
    in_planner_process,
    local_lookup,
    new_run_dir,
    preflight,
    require_predicted_fit,
    with_other_roles,
)

if TYPE_CHECKING:
    from speclaunch.app.verbs.locking import LaunchLock
    from speclaunch.app.verbs.start_options import LaunchOptions
    from speclaunch.checks import EngineQuerier
    from speclaunch.deployments import Recipe


def launch(options: LaunchOptions) -> ExitCode:
    """Launch and supervise an engine until it ends, or show its command.

    Raises InputError, LaunchError, PreflightError.
    """
    if os.getpid() == 1:  # as PID 1 of a container, an unhandled SIGTERM is ignored
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    _require_sensible(options)
    locking = _locking(options)
    hook = _hook(options.on_degraded_exec)
    title = hide_secrets("", options.overrides)
    name, changes = split_recipe(options.overrides)
    overrides = [f"recipe={name}", *changes]  # normalized for the journal
    loaded = load(name, changes, options.config_dir)
    if options.dry_run and options.role is None and len(loaded.parts) > 1:
        return _shown_roles(options, loaded)
    recipe = select_role(loaded, options.role, "a launch starts a single role")
    if locking is not None:
        recipe = locking.chosen(recipe, changes)
    if not options.dry_run:
        require_host(recipe)
    prepared = (prepare if locking is None else locking.prepare)(
        recipe, options.engine, dry_run=options.dry_run
    )
    facts = local_lookup(
        lookup(options.models, options.hardware, online=options.online, assume=options.assume),
        recipe,
        probe=not options.dry_run,
        cpu=bool(prepared.cpu),
    )
    if locking is not None:
        locking.require(prepared, facts, _busy)
    # the machine of a dry run's command is unknown
    absent = [] if options.dry_run else absent_paths(prepared)
    rules = chosen_rules(options.select, options.ignore)
    asker = _asker(options)
    found = preflight(prepared, facts, rules, absent, asker)
    if loaded.parts:
        found = with_other_roles(found, loaded, prepared, facts, rules)
    _require_sound(found, force=options.force)
    session = Session(
        prepared,
        facts.facts(prepared.request(os.environ)),
        overrides if locking is None else locking.overrides(overrides),
        smoke=options.smoke,
        fresh=options.fresh,
        as_configured=options.force,
        max_attempts=options.max_attempts,
        lock=None if locking is None else locking.request,
        on_degraded=hook,
    )
    if not options.force:
        require_predicted_fit(session, rules)
    as_json = options.output_format is OutputFormat.JSON
    if options.dry_run:
        from speclaunch.app.output.dry_run import show_command

        show_command(session, ladder=options.ladder, as_json=as_json)
        return ExitCode.CLEAN
    if prepared.cpu is not None:
        ensure_cpu_models(prepared, _busy)
    session = replace(session, directory=new_run_dir(recipe), exits_after=True)
    if in_planner_process():
        hand_over(
            PlannerResult(
                session.start(),
                pickle.dumps(session, pickle.HIGHEST_PROTOCOL),
                detach=options.detach,
                verbose=options.verbose,
                as_json=as_json,
                title=title,
            )
        )
    from speclaunch.app.output.running import run_detached, run_here

    if options.detach:
        return run_detached(session.start(), session, as_json=as_json)
    return run_here(session.start(), session, verbose=options.verbose, as_json=as_json)


def _require_sensible(options: LaunchOptions) -> None:
    if options.detach and options.smoke:
        raise InputError("--smoke stops the engine and cannot be combined with --detach")
    if options.ladder and not options.dry_run:
        raise InputError("--ladder needs --dry-run")


def _locking(options: LaunchOptions) -> LaunchLock | None:
    if not (options.lock or options.locked or options.verify):
        return None
    from speclaunch.app.verbs.locking import LaunchLock

    return LaunchLock(options)


def _shown_roles(options: LaunchOptions, recipe: Recipe) -> ExitCode:
    as_json = options.output_format is OutputFormat.JSON
    if as_json:
        raise InputError(
            f"{recipe.deployment.name} has several roles; JSON output supports one",
            help=f"select one, for example --role {recipe.parts[0].role}",
        )
    for number, role in enumerate(recipe.parts):
        if number:
            print()  # noqa: T201  between two commands, as a script has it
        launch(options.changed(role=role.role))
    return ExitCode.CLEAN


def _hook(program: Path | None) -> Path | None:
    """Return a program's absolute path; None if unset. Raises InputError if it cannot be run."""
    if program is None:
        return None
    found = children.find_program(program.absolute() if program.parts[1:] else program)
    if found is None:
        place = Place(COMMAND_LINE, text="--on-degraded-exec")
        help_ = "name an executable file, without arguments"
        why = "it is not an executable file" if program.exists() else "no such program"
        raise InputError(f"cannot run {program}: {why}", place, help_)
    return Path(found)


def _asker(options: LaunchOptions) -> EngineQuerier | None:
    """Return the querier for the engine check before a launch.

    None if the check is not selected, or for a dry run without an explicit `--ask`.
    """
    if not asks(options.select, options.ignore):
        return None
    mode = ask_mode(options.ask)
    if options.dry_run and mode is EngineCheckMode.AUTO:
        return None
    return querier_for(mode, starts=True)


def _require_sound(found: PreflightResult, *, force: bool) -> None:
    if found.findings or found.absent:
        from speclaunch.app.output.findings import show_findings
        from speclaunch.app.output.problems import show_problems

        show_findings(err(), found.findings)
        show_problems(err(), found.absent)
    if not force:
        found.require()
    elif found.reasons:
        err().print(f"--force: starting despite {found.reasons}", style="bold red")


@contextlib.contextmanager
def _busy(what: str) -> Iterator[None]:
    """Show a spinner during the block; without a terminal, print progress lines."""
    from speclaunch.core import beating, duration

    console = err()
    if console.is_terminal:
        with console.status(what):
            yield
        return
    with beating(console.print, lambda seconds: f"{what}: for {duration(seconds)}"):
        yield

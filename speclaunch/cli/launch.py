"""`speclaunch launch`: compose, validate, start, verify, serve."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from speclaunch.cli.check_options import chosen_rules, lookup
from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.options import (
    Assume,
    ConfigDirs,
    EngineVersion,
    HardwareName,
    Ignore,
    ModelDirs,
    Online,
    Overrides,
    Select,
    hide_secrets,
)
from speclaunch.errors import InputError, LaunchError, Problem
from speclaunch.launch.apart import Handed, hand_over, is_apart
from speclaunch.launch.preflight import PreflightResult, absent_paths, here, preflight, require_hope
from speclaunch.launch.prepare import Prepared, new_run_dir, prepare
from speclaunch.launch.session import Session
from speclaunch.recipe.load import load
from speclaunch.recipe.recipe_words import split_recipe


def launch(
    overrides: Overrides,
    config_dir: ConfigDirs = None,
    engine: EngineVersion = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the exact command and environment, and the recovery steps if memory runs "
            "out; start nothing.",
        ),
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Start, verify, report, stop; exit 0 if it serves.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it serves, and leave it running.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Start with the recipe itself, not with the last known good settings."
        ),
    ] = False,
    max_attempts: Annotated[
        int | None,
        typer.Option(
            "--max-attempts",
            min=1,
            max=100,
            help="Start the engine at most this often until it serves.",
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the engine's output.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Start as written, despite findings of error severity and a memory budget that "
            "fails.",
        ),
    ] = False,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    assume: Assume = None,
    select: Select = None,
    ignore: Ignore = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="Output format.")
    ] = OutputFormat.TEXT,
) -> None:
    """Start the engine of a recipe, check that it speculates, and stay until it ends."""
    if os.getpid() == 1:  # to process 1 of a container an unhandled SIGTERM means nothing
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if detach and smoke:
        raise InputError(Problem("--smoke cannot be combined with --detach: it stops the engine"))
    title = hide_secrets("", overrides)
    name, changes = split_recipe(overrides)
    overrides = [f"recipe={name}", *changes]  # as the journal tells it, however it was written
    recipe = load(name, changes, config_dir or ())
    prepared = prepare(recipe, engine, dry_run=dry_run)
    facts = here(
        lookup(models, hardware, online=online, assume=assume),
        recipe,
        probe=not dry_run,
        cpu=bool(prepared.cpu),
    )
    # where a dry run's command will run, nobody knows
    absent = [] if dry_run else absent_paths(prepared)
    rules = chosen_rules(select, ignore)
    _require_sound(preflight(prepared, facts, rules, absent), force=force)
    session = Session(
        prepared,
        facts.facts(prepared.request(os.environ)),
        overrides,
        smoke=smoke,
        fresh=fresh,
        as_written=force,
        max_attempts=max_attempts,
    )
    if not force:
        require_hope(session, rules)
    as_json = output_format is OutputFormat.JSON
    if dry_run:
        from speclaunch.report.dry_run import show_command

        show_command(session, as_json=as_json)
        return
    _ensure_cpu_engine(prepared)
    session = replace(session, directory=new_run_dir(recipe), for_good=True)
    if is_apart():
        hand_over(
            Handed(
                session.start(),
                pickle.dumps(session, pickle.HIGHEST_PROTOCOL),
                detach=detach,
                verbose=verbose,
                as_json=as_json,
                title=title,
            )
        )
    from speclaunch.report.running import run_detached, run_here

    if detach:
        raise typer.Exit(run_detached(session.start(), session, as_json=as_json))
    raise typer.Exit(run_here(session.start(), session, verbose=verbose, as_json=as_json))


def _require_sound(found: PreflightResult, *, force: bool) -> None:
    if found.findings or found.absent:
        from speclaunch.report.console import err
        from speclaunch.report.findings import show_findings
        from speclaunch.report.problems import show_problems

        show_findings(err(), found.findings)
        show_problems(err(), found.absent)
    if not force:
        found.require()
    elif found.wrong:
        err().print(f"--force: starting despite {found.wrong}", style="bold red")


def _ensure_cpu_engine(prepared: Prepared) -> None:
    """The CPU engine makes its tiny models on first use; it must have been installed."""
    if prepared.cpu is None:
        return
    from pathlib import Path

    from speclaunch.cpu.install import ensure_model, is_installed

    if not is_installed(prepared.cpu):
        raise LaunchError("the CPU engine is not installed", help="speclaunch engine install cpu")
    for value in prepared.recipe.deployment.args.values():
        path = Path(value) if isinstance(value, str) else None
        if path is not None and path.parent == prepared.cpu.models:
            with _busy(f"the tiny model {path.name}"):
                ensure_model(prepared.cpu, path.name)


@contextlib.contextmanager
def _busy(what: str) -> Iterator[None]:
    """Something spins on a terminal; elsewhere a line now and then says that it goes on."""
    from speclaunch.heartbeat import beating, duration
    from speclaunch.report.console import err

    console = err()
    if console.is_terminal:
        with console.status(what):
            yield
        return
    with beating(
        lambda text: console.print(text, markup=False),
        lambda seconds: f"{what}: for {duration(seconds)}",
    ):
        yield

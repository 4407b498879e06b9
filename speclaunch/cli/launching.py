"""What `speclaunch launch` does with its options."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from speclaunch.asking.at_hand import asker_for
from speclaunch.asking.mode import Ask, ask_mode
from speclaunch.cli.check_options import asks, chosen_rules, lookup
from speclaunch.cli.formats import OutputFormat
from speclaunch.cli.own_title import hide_secrets
from speclaunch.errors import ExitCode, InputError, Problem
from speclaunch.launch.apart import Handed, hand_over, is_apart
from speclaunch.launch.preflight import (
    PreflightResult,
    absent_paths,
    here,
    preflight,
    require_hope,
    with_other_roles,
)
from speclaunch.launch.prepare import new_run_dir, prepare
from speclaunch.launch.session import Session
from speclaunch.recipe.load import load
from speclaunch.recipe.recipe_words import split_recipe
from speclaunch.recipe.select_role import require_host, select_role
from speclaunch.record import record

if TYPE_CHECKING:
    from speclaunch.asking.asker import Asker
    from speclaunch.recipe.load import Recipe


@record
class LaunchWords:
    """A command line of `speclaunch launch`: see its help."""

    overrides: tuple[str, ...] = ()
    config_dir: tuple[Path, ...] = ()
    role: str | None = None
    engine: str | None = None
    dry_run: bool = False
    smoke: bool = False
    detach: bool = False
    fresh: bool = False
    max_attempts: int | None = None
    verbose: bool = False
    force: bool = False
    hardware: str | None = None
    models: tuple[Path, ...] = ()
    online: bool = False
    assume: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    output_format: OutputFormat = OutputFormat.TEXT
    ask: Ask | None = None
    trust_engine: bool = False


def launch_recipe(words: LaunchWords) -> ExitCode:
    """Launch, and stay until it ends; or show what would be launched. Raises InputError,
    LaunchError, PreflightError."""
    if os.getpid() == 1:  # to process 1 of a container an unhandled SIGTERM means nothing
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if words.trust_engine:
        from speclaunch.facts.trusted_programs import trust_all

        trust_all()
    if words.detach and words.smoke:
        raise InputError(Problem("--smoke cannot be combined with --detach: it stops the engine"))
    title = hide_secrets("", words.overrides)
    name, changes = split_recipe(words.overrides)
    overrides = [f"recipe={name}", *changes]  # as the journal tells it, however it was written
    whole = load(name, changes, words.config_dir)
    if words.dry_run and words.role is None and len(whole.parts) > 1:
        return _shown_roles(words, whole)
    recipe = select_role(whole, words.role, "a launch starts one")
    if not words.dry_run:
        require_host(recipe)
    prepared = prepare(recipe, words.engine, dry_run=words.dry_run)
    facts = here(
        lookup(words.models, words.hardware, online=words.online, assume=words.assume),
        recipe,
        probe=not words.dry_run,
        cpu=bool(prepared.cpu),
    )
    # where a dry run's command will run, nobody knows
    absent = [] if words.dry_run else absent_paths(prepared)
    rules = chosen_rules(words.select, words.ignore)
    asker = _asker(words)
    found = preflight(prepared, facts, rules, absent, asker)
    if whole.parts:
        found = with_other_roles(found, whole, prepared, facts, rules)
    _require_sound(found, force=words.force)
    session = Session(
        prepared,
        facts.facts(prepared.request(os.environ)),
        overrides,
        smoke=words.smoke,
        fresh=words.fresh,
        as_written=words.force,
        max_attempts=words.max_attempts,
    )
    if not words.force:
        require_hope(session, rules)
    as_json = words.output_format is OutputFormat.JSON
    if words.dry_run:
        from speclaunch.report.dry_run import show_command

        show_command(session, as_json=as_json)
        return ExitCode.CLEAN
    if prepared.cpu is not None:
        from speclaunch.launch.cpu_models import ensure_cpu_models

        ensure_cpu_models(prepared, _busy)
    session = replace(session, directory=new_run_dir(recipe), for_good=True)
    if is_apart():
        hand_over(
            Handed(
                session.start(),
                pickle.dumps(session, pickle.HIGHEST_PROTOCOL),
                detach=words.detach,
                verbose=words.verbose,
                as_json=as_json,
                title=title,
            )
        )
    from speclaunch.report.running import run_detached, run_here

    if words.detach:
        return run_detached(session.start(), session, as_json=as_json)
    return run_here(session.start(), session, verbose=words.verbose, as_json=as_json)


def _shown_roles(words: LaunchWords, recipe: Recipe) -> ExitCode:
    """What a launch of each role would run, one after the other."""
    as_json = words.output_format is OutputFormat.JSON
    if as_json:
        raise InputError(
            Problem(
                f"{recipe.deployment.name} has several roles, and JSON is for one",
                help=f"name one: --role {recipe.parts[0].role}",
            )
        )
    for number, role in enumerate(recipe.parts):
        if number:
            print()  # noqa: T201  between two commands, as a script has it
        launch_recipe(replace(words, role=role.role))
    return ExitCode.CLEAN


def _asker(words: LaunchWords) -> Asker | None:
    """Who asks the engine first. What only shows the command does not wait for it, unless it is
    told to."""
    if not asks(words.select, words.ignore):
        return None
    mode = ask_mode(words.ask)
    if words.dry_run and mode is Ask.AUTO:
        return None
    return asker_for(mode, starts=True)


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

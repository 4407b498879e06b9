"""`speclaunch launch`: compose, validate, start, verify, serve."""

from __future__ import annotations

import contextlib
import gc
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from speclaunch.cli.checking import (
    Ignore,
    ModelDirs,
    Online,
    Select,
    chosen_rules,
    lookup,
)
from speclaunch.cli.options import (
    ConfigDirs,
    EngineVersion,
    HardwareName,
    OutputFormat,
    Overrides,
)
from speclaunch.cli.soundness import here, require_sound
from speclaunch.engine.command import is_secret_key
from speclaunch.errors import ExitCode, InputError, LaunchError, Problem
from speclaunch.launch.ports import require_free
from speclaunch.launch.prepare import Prepared, new_run_dir, prepare, write_secrets
from speclaunch.launch.supervisor import Ending, Order, Outcome, supervise
from speclaunch.launch.verify import Verification
from speclaunch.recipe.load import load
from speclaunch.report.console import err, out
from speclaunch.report.launching import LiveObserver, OnReady, PlainObserver
from speclaunch.report.serving import show_ready, show_snippets, verification_json
from speclaunch.report.shell import shell_command


def launch(
    overrides: Overrides,
    config_dir: ConfigDirs = None,
    engine: EngineVersion = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the exact command and environment; start nothing."),
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Start, verify, report, stop; exit 0 if it serves.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Pass the engine's output through.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start in spite of findings of error severity.")
    ] = False,
    hardware: HardwareName = None,
    models: ModelDirs = None,
    online: Online = False,
    select: Select = None,
    ignore: Ignore = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output-format", help="How the result is written.")
    ] = OutputFormat.TEXT,
) -> None:
    """Start the engine of a recipe, check that it speculates, and stay until it ends."""
    _hide_secrets(overrides)
    name, changes = split_recipe(overrides)
    recipe = load(name, changes, config_dir or ())
    prepared = prepare(recipe, engine, dry_run=dry_run)
    facts = here(
        lookup(models, hardware, online=online), recipe, probe=not dry_run, cpu=bool(prepared.cpu)
    )
    require_sound(prepared, facts, chosen_rules(select, ignore), force=force)
    if dry_run:
        _show_command(prepared, output_format)
        return
    raise typer.Exit(_run(prepared, smoke=smoke, verbose=verbose, output_format=output_format))


def _hide_secrets(overrides: list[str]) -> None:
    """`ps` shows our own command line: blot out what is secret in it."""
    shown = [
        f"{key}=***" if equals and is_secret_key(key) else word
        for word in overrides
        for key, equals, _ in [word.partition("=")]
    ]
    if shown != overrides:
        import setproctitle

        setproctitle.setproctitle(shlex.join(["speclaunch", *shown]))


def split_recipe(words: list[str]) -> tuple[str, list[str]]:
    """The recipe among the overrides, and the rest of them."""
    names = [word.removeprefix("recipe=") for word in words if word.startswith("recipe=")]
    rest = [word for word in words if not word.startswith("recipe=")]
    if len(names) != 1 or not names[0]:
        bare = next((word for word in rest if "=" not in word), None)
        raise InputError(
            Problem(
                "several recipes were given" if len(names) > 1 else "no recipe was given",
                help=f"speclaunch recipe={bare or 'NAME'}; `speclaunch recipes ls` lists them",
            )
        )
    return names[0], rest


def _show_command(prepared: Prepared, output_format: OutputFormat) -> None:
    if output_format is OutputFormat.JSON:
        out().print_json(json.dumps(_command_json(prepared)))
        return
    deployment = prepared.recipe.deployment
    notes = [f"{deployment.name} for SGLang {prepared.version}", *prepared.spelling.notes]
    text = shell_command(
        prepared.program, prepared.spelling.arguments, prepared.overlay, notes=notes
    )
    typer.echo(text, nl=False)


def _command_json(prepared: Prepared) -> dict[str, object]:
    """The command with its secrets blotted out."""
    argv = list(prepared.program)
    for argument in prepared.spelling.arguments:
        argv += [argument.flag, "***"] if argument.secret else argument.tokens
    hidden = set(prepared.secrets)
    return {
        "version": 1,
        "recipe": prepared.recipe.deployment.name,
        "engine": prepared.version,
        "argv": argv,
        "env": {name: "***" if v in hidden else v for name, v in prepared.overlay.items()},
        "notes": list(prepared.spelling.notes),
    }


def _run(
    prepared: Prepared, *, smoke: bool, verbose: bool, output_format: OutputFormat
) -> ExitCode:
    require_free(prepared.address.host, prepared.address.port)
    _ensure_cpu_engine(prepared)
    directory = new_run_dir(prepared.recipe)
    log = directory / "engine.log"
    secrets_file = write_secrets(prepared, directory)
    order = Order(
        argv=prepared.command(secrets_file),
        env=prepared.environment(),
        log=log,
        address=prepared.address,
        asked=prepared.spelling,
        settings=prepared.recipe.deployment.launch,
        secrets=prepared.secrets,
        private_files=(secrets_file,) if secrets_file else (),
        smoke=smoke,
    )
    as_json = output_format is OutputFormat.JSON

    def on_ready(verification: Verification | None, seconds: float) -> None:
        if as_json:
            out().print_json(json.dumps(_ready_json(prepared, verification, seconds, log)))
            return
        show_ready(
            out(),
            name=prepared.recipe.deployment.name,
            version=prepared.version,
            address=prepared.address,
            seconds=seconds,
            verification=verification,
            log=log,
        )
        if not smoke and (verification is None or verification.ok):
            show_snippets(out(), prepared.address, prepared.model)
            err().print("\nPress Ctrl-C to stop.", style="dim")

    gc.enable()
    observer = _observer(prepared, on_ready, verbose=verbose, plain=as_json)
    try:
        outcome = supervise(order, observer)
    finally:
        if isinstance(observer, LiveObserver):
            observer.close()
        if secrets_file is not None:
            with contextlib.suppress(OSError):
                secrets_file.unlink()
    if as_json and outcome.reason and not (outcome.verification and not outcome.verification.ok):
        failure = {**_command_json(prepared), "error": outcome.reason, "log": str(log)}
        out().print_json(json.dumps(failure))
    return _conclude(outcome, prepared, log)


def _conclude(outcome: Outcome, prepared: Prepared, log: Path) -> ExitCode:
    """The exit code of a launch; raises LaunchError with the reason where it failed."""
    name = prepared.recipe.deployment.name
    if outcome.ending is Ending.INTERRUPTED:
        err().print(f"{name} was stopped.", style="dim")
        return ExitCode.INTERRUPTED
    if outcome.ending is Ending.STOPPED:
        return ExitCode.CLEAN
    if outcome.ending is Ending.DIED:
        if outcome.engine_exit_code == 0:
            err().print(f"{name} has ended.", style="dim")
            return ExitCode.CLEAN
        raise LaunchError(f"{name} was serving and ended: {outcome.reason}", log=log)
    where = outcome.steps[-1].phase.value if outcome.steps else "start"
    raise LaunchError(f"{name} failed at '{where}': {outcome.reason}", log=log)


def _ready_json(
    prepared: Prepared, verification: Verification | None, seconds: float, log: Path
) -> dict[str, object]:
    return {
        **_command_json(prepared),
        "address": prepared.address.url,
        "ready_seconds": round(seconds, 3),
        "verification": verification_json(verification),
        "log": str(log),
    }


def _ensure_cpu_engine(prepared: Prepared) -> None:
    """The CPU engine makes its tiny models on first use; it must have been installed."""
    if prepared.cpu is None:
        return
    from speclaunch.cpu.install import ensure_model, is_installed

    if not is_installed(prepared.cpu):
        raise LaunchError("the CPU engine is not installed", help="speclaunch engine install cpu")
    for value in prepared.recipe.deployment.args.values():
        path = Path(value) if isinstance(value, str) else None
        if path is not None and path.parent == prepared.cpu.models:
            with err().status(f"the tiny model {path.name}"):
                ensure_model(prepared.cpu, path.name)


def _observer(
    prepared: Prepared, on_ready: OnReady, *, verbose: bool, plain: bool
) -> PlainObserver:
    console = err()
    for note in prepared.spelling.notes:
        console.print(f"note: {note}", markup=False)
    if console.is_terminal and not plain and not console.is_dumb_terminal:
        title = f"{prepared.recipe.deployment.name} on SGLang {prepared.version}"
        return LiveObserver(console, on_ready, title, verbose=verbose)
    return PlainObserver(console, on_ready, verbose=verbose)

"""`speclaunch bisect`: find the two releases between which a check changes its result."""

from __future__ import annotations

import json

from msgspec import to_builtins

from speclaunch.app.output.bisect import show_bisect
from speclaunch.app.output.console import err_lines, out
from speclaunch.app.verbs.check_options import engine_release
from speclaunch.app.verbs.measure_options import BisectOptions
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.own_title import hide_secrets
from speclaunch.core import COMMAND_LINE, ExitCode, InputError, LaunchError, Place, Problem
from speclaunch.deployments import load, split_recipe
from speclaunch.engine import trust
from speclaunch.measure import (
    BisectDocument,
    BisectProgress,
    BisectTask,
    EngineSupply,
    SearchOutcome,
    StoredBisect,
    bisect_document,
    check_of,
    end_on_signals,
    interpreters,
    most_starts,
    releases_between,
    search,
)


def bisect(options: BisectOptions) -> ExitCode:
    """Search the releases and show the pair. Raises InputError, LaunchError."""
    hide_secrets("bisect", options.overrides)
    name, overrides = split_recipe(options.overrides)
    recipe = load(name, overrides, options.config_dir)
    if recipe.parts:
        raise InputError(Problem(f"{name} has several roles; bisect starts a single server"))
    check = check_of(options.check, options.timeout)
    pythons = interpreters(options.engine_python)
    for python in pythons.values():
        trust(python)
    lines = err_lines()
    with EngineSupply(pythons, lines.print) as supply:
        task = BisectTask(
            tuple(options.overrides),
            releases_between(
                _release("--good", options.good),
                _release("--bad", options.bad),
                supply.available(),
            ),
            check,
            options.flaky,
            options.timeout,
            tuple(options.config_dir),
            pythons,
        )
        try:
            supply.is_installable(task.recipe(task.releases[0]))
        except LaunchError as error:
            raise InputError(error.problems) from error
        if options.dry_run:
            _show_task(task, supply)
            return ExitCode.CLEAN
        about = {"recipe": name, "check": check.text, "releases": task.releases}
        name, begun = recipe.deployment.name, BisectProgress()
        stored = StoredBisect.begin("bisect", name, task.key, about, begun, fresh=options.fresh)
        document = _searched(name, task, stored, supply, options)
    return ExitCode.CLEAN if document.outcome is SearchOutcome.FOUND else ExitCode.FAILED


def _searched(
    name: str,
    task: BisectTask,
    stored: StoredBisect,
    supply: EngineSupply,
    options: BisectOptions,
) -> BisectDocument:
    lines = err_lines()
    end_on_signals()
    with stored.resuming(lines.print):
        end = search(task, stored, supply, lines.print)
    document = bisect_document(name, task, end, stored)
    stored.write(to_builtins(document))
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(to_builtins(document)))
    else:
        show_bisect(out(), document)
        lines.print(f"saved to {stored.directory}")
    return document


def _release(option: str, text: str) -> str:
    """Return the release of an option. Raises InputError if it is not known exactly."""
    found = engine_release(option, text)
    if found.note:
        why, _, _ = found.note.partition(";")
        raise InputError(Problem(why, Place(COMMAND_LINE, text=f"{option} {text}")))
    return found.held


def _show_task(task: BisectTask, supply: EngineSupply) -> None:
    """Print the releases, the number of starts, and the engines that are not installed."""
    missing = [release for release in task.releases if release not in supply.installed()]
    out().print(f"releases: {', '.join(task.releases)}", markup=False, highlight=False)
    starts = most_starts(len(task.releases))
    repeated = ", more if probes contradict each other" if task.flaky else ""
    out().print(f"starts:   at most {starts}{repeated}", markup=False, highlight=False)
    if missing:
        text = f"installs: if needed, {', '.join(missing)} (2 minutes, 1.6 GB each)"
        out().print(text, markup=False, highlight=False)

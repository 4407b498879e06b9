"""`speclaunch upgrade`: check whether a deployment can move to another engine version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import to_builtins
from msgspec.structs import replace

from speclaunch.app.output.console import err_lines, out
from speclaunch.app.output.upgrade import show_upgrade, show_upgrades
from speclaunch.app.verbs.change_options import MigrateOptions
from speclaunch.app.verbs.check_options import engine_release, lookup
from speclaunch.app.verbs.migrate import migrate
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.own_title import hide_secrets
from speclaunch.app.verbs.start_options import UpgradeOptions
from speclaunch.checks import all_rules, ask_mode, is_recipe, querier_for
from speclaunch.core import (
    ExitCode,
    InputError,
    Problem,
    from_here,
    reads,
    undone_on_error,
)
from speclaunch.deployments import YAML_SUFFIXES, NothingFoundError, find_recipe, load, split_recipe
from speclaunch.measure import (
    DeploymentUpgrade,
    EngineSupply,
    StoredUpgrade,
    UpgradeProgress,
    UpgradeSettings,
    UpgradeVerdict,
    directory_upgrades,
    end_on_signals,
    file_upgrades,
    interpreters,
    plan_here,
    recipe_for,
    recipe_upgrades,
    run_reasons,
    run_releases,
    upgrade_document,
)
from speclaunch.serving import lock_request, unfinished_work, write_lock


def upgrade(options: UpgradeOptions) -> ExitCode:
    """Show the page of a deployment, or the table of several. Raises InputError."""
    pythons = interpreters(options.engine_python)
    to = engine_release("--to", options.to)
    source = engine_release("--from", options.source) if options.source else None
    settings = UpgradeSettings(
        to.held,
        None if source is None else source.held,
        tuple(options.config_dir),
        lookup(options.models, options.hardware, online=options.online, assume=options.assume),
        all_rules(),
        querier_for(ask_mode(options.ask)),
        tuple(found.note for found in (to, source) if found is not None and found.note),
    )
    hide_secrets("upgrade", options.words)
    is_single, found = _upgrades(options.words, settings)
    if options.run or options.write:
        _require_single_recipe(options, found)
    if options.write:
        _require_writable(options, settings)
    stored = _run(options, settings, found[0], pythons) if options.run else None
    runs = () if stored is None else stored.progress.runs
    if runs:
        found = [replace(found[0], reasons=run_reasons(found[0], *runs))]
    document = upgrade_document(settings.to, found, runs)
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(to_builtins(document)))
    elif is_single and len(found) == 1:
        show_upgrade(out(), found[0], document.deployments[0], everything=options.everything)
    else:
        show_upgrades(out(), document)
    if options.write:
        _write(options, settings, found[0], pythons.get(settings.to))
    if stored is not None:
        stored.write(to_builtins(document))
    return ExitCode.CLEAN if document.verdict is UpgradeVerdict.SAFE else ExitCode.FAILED


def _upgrades(
    words: Sequence[str], settings: UpgradeSettings
) -> tuple[bool, list[DeploymentUpgrade]]:
    """Return True if a single deployment was named, and the upgrades. Raises SpeclaunchError."""
    if _is_recipe(words):
        return True, recipe_upgrades(words, settings)
    for word in words:
        if not Path(word).exists():
            raise InputError(
                Problem(
                    f"cannot read {word}: no such file or directory",
                    help="name a recipe with recipe=NAME",
                )
            )
    if len(words) == 1 and Path(words[0]).is_file():
        return True, file_upgrades(words[0], settings)
    found = directory_upgrades(words, settings)
    if not found:
        raise NothingFoundError(Problem(f"no deployment in {', '.join(words)}"))
    return False, found


def _is_recipe(words: Sequence[str]) -> bool:
    """True if the words name a recipe, not other files or directories."""
    if any(word.startswith("recipe=") for word in words):
        return True
    path = Path(words[0])
    if not path.exists():
        return not path.suffix and "/" not in words[0]
    if path.suffix.lower() not in YAML_SUFFIXES or not path.is_file():
        return False
    return len(words) == 1 + sum("=" in word for word in words) and is_recipe(
        reads.read_bytes(path).decode("utf-8-sig", errors="replace")
    )


def _require_single_recipe(options: UpgradeOptions, found: Sequence[DeploymentUpgrade]) -> None:
    if not _is_recipe(options.words) or len(found) != 1:
        name = "--run" if options.run else "--write"
        help_ = "use `speclaunch migrate` for other files" if name == "--write" else None
        raise InputError(Problem(f"{name} needs a recipe with one role", help=help_))


def _run(
    options: UpgradeOptions,
    settings: UpgradeSettings,
    upgrade: DeploymentUpgrade,
    pythons: Mapping[str, str],
) -> StoredUpgrade:
    say = err_lines().print
    releases = (upgrade.source, settings.to)
    recipes = [
        recipe_for(options.words, release, settings.config_dirs, python=pythons.get(release))
        for release in releases
    ]
    key = unfinished_work.digest(
        [(found.version, found.overrides, found.migration.text) for found in recipes]
    )
    about = {"recipe": upgrade.name, "releases": releases}
    begun = UpgradeProgress()
    stored = StoredUpgrade.begin("upgrade", upgrade.name, key, about, begun, fresh=options.fresh)
    end_on_signals()
    with stored.resuming(say), EngineSupply(pythons, say) as supply:
        run_releases(recipes, stored, supply, options.timeout, say)
    return stored


def _write(
    options: UpgradeOptions,
    settings: UpgradeSettings,
    upgrade: DeploymentUpgrade,
    python: str | None = None,
) -> None:
    """Migrate the recipe's file, and its lock if it has one. `python`: interpreter of the new
    version.

    Raises InputError, LaunchError and OutputRefusedError; then no file is changed.
    """
    name, overrides = split_recipe(options.words)
    path = find_recipe(name, settings.config_dirs)
    if upgrade.verdict is UpgradeVerdict.NOT_SAFE and not options.force:
        err_lines().print(f"{path} is unchanged: the verdict is not safe (--force writes it)")
        return
    found = recipe_for(options.words, settings.to, settings.config_dirs, python=python)
    recipe = found.load()
    with undone_on_error(recipe.lock_path):
        if recipe.lock_path.exists():
            prepared = found.prepared()
            lock = write_lock(prepared, plan_here(prepared), lock_request(recipe, overrides))
            err_lines().print(f"locked: {from_here(lock)}", markup=False)
        migrate(
            MigrateOptions(
                file=str(path), to=settings.to, source=upgrade.source, force=options.force
            )
        )


def _require_writable(options: UpgradeOptions, settings: UpgradeSettings) -> None:
    """Raise InputError unless `--write` can move the recipe's file, and its lock if it has one."""
    name, overrides = split_recipe(options.words)
    recipe = load(name, overrides, settings.config_dirs)
    path = recipe.path
    if recipe.is_shipped:
        help_ = f"copy it: speclaunch recipes cp {name} FILE"
        raise InputError(
            Problem(f"{name} ships with speclaunch: --write cannot change it", help=help_)
        )
    place = recipe.place("engine", "version")
    if recipe.deployment.engine.pinned is not None and Path(place.path).resolve() != path:
        message = f"the pin of the release is not in {from_here(path)}"
        help_ = f"set engine.version and engine.requires to {settings.to} in the recipe itself"
        raise InputError(Problem(message, place, help_))
    if recipe.lock_path.exists() and not options.run:
        message = f"{from_here(recipe.lock_path)} records what served"
        raise InputError(Problem(message, help="add --run: it writes a new lock"))

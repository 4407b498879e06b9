"""`speclaunch bisect` and `speclaunch upgrade`: compare two releases of the engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console

from speclaunch.app.output import formatting
from speclaunch.app.output.console import err_lines, many, out
from speclaunch.app.output.plan_side_by_side import show_comparison
from speclaunch.app.output.terminal import LineWriter, TableCell
from speclaunch.app.verbs.change_options import MigrateOptions
from speclaunch.app.verbs.convert import migrate
from speclaunch.app.verbs.launch_process import hide_secrets
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.run_options import BisectOptions
from speclaunch.app.verbs.shared import engine_release, lookup
from speclaunch.app.verbs.start_options import UpgradeOptions
from speclaunch.checks import all_rules, ask_mode, is_recipe, querier_for
from speclaunch.core import (
    COMMAND_LINE,
    ExitCode,
    InputError,
    LaunchError,
    Place,
    from_here,
    json_value,
    reads,
    undone_on_error,
)
from speclaunch.deployments import YAML_SUFFIXES, NothingFoundError, find_recipe, load, split_recipe
from speclaunch.engine import trust
from speclaunch.measure import (
    Aspect,
    BisectDocument,
    BisectProgress,
    BisectTask,
    DependencyRecord,
    DeploymentRecord,
    DeploymentUpgrade,
    EngineSupply,
    RunRecord,
    SearchOutcome,
    StoredBisect,
    StoredUpgrade,
    UpgradeDocument,
    UpgradeProgress,
    UpgradeReason,
    UpgradeSettings,
    UpgradeVerdict,
    ValueRecord,
    bisect_document,
    check_of,
    directory_upgrades,
    end_on_signals,
    file_upgrades,
    interpreters,
    most_starts,
    plan_here,
    recipe_for,
    recipe_upgrades,
    releases_between,
    run_reasons,
    run_releases,
    search,
    upgrade_document,
)
from speclaunch.serving import lock_request, unfinished_work, write_lock


def show_bisect(console: Console, found: BisectDocument) -> None:
    """Print the last good and first bad release, the probes, and the differences."""
    paper = LineWriter(console)
    style = "bold green" if found.outcome is SearchOutcome.FOUND else "bold red"
    paper.say(_headline(found), style)
    rows = [[TableCell(head, "dim") for head in ("release", "verdict", "seconds", "why")]]
    for probe in found.probes:
        texts = (probe.release, probe.verdict.value, f"{probe.seconds:.0f}", probe.reason)
        rows.append([TableCell(text) for text in texts])
    paper.heading("Probes", many(found.starts, "start"))
    paper.table(rows, (16, 8, 8))
    if found.flaky:
        paper.say(f"flaky, with contradicting results: {', '.join(found.flaky)}", "bold yellow")
    changes, pair = found.changes, found.pair
    if changes is not None and pair is not None:
        if changes.command:
            paper.heading("Command")
            for line in changes.command:
                paper.line("  ", (line, "green" if line.startswith("+") else "red"))
        if changes.values:
            paper.heading("Arguments", many(len(changes.values), "difference"))
            for value in changes.values:
                paper.say(_value(value), indent=2)
        bugs = [("fixes", bug) for bug in changes.fixed]
        bugs += [("introduces", bug) for bug in changes.introduced]
        if bugs:
            paper.heading("Known engine bugs", f"of SGLang {pair.bad}, against {pair.good}")
            for verb, bug in bugs:
                unknown = f" (unknown: {bug.unknown})" if bug.unknown else ""
                paper.say(f"{verb} {bug.id}: {bug.summary}{unknown}", indent=2)
    if found.dependencies:
        paper.heading("Packages", many(len(found.dependencies), "difference"))
        for package in found.dependencies:
            paper.say(_package(package), indent=2)


def _headline(found: BisectDocument) -> str:
    about = f"{found.recipe}: {found.check}: "
    if found.outcome is SearchOutcome.GOOD_IS_BAD:
        return f"{about}not isolated: SGLang {found.good} (--good) is also bad"
    if found.outcome is SearchOutcome.BAD_IS_GOOD:
        return f"{about}not isolated: SGLang {found.bad} (--bad) is good"
    if found.pair is None:
        return f"{about}not isolated: the probes contradict each other"
    if found.outcome is SearchOutcome.FOUND:
        return f"{about}good in SGLang {found.pair.good}, bad in {found.pair.bad}"
    untested = ", ".join(found.untested)
    return (
        f"{about}not isolated: the first bad release is between {found.pair.good} and "
        f"{found.pair.bad}; not tested: {untested}"
    )


def _value(value: ValueRecord) -> str:
    if value.unknown:
        return f"{value.name}: unknown"
    before, after = map(formatting.value, (value.before, value.after))
    return f"{value.name}: {before} → {after} ({value.why})"


def _package(package: DependencyRecord) -> str:
    both = (
        ("requires", package.good_requires, package.bad_requires),
        ("installed", package.good_installed, package.bad_installed),
    )
    parts = [f"{what} {old or 'none'} → {new or 'none'}" for what, old, new in both if old != new]
    return f"{package.name}: {'; '.join(parts)}"


def bisect(options: BisectOptions) -> ExitCode:
    """Find and show the last good and first bad release. Raises InputError, LaunchError."""
    hide_secrets("bisect", options.overrides)
    name, overrides = split_recipe(options.overrides)
    recipe = load(name, overrides, options.config_dir)
    if recipe.parts:
        raise InputError(f"{name} has several roles; bisect starts a single server")
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
    stored.write(json_value(document))
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(json_value(document)))
    else:
        show_bisect(out(), document)
        lines.print(f"saved to {stored.directory}")
    return document


def _release(option: str, text: str) -> str:
    """Return the release that an option names. Raises InputError for an unknown release."""
    found = engine_release(option, text)
    if found.note:
        why, _, _ = found.note.partition(";")
        raise InputError(why, Place(COMMAND_LINE, text=f"{option} {text}"))
    return found.held


def _show_task(task: BisectTask, supply: EngineSupply) -> None:
    missing = [release for release in task.releases if release not in supply.installed()]
    out().print(f"releases: {', '.join(task.releases)}")
    starts = most_starts(len(task.releases))
    repeated = ", more if probes contradict each other" if task.flaky else ""
    out().print(f"starts:   at most {starts}{repeated}")
    if missing:
        text = f"installs: if needed, {', '.join(missing)} (2 minutes, 1.6 GB each)"
        out().print(text)


_STYLES = {
    UpgradeVerdict.SAFE: "bold green",
    UpgradeVerdict.DIFFERS: "bold yellow",
    UpgradeVerdict.NOT_SAFE: "bold red",
    UpgradeVerdict.UNKNOWN: "bold magenta",
}
_REASONS = 3
_LONG = 110


def show_upgrade(
    console: Console,
    upgrade: DeploymentUpgrade,
    record: DeploymentRecord,
    *,
    everything: bool,
) -> None:
    """Print the page of one deployment: verdict, reasons, then the supporting details."""
    paper = LineWriter(console)
    paper.line(
        (f"{record.name}: SGLang {record.source} → {record.to}: ", "bold"),
        (record.verdict.value, _STYLES[record.verdict]),
    )
    unknown_value = (Aspect.VALUE, UpgradeVerdict.UNKNOWN)
    hidden = [
        reason for reason in record.reasons if (reason.aspect, reason.verdict) == unknown_value
    ]
    for reason in record.reasons:
        if reason in hidden:
            continue
        paper.say(reason.text, _STYLES[reason.verdict].removeprefix("bold "), mark=_mark(reason))
    if hidden:
        names = ", ".join(reason.name for reason in hidden)
        text = f"{many(len(hidden), 'argument')} without a known value: {names}"
        paper.say(text, "magenta", mark=_mark(hidden[0]))
    if record.steps:
        paper.heading("Changes of the file", str(len(record.steps)))
        for step in record.steps:
            paper.say(step, indent=2)
    if upgrade.comparison is not None:
        console.print()
        show_comparison(console, upgrade.comparison, everything=everything)
    if record.runs:
        _show_runs(paper, record.runs)


def _mark(reason: UpgradeReason) -> str:
    return f"{reason.verdict.value}: {reason.aspect.value}: "


def _show_runs(paper: LineWriter, runs: Sequence[RunRecord]) -> None:
    paper.heading("On this machine")
    heads = ("release", "serves", "acceptance", "answers", "contract")
    rows = [[TableCell(head, "dim") for head in heads]]
    for run in runs:
        length = "" if run.acceptance_length is None else f"{run.acceptance_length:.2f}"
        answers = "" if not run.serves else "differ" if run.differs else f"{run.answers} the same"
        if run is runs[0] and run.serves:
            answers = f"{run.answers}, the reference"
        serves = f"after {run.seconds:.0f} s" if run.seconds is not None else "no"
        broken = f"changes {', '.join(run.broken_fields)}" if run.broken_fields else ""
        texts = (run.release, serves, length, answers, broken)
        rows.append([TableCell(text) for text in texts])
    paper.table(rows, (24, 16, 16, 24))


def show_upgrades(console: Console, document: UpgradeDocument) -> None:
    """Print a line for each deployment, with its first reasons, then the verdict counts."""
    paper = LineWriter(console)
    rows = [[TableCell(head, "dim") for head in ("deployment", "from", "verdict", "why")]]
    for record in document.deployments:
        name = "" if record.name == record.file else f" {record.name}"
        place = f"{from_here(Path(record.file))}:{record.line}{name}"
        texts = [reason.text for reason in record.reasons if reason.verdict is record.verdict]
        shown = "; ".join(_short(text) for text in texts[:_REASONS])
        more = f"; {len(texts) - _REASONS} more" if len(texts) > _REASONS else ""
        verdict = TableCell(record.verdict.value, _STYLES[record.verdict])
        cells = (TableCell(place), TableCell(record.source or "unknown"), verdict)
        rows.append([*cells, TableCell(f"{shown}{more}", "dim")])
    paper.table(rows, (60, 14, 10))
    counts = Counter(record.verdict for record in document.deployments)
    found = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in _STYLES)
    console.print()
    total = many(len(document.deployments), "deployment")
    paper.line((f"{total} → SGLang {document.to}: {found}", "bold"))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONG else f"{line[: _LONG - 1]}…"


def upgrade(options: UpgradeOptions) -> ExitCode:
    """Show the upgrade of a deployment, or a table of several. Raises InputError."""
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
        out().print_json(json.dumps(json_value(document)))
    elif is_single and len(found) == 1:
        show_upgrade(out(), found[0], document.deployments[0], everything=options.everything)
    else:
        show_upgrades(out(), document)
    if options.write:
        _write(options, settings, found[0], pythons.get(settings.to))
    if stored is not None:
        stored.write(json_value(document))
    return ExitCode.CLEAN if document.verdict is UpgradeVerdict.SAFE else ExitCode.FAILED


def _upgrades(
    words: Sequence[str], settings: UpgradeSettings
) -> tuple[bool, list[DeploymentUpgrade]]:
    """Return True if `words` name one recipe or file, and the upgrades. Raises SpeclaunchError."""
    if _is_recipe(words):
        return True, recipe_upgrades(words, settings)
    for word in words:
        if not Path(word).exists():
            raise InputError(
                f"cannot read {word}: no such file or directory",
                help="name a recipe with recipe=NAME",
            )
    if len(words) == 1 and Path(words[0]).is_file():
        return True, file_upgrades(words[0], settings)
    found = directory_upgrades(words, settings)
    if not found:
        raise NothingFoundError(f"no deployment in {', '.join(words)}")
    return False, found


def _is_recipe(words: Sequence[str]) -> bool:
    """True if `words` name a recipe, not other files or directories."""
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
        raise InputError(f"{name} needs a recipe with one role", help=help_)


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
    """Migrate the recipe's file and its lock, if any. `python`: interpreter of the new version.

    Raises InputError, LaunchError and OutputRefusedError without changing any file.
    """
    name, overrides = split_recipe(options.words)
    path = find_recipe(name, settings.config_dirs)
    if upgrade.verdict is UpgradeVerdict.NOT_SAFE and not options.force:
        err_lines().print(
            f"{path} is unchanged: the verdict is `not safe`; migrate anyway with --force"
        )
        return
    found = recipe_for(options.words, settings.to, settings.config_dirs, python=python)
    recipe = found.load()
    with undone_on_error(recipe.lock_path):
        if recipe.lock_path.exists():
            prepared = found.prepared()
            lock = write_lock(prepared, plan_here(prepared), lock_request(recipe, overrides))
            err_lines().print(f"locked: {from_here(lock)}")
        migrate(
            MigrateOptions(
                file=str(path), to=settings.to, source=upgrade.source, force=options.force
            )
        )


def _require_writable(options: UpgradeOptions, settings: UpgradeSettings) -> None:
    """Raise InputError unless `--write` can migrate the recipe's file and its lock, if any."""
    name, overrides = split_recipe(options.words)
    recipe = load(name, overrides, settings.config_dirs)
    path = recipe.path
    if recipe.is_shipped:
        help_ = f"copy it: speclaunch recipes cp {name} FILE"
        raise InputError(f"{name} ships with speclaunch, so --write cannot change it", help=help_)
    place = recipe.place("engine", "version")
    if recipe.deployment.engine.pinned is not None and Path(place.path).resolve() != path:
        message = f"the pin of the release is not in {from_here(path)}"
        help_ = f"set engine.version and engine.requires to {settings.to} in the recipe itself"
        raise InputError(message, place, help_)
    if recipe.lock_path.exists() and not options.run:
        message = f"{from_here(recipe.lock_path)} would not match the migrated recipe"
        raise InputError(message, help="add --run to write a new lock")

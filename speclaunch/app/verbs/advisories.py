"""`speclaunch advisories`: known engine bugs, and those that affect a deployment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.console import err, err_lines, many, out, write_exact
from speclaunch.app.output.findings import COLORS
from speclaunch.app.output.problems import show_problems
from speclaunch.app.verbs.launch_process import hide_secrets
from speclaunch.app.verbs.lint import NothingToCheckError, lint_run
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.rules import explain_code
from speclaunch.app.verbs.shared import engine_versions, lookup
from speclaunch.app.verbs.start_options import LintOptions
from speclaunch.checks import (
    STDIN,
    Advisory,
    FoundFile,
    advisory_of,
    all_advisories,
    encode_advisories,
    osv_document,
    read_found,
    update_advisories,
)
from speclaunch.core import ExitCode, InputError, Problem
from speclaunch.engine import UnknownValueError, suggest, within
from speclaunch.measure import planned_side, sides

if TYPE_CHECKING:
    from speclaunch.app.verbs.change_options import (
        AdvisoriesCheckOptions,
        AdvisoriesExportOptions,
        AdvisoriesListOptions,
        AdvisoriesShowOptions,
        AdvisoriesUpdateOptions,
    )
    from speclaunch.engine import Plan


def list_advisories(options: AdvisoriesListOptions) -> None:
    """List all advisories, or those for `--engine`. Raises InputError."""
    versions = engine_versions(options.engine)
    found = [
        advisory
        for advisory in all_advisories()
        if not versions or any(within(version, advisory.versions) for version in versions)
    ]
    if options.output_format is OutputFormat.JSON:
        _print_json({"version": 1, "advisories": [_record(advisory) for advisory in found]})
    else:
        _print_table(found)


def show(options: AdvisoriesShowOptions) -> None:
    """Print an advisory. Raises InputError for an unknown ID."""
    found = advisory_of(options.id)
    if found is None:
        known = [name for advisory in all_advisories() for name in (advisory.id, advisory.name)]
        near = suggest(options.id.strip().upper(), known) or suggest(options.id, known)
        hint = near or "list them with `speclaunch advisories`"
        raise InputError(f"unknown advisory {options.id!r}", help=hint)
    if options.output_format is OutputFormat.JSON:
        _print_json({"version": 1, "advisory": _record(found)})
    else:
        explain_code(found.id)


class _Server(Struct, frozen=True):
    """A server, the advisories that affect it, and the undecided advisories with their reasons."""

    label: str
    plan: Plan
    found: tuple[Advisory, ...]
    undecided: tuple[tuple[Advisory, str], ...]


def check(options: AdvisoriesCheckOptions) -> ExitCode:
    """Show the advisories that affect each server, and those that depend on a missing fact.

    Raises InputError, NothingToCheckError.
    """
    hide_secrets("advisories check", options.words)
    paths = [word for word in options.words if _is_linted(word)]
    recipes = [word for word in options.words if word not in paths]
    planned = [] if paths and not recipes else _of_recipes(options, recipes)
    files, problems = _of_files(options, paths) if paths else ([], [])
    servers = [_affecting(label, plan) for label, plan in (*planned, *files)]
    if not servers and not problems:
        raise NothingToCheckError(f"no SGLang deployment in {', '.join(paths)}")
    if options.output_format is OutputFormat.JSON:
        _print_json({"version": 1, "engines": [_document(server) for server in servers]})
    else:
        _print_servers(servers)
    show_problems(err_lines(), problems)
    if problems:
        return ExitCode.USAGE
    failing = any(advisory.severity == "error" for server in servers for advisory in server.found)
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def _is_linted(word: str) -> bool:
    """True if `word` names standard input, a directory, or a file that is not a recipe."""
    if word == STDIN or Path(word).is_dir():
        return True
    if not Path(word).is_file():
        return False
    source = read_found(FoundFile(word, is_named=True))
    return source is None or source.recipe is None


def _of_recipes(options: AdvisoriesCheckOptions, words: Sequence[str]) -> list[tuple[str, Plan]]:
    facts = lookup(options.models, options.hardware, online=options.online, assume=options.assume)
    return [
        (side.label, planned_side(side, facts, (), fit=False, requested_load=None).plan)
        for side in sides(words, options.engine, options.config_dir, options.role, all_roles=True)
    ]


def _of_files(
    options: AdvisoriesCheckOptions, paths: Sequence[str]
) -> tuple[list[tuple[str, Plan]], list[Problem]]:
    """Return labels and plans of servers, and problems with unreadable files. Raises InputError."""
    if options.role is not None:
        raise InputError("--role needs a recipe", help="name one with recipe=FILE")
    same = ("engine", "hardware", "models", "online", "assume", "config_dir")
    values = {name: getattr(options, name) for name in same}
    plans: list[tuple[str, Plan]] = []
    problems: list[Problem] = []
    for file in lint_run(LintOptions(paths=tuple(paths), select=("SPA",), **values)).checked():
        for part in file.parts:
            is_recipe = part.source.recipe is not None
            for plan in part.plans:
                request = plan.request
                plans.append((request.name if is_recipe else str(request.place), plan))
            problems += part.source.problems
    return plans, problems


def export(options: AdvisoriesExportOptions) -> None:
    """Print all advisories, as input for `advisories update` or as OSV documents."""
    if options.osv:
        _print_json([osv_document(advisory) for advisory in all_advisories()])
    else:
        write_exact(encode_advisories(all_advisories()).decode())


def update(options: AdvisoriesUpdateOptions) -> None:
    """Store the advisories from a source. Raises InputError."""
    done = update_advisories(options.source, options.sha256)
    counts = f"{len(done.new)} new, {len(done.changed)} changed"
    err().print(f"wrote {done.path}: {counts}")


def _affecting(label: str, plan: Plan) -> _Server:
    found: list[Advisory] = []
    undecided: list[tuple[Advisory, str]] = []
    for advisory in all_advisories():
        try:
            if advisory.applies(plan):
                found.append(advisory)
        except UnknownValueError as error:
            undecided.append((advisory, str(error)))
    return _Server(label, plan, tuple(found), tuple(undecided))


def _document(server: _Server) -> dict[str, Any]:
    return {
        "server": server.label,
        "engine": server.plan.request.version,
        "advisories": [_record(advisory) for advisory in server.found],
        "undecided": [{"id": each.id, "reason": reason} for each, reason in server.undecided],
    }


def _record(advisory: Advisory) -> dict[str, Any]:
    computed = {"severity": advisory.severity.value, "versions": advisory.versions}
    return {**msgspec.to_builtins(advisory), **computed, "remedy": advisory.remedy}


def _print_json(document: Any) -> None:
    write_exact(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _print_table(found: Sequence[Advisory]) -> None:
    table = Table.grid(padding=(0, 2))
    for advisory in found:
        table.add_row(
            Text(advisory.id, COLORS[advisory.severity]),
            Text(advisory.symptom.value),
            Text(advisory.versions, "dim"),
            Text(advisory.summary.removesuffix(".")),
        )
    out().print(table)


def _print_servers(servers: Sequence[_Server]) -> None:
    reasons: dict[str, dict[str, None]] = {}
    for server in servers:
        _print_affecting(server)
        for advisory, reason in server.undecided:
            reasons.setdefault(reason, {})[advisory.id] = None
    for reason, ids in reasons.items():
        err().print(f"not checked: {', '.join(ids)}: {reason}", style="dim")


def _print_affecting(server: _Server) -> None:
    where = f"{server.label} on SGLang {server.plan.request.version}"
    if not server.found:
        out().print(f"{where}: no known bug affects it")
        return
    count = many(len(server.found), "known bug")
    out().print(f"{where}: {count} affect{'s' * (len(server.found) == 1)} it")
    for advisory in server.found:
        line = Text.assemble(
            (advisory.id, COLORS[advisory.severity]),
            f"  {advisory.summary.removesuffix('.')}",
            (f"  ({advisory.release_range})", "dim"),
        )
        out().print(line)
        if advisory.requests:
            out().print(f"  affects requests with: {', '.join(advisory.requests)}")
        if advisory.remedy:
            out().print(f"  {advisory.remedy}")

"""`speclaunch advisories`: known engine bugs, and those that affect a recipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.table import Table
from rich.text import Text

from speclaunch.app.output.console import err, out, write_exact
from speclaunch.app.output.findings import COLORS
from speclaunch.app.output.styled import many
from speclaunch.app.verbs.check_options import engine_versions, lookup
from speclaunch.app.verbs.options import OutputFormat
from speclaunch.app.verbs.own_title import hide_secrets
from speclaunch.app.verbs.rules import explain_code
from speclaunch.checks import (
    Advisory,
    advisory_of,
    all_advisories,
    encode_advisories,
    osv_document,
    update_advisories,
)
from speclaunch.core import ExitCode, InputError, Problem
from speclaunch.engine import UnknownValueError, suggest, within

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
    """List the advisories, of some releases if the user names any. Raises InputError."""
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
        raise InputError(Problem(f"unknown advisory {options.id!r}", help=hint))
    if options.output_format is OutputFormat.JSON:
        _print_json({"version": 1, "advisory": _record(found)})
    else:
        explain_code(found.id)


def check(options: AdvisoriesCheckOptions) -> ExitCode:
    """Show the advisories that affect a recipe, and those that depend on a missing fact.

    Raises InputError.
    """
    from speclaunch.measure import planned_side, sides

    facts = lookup(options.models, options.hardware, online=options.online, assume=options.assume)
    chosen = sides(options.words, options.engine, options.config_dir, options.role)
    hide_secrets("advisories check", options.words)
    failing, documents = False, []
    for side in chosen:
        plan = planned_side(side, facts, (), fit=False, requested_load=None).plan
        found, undecided = _affecting(plan)
        failing |= any(advisory.severity == "error" for advisory in found)
        documents.append(
            {
                "engine": plan.request.version,
                "advisories": [_record(advisory) for advisory in found],
                "undecided": [
                    {"id": advisory.id, "reason": reason} for advisory, reason in undecided
                ],
            }
        )
        if options.output_format is not OutputFormat.JSON:
            _print_affecting(side.label, plan, found, undecided)
    if options.output_format is OutputFormat.JSON:
        _print_json({"version": 1, "engines": documents})
    return ExitCode.FAILED if failing else ExitCode.CLEAN


def export(options: AdvisoriesExportOptions) -> None:
    """Print all advisories as JSON, for `advisories update` or as OSV documents."""
    if options.osv:
        _print_json([osv_document(advisory) for advisory in all_advisories()])
    else:
        write_exact(encode_advisories(all_advisories()).decode())


def update(options: AdvisoriesUpdateOptions) -> None:
    """Store the advisories of a source. Raises InputError."""
    done = update_advisories(options.source, options.sha256)
    counts = f"{len(done.new)} new, {len(done.changed)} changed"
    err().print(f"wrote {done.path}: {counts}", markup=False)


def _affecting(plan: Plan) -> tuple[list[Advisory], list[tuple[Advisory, str]]]:
    """Return the advisories that affect a plan, and those that are unknown, with the reason."""
    found: list[Advisory] = []
    undecided: list[tuple[Advisory, str]] = []
    for advisory in all_advisories():
        try:
            if advisory.applies(plan):
                found.append(advisory)
        except UnknownValueError as error:
            undecided.append((advisory, str(error)))
    return found, undecided


def _record(advisory: Advisory) -> dict[str, Any]:
    """Return an advisory as JSON, with its severity, range and remedy."""
    found: dict[str, Any] = msgspec.to_builtins(advisory)
    return {
        **found,
        "severity": advisory.severity.value,
        "versions": advisory.versions,
        "remedy": advisory.remedy,
    }


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


def _print_affecting(
    label: str, plan: Plan, found: Sequence[Advisory], undecided: Sequence[tuple[Advisory, str]]
) -> None:
    where = f"{label} on SGLang {plan.request.version}"
    if not found:
        out().print(f"{where}: no known bug affects it", markup=False)
    else:
        count = many(len(found), "known bug")
        out().print(f"{where}: {count} affect{'s' * (len(found) == 1)} it", markup=False)
        for advisory in found:
            line = Text.assemble(
                (advisory.id, COLORS[advisory.severity]),
                f"  {advisory.summary.removesuffix('.')}",
                (f"  ({advisory.release_range})", "dim"),
            )
            out().print(line)
            if advisory.requests:
                out().print(f"  concerns requests with: {', '.join(advisory.requests)}")
            if advisory.remedy:
                out().print(f"  {advisory.remedy}", markup=False)
    reasons: dict[str, list[str]] = {}
    for advisory, reason in undecided:
        reasons.setdefault(reason, []).append(advisory.id)
    for reason, ids in reasons.items():
        err().print(f"not checked: {', '.join(ids)}: {reason}", style="dim")

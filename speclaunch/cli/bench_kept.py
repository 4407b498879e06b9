"""What `speclaunch bench ls`, `show` and `compare` do."""

from __future__ import annotations

import json

from speclaunch.bench.between import Named, difference
from speclaunch.bench.find_kept import (
    find_certificate,
    find_measured,
    kept_benches,
    require_cells,
)
from speclaunch.bench.kept_names import directory
from speclaunch.bench.schema import CertificateDocument, SingleDocument
from speclaunch.cli.bench_output import DifferenceOutput, Output
from speclaunch.cli.formats import OutputFormat
from speclaunch.errors import ExitCode, InputError, Problem
from speclaunch.report.bench_list import list_document, show_benches
from speclaunch.report.bench_words import per_cell
from speclaunch.report.console import err_lines, out


def show_list(form: OutputFormat) -> None:
    """All comparisons that are kept."""
    found = kept_benches()
    if form is OutputFormat.JSON:
        out().print_json(json.dumps(list_document(found)))
    elif found:
        show_benches(out(), found)
    else:
        err_lines().print(f"no comparison is kept in {directory()}", markup=False)


def show(name: str, told: Output, fail_under: float | None) -> ExitCode:
    """A certificate again, or what was measured of one server. Raises InputError."""
    found = find_certificate(name) if fail_under is not None else find_measured(name)
    told.write(found)
    if isinstance(found, SingleDocument):
        return ExitCode.CLEAN if found.counts else ExitCode.FAILED
    return exit_code(found, fail_under)


def exit_code(found: CertificateDocument, fail_under: float | None) -> ExitCode:
    """1 where it does not count, or may be slower than it must be."""
    if not found.counts:
        return ExitCode.FAILED
    least = min((cell.speed_up.low for cell in found.cells), default=None)
    return _above("the speed-up", None if found.caveats else least, fail_under)


def _above(what: str, least: float | None, fail_under: float | None) -> ExitCode:
    if fail_under is None or (least is not None and least >= fail_under):
        return ExitCode.CLEAN
    told = "is made up" if least is None else f"may be {least:.2f}"
    err_lines().print(f"{what} {told}: not above --fail-under {fail_under:g}")
    return ExitCode.FAILED


def compare(
    names: tuple[str, str],
    told: DifferenceOutput,
    fail_under: float | None,
) -> ExitCode:
    """Two certificates. Raises InputError."""
    sides = []
    for name in names:
        certificate = find_certificate(name)
        require_cells(name, certificate)
        sides.append(Named(name, certificate))
    found = difference(*sides)
    if not found.cells:
        said = [", ".join(map(per_cell, one.certificate.cells)) for one in sides]
        raise InputError(
            Problem(
                f"{names[0]} and {names[1]} have no cell in common: {said[0]} and {said[1]}",
                help="measure both with the same --workload, --concurrency and --context",
            )
        )
    told.write(found)
    least = min(cell.speed_up.low for cell in found.cells)
    made_up = any(side.certificate.caveats for side in sides)
    return _above("the ratio", None if made_up else least, fail_under)

"""`speclaunch bench ls`, `show` and `compare`, and the output of results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import TypeVar

import msgspec.json
import typer
from msgspec import Struct
from rich.console import Console

from speclaunch.app.output import bench as terminal
from speclaunch.app.output.bench_words import per_cell
from speclaunch.app.output.console import err_lines, out
from speclaunch.app.verbs.measure_options import BenchCompareOptions, BenchShowOptions
from speclaunch.app.verbs.options import CertificateFormat, DifferenceFormat, OutputFormat
from speclaunch.app.verbs.run_options import FormatOptions
from speclaunch.app.verbs.writing import write_result
from speclaunch.core import ExitCode, InputError, Problem
from speclaunch.measure import (
    CertificateDocument,
    DifferenceDocument,
    SingleDocument,
    difference,
    directory,
    find_certificate,
    find_measured,
    require_cells,
    speculation_profile,
    stored_benches,
)

_WIDTH = 400
_PROFILE = "speculation_profile.json"
"""File name that implies the format of NVIDIA Model Optimizer."""
_SUFFIXES = {".html": "html", ".htm": "html", ".json": "json", ".md": "markdown", ".txt": "text"}

Form = TypeVar("Form", bound=StrEnum)


BenchDocument = CertificateDocument | SingleDocument | DifferenceDocument


class BenchOutput(Struct, frozen=True):
    """Format of standard output, and the output files with their formats."""

    shown: StrEnum
    files: tuple[tuple[Path, StrEnum], ...] = ()

    def write(self, found: BenchDocument) -> None:
        """Write the result to standard output and to all files.

        Raises InputError for a file that cannot be written and for an unavailable format.
        """
        if isinstance(found, SingleDocument):
            self.require_no_page()
        if self.shown == CertificateFormat.TEXT:
            _show(found, out())
        else:
            typer.echo(_text(found, self.shown), nl=False)
        for path, form in self.files:
            write_result(path, _text(found, form))

    def require_no_page(self) -> None:
        """Raise InputError if the page is requested: a single server has none."""
        if CertificateFormat.HTML in (self.shown, *(form for _, form in self.files)):
            raise InputError(
                Problem(
                    "a measurement of a single server has no HTML page",
                    help="add --against, or use --output-format text, json or markdown",
                )
            )


def output(shown: CertificateFormat | DifferenceFormat, files: Sequence[str]) -> BenchOutput:
    """Return the requested formats and files.

    Raises InputError, before anything is measured, for files that cannot be written.
    """
    return BenchOutput(shown, _files(files, type(shown)))


def _files(values: Sequence[str], forms: type[Form]) -> tuple[tuple[Path, Form], ...]:
    """Parse `FORMAT=FILE`, or a file whose suffix implies its format. Raises InputError."""
    found: dict[Path, tuple[Path, Form]] = {}
    for value in values:
        name, equals, file = value.partition("=")
        if not (equals and name in set(forms)):
            file = _PROFILE if value == CertificateFormat.SPECULATION_PROFILE else value
            is_profile = Path(file).name == _PROFILE
            suffix = Path(file).suffix.lower()
            name = Path(_PROFILE).stem if is_profile else _SUFFIXES.get(suffix, "")
        if name not in set(forms) or not file:
            known = ", ".join(forms)
            raise InputError(
                Problem(
                    f"--output-file {value}: write FORMAT=FILE",
                    help=f"for example --output-file {list(forms)[-1]}=bench; the formats: {known}",
                )
            )
        path = Path(file)
        _require_writable(path, value)
        if path.resolve() in found:
            raise InputError(Problem(f"--output-file {value}: named twice"))
        found[path.resolve()] = path, forms(name)
    return tuple(found.values())


def _text(found: BenchDocument, form: StrEnum) -> str:
    """Return a document as text in a format; only a certificate has a page."""
    document: object = found if form == CertificateFormat.JSON else None
    if form == CertificateFormat.SPECULATION_PROFILE and not isinstance(found, DifferenceDocument):
        document = speculation_profile(found)
    if document is not None:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    if form == CertificateFormat.TEXT:
        stream = StringIO()
        console = Console(
            file=stream, width=_WIDTH, soft_wrap=True, highlight=False, color_system=None
        )
        _show(found, console)
        return stream.getvalue()
    if isinstance(found, CertificateDocument) and form == CertificateFormat.HTML:
        from speclaunch.app.output.bench_page.page import certificate_page

        return certificate_page(found) + "\n"
    from speclaunch.app.output import bench_markdown

    if isinstance(found, CertificateDocument):
        return bench_markdown.certificate_markdown(found)
    if isinstance(found, SingleDocument):
        return bench_markdown.single_markdown(found)
    return bench_markdown.difference_markdown(found)


def _show(found: BenchDocument, console: Console) -> None:
    if isinstance(found, CertificateDocument):
        terminal.show_certificate(console, found)
    elif isinstance(found, SingleDocument):
        terminal.show_single(console, found)
    else:
        terminal.show_difference(console, found)


def _require_writable(file: Path, value: str) -> None:
    if file.is_dir():
        raise InputError(Problem(f"--output-file {value}: {file} is a directory"))
    if file.exists() and not file.is_file():
        raise InputError(Problem(f"--output-file {value}: {file} is not a regular file"))
    if not file.parent.is_dir():
        raise InputError(Problem(f"--output-file {value}: no such directory: {file.parent}"))


def list_results(options: FormatOptions) -> None:
    """List the saved comparisons."""
    found = stored_benches()
    if options.output_format is OutputFormat.JSON:
        out().print_json(json.dumps(terminal.list_document(found)))
    elif found:
        terminal.show_benches(out(), found)
    else:
        err_lines().print(f"no comparison is saved in {directory()}", markup=False)


def show(options: BenchShowOptions) -> ExitCode:
    """Show a saved certificate, or the results of a single server. Raises InputError."""
    written = output(options.output_format, options.output_file)
    find = find_measured if options.fail_under is None else find_certificate
    found = find(options.name)
    written.write(found)
    return exit_code(found, options.fail_under)


def exit_code(found: CertificateDocument | SingleDocument, fail_under: float | None) -> ExitCode:
    """Return FAILED if the result is invalid or the speed-up may be below `fail_under`."""
    if not found.counts:
        return ExitCode.FAILED
    if isinstance(found, SingleDocument):
        return ExitCode.CLEAN
    least = min((cell.speed_up.low for cell in found.cells), default=None)
    return _above("the speed-up", None if found.caveats else least, fail_under)


def _above(what: str, least: float | None, fail_under: float | None) -> ExitCode:
    if fail_under is None or (least is not None and least >= fail_under):
        return ExitCode.CLEAN
    result = "is simulated" if least is None else f"may be {least:.2f}"
    err_lines().print(f"{what} {result}: not above --fail-under {fail_under:g}")
    return ExitCode.FAILED


def compare(options: BenchCompareOptions) -> ExitCode:
    """Compare two certificates. Raises InputError."""
    written = output(options.output_format, options.output_file)
    names = (options.before, options.after)
    sides = []
    for name in names:
        certificate = find_certificate(name)
        require_cells(name, certificate)
        sides.append(certificate)
    found = difference(sides[0], sides[1], names)
    if not found.cells:
        cells = [", ".join(map(per_cell, side.cells)) for side in sides]
        raise InputError(
            Problem(
                f"{names[0]} and {names[1]} have no cell in common: {cells[0]} and {cells[1]}",
                help="measure both with the same --workload, --concurrency and --context",
            )
        )
    written.write(found)
    least = min(cell.speed_up.low for cell in found.cells)
    made_up = any(side.caveats for side in sides)
    return _above("the ratio", None if made_up else least, options.fail_under)

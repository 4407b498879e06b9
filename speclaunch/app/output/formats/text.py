"""Text formats.

Full: findings in compiler style, and skipped checks, one line per cause. Concise:
`path:line:column: severity[CODE] message`, for editors and grep.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable

from speclaunch.app.output.findings import (
    COLORS,
    brief_causes,
    causes,
    left_out,
    minor_bugs,
    of_baseline,
    origins,
    render,
)
from speclaunch.app.output.formats.interface import Format, FormatInput, one_line
from speclaunch.app.output.styled import PlainPrinter, Printer, Styled, many
from speclaunch.checks import Severity
from speclaunch.engine import ascending


class TextFormat(Format):
    """Text with styles on a terminal, without styles elsewhere."""

    def text(self, told: FormatInput) -> str:
        """Return the text as written to a pipe."""
        written = io.StringIO()
        _show(PlainPrinter(written), told)
        return written.getvalue()

    def show(self, told: FormatInput, printer: Printer, write: Callable[[str], object]) -> None:
        """Print it line by line."""
        del write
        _show(printer, told)


def _show(printer: Printer, told: FormatInput) -> None:
    report = told.report
    several = told.names_engines
    for found in told.found:
        if found.finding.severity is Severity.INFO and not told.info:
            continue
        engines = found.engines if several else ()
        through = found.through
        printer.print(
            render(
                found.finding,
                engines=engines,
                through=through,
                name_option=True,
                full=told.info,
            )
        )
    lines = [*left_out(report), *of_baseline(report)]
    if not report.is_empty:
        known = (one for file in report.files for one in file.checkpoints)
        details = [*causes(report.files), *origins(known)]
        lines += details if told.info else brief_causes(report.files)
    if not told.info:
        lines += minor_bugs(told.findings, "--info")
    for line in lines:
        printer.print(Styled(line, "dim"))
    if not report.is_empty:
        printer.print(_summary(told))


def _summary(told: FormatInput) -> Styled:
    """Return `2 errors, 1 warning in 3 deployments (SGLang 0.5.23)`, each finding counted once."""
    report = told.report
    counts = Counter(one.severity for one in told.findings)
    parts = [
        f"{counts[one]} info" if one is Severity.INFO else many(counts[one], one)
        for one in Severity
        if counts[one]
    ]
    if counts[Severity.INFO] and not told.info:
        parts[-1] += " (--info)"
    engines = ", ".join(ascending(file.engine for file in report.files if not file.template))
    where = f"{many(report.deployments, 'deployment')} (SGLang {engines})"
    color = next((COLORS[one] for one in Severity if counts[one]), "bold green")
    return Styled(f"{', '.join(parts) or 'no findings'} in {where}", color)


class ConciseFormat(Format):
    """One line per finding in file order, and nothing else."""

    def text(self, told: FormatInput) -> str:
        """Return the lines."""
        return "".join(
            f"{one_line(f'{one.place}: {one.severity}[{one.code}] {told.message(one)}')}\n"
            for one in (found.finding for found in told.found)
        )

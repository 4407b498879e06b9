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

    def text(self, source: FormatInput) -> str:
        """Return the text as written to a pipe."""
        written = io.StringIO()
        _show(PlainPrinter(written), source)
        return written.getvalue()

    def show(self, source: FormatInput, printer: Printer, write: Callable[[str], object]) -> None:
        """Print it line by line."""
        del write
        _show(printer, source)


def _show(printer: Printer, source: FormatInput) -> None:
    report = source.report
    several = source.names_engines
    for found in source.found:
        if found.finding.severity is Severity.INFO and not source.info:
            continue
        engines = found.engines if several else ()
        through = found.through
        printer.print(
            render(
                found.finding,
                engines=engines,
                through=through,
                name_option=True,
                full=source.info,
            )
        )
    lines = [*left_out(report), *of_baseline(report)]
    if not report.is_empty:
        known = (checkpoint for file in report.files for checkpoint in file.checkpoints)
        details = [*causes(report.files), *origins(known)]
        lines += details if source.info else brief_causes(report.files)
    if not source.info:
        lines += minor_bugs(source.findings, "--info")
    for line in lines:
        printer.print(Styled(line, "dim"))
    if not report.is_empty:
        printer.print(_summary(source))


def _summary(source: FormatInput) -> Styled:
    """Return `2 errors, 1 warning in 3 deployments (SGLang 0.5.23)`, each finding counted once."""
    report = source.report
    counts = Counter(finding.severity for finding in source.findings)
    parts = [
        f"{counts[severity]} info"
        if severity is Severity.INFO
        else many(counts[severity], severity)
        for severity in Severity
        if counts[severity]
    ]
    if counts[Severity.INFO] and not source.info:
        parts[-1] += " (--info)"
    engines = ", ".join(ascending(file.engine for file in report.files if not file.template))
    where = f"{many(report.deployments, 'deployment')} (SGLang {engines})"
    color = next((COLORS[severity] for severity in Severity if counts[severity]), "bold green")
    return Styled(f"{', '.join(parts) or 'no findings'} in {where}", color)


class ConciseFormat(Format):
    """One line per finding, in file order."""

    def text(self, source: FormatInput) -> str:
        """Return the lines."""
        return "".join(
            f"{one_line(f'{x.place}: {x.severity}[{x.code}] {source.message(x)}')}\n"
            for x in (found.finding for found in source.found)
        )

"""One line a finding: `path:line:column: severity[CODE] message`, as editors and grep take it."""

from __future__ import annotations

from speclaunch.report.formats.interface import Format, FormatInput, one_line


class Concise(Format):
    """A line each, in the order of the files, and nothing else."""

    def text(self, told: FormatInput) -> str:
        """The lines."""
        return "".join(
            f"{one_line(f'{one.place}: {one.severity}[{one.code}] {told.message(one)}')}\n"
            for one in (found.finding for found in told.found)
        )


FORMAT = Concise()

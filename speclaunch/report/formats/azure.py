"""Azure Pipelines: a logging command a finding, which makes it an issue of the run.

https://learn.microsoft.com/azure/devops/pipelines/scripts/logging-commands: issues are errors and
warnings only, so what the engine changes by itself stays a line of the log.
"""

from __future__ import annotations

from speclaunch.report.formats.interface import Format, FormatInput, from_root, one_line, readable
from speclaunch.rules.finding import Finding, Severity

_MESSAGE = str.maketrans({"%": "%AZP25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%AZP25", "\r": "%0D", "\n": "%0A", ";": "%3B", "]": "%5D"})


class Azure(Format):
    """Errors first."""

    def text(self, told: FormatInput) -> str:
        """The commands, a line each."""
        return "".join(f"{_line(told, one)}\n" for one in told.findings)


def _line(told: FormatInput, finding: Finding) -> str:
    place = finding.place
    if finding.severity is Severity.INFO:
        # `##[` and `##vso[` begin a command wherever they stand in a line
        said = one_line(f"{place}: {finding.severity}[{finding.code}] {told.message(finding)}")
        return said.replace("##", "# #")
    properties = {
        "type": finding.severity.value,
        "sourcepath": from_root(place.path),
        "linenumber": str(place.line),
        "columnnumber": str(place.column),
        "code": finding.code,
    }
    said = "".join(f"{name}={_escaped(value)};" for name, value in properties.items())
    message = readable(told.full(finding)).translate(_MESSAGE)
    return f"##vso[task.logissue {said}]{message}"


def _escaped(text: str) -> str:
    return readable(text).translate(_PROPERTY)


FORMAT = Azure()

"""JUnit XML: a suite per file, a case per finding, as CI servers show tests.

A finding that fails the command is a failure. Other findings are passed cases with their text as
output. A file without findings is one passed case, and an unchecked file is one skipped case.
"""

from __future__ import annotations

from xml.etree import ElementTree as Xml

from speclaunch.app.output.formats.interface import Format, FormatInput, readable
from speclaunch.checks import FileReport, Finding
from speclaunch.core import lazy

_NOT_XML = lazy("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent."""


class JunitFormat(Format):
    """JUnit report with a suite for each file and engine version."""

    def text(self, source: FormatInput) -> str:
        """Return the document."""
        root = Xml.Element("testsuites", name="speclaunch")
        tests = failures = 0
        for file in source.report.files:
            suite = Xml.SubElement(root, "testsuite", name=_text(_name(source, file)))
            cases = [_case(suite, source, finding) for finding in file.findings] or [
                _file_case(suite, file)
            ]
            failed = sum(source.fails(finding) for finding in file.findings)
            suite.set("tests", str(len(cases)))
            suite.set("failures", str(failed))
            suite.set("errors", "0")
            suite.set("skipped", str(int(bool(file.skipped and not file.findings))))
            tests += len(cases)
            failures += failed
        root.set("tests", str(tests))
        root.set("failures", str(failures))
        root.set("errors", "0")
        Xml.indent(root)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, "unicode")}\n'


def _name(source: FormatInput, file: FileReport) -> str:
    return f"{file.path} (SGLang {file.engine})" if source.names_engines else file.path


def _case(suite: Xml.Element, source: FormatInput, finding: Finding) -> Xml.Element:
    place = finding.place
    case = Xml.SubElement(
        suite,
        "testcase",
        name=_text(f"{finding.code} {finding.rule} ({place.line}:{place.column})"),
        classname=_text(place.path),
        file=_text(place.path),
        line=str(place.line),
    )
    output = _text(f"{place}: {finding.severity}[{finding.code}] {source.full(finding)}")
    if source.fails(finding):
        failure = Xml.SubElement(case, "failure", message=_text(source.message(finding)))
        failure.set("type", finding.severity.value)
        failure.text = output
    else:
        Xml.SubElement(case, "system-out").text = output
    return case


def _file_case(suite: Xml.Element, file: FileReport) -> Xml.Element:
    case = Xml.SubElement(suite, "testcase", name="speclaunch lint", classname=_text(file.path))
    if file.skipped:
        Xml.SubElement(case, "skipped", message=_text(file.skipped))
    return case


def _text(text: str) -> str:
    """Return text for XML: uniform newlines, and U+FFFD for invalid characters."""
    clean = readable(text).replace("\r\n", "\n").replace("\r", "\n")
    return _NOT_XML.sub("\ufffd", clean)

"""Reports of `lint` for CI servers: SARIF 2.1.0 and JUnit XML.

SARIF output has only the properties that GitHub code scanning accepts and shows.
Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html.
Limits:
https://docs.github.com/code-security/code-scanning/troubleshooting-sarif-uploads/results-exceed-limit.
Columns count characters (`columnKind`), and paths start at the repository root (`%SRCROOT%`).
The fingerprint has our own name: GitHub's action computes `primaryLocationLineHash` from the file,
and warns about any other value. A rule is described by its page, as text and Markdown.

JUnit has a suite per file and a case per finding. A finding that fails the command is a failure.
Other findings are passed cases with their text as output. A file without findings is one passed
case, and an unchecked file is one skipped case.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Mapping, Sequence
from posixpath import normpath
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as Xml

from msgspec import Struct

from speclaunch import __version__
from speclaunch.app.output.formats import NO_FILES, Format, FormatInput, from_root, readable
from speclaunch.app.output.formats_services import fingerprints, fingerprints_by_message
from speclaunch.checks import FileReport, Finding, Page, Rule, Severity, page, page_url
from speclaunch.core import COMMAND_LINE, Place, docs_url, lazy

_LINK = lazy(r"\[([^\]]*)\]\((?!https?:)([^)\s]*)\)")
_MARKS = lazy(r"^#+ |^```\w*\n|`", re.MULTILINE)

MOST_DESCRIBED = 1024
"""Maximum length of a rule's description on GitHub, in characters."""


class RuleHelp(Struct, frozen=True):
    """Description of a rule for readers who have only the SARIF document.

    `severity`: severity of the rule, or of the notice if lint itself reports the finding.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    description: str
    """Summary and section `What it does` of the rule's page, up to `MOST_DESCRIBED` characters."""
    text: str
    markdown: str
    tags: tuple[str, ...]
    url: str | None = None


def rule_help(code: str, name: str, severity: Severity) -> RuleHelp:
    """Return the help of a rule or notice. Raises FileNotFoundError if it has no page."""
    from speclaunch.checks import by_code  # noqa: PLC0415  few formats need it

    found = page(code)
    rule = by_code(code)
    return RuleHelp(
        code,
        name,
        rule.severity if rule else severity,
        found.summary.replace("\n", " "),
        _described(found),
        _without_markdown(f"{found.summary}.\n\n{found.body}").strip(),
        _alone(f"{found.summary}.\n\n{found.body}").strip(),
        ("sglang", _family(rule)),
        page_url(code),
    )


def _family(rule: Rule | None) -> str:
    if rule is None:
        return "lint"
    return "known-bug" if rule.is_advisory else rule.family


def _described(found: Page) -> str:
    _, _, below = found.body.partition("## What it does\n")
    what = _without_markdown(below.partition("\n## ")[0])
    text = " ".join(f"{found.summary}. {what}".split())
    return text if len(text) <= MOST_DESCRIBED else f"{text[: MOST_DESCRIBED - 1]}…"


def _alone(markdown: str) -> str:
    """Return Markdown with absolute links to other pages; without a docs URL, links become text."""

    def link(found: re.Match[str]) -> str:
        base, (text, target) = docs_url(), found.groups()
        where, _, part = target.partition("#")
        if base is None or not where.endswith(".md"):
            return text
        way = normpath(f"rules/{where}").removesuffix(".md").removesuffix("README")
        return f"[{text}]({base}{way.rstrip('/')}/{'#' + part if part else ''})"

    return _LINK.sub(link, markdown)


def _without_markdown(markdown: str) -> str:
    return _MARKS.sub("", _LINK.sub(lambda found: found[1], markdown))


MOST_RESULTS = 25_000
MOST_LOCATIONS = 1_000
MOST_TAGS = 20
MOST_BYTES = 10_000_000
"""Size limit of a gzip-compressed SARIF document, in bytes."""
FINGERPRINT = "speclaunchFinding/v2"
BY_MESSAGE = "speclaunchFinding/v1"
"""Name of the message-based fingerprint, which earlier releases of speclaunch used."""
ROOT = "%SRCROOT%"
SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEMS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}


class SarifFormat(Format):
    """SARIF document with one run. Findings go to a service, so they do not fail the step."""

    exits_zero = True

    def text(self, source: FormatInput) -> str:
        """Return the document, within GitHub's size limit."""
        findings = source.findings
        most = min(len(findings), MOST_RESULTS)
        while True:
            text = _document(source, findings, most)
            size = len(text.encode())
            if size > MOST_BYTES:
                size = len(gzip.compress(text.encode(), mtime=0))
            if size <= MOST_BYTES or not most:
                return text
            most = min(most - 1, most * MOST_BYTES // size)


def _document(source: FormatInput, findings: Sequence[Finding], most: int) -> str:
    included = findings[:most]
    rules = {
        finding.code: rule_help(finding.code, finding.rule, finding.severity)
        for finding in included
    }
    index = {code: at for at, code in enumerate(sorted(rules))}
    marks = zip(fingerprints(findings), fingerprints_by_message(findings), strict=True)
    results = [  # fingerprints of all findings, so they do not depend on the cut
        _result(source, finding, {FINGERPRINT: mark, BY_MESSAGE: old}, index[finding.code])
        for finding, (mark, old) in zip(included, marks, strict=False)
    ]
    driver: dict[str, Any] = {
        "name": "speclaunch",
        "version": __version__,
        "semanticVersion": __version__,
        "rules": [_rule(rules[code]) for code in index],
    }
    site = docs_url()
    if site is not None:
        driver["informationUri"] = site
    run = {
        "tool": {"driver": driver},
        "invocations": [_invocation(source, len(findings) - most)],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The root of the repository."}}},
        "results": results,
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return readable(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"


def _invocation(source: FormatInput, left_out: int) -> dict[str, Any]:
    invocation: dict[str, Any] = {"executionSuccessful": not source.report.unreadable}
    if left_out:
        text = (
            f"{left_out} of {len(source.findings)} findings are omitted: GitHub accepts at most "
            f"{MOST_RESULTS} results in {MOST_BYTES} bytes of gzip. Errors come first."
        )
        invocation["toolExecutionNotifications"] = [{"level": "warning", "message": {"text": text}}]
    return invocation


def _rule(rule: RuleHelp) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": f"{rule.summary}."},
        "fullDescription": {"text": rule.description},
        "help": {"text": rule.text, "markdown": rule.markdown},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {
            "tags": list(rule.tags)[:MOST_TAGS],
            "problem.severity": _PROBLEMS[rule.severity],
        },
    }
    if rule.url is not None:
        described["helpUri"] = rule.url
    return described


def _result(
    source: FormatInput, finding: Finding, marks: Mapping[str, str], rule_index: int
) -> dict[str, Any]:
    others = [_location(place) for place in finding.others[:MOST_LOCATIONS]]
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": _plain(source.full(finding))},
        "locations": [_location(finding.place)],
        "partialFingerprints": marks,
    }
    if others:
        result["relatedLocations"] = [
            {"id": at, **location, "message": {"text": "also here"}}
            for at, location in enumerate(others, 1)
        ]
    fix = _fix(source, finding)
    if fix is not None:
        result["fixes"] = [fix]
    return result


def _plain(text: str) -> str:
    """Escape brackets that SARIF would read as a link `[text](target)` (2.1.0, section 3.11.6)."""
    return text.replace("[", "\\[").replace("]", "\\]") if "](" in text else text


def _location(place: Place) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": place.line, "startColumn": place.column}
    region["endColumn"] = place.column + max(1, place.length)
    physical: dict[str, Any] = {"artifactLocation": artifact(place.path)}
    if place.path != COMMAND_LINE:
        physical["region"] = region
    return {"physicalLocation": physical}


def artifact(path: str) -> dict[str, Any]:
    """Return a file's `artifactLocation`; in the repository, its URI is relative to the root."""
    shown = from_root(path)
    if shown in NO_FILES:
        return {"uri": quote(shown)}
    if shown.startswith("/"):
        return {"uri": f"file://{_quoted(shown)}"}
    return {"uri": _quoted(shown), "uriBaseId": ROOT}


def _quoted(path: str) -> str:
    try:
        return quote(os.fsencode(path))
    except UnicodeEncodeError:  # not the name of a file
        return quote(readable(path))


def _fix(source: FormatInput, finding: Finding) -> dict[str, Any] | None:
    made = source.edits_of(finding)
    if made is None or finding.fix is None:
        return None
    replacements = [
        {
            "deletedRegion": {
                "startLine": edit.line,
                "startColumn": edit.column,
                "endLine": edit.end_line,
                "endColumn": edit.end_column,
            },
            "insertedContent": {"text": edit.new},
        }
        for edit in made.edits
    ]
    change = {"artifactLocation": artifact(made.path), "replacements": replacements}
    return {"description": {"text": _plain(finding.fix.text)}, "artifactChanges": [change]}


_NOT_XML = lazy("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot represent."""


class JunitFormat(Format):
    """JUnit report with a suite for each file and engine version."""

    def text(self, source: FormatInput) -> str:
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
    clean = readable(text).replace("\r\n", "\n").replace("\r", "\n")
    return _NOT_XML.sub("\ufffd", clean)

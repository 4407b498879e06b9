"""Reports that are made up, and what services do with the text that we give them."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import strategies as st

from speclaunch.checks.lint.report import FileReport, Report
from speclaunch.checks.rules.interface import Finding, Fix, Severity, SkippedRule
from speclaunch.core.errors import Place
from speclaunch.engine.facts.facts import UnknownFact
from tests.support import TESTS

NASTY = [
    "\n::error::obeyed\n",
    "##vso[task.complete result=Failed;]",
    "]]></failure><x>",
    "%0A::set-env name=x::y",
    "a,b:c;d]e%25f%AZP25",
    "👩‍👩‍👧 漢字 \u202e desrever",
    "\x00\x01\x1b[31m\x7f\x85\u2028\ufffe",
    "\r\n\t",
    "[link](http://example.invalid) ![i](x) {0} {{",
    "<script>alert(1)</script> & \"quoted\" 'too' `code` |",
    "\udcff\ud800",
    "long " * 60,
]
TEXT = st.one_of(
    st.sampled_from(NASTY), st.text(max_size=30), st.text("ab:,;%[]\n\r<&", max_size=12)
)
NAMES = st.one_of(
    st.sampled_from(
        [
            "a.sh",
            "a b/ü.yaml",
            "50%/x:1,y.sh",
            "../out.sh",
            "/abs/ö.sh",
            "<stdin>",
            "n\nl.sh",
            "\udcff",
        ]
    ),
    st.text(st.characters(blacklist_characters="\0"), min_size=1, max_size=12),
)
CODES = st.sampled_from(["SPL000", "SPL091", "SPL211", "SPL301", "SPL903", "SPL801"])
PLACES = st.builds(
    Place,
    NAMES,
    st.integers(1, 10**6),
    st.integers(1, 5000),
    st.integers(1, 400),
    st.none(),
    st.booleans(),
)
FINDINGS = st.builds(
    Finding,
    CODES,
    st.sampled_from(["ngram-dp-attention", "x"]),
    st.sampled_from(list(Severity)),
    TEXT,
    TEXT,
    st.one_of(st.none(), st.builds(Fix, TEXT)),
    PLACES,
    st.sampled_from(["0.5.9", "0.5.23"]),
    st.lists(PLACES, max_size=2).map(tuple),
)
FILES = st.builds(
    FileReport,
    NAMES,
    st.sampled_from(["0.5.9", "0.5.23"]),
    st.lists(FINDINGS, max_size=4).map(tuple),
    st.lists(st.builds(SkippedRule, CODES, st.just("x"), TEXT), max_size=2).map(tuple),
    st.just(()),
    st.lists(st.builds(UnknownFact, TEXT, TEXT, st.one_of(st.none(), TEXT)), max_size=2).map(tuple),
    st.integers(0, 3),
    st.one_of(st.none(), TEXT),
)
REPORTS = st.builds(
    Report, st.lists(FILES, max_size=4).map(tuple), st.lists(NAMES, max_size=2).map(tuple)
)


def finding(
    path: Path | str,
    line: int,
    column: int = 1,
    length: int = 1,
    severity: Severity = Severity.ERROR,
    *,
    code: str = "SPL211",
    message: str = "it fails",
    fix: Fix | None = None,
    engine: str = "0.5.23",
    others: tuple[Place, ...] = (),
) -> Finding:
    place = Place(str(path), line, column, length)
    return Finding(code, "a-rule", severity, message, "because", fix, place, engine, others)


def report(*findings: Finding) -> Report:
    """One file report for each path, in their order."""
    by_path: dict[str, list[Finding]] = {}
    for one in findings:
        by_path.setdefault(one.place.path, []).append(one)
    return Report(
        tuple(
            FileReport(path, ones[0].engine, tuple(ones), deployments=1)
            for path, ones in by_path.items()
        )
    )


GITHUB = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)\Z", re.S)
AZURE = re.compile(r"##vso\[task\.logissue ([^\]]*)\](.*)\Z", re.S)


def _unescaped(text: str, table: dict[str, str]) -> str:
    for code, plain in table.items():
        text = text.replace(code, plain)
    return text


_GITHUB_MESSAGE = {"%0D": "\r", "%0A": "\n", "%25": "%"}
_GITHUB_PROPERTY = {"%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ",", "%25": "%"}
_AZURE = {"%3B": ";", "%0D": "\r", "%0A": "\n", "%5D": "]", "%AZP25": "%"}


def github_commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Commands as GitHub's runner reads them: level, properties, message."""
    found = []
    for line in text.split("\n")[:-1]:
        matched = GITHUB.match(line)
        assert matched is not None and "\r" not in line, line
        level, properties, message = matched.groups()
        pairs = (one.partition("=") for one in properties.split(","))
        read = {name: _unescaped(value, _GITHUB_PROPERTY) for name, _, value in pairs}
        found.append((level, read, _unescaped(message, _GITHUB_MESSAGE)))
    return found


def azure_commands(text: str) -> list[tuple[dict[str, str], str]]:
    """Commands as the agent of Azure reads them; other lines must be none."""
    found = []
    for line in text.split("\n")[:-1]:
        matched = AZURE.match(line)
        if matched is None:
            assert "##" not in line, line
            continue
        pairs = (one.partition("=") for one in matched[1].rstrip(";").split(";"))
        read = {name: _unescaped(value, _AZURE) for name, _, value in pairs}
        found.append(
            (
                read,
                _unescaped(
                    matched[2], {k: v for k, v in _AZURE.items() if k not in ("%3B", "%5D")}
                ),
            )
        )
    return found


SCHEMAS = TESTS / "app" / "output" / "formats" / "schemas"
"""Schemas of others, with their source and licence."""


@functools.cache
def _schema(name: str) -> Any:
    schema = json.loads((SCHEMAS / name).read_text())
    return jsonschema.validators.validator_for(schema)(
        schema, format_checker=jsonschema.FormatChecker()
    )


def official(name: str, document: Any) -> None:
    """Validate with a schema of others."""
    _schema(name).validate(document)

"""The formats of results."""

from __future__ import annotations

from enum import StrEnum


class OutputFormat(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"


class LintFormat(StrEnum):
    """How `lint` writes what it found: a module each in report/formats/."""

    TEXT = "text"
    CONCISE = "concise"
    JSON = "json"
    GITHUB = "github"
    GITLAB = "gitlab"
    SARIF = "sarif"
    JUNIT = "junit"
    RDJSON = "rdjson"
    AZURE = "azure"


class CertificateFormat(StrEnum):
    """How `bench` writes a certificate."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


class DifferenceFormat(StrEnum):
    """How `bench compare` writes the difference of two."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"

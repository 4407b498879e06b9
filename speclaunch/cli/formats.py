"""The formats of results."""

from __future__ import annotations

from enum import StrEnum


class OutputFormat(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"

"""The JSON of `lint`, as models: docs/reference/lint.schema.json is made of them.

The program itself writes plain dictionaries, because pydantic takes longer to import than a lint.
A key is never removed or given another meaning within version 1; new ones may be added.

`python -m tests.app.output.formats.lint_schema` writes the schema.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FILE = Path(__file__).parents[4] / "docs" / "reference" / "lint.schema.json"

Count = Annotated[int, Field(ge=0)]
Position = Annotated[int, Field(ge=1)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PlaceRecord(_Record):
    """A place in a file; lines and columns count characters from 1."""

    path: str
    line: Position
    column: Position


class FindingRecord(_Record):
    """A finding. `applicability`: the option of `lint` that applies its fix, if there is one.
    `others`: where the other arguments stand that it is about. `url`: the page of its rule, where
    the documentation is published."""

    code: Annotated[str, Field(pattern=r"^(SPL\d{3}|SPA-\d{4}-\d{4})$")]
    rule: str
    severity: Literal["error", "warning", "info"]
    message: str
    why: str
    fix: str | None
    applicability: Literal["safe", "unsafe"] | None
    path: str
    line: Position | None
    column: Position | None
    source: str
    url: Annotated[str, Field(pattern=r"^https?://")] | None
    others: list[PlaceRecord]


class SkippedRuleRecord(_Record):
    """A rule that had no verdict."""

    code: str
    rule: str
    reason: str


class CheckpointRecord(_Record):
    """A checkpoint with known facts, and their source."""

    name: str
    provenance: str | None
    where: str | None
    read: str | None
    revision: str | None
    doubt: str | None
    assumed: str | None
    unread: list[str]


class UnknownRecord(_Record):
    """A missing fact, the reason, and the remedy."""

    what: str
    why: str
    fix: str | None


class FileRecord(_Record):
    """A file at an engine version. `skipped`: reason if it was not checked for that version; `note`:
    reason if it was checked for another version than it names."""

    path: str
    engine: str
    findings: list[FindingRecord]
    unjudged: list[SkippedRuleRecord]
    checkpoints: list[CheckpointRecord]
    unknown: list[UnknownRecord]
    skipped: str | None
    note: str | None


class KnownRecord(_Record):
    """A finding of the baseline; its path counts from the baseline's directory."""

    code: str
    path: str
    message: str


class BaselineRecord(_Record):
    """Number of findings that the baseline hides, and its entries that no longer occur."""

    known: Count
    gone: list[KnownRecord]


class SummaryRecord(_Record):
    """Totals over all files and versions."""

    deployments: Count
    errors: Count
    warnings: Count
    infos: Count


class LintDocument(_Record):
    """Output of `speclaunch lint --output-format json`."""

    version: Literal[1]
    files: list[FileRecord]
    not_read: list[str]
    baseline: BaselineRecord
    summary: SummaryRecord


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12). Keys that are not in it may be added within version 1."""
    return LintDocument.model_json_schema(mode="serialization")


def _open(part: Any) -> Any:
    if isinstance(part, dict):
        return {k: _open(v) for k, v in part.items() if k != "additionalProperties"}
    return [_open(one) for one in part] if isinstance(part, list) else part


def published() -> dict[str, Any]:
    """The schema that users validate with: it accepts keys of later releases."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **_open(schema())}


if __name__ == "__main__":
    FILE.write_text(json.dumps(published(), indent=1) + "\n", encoding="utf-8")

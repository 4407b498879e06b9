"""Writes docs/reference/watch.schema.json: `python -m tests.measure.watch.write_schema`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from speclaunch.measure.watch_history import WatchDocument
from tests.support.schemas import schema_of

SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "watch.schema.json"


def schema() -> dict[str, Any]:
    """The schema of the records."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "speclaunch watch"}
    return head | schema_of(WatchDocument)


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")

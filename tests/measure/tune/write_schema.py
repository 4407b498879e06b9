"""Writes docs/reference/tune.schema.json: `python -m tests.measure.tune.write_schema`."""

from __future__ import annotations

import json

from tests.measure.tune.test_report import DOCS, schema

if __name__ == "__main__":
    (DOCS / "tune.schema.json").write_text(json.dumps(schema(), indent=1) + "\n")

"""Writes docs/reference/plan.schema.json: `python -m tests.app.output.plan.write_schema`."""

from __future__ import annotations

import json

from tests.app.output.plan.test_document import DOCS, schema

if __name__ == "__main__":
    (DOCS / "plan.schema.json").write_text(json.dumps(schema(), indent=1) + "\n")

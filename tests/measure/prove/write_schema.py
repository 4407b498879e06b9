"""Writes docs/reference/prove.schema.json: `python -m tests.measure.prove.write_schema`."""

from __future__ import annotations

import json

from tests.measure.prove.test_document import DOCS, schema

if __name__ == "__main__":
    (DOCS / "prove.schema.json").write_text(json.dumps(schema(), indent=1) + "\n")

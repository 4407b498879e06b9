"""Writes docs/reference/contract.schema.json: `python -m tests.measure.contract.write_schema`."""

from __future__ import annotations

import json

from tests.measure.contract.test_document import DOCS, schema

if __name__ == "__main__":
    (DOCS / "contract.schema.json").write_text(json.dumps(schema(), indent=1) + "\n")

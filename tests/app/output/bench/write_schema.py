"""Writes docs/reference/bench.schema.json: `python -m tests.app.output.bench.write_schema`."""

from __future__ import annotations

import json

from tests.app.output.bench.test_schema import SCHEMA, schema

if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")

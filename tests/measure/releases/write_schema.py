"""Writes the schemas of bisect and upgrade: `python -m tests.measure.releases.write_schema`."""

from __future__ import annotations

import json

from tests.measure.releases.test_documents import DOCS, SCHEMAS

if __name__ == "__main__":
    for name, made in SCHEMAS.items():
        (DOCS / f"{name}.schema.json").write_text(json.dumps(made, indent=1) + "\n")

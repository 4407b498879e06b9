"""JSON schemas of documents, the same with all supported releases of msgspec."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

import msgspec.json


def schema_of(document: type) -> dict[str, Any]:
    """Return a document's schema. Descriptions are not indented (msgspec 0.22 indents them)."""
    found: dict[str, Any] = _plain(msgspec.json.schema(document))
    return found


def _plain(part: Any) -> Any:
    if isinstance(part, list):
        return [_plain(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        key: cleandoc(held) if key == "description" and isinstance(held, str) else _plain(held)
        for key, held in part.items()
    }

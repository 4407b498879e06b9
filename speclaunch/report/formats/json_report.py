"""The whole report as JSON, file by file: a contract, docs/reference/lint.schema.json."""

from __future__ import annotations

import json

from speclaunch.report.findings_json import report_json
from speclaunch.report.formats.interface import Format, FormatInput, readable


class Json(Format):
    """Nothing is left out or put together: each file and version has all that is known of it."""

    def text(self, told: FormatInput) -> str:
        """The document."""
        document = report_json(told.report)
        return readable(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


FORMAT = Json()

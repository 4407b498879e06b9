"""Which messages were reworded since baselines of format 1, and what the old ones were about.

A baseline of format 1 knows a finding by its message. `data/texts_1.json` has the messages of the
release that wrote such baselines, by rule: texts with `{}` for what differs each time, and the
arguments that each is about (null: known only when the rule runs). A finding whose message fits
none of its rule's texts was reworded since; it is then matched by its arguments.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from speclaunch.rules.finding import Finding

_TEXTS = Path(__file__).parent / "data" / "texts_1.json"


def is_reworded(finding: Finding) -> bool:
    """True if baselines of format 1 have another message for this finding."""
    texts = _texts().get(finding.code)
    return texts is not None and not any(one.fullmatch(finding.message) for one, _ in texts)


def is_about_the_same(code: str, message: str, finding: Finding) -> bool:
    """True if a message of format 1 is about the arguments of a reworded finding."""
    for pattern, arguments in _texts().get(code, ()):
        if pattern.fullmatch(message):
            return arguments is None or set(arguments) == set(finding.arguments)
    return False


@cache
def _texts() -> dict[str, list[tuple[re.Pattern[str], list[str] | None]]]:
    said: dict[str, list[list[Any]]] = json.loads(_TEXTS.read_bytes())
    return {
        code: [(_pattern(text), arguments) for text, arguments in texts]
        for code, texts in said.items()
    }


def _pattern(text: str) -> re.Pattern[str]:
    parts = (re.escape(part) for part in text.split("{}"))
    return re.compile(".*?".join(parts), re.DOTALL)

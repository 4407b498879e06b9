"""Hides secret values in text that is shown: lines of somebody's script, messages."""

from __future__ import annotations

import re

_NAME = r"[\w.-]*(?:api[_-]key|password|passwd|secret|token|credentials?)"
_ARGUMENT = re.compile(
    rf"(?P<name>(?:--|\b){_NAME}(?:[\"']?\s*[:=]\s*|\s+|[\"'],\s*))(?P<value>\"[^\"]*\"|'[^']*'|\S+)",
    re.I,
)
_HARMLESS = re.compile(r"(?:--|\$|[\"']?\$\{|\d+[,\s]|none\b|null\b|true\b|false\b)", re.I)
_NUMBERS = re.compile(r"tokens?$", re.I)
"""`--speculative-num-draft-tokens 4` is no secret."""


def masked(line: str) -> str:
    """A line with `***` for the values of keys, tokens and passwords.

    What only names a variable (`$API_KEY`), a switch or a number is left as it is.
    """
    return _ARGUMENT.sub(_mask, line)


def _mask(found: re.Match[str]) -> str:
    value = found["value"]
    if _HARMLESS.match(value) or value.strip("\"',").isdigit():
        return found[0]
    return f"{found['name']}***"

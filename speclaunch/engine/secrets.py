"""Hides secret values in text that is shown: lines of somebody's script, messages."""

from __future__ import annotations

import re

from speclaunch.patterns import lazy

_NAME = (
    r"[\w.-]*(?:api[_-]key|password|passwd|secret|token|credentials?"
    r"|(?-i:(?:(?:TOKEN|SECRET|PASSWORD|CREDENTIAL)S?|(?<![A-Z])KEYS?)(?:_[A-Z0-9_]+)?))"
)
_ARGUMENT = lazy(
    rf"(?P<name>(?:--|\b){_NAME}(?:[\"']?\s*[:=]\s*|\s+|[\"'],\s*))(?P<value>\"[^\"]*\"|'[^']*'|\S+)",
    re.I,
)
_HARMLESS = lazy(r"(?:--|\$|[\"']?\$\{|\d+[,\s]|none\b|null\b|true\b|false\b)", re.I)
_NUMBERS = lazy(r"tokens?$", re.I)
"""`--speculative-num-draft-tokens 4` is no secret."""


def masked(line: str) -> str:
    """A line with `***` for the values of keys, tokens and passwords.

    What only names a variable (`$API_KEY`), a switch or a number is left as it is.
    """
    return _ARGUMENT.sub(_mask, line)


def literals(line: str) -> list[str]:
    """The keys, tokens and passwords whose values a line holds; no stand-ins for one."""
    values = (
        found["value"].strip("\"',;")
        for found in _ARGUMENT.finditer(line)
        if _mask(found) != found[0]
    )
    return [value for value in values if is_literal_secret(value)]


def _mask(found: re.Match[str]) -> str:
    value = found["value"]
    if _HARMLESS.match(value) or value.strip("\"',").isdigit():
        return found[0]
    return f"{found['name']}***"


_PLACEHOLDER = lazy(
    r"your|example|placeholder|change[-_ ]?me|dummy|fake|redacted|insert|replace|todo|fixme"
    r"|-here\b|_here\b|\bmy[-_](?:api[-_]?)?(?:key|token|secret|password)\b"
    r"|[<>{}()\[\]$`…]|\.\.\.|\*{2}|x{3}|0{6}|(?:123456|abcdef|abc-?123)",
    re.I,
)
_NO_SECRET = lazy(
    r"(?:none|null|nil|true|false|yes|no|on|off|auto|empty|test|token|secret|password|key|[\d.,]*)\Z"
    r"|[~.]{0,2}/|\w+://[^@]*\Z",
    re.I,
)
_LEAST = 6
"""A text shorter than that is no credential that anybody hands out."""


def is_literal_secret(text: str) -> bool:
    """Whether the value of a key, token or password is one, and no stand-in for it.

    Stand-ins are variables, `<your key>`, `hf_xxx`, `changeme`, `EMPTY`; a path or an address says
    where the secret is.
    """
    text = text.strip()
    if len(text) < _LEAST or _NO_SECRET.match(text):
        return False
    return _PLACEHOLDER.search(text) is None

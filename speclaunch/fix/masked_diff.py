"""A diff for the terminal: it shows no secret, and applies as a patch wherever that is possible."""

from __future__ import annotations

from collections.abc import Collection

from speclaunch.fix.edits import diff
from speclaunch.record import record
from speclaunch.redaction import is_literal_secret, literals

_CONTEXT = 3


@record
class ShownDiff:
    """A diff as it may be shown.

    `hidden` is the number of values that `***` stands for: above 0 it is no patch any more.
    `context` is the number of unchanged lines around a change.
    """

    text: str
    hidden: int
    context: int


def shown_diff(before: str, after: str, name: str, hidden: Collection[str]) -> ShownDiff:
    """The diff without the secrets: those of `hidden`, and what looks like one in its line.

    Where only lines around the changes hold one, there are fewer of them.
    """
    known = {value for value in hidden if is_literal_secret(value)}
    for context in range(_CONTEXT, -1, -1):
        text = diff(before, after, name, context)
        if not _found(text, known):
            return ShownDiff(text, 0, context)
    text = diff(before, after, name, _CONTEXT)
    found = _found(text, known)
    for value in sorted(found, key=len, reverse=True):
        text = text.replace(value, "***")
    return ShownDiff(text, len(found), _CONTEXT)


def _found(text: str, known: Collection[str]) -> set[str]:
    return {value for value in known if value in text} | {
        value for line in text.splitlines() for value in literals(line)
    }

"""Redact secrets in speclaunch's own process title."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from speclaunch.core import printable


def hide_secrets(verb: str, words: Sequence[str]) -> str | None:
    """Redact secrets in the command line shown by `ps`.

    Returns the new title, or None if there are no secrets.
    """
    from speclaunch.deployments import shown_overrides

    shown = shown_overrides(words)
    if shown == list(words):
        return None
    import setproctitle

    title = printable(shlex.join(["speclaunch", *([verb] if verb else []), *shown]))
    setproctitle.setproctitle(title)
    return title

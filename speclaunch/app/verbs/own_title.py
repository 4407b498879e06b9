"""How speclaunch shows its own command line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from speclaunch.core import printable


def hide_secrets(verb: str, words: Sequence[str]) -> str | None:
    """`ps` shows our own command line: blot out what is secret in it.

    Returns what it shows then; None where nothing is secret.
    """
    from speclaunch.deployments import shown_overrides

    shown = shown_overrides(words)
    if shown == list(words):
        return None
    import setproctitle

    title = printable(shlex.join(["speclaunch", *([verb] if verb else []), *shown]))
    setproctitle.setproctitle(title)
    return title

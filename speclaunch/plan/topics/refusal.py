"""A row of what the engine refuses: when, in which releases, and in which words."""

from __future__ import annotations

import re
from collections.abc import Callable

from speclaunch.plan.settings import Settings
from speclaunch.record import record

_ANY = "{}"
_SOMETHING = ".{1,200}?"


@record
class Refusal:
    """Something that the engine refuses at its start.

    `said` is the engine's own message, `source` the file and line of releases that have it.
    """

    said: str
    source: str
    when: Callable[[Settings], bool]
    """Whether the settings are such, whoever speculates. Raises UnknownValueError."""
    versions: str = ""
    algorithm: str | None = None
    """The one that it is about; None: any, also none."""

    def applies(self, settings: Settings) -> bool:
        """Whether this release refuses these settings. Raises UnknownValueError."""
        own = self.algorithm is None or self.algorithm == settings.algorithm
        return own and self.holds(settings)

    def holds(self, settings: Settings) -> bool:
        """The same, where the algorithm is known to be its own. Raises UnknownValueError."""
        return settings.in_versions(self.versions) and self.when(settings)


def beginning(said: str) -> str:
    """The pattern of messages that begin so; `{}` stands for what differs from start to start.

    Releases end the same sentence with a full stop and without.
    """
    parts = said.removesuffix(".").split(_ANY)
    return _SOMETHING.join(re.escape(part) for part in parts)

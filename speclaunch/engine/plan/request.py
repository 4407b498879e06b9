"""What a deployment asks of one engine version, wherever it was written.

`deployments/sources/requests.py` makes a request of a recipe or of a found command.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from speclaunch.core import Place, Problem
from speclaunch.engine.releases.catalogue import Catalogue

if TYPE_CHECKING:
    from speclaunch.engine.plan.surroundings import Surroundings

ENGINE_VARIABLES = ("SGLANG_", "SGL_")
"""How the names of the engine's own environment variables begin."""


class RequestOrigin(StrEnum):
    """Where a deployment was written."""

    RECIPE = "recipe"
    COMMAND = "command"
    """A server command in a script, a compose file, a manifest, a document."""
    SLIME = "slime"


class RequestedValue(Struct, frozen=True):
    """One server argument or environment variable as it was asked for.

    `name` is the engine's current name of it (`canonical`), `written` the user's. `value` is what
    the engine stores. When `known` is False the value stands in a variable that cannot be
    evaluated, and `value` is its text. `literal` is the part that the file itself holds, where
    the rest came out of the environment; None where that is all of it.
    """

    name: str
    value: Any
    written: str
    place: Place
    known: bool = True
    literal: str | None = None


class ArgvToken(Struct, frozen=True):
    """One token of a command line. `known` is False if its text is not what the engine gets."""

    text: str
    place: Place
    known: bool


class Request(Struct, frozen=True):
    """The arguments and variables of one deployment, for one engine version.

    `problems` are what the version's parser refuses, `remarks` what it accepts and does not do.
    `extras` are slime's own options.
    """

    name: str
    origin: RequestOrigin
    catalogue: Catalogue
    place: Place
    given: Mapping[str, RequestedValue] = field(default_factory=dict)
    env: Mapping[str, RequestedValue] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()
    extras: Mapping[str, RequestedValue] = field(default_factory=dict)
    overridden: tuple[RequestedValue, ...] = ()
    """Arguments that are given again later on: the later one counts."""
    ignored: tuple[RequestedValue, ...] = ()
    """Arguments that slime does not pass on: it says them itself."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Arguments for which something was written that the parser did not understand, by the
    engine's current name, with the reason: their values are unknown, and not the defaults."""
    unseen: str | None = None
    """Why more arguments may be given, in a file that was not read."""
    argv: tuple[ArgvToken, ...] = ()
    """The arguments of that version's parser."""
    surroundings: Surroundings | None = None
    """Which part of which deployment it is, where the file says that."""
    serves_http: bool = True
    """False if the engine's own HTTP server does not run, or is not known to."""

    @property
    def version(self) -> str:
        """The engine version."""
        return self.catalogue.version

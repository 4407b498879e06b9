"""The request of a deployment to one engine version, from any kind of file.

`deployments/sources/requests.py` makes a request from a recipe or a command found in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from speclaunch.core import Place, Problem
from speclaunch.engine.releases.catalogue import Catalogue

if TYPE_CHECKING:
    from speclaunch.engine.plan.server_context import ServerContext

ENGINE_VARIABLES = ("SGLANG_", "SGL_")
"""Prefixes of the engine's own environment variables."""


class RequestOrigin(StrEnum):
    """The kind of source that a deployment was written in."""

    RECIPE = "recipe"
    COMMAND = "command"
    """A server command in a script, Compose file, manifest or document."""
    SLIME = "slime"


class RequestedValue(Struct, frozen=True):
    """A requested server argument or environment variable.

    `name` is the engine's current name (`canonical`), `written` the user's. `value` is what the
    engine stores. If `known` is False, the value is in a variable that cannot be evaluated, and
    `value` is its text. `literal` is the part in the file itself if the rest comes from the
    environment; None if all of it is in the file.
    """

    name: str
    value: Any
    written: str
    place: Place
    known: bool = True
    literal: str | None = None


class ArgvToken(Struct, frozen=True):
    """A token of a command line. `known` is False if its text is not what the engine gets."""

    text: str
    place: Place
    known: bool


class Request(Struct, frozen=True):
    """The arguments and variables of one deployment, for one engine version.

    `problems` are refused by the version's parser, `remarks` accepted without effect. `extras` are
    slime's own options.
    """

    name: str
    origin: RequestOrigin
    catalogue: Catalogue
    place: Place
    values: Mapping[str, RequestedValue] = field(default_factory=dict)
    env: Mapping[str, RequestedValue] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()
    extras: Mapping[str, RequestedValue] = field(default_factory=dict)
    overridden: tuple[RequestedValue, ...] = ()
    """Arguments that are repeated later; the later value counts."""
    ignored: tuple[RequestedValue, ...] = ()
    """Arguments that slime does not pass on, because it sets them itself."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Arguments with text that the parser did not recognize, by the engine's current name, with the
    reason: their values are unknown, not the defaults."""
    unseen: str | None = None
    """Reason why an unread file may have more arguments; None if there is no such file."""
    argv: tuple[ArgvToken, ...] = ()
    """Command-line arguments for that version's parser."""
    server_context: ServerContext | None = None
    """The server context, if the file states it."""
    lock_differences: tuple[Problem, ...] = ()
    """Differences from the recipe's lock."""
    serves_http: bool = True
    """False if the engine's own HTTP server does not run, or may not run."""

    @property
    def version(self) -> str:
        """The engine version."""
        return self.catalogue.version

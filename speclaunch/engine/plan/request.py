"""A deployment's request to one engine version, from any kind of file.

`deployments/sources/requests.py` builds a request from a recipe or from a command in a file.
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
    """The kind of source that a deployment comes from."""

    RECIPE = "recipe"
    COMMAND = "command"
    """A server command in a script, Compose file, manifest or document."""
    SLIME = "slime"


class RequestedValue(Struct, frozen=True):
    """A requested server argument or environment variable.

    - `name` is the engine's current name (`canonical`), `written` the user's.
    - `value` is what the engine stores. If `known` is False, it is the text of a shell variable
      that cannot be evaluated.
    - `literal` is the part that the file itself contains, if the rest comes from the environment;
      None if the file contains everything.
    """

    name: str
    value: Any
    written: str
    place: Place
    known: bool = True
    literal: str | None = None


class ArgvToken(Struct, frozen=True):
    """A token of a command line. `known` is False if the engine receives a different text."""

    text: str
    place: Place
    known: bool


class Request(Struct, frozen=True):
    """The arguments and variables of one deployment, for one engine version.

    The version's parser rejects `problems`, and accepts `remarks` without effect. `extras` are
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
    """Arguments that are repeated later. The later value applies."""
    ignored: tuple[RequestedValue, ...] = ()
    """Arguments that slime does not pass on, because it sets them itself."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Arguments whose text the parser did not recognize, by the engine's current name, with the
    reason. Their values are unknown, not the defaults."""
    unseen: str | None = None
    """Reason why an unread file may contain more arguments; None if there is no such file."""
    argv: tuple[ArgvToken, ...] = ()
    """The args for that version's parser."""
    server_context: ServerContext | None = None
    """The server context, if the file describes one."""
    lock_differences: tuple[Problem, ...] = ()
    """Differences from the recipe's lock."""
    serves_http: bool = True
    """False if the engine's own HTTP server does not run, or might not run."""

    @property
    def version(self) -> str:
        """The engine version of the request."""
        return self.catalogue.version

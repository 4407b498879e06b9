"""How a script writes texts and variables where no option of the engine stands: the router's."""

from __future__ import annotations

import shlex

from speclaunch.deploy.interface import Rendering
from speclaunch.deploy.routers import api_key_of
from speclaunch.deploy.words import Dialect


class ShellDialect(Dialect):
    """A shell's: a variable has to be set, and every text is quoted."""

    def variable(self, name: str) -> str:
        """A reference to a variable of the environment."""
        return f'"${{{name}:?}}"'

    def literal(self, text: str) -> str:
        """A text that is taken as it is."""
        return shlex.quote(text)

    def api_key(self, deployment: Rendering) -> list[str]:
        """The key that the servers ask for."""
        return api_key_of(deployment, self)

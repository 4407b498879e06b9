"""The words of a server command as a platform's file writes them: escaped, secrets asked for."""

from __future__ import annotations

from collections.abc import Mapping

from speclaunch.deploy.interface import Role
from speclaunch.engine.command import SpelledArgument, is_secret_text, is_written_secret
from speclaunch.engine.environment import FromEnvironment
from speclaunch.redaction import is_secret_variable

Given = Mapping[str, tuple[str, ...] | None]
"""What the platform says of arguments, by the newest engine's names; None leaves one out."""

_FLAGS = {"host": "--host", "node_rank": "--node-rank", "dist_init_addr": "--dist-init-addr"}
"""The same in every release."""
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  where a container listens
HF_TOKEN = "HF_TOKEN"  # noqa: S105  a variable's name
CHECKPOINTS = ("model_path", "speculative_draft_model_path", "tokenizer_path")


class Dialect:
    """How a file writes texts and variables; `asked` are the variables that it needs."""

    escaped = "$$"
    """A dollar sign that is one."""

    def __init__(self) -> None:
        self.asked: dict[str, None] = {}

    def variable(self, name: str) -> str:
        """A reference to a variable of the environment."""
        return f"$({name})"

    def literal(self, text: str) -> str:
        """A text that is taken as it is."""
        return text.replace("$", self.escaped)

    def text(self, value: str, name: str, *, secret: bool) -> str:
        """A value, or the variables that hold it; `name`: that of a secret without a variable."""
        if isinstance(value, FromEnvironment) and not is_written_secret(value):
            if secret or value.unset or is_secret_text(value):
                return "".join(
                    self.literal(part) if isinstance(part, str) else self._asked(part.name)
                    for part in value.template
                )
        elif secret or is_written_secret(value):
            return self._asked(name.upper())
        return self.literal(value)

    def _asked(self, name: str) -> str:
        self.asked[name] = None
        return self.variable(name)


class ComposeDialect(Dialect):
    """Compose asks the environment of whoever runs it, and refuses to go on without."""

    def variable(self, name: str) -> str:
        """A reference to a variable of the environment."""
        return f"${{{name}:?}}"


def argument_words(role: Role, given: Given, dialect: Dialect) -> list[str]:
    """What follows the program: the role's own arguments, then what the platform says.

    The texts of `given` are the platform's own, references included.
    """
    words = [
        word
        for argument in role.spelling.arguments
        if argument.name not in given
        for word in _tokens(argument, dialect)
    ]
    for name, texts in given.items():
        words += [] if texts is None else [_FLAGS[name], *texts]
    return words


def _tokens(argument: SpelledArgument, dialect: Dialect) -> list[str]:
    values = [
        dialect.text(value, argument.name, secret=argument.secret) for value in argument.values
    ]
    if len(argument.values) == 1 and argument.values[0].startswith("-"):
        return [f"{argument.flag}={values[0]}"]
    return [argument.flag, *values]


def is_asked_for(name: str, value: str) -> bool:
    """Whether a variable of the engine comes from where secrets are kept."""
    return is_secret_variable(name) or is_secret_text(value)


def asks_the_hub(role: Role) -> bool:
    """Whether a checkpoint comes from the hub, which may want a token."""
    named = [role.spelling.value(name) for name in CHECKPOINTS]
    return any(name is not None and not name.startswith(("/", ".", "~")) for name in named)


def host_paths(role: Role) -> tuple[str, ...]:
    """The directories of each host that hold checkpoints, where they are named by their path."""
    named = [role.spelling.value(name) for name in CHECKPOINTS]
    return tuple(dict.fromkeys(one for one in named if one is not None and one.startswith("/")))

"""A command and its environment as text to paste into a shell. Secrets are asked for, not shown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from speclaunch.engine.command import SpelledArgument, is_secret_variable


def shell_command(
    program: Sequence[str],
    arguments: Sequence[SpelledArgument],
    env: Mapping[str, str | None],
    *,
    notes: Sequence[str] = (),
) -> str:
    """One environment variable and one server argument a line.

    A secret becomes `"${API_KEY:?}"`: the shell refuses to go on until it is set.
    """
    lines = [f"# {note}" for note in notes]
    parts: list[str] = []
    removed = [name for name, value in env.items() if value is None]
    if removed:
        parts.append(" ".join(["env", *(f"-u {name}" for name in removed)]))
    parts.extend(
        f"{name}={_hidden(name) if is_secret_variable(name) else shlex.quote(value)}"
        for name, value in env.items()
        if value is not None
    )
    parts.append(shlex.join(program))
    parts.extend(f"  {_words(argument)}" for argument in arguments)
    return "\n".join([*lines, " \\\n".join(parts)]) + "\n"


def _words(argument: SpelledArgument) -> str:
    if argument.secret:
        return f"{argument.flag} {_hidden(argument.name)}"
    return shlex.join(argument.tokens)


def _hidden(name: str) -> str:
    return f'"${{{name.upper()}:?}}"'

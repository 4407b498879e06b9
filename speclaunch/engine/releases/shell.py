"""Commands and environments as shell text. Secrets are replaced with references to variables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from speclaunch.core import is_secret_variable
from speclaunch.engine.releases.command import RenderedArgument, is_secret_text, is_written_secret
from speclaunch.engine.releases.environment import FromEnvironment


def shell_command(
    program: Sequence[str],
    arguments: Sequence[RenderedArgument],
    env: Mapping[str, str | None],
    *,
    notes: Sequence[str] = (),
) -> str:
    """Return a command to paste, with one environment variable or server argument per line.

    A variable that is unset or secret appears as a reference (`"${PROD_KEY:?}"`: the shell stops
    if it is unset). A literal secret in the recipe is read from a variable named after the
    argument.
    """
    lines = [f"# {note}" for note in notes]
    parts: list[str] = []
    removed = [name for name, value in env.items() if value is None]
    if removed:
        parts.append(" ".join(["env", *(f"-u {name}" for name in removed)]))
    parts.extend(
        f"{name}={shell_value(name, value)}" for name, value in env.items() if value is not None
    )
    parts.append(shlex.join(program))
    parts.extend(f"  {argument_text(argument)}" for argument in arguments)
    return "\n".join([*lines, " \\\n".join(parts)]) + "\n"


def exports(env: Mapping[str, str | None]) -> str:
    """Return an environment as `export` and `unset` lines, with the same treatment of secrets."""
    return "".join(
        f"unset {name}\n" if value is None else f"export {name}={shell_value(name, value)}\n"
        for name, value in env.items()
    )


def shell_value(name: str, value: str) -> str:
    """Return a variable's value, quoted. A secret is read from the shell's own environment."""
    return _word(value, name, secret=is_secret_variable(name) or is_written_secret(value))


def argument_text(argument: RenderedArgument, flag: str | None = None) -> str:
    """Return a server argument, quoted. `flag` replaces the argument's flag."""
    flag = flag or argument.flag
    if argument.secret or any(map(_is_from_variable, argument.values)):
        values = [_word(value, argument.name, secret=argument.secret) for value in argument.values]
        return " ".join([flag, *values])
    first, *rest = argument.tokens
    return shlex.join([first.replace(argument.flag, flag, 1), *rest])


def _is_from_variable(value: str) -> bool:
    return isinstance(value, FromEnvironment) and bool(value.unset or is_secret_text(value))


def _word(value: str, name: str, *, secret: bool) -> str:
    """Return a quoted value, or a reference to its variable. `name` names the variable of a literal
    secret."""
    if isinstance(value, FromEnvironment) and not is_written_secret(value):
        hidden = secret or is_secret_text(value)
        return value.shell(defaults=not hidden) if hidden or value.unset else shlex.quote(value)
    return f'"${{{name.upper()}:?}}"' if secret else shlex.quote(value)

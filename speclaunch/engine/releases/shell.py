"""Rendered commands as shell text, the check of their values, and the server's address and rank.

Secrets are replaced with references to variables.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from speclaunch.core import LaunchError, is_secret_variable
from speclaunch.engine.releases.argv import parse_argv
from speclaunch.engine.releases.catalogue import Catalogue
from speclaunch.engine.releases.command import (
    ArgumentProblem,
    FromEnvironment,
    RenderedArgs,
    RenderedArgument,
    is_secret_text,
    is_written_secret,
)
from speclaunch.engine.releases.renames import value_of


def shell_command(
    program: Sequence[str],
    arguments: Sequence[RenderedArgument],
    env: Mapping[str, str | None],
    *,
    notes: Sequence[str] = (),
) -> str:
    """Return a command to paste, with one environment variable or server argument per line.

    A variable that is unset or secret appears as a reference (`"${PROD_KEY:?}"`: the shell stops if
    it is unset). A literal secret in the recipe is read from a variable named after the argument.
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
    """Return an environment as `export` and `unset` lines, with secrets as in `shell_command`."""
    return "".join(
        f"unset {name}\n" if value is None else f"export {name}={shell_value(name, value)}\n"
        for name, value in env.items()
    )


def shell_value(name: str, value: str) -> str:
    """Return a variable's value, quoted. A secret becomes a reference to the variable."""
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
    """Return a quoted value, or a variable reference (`name` in uppercase for a literal secret)."""
    if isinstance(value, FromEnvironment) and not is_written_secret(value):
        hidden = secret or is_secret_text(value)
        return value.shell(defaults=not hidden) if hidden or value.unset else shlex.quote(value)
    return f'"${{{name.upper()}:?}}"' if secret else shlex.quote(value)


def check_values(rendered: RenderedArgs, catalogue: Catalogue) -> tuple[ArgumentProblem, ...]:
    """Return the type and choice errors of all arguments, in the engine's wording."""
    args: list[str] = []
    names: list[str] = []
    for argument in rendered.arguments:
        args += argument.tokens
        names += [argument.recipe_name] * len(argument.tokens)
    return tuple(
        ArgumentProblem(
            names[problem.index],
            f"SGLang {catalogue.version} refuses `{names[problem.index]}`: {problem.message}",
            problem.help,
        )
        for problem in parse_argv(
            args, catalogue, opaque=rendered.unset, with_values=False
        ).problems
        if problem.index is not None  # the engine reports a missing model
    )


class Address(Struct, frozen=True):
    """The address and credentials of an engine."""

    host: str
    port: int
    tls: bool = False
    api_key: str | None = None

    @property
    def url(self) -> str:
        """Base URL for a client on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)  # noqa: S104
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def nodes_of(args: Mapping[str, Any]) -> tuple[int, int]:
    """Return this host's rank and the number of hosts of its server. Raises LaunchError."""
    rank, nodes = (
        _count(args, name, default) for name, default in (("node_rank", 0), ("nnodes", 1))
    )
    if nodes < 1 or not 0 <= rank < nodes:
        raise LaunchError(
            f"node_rank={rank} is out of range for nnodes={nodes}",
            help="ranks start at 0; set a different rank on each host: args.node_rank=…",
        )
    return rank, nodes


def _count(args: Mapping[str, Any], name: str, default: int) -> int:
    value = value_of(args, name)
    if value is None:
        return default
    try:
        return int(str(value))
    except ValueError:
        raise LaunchError(f"{name}: {value!r} is not a whole number") from None

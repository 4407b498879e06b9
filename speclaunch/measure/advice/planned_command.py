"""The command that a launch of a deployment would run."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from speclaunch.core import HIDDEN
from speclaunch.deployments import Prepared
from speclaunch.engine import is_secret_text, shell_command


class PlannedCommand(Struct, frozen=True):
    """Launch command; secrets are redacted or prompted for."""

    text: str
    """Text that `launch --dry-run` prints."""
    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    lines: tuple[str, ...]
    """One variable, program or argument per line, for comparison."""
    notes: tuple[str, ...] = ()


def command_of(prepared: Prepared) -> PlannedCommand:
    """Return the dry-run command as text and as lines."""
    rendered = prepared.rendered_args
    notes = [f"{prepared.recipe.deployment.name} for SGLang {prepared.version}", *rendered.notes]
    text = shell_command(prepared.program, rendered.arguments, prepared.overlay, notes=notes)
    argv = list(prepared.program)
    for argument in rendered.arguments:
        is_hidden = argument.secret or any(map(is_secret_text, argument.values))
        argv += [argument.flag, HIDDEN] if is_hidden else argument.tokens
    hidden = set(prepared.secrets)
    bare = shell_command(prepared.program, rendered.arguments, prepared.overlay)
    return PlannedCommand(
        text,
        tuple(argv),
        {name: HIDDEN if v in hidden else v for name, v in prepared.overlay.items()},
        tuple(line.strip() for line in bare.rstrip("\n").split(" \\\n")),
        tuple(rendered.notes),
    )

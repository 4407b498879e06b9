"""Detect secrets in the file of a deployment; no other module does."""

from __future__ import annotations

from collections.abc import Mapping

from speclaunch.core import COMMAND_LINE, holds_secret, is_literal_secret, is_secret_variable
from speclaunch.engine import Plan, RequestedValue, is_secret_argument

KEYS_OF_A_COMMAND = ("api_key", "admin_api_key")
"""Arguments that the list of processes also shows if they are written into a command."""


def written_secrets(plan: Plan) -> tuple[RequestedValue, ...]:
    """Return the arguments and variables whose secret value is in the file.

    An argument with the value of such a variable reads it from there: only the variable is
    reported, at the place of the text.
    """
    requested, env = plan.request.values.values(), plan.request.env.values()
    variables = [one for one in env if _is_secret(one, named=is_secret_variable(one.name))]
    in_variables = {_literal(one) for one in variables}
    arguments = [one for one in requested if _is_secret(one, named=is_secret_argument(one.name))]
    return (*(one for one in arguments if _literal(one) not in in_variables), *variables)


def _is_secret(one: RequestedValue, *, named: bool) -> bool:
    text = _literal(one)
    written = one.value if text and isinstance(one.value, Mapping) else text
    return holds_secret(written) or (named and is_literal_secret(text))


def _literal(one: RequestedValue) -> str:
    """Return the text of a value in the file."""
    if one.place.path == COMMAND_LINE:
        return ""
    if one.literal is not None:
        return one.literal
    return str(one.value) if one.known else ""

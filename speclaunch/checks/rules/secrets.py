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
    variables = [
        variable
        for variable in env
        if _is_secret(variable, named=is_secret_variable(variable.name))
    ]
    in_variables = {_literal(variable) for variable in variables}
    arguments = [
        argument
        for argument in requested
        if _is_secret(argument, named=is_secret_argument(argument.name))
    ]
    return (
        *(argument for argument in arguments if _literal(argument) not in in_variables),
        *variables,
    )


def _is_secret(value: RequestedValue, *, named: bool) -> bool:
    text = _literal(value)
    written = value.value if text and isinstance(value.value, Mapping) else text
    return holds_secret(written) or (named and is_literal_secret(text))


def _literal(value: RequestedValue) -> str:
    if value.place.path == COMMAND_LINE:
        return ""
    if value.literal is not None:
        return value.literal
    return str(value.value) if value.known else ""

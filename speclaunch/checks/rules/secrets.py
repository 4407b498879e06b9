"""Which secrets stand in the file of a deployment: the one place that judges it."""

from __future__ import annotations

from collections.abc import Mapping

from speclaunch.core import COMMAND_LINE, holds_secret, is_literal_secret, is_secret_variable
from speclaunch.engine import Plan, RequestedValue, is_secret_argument

KEYS_OF_A_COMMAND = ("api_key", "admin_api_key")
"""Written into a command they show in the list of processes, too."""


def written_secrets(plan: Plan) -> tuple[RequestedValue, ...]:
    """The arguments and variables whose secret value is in the file.

    An argument that has the value of such a variable takes it from there: only the variable is
    told, where the text stands.
    """
    given, env = plan.request.given.values(), plan.request.env.values()
    variables = [one for one in env if _is_secret(one, named=is_secret_variable(one.name))]
    told = {_literal(one) for one in variables}
    arguments = [one for one in given if _is_secret(one, named=is_secret_argument(one.name))]
    return (*(one for one in arguments if _literal(one) not in told), *variables)


def _is_secret(one: RequestedValue, *, named: bool) -> bool:
    text = _literal(one)
    written = one.value if text and isinstance(one.value, Mapping) else text
    return holds_secret(written) or (named and is_literal_secret(text))


def _literal(one: RequestedValue) -> str:
    """What the file holds of a value."""
    if one.place.path == COMMAND_LINE:
        return ""
    if one.literal is not None:
        return one.literal
    return str(one.value) if one.known else ""

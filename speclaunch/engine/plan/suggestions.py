"""Completions for server arguments: names and values."""

from __future__ import annotations

from speclaunch.engine.plan.topics.algorithms import FIRST_WITH
from speclaunch.engine.releases.about import about
from speclaunch.engine.releases.argument import Argument, ArgumentKind
from speclaunch.engine.releases.catalogue import Catalogue
from speclaunch.engine.releases.versions import within


def suggested_values(version: str) -> dict[str, tuple[str, ...]]:
    """Return the values that a release knows, for arguments whose parser accepts any text."""
    algorithms = [name for name, since in FIRST_WITH.items() if within(version, f">={since}")]
    return {"speculative_algorithm": tuple(algorithms)}


def argument_names(catalogue: Catalogue, beginning: str = "") -> list[str]:
    """Return the argument names with a prefix, as recipes spell them, in release order.

    Includes deprecated and ineffective names only if no other name matches.
    """
    found = [name for name in catalogue.names if name.startswith(beginning)]
    described = [
        (name, description) for name in found if (description := about(name, catalogue)) is not None
    ]
    primary = [
        name
        for name, description in described
        if description.argument is not None
        and description.argument.name == name
        and not description.is_outdated
    ]
    taken = [
        name for name, description in described if not description.is_refused and name != "help"
    ]
    return [name for name in primary if name != "help"] or taken


def argument_values(argument: Argument, version: str) -> list[str]:
    """Return the possible values of an argument: its choices, or both values of a switch. Empty if
    they cannot be listed."""
    if argument.choices:
        return [str(choice) for choice in argument.choices]
    if not argument.kind.takes_value or argument.kind is ArgumentKind.OPTIONAL_VALUE:
        return ["true", "false"]
    return list(suggested_values(version).get(argument.name, ()))

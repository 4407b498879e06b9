"""Descriptions of server arguments, and completions for their names and values.

Used by editor hovers and completions, and by the JSON schema of recipes.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from speclaunch.engine.plan.topics.algorithms import FIRST_WITH
from speclaunch.engine.releases.argument import Argument, ArgumentKind, name_of
from speclaunch.engine.releases.catalogue import Catalogue, held_versions, history
from speclaunch.engine.releases.renames import REMOVALS, conversion, other_names
from speclaunch.engine.releases.versions import within

_TYPES = {
    "int": "whole number",
    "float": "number",
    "json": "JSON",
    "json_list_type": "JSON",
    "parse_cuda_graph_config_arg": "JSON",
    "human_readable_int": "whole number, also as 32k or 32Ki",
}
_MOST_CHOICES = 24


class About(Struct, frozen=True):
    """An argument in one release, looked up by any of its names.

    `argument` is None if the release has none of its names. `name` is the preferred name.
    """

    requested: str
    name: str
    version: str
    argument: Argument | None

    @property
    def is_refused(self) -> bool:
        return self.argument is None or self.argument.kind is ArgumentKind.REFUSED

    @property
    def is_outdated(self) -> bool:
        argument = self.argument
        if argument is None:
            return True
        useless = argument.kind is ArgumentKind.IGNORED or not argument.read
        return self.requested != self.name or argument.deprecated or useless

    @property
    def lines(self) -> tuple[str, ...]:
        """A few sentences about the argument, most important first."""
        found = [*_form(self.argument)] if self.argument is not None else []
        found += _in_this_version(self)
        known = history(self.requested) or history(self.name)
        if known is not None:
            found.append(_span(known.spans, current=known.current))
        return tuple(found)


def about(name: str, catalogue: Catalogue) -> About | None:
    """Look up an argument by any of its names; return None for an unknown name."""
    key = name_of(name)
    found = catalogue.by_name(key)
    best = key
    if found is None or found.deprecated:
        for other in other_names(key):
            current = catalogue.by_name(other)
            if current is not None and (found is None or not current.deprecated):
                found, best = current, other
                break
    if found is None and history(key) is None:
        return None
    return About(key, best, catalogue.version, found)


def value_kind(argument: Argument) -> str:
    """Return a short description of an argument's values, such as `whole number` or
    `list of numbers`."""
    if not argument.kind.takes_value:
        return "switch"
    kind = "one of its choices" if argument.choices else _TYPES.get(argument.type, "text")
    if argument.kind is ArgumentKind.LIST:
        return f"list of {kind}s" if kind in ("whole number", "number") else f"list of {kind}"
    return f"switch, or {kind}" if argument.kind is ArgumentKind.OPTIONAL_VALUE else kind


def _form(argument: Argument) -> list[str]:
    default = argument.default
    default_text = "" if default is None else f"; default {_shown(default)}"
    found = [f"`{argument.flag}`: {value_kind(argument)}{default_text}."]
    if argument.choices:
        some = [str(choice) for choice in argument.choices[:_MOST_CHOICES]]
        more = " …" if len(argument.choices) > len(some) else ""
        found.append(f"Choices: {', '.join(some)}{more}.")
    return found


def _in_this_version(description: About) -> list[str]:
    argument, version = description.argument, description.version
    if argument is None or argument.kind is ArgumentKind.REFUSED:
        successor = _successor(description.requested, argument)
        gone = f"SGLang {version} does not have it" if argument is None else "It is rejected"
        return [f"{gone}{f': {successor}' if successor else ''}."]
    found = []
    if description.name != description.requested:
        found.append(f"SGLang {version} calls it `{description.name}`.")
    elif argument.deprecated:
        use = f"; use {argument.replacement}" if argument.replacement else ""
        found.append(f"It is deprecated in SGLang {version}{use}.")
    if argument.kind is ArgumentKind.IGNORED or not argument.read:
        found.append(f"SGLang {version} accepts it, but ignores it.")
    others = [name for name in other_names(description.requested) if name != description.name]
    if others:
        found.append(f"Other releases call it {' or '.join(f'`{name}`' for name in others)}.")
    return found


def _successor(name: str, argument: Argument | None) -> str:
    became = conversion(name)
    if became is not None:
        return f"write `{became.new}: {_shown(became.value)}`"
    return REMOVALS.get(name) or (argument.replacement if argument else None) or ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _span(spans: tuple[tuple[str, str], ...], *, current: bool) -> str:
    oldest = held_versions()[0]
    if len(spans) == 1 and current:
        first = spans[0][0]
        return "In all releases." if first == oldest else f"In SGLang {first} and later."
    ranges = [first if first == last else f"{first} to {last}" for first, last in spans]
    if current:
        ranges[-1] = f"{spans[-1][0]} and later"
    return f"In SGLang {', '.join(ranges)}."


def suggested_values(version: str) -> dict[str, tuple[str, ...]]:
    """Return suggested values by argument, for arguments whose parser accepts any text."""
    algorithms = [name for name, since in FIRST_WITH.items() if within(version, f">={since}")]
    return {"speculative_algorithm": tuple(algorithms)}


def argument_names(catalogue: Catalogue, beginning: str = "") -> list[str]:
    """Return argument names that start with `beginning`, as recipes spell them, in the catalogue's
    order.

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
    """Return the possible values of an argument, such as its choices or both values of a switch.
    Empty if they cannot be listed."""
    if argument.choices:
        return [str(choice) for choice in argument.choices]
    if not argument.kind.takes_value or argument.kind is ArgumentKind.OPTIONAL_VALUE:
        return ["true", "false"]
    return list(suggested_values(version).get(argument.name, ()))
